"""Puts a guard before each method of a service: the rule of the method is asked first, and the answer goes through it.

Goals: no servicer has to remember access control; a method without a rule cannot be served; where nothing is refused a
call costs its decisions and nothing else; a right that is revoked ends streams, too.

A guarded servicer has the same methods as the one behind it. Who calls it with a request of somebody else's (a
forwarded one) says so with ``identity.calling`` around the call: it is that caller's rights that count.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any, Final

from google.protobuf import descriptor_pool

from regnum_service.access.authorization import Authorizer, EverybodyMay, set_call_name
from regnum_service.access.guards.rule import Passage, Rule
from regnum_service.access.guards.rules import RULES

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""

OURS: Final = "regnum."
"""How the names of our own services begin: health and reflection say nothing that rights are about."""


class MissingRuleError(Exception):
    """A method that nobody said the right for: it is not served."""


class Guard:
    """Guards services with one authorizer."""

    def __init__(
        self, authorizer: Authorizer, *, rules: Mapping[str, Rule] = RULES, tells_processes_apart: bool = False
    ) -> None:
        """Only assigns.

        Args:
            authorizer: says what callers may do.
            rules: by ``package.Service/Method``.
            tells_processes_apart: callers have roles, which rules ask for also where everybody may do everything.
        """
        self._asks_nobody: Final = isinstance(authorizer, EverybodyMay) and not tells_processes_apart
        self._authorizer: Final = authorizer
        self._rules: Final = rules

    def before(self, service: str, servicer: object) -> object:
        """The servicer of that service (its full proto name), guarded. Raises MissingRuleError.

        It is the same where everybody may do everything, and where it is none of ours.
        """
        if not service.startswith(OURS):
            return servicer
        methods = descriptor_pool.Default().FindServiceByName(service).methods
        rules = {method.name: self.rule(f"{service}/{method.name}") for method in methods}
        if self._asks_nobody:
            return servicer
        guarded = {
            method.name: _Method(
                f"{service.rpartition('.')[2]}/{method.name}",
                rules[method.name],
                self._authorizer,
                getattr(servicer, method.name),
            ).shape(takes_many=method.client_streaming, answers_many=method.server_streaming)
            for method in methods
        }
        return SimpleNamespace(**guarded)

    def method(self, service: str, name: str, behaviour: Any) -> Any:
        """One unary method, guarded, for whoever serves it by itself. Raises MissingRuleError."""
        rule = self.rule(f"{service}/{name}")
        if self._asks_nobody:
            return behaviour
        guarded = _Method(f"{service.rpartition('.')[2]}/{name}", rule, self._authorizer, behaviour)
        return guarded.shape(takes_many=False, answers_many=False)

    def rule(self, method: str) -> Rule:
        """The rule of a method. Raises MissingRuleError."""
        rule = self._rules.get(method)
        if rule is None:
            raise MissingRuleError(f"{method} has no rule: say in access/guards/rules which right it needs")
        return rule


class _Method:
    """One method behind its rule, in the four shapes that gRPC knows."""

    def __init__(self, name: str, rule: Rule, authorizer: Authorizer, behaviour: Any) -> None:
        self._name: Final = name
        self._rule: Final = rule
        self._authorizer: Final = authorizer
        self._behaviour: Final = behaviour

    def shape(self, *, takes_many: bool, answers_many: bool) -> Callable[[Any, Context], Any]:
        if self._rule.in_handler:
            return self._in_handler
        if takes_many:
            return self._many_to_many if answers_many else self._many_to_one
        return self._one_to_many if answers_many else self._one_to_one

    def _in_handler(self, request: Any, context: Context) -> Any:
        set_call_name(self._name)
        return self._behaviour(request, context)

    def _passage(self) -> Passage:
        set_call_name(self._name)
        return self._rule.passage(self._authorizer)

    async def _one_to_one(self, request: Any, context: Context) -> Any:
        passage = self._passage()
        refused = await passage.enter(request)
        if refused is not None:
            return refused
        return await passage.leave(await self._behaviour(request, context))

    async def _one_to_many(self, request: Any, context: Context) -> AsyncIterator[Any]:
        passage = self._passage()
        refused = await passage.enter(request)
        if refused is not None:
            yield refused
            return
        responses = self._behaviour(request, context)
        # Else the frame of a stream at rest would keep its request.
        del request
        async with aclosing(_steps(responses, passage)) as answers:
            async for answer in answers:
                yield answer

    async def _many_to_one(self, requests: AsyncIterator[Any], context: Context) -> Any:
        passage = self._passage()
        passage.begin()
        return await passage.leave(await self._behaviour(_Entering(requests, passage), context))

    async def _many_to_many(self, requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        passage = self._passage()
        passage.begin()
        responses = self._behaviour(_Entering(requests, passage), context)
        async with aclosing(_steps(responses, passage)) as answers:
            async for answer in answers:
                yield answer


async def _steps(responses: Any, passage: Passage) -> AsyncGenerator[Any, None]:
    """The answers of a stream, until one is the last that its caller may have."""
    async with aclosing(responses):
        async for response in responses:
            answer = await passage.step(response)
            # Else a stream at rest would keep its last answer here.
            del response
            if answer is not None:
                yield answer
            del answer
            if passage.over:
                return


class _Entering:
    """A request stream of which every message passes the rule."""

    __slots__ = ("_passage", "_requests")

    def __init__(self, requests: AsyncIterator[Any], passage: Passage) -> None:
        self._requests = requests
        self._passage = passage

    def __aiter__(self) -> "_Entering":
        return self

    async def __anext__(self) -> Any:
        request = await anext(self._requests)
        await self._passage.enter(request)
        return request

    @property
    def size_bytes(self) -> int:
        """How large the last message was on the wire, where the stream behind knows it."""
        return getattr(self._requests, "size_bytes", 0)
