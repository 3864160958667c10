"""Rules about the things that a request names: each on its own, answered where it stands.

Goals: what one may not touch stops nothing else in the request; what is refused says the same whether there is such a
thing or not; a request without refusals is passed on as it is.

Algorithm: decide for each name once; take the refused items out of the request; give the rest to the servicer; put the
refusals between its results, for these come in the order of the request. What is waited for is looked at again when it
is there (``READ`` of a long poll).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message
from regnum.types.v1 import errors_pb2
from regnum_model.access import CLUSTER_NAME, ResourceType

from regnum_service.access.authorization import Authorizer, Right
from regnum_service.access.guards.rule import Passage
from regnum_service.errors import RegnumError
from regnum_service.item_errors import item_status
from regnum_service.slices import Turns

NAMES_PER_TURN: Final = 1_000
"""Items that are decided on between two turns of the event loop (safety rule S22)."""


ITEMS_MAX: Final = 10_000
"""Items of a request that are decided on, as many as any servicer takes: a refusal is a hundred times what an item
takes on the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Each:
    """A right for each item of a request."""

    right: Right | Callable[[Any], Right]
    """Which; of an item, where that depends on it."""
    items: str
    """Repeated field of the request."""
    response: Any
    """Class of the answer: a message, or a plain value with a list of results."""
    refuse: Callable[[Any, RegnumError], Any] | None
    """The result of an item that is refused; None: results know no errors, and one refusal refuses the call."""
    results: str = "results"
    """Repeated field of the answer: one for each item, in order."""
    name: Callable[[Any], str] = lambda item: str(item.topic)
    """Name of the thing that an item is about; where the right is one on the cluster it is not asked for."""
    first: Right | None = None
    """Right to something that the whole request is about; without it, everything is refused."""
    first_name: Callable[[Any], str] = lambda request: str(request.group_id)
    """Its name."""
    instead: Right | None = None
    """Right on the cluster that stands for all of them."""
    unnamed: Callable[[Any], str] | None = None
    """Name of the thing that a result is about, where a request without items means all: what the caller has no right
    to is left out silently. None: such a request passes, for it means nothing."""
    again: bool = False
    """Whether to ask again when the answer is there."""

    @property
    def in_handler(self) -> bool:
        """No."""
        return False

    def passage(self, authorizer: Authorizer) -> Passage:
        """Of one call."""
        return _EachPassage(self, authorizer)

    def right_of(self, item: Any) -> Right:
        """The right that an item needs."""
        return self.right if isinstance(self.right, Right) else self.right(item)

    def name_of(self, item: Any, right: Right) -> str:
        """Of what."""
        return CLUSTER_NAME if right.type is ResourceType.CLUSTER else self.name(item)


class _EachPassage(Passage):
    def __init__(self, rule: Each, authorizer: Authorizer) -> None:
        self._rule: Final = rule
        self._authorizer: Final = authorizer
        self._refused: dict[int, Any] = {}
        """Results by place in the request."""
        self._asked: Sequence[Any] = ()
        """Items that the servicer has got, where they are to be looked at again."""
        self._all = False

    async def enter(self, request: Any) -> Any | None:
        rule, authorizer = self._rule, self._authorizer
        if rule.first is not None:
            rule.first.require(authorizer, rule.first_name(request))
        if rule.instead is not None and rule.instead.held(authorizer, audit=False):
            return None
        items = getattr(request, rule.items)
        if not items:
            self._all = True
            return None
        if len(items) > ITEMS_MAX:
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST, f"more than {ITEMS_MAX} {rule.items}: split the request"
            )
        self._refused = await self._refusals(items)
        if len(self._refused) == len(items):
            return rule.response(**{rule.results: list(self._refused.values())})
        turns = Turns(NAMES_PER_TURN)
        for place in reversed(self._refused):
            del items[place]
            await turns.took()
        if rule.again:
            self._asked = tuple(items)
        return None

    async def _refusals(self, items: Iterable[Any]) -> dict[int, Any]:
        rule, authorizer = self._rule, self._authorizer
        refused: dict[int, Any] = {}
        known: dict[tuple[Right, str], bool] = {}
        turns = Turns(NAMES_PER_TURN)
        for place, item in enumerate(items):
            right = rule.right_of(item)
            name = rule.name_of(item, right)
            held = known.get((right, name))
            if held is None:
                held = known[right, name] = right.held(authorizer, name)
            if not held:
                if rule.refuse is None:
                    raise right.refusal(name)
                refused[place] = rule.refuse(item, right.refusal(name))
            await turns.took()
        return refused

    async def leave(self, response: Any) -> Any:
        rule = self._rule
        if (self._all and rule.unnamed is None) or not (self._all or self._refused or self._asked):
            return response
        answer: Any = rule.response.FromString(response) if isinstance(response, bytes) else response
        if self._all and rule.unnamed is not None:
            return await _shown(answer, rule, rule.unnamed, self._authorizer)
        results = getattr(answer, rule.results)
        if self._asked:
            for place, refusal in (await self._refusals(self._asked)).items():
                if isinstance(results, list):
                    results[place] = refusal
                else:
                    results[place].CopyFrom(refusal)
        turns = Turns(NAMES_PER_TURN)
        for place, refusal in self._refused.items():
            results.insert(place, refusal)
            await turns.took()
        return answer


async def _shown(answer: Any, rule: "Each | Listing", named: Callable[[Any], str], authorizer: Authorizer) -> Any:
    """The answer without results that the caller has no right to."""
    results = getattr(answer, rule.results)
    turns = Turns(NAMES_PER_TURN)
    for place in reversed(range(len(results))):
        right = rule.right_of(results[place])
        name = CLUSTER_NAME if right.type is ResourceType.CLUSTER else named(results[place])
        if not right.held(authorizer, name, audit=False):
            del results[place]
        await turns.took()
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A list of all that there is: what the caller has no right to is left out silently."""

    right: Right
    """To each thing."""
    results: str
    """Repeated field of the answer."""
    name: Callable[[Any], str]
    """Of the thing that a result is about."""
    instead: Right | None = None
    """Right on the cluster that stands for all of them."""

    @property
    def in_handler(self) -> bool:
        """No."""
        return False

    def passage(self, authorizer: Authorizer) -> Passage:
        """Of one call."""
        return _ListingPassage(self, authorizer)

    def right_of(self, _: Any) -> Right:
        """The right that a result needs."""
        return self.right


class _ListingPassage(Passage):
    def __init__(self, rule: Listing, authorizer: Authorizer) -> None:
        self._rule: Final = rule
        self._authorizer: Final = authorizer

    async def leave(self, response: Any) -> Any:
        rule = self._rule
        if rule.instead is not None and rule.instead.held(self._authorizer, audit=False):
            return response
        return await _shown(response, rule, rule.name, self._authorizer)


def refusing(result: type[Message], *names: str) -> Callable[[Any, RegnumError], Message]:
    """Makes results of that message: the error as every item has it, and these fields as the item says them."""

    def refuse(item: Any, error: RegnumError) -> Message:
        said = {name: getattr(item, name) for name in names}
        return result(
            **said,
            error_code=error.code,
            error_message=error.message,
            status=item_status(error.code, error.message),
        )

    return refuse
