"""Gates: what a call passes before its message is read.

Goals: a call that has to wait costs a few kilobytes and not its message; whoever decides that it waits knows whose
connection it is.

gRPC's asyncio server reads the message of a call with one request before any code of ours runs. A handler with a
request *stream* is started first and reads for itself, and on the wire the two are the same. So where a listener has
gates its handlers are served as those of streams: they pass the gates, then read. What a client has sent of a message
that nobody reads stays with it, but for one window of flow control (``GrpcServer``: ``unread_bytes_max``).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Protocol

import grpc
from regnum.types.v1 import errors_pb2

from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from regnum_service.limits.answers import Answer, Answers
from regnum_service.limits.call import Call
from regnum_service.limits.grpc_calls import GrpcCalls
from regnum_service.request_sizes import CONTROL_BYTES_MAX, Parsing

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""
Handler = Any
"""grpc.RpcMethodHandler, whose stubs are generic and whose class is not."""

OURS: Final = "/regnum."
"""How the methods of our own services begin."""

READ_S_MAX: Final = 30.0
"""Within so long after its turn has come, a call brings the one message that it has."""


class Pass(Protocol):
    """What a call that has passed a gate carries with it."""

    def took(self, size_bytes: int) -> None:
        """The one message of a call was read, so large on the wire. Raises RegnumError: it is thrown away.

        0: the call has a stream of them, and each is let in by ``Gate.read``. Nothing is kept for the first.
        """

    def lasts(self) -> None:
        """The call streams, for days perhaps: nobody else is to stand behind it."""

    def leave(self) -> None:
        """The call has ended, however it did."""


class Gate(Protocol):
    """Decides when a call may go on."""

    async def enter(self, method: str, call: Call) -> Pass | None:
        """Return when the call may go on; None: the gate need not hear of it again. Raises RegnumError to refuse it."""

    async def read(self, method: str, call: Call) -> None:
        """Return when the next message of a request stream may be read. Raises RegnumError to end the stream."""


@dataclass(frozen=True, slots=True)
class Sized:
    """A message, and how large it was on the wire."""

    size_bytes: int
    message: Any
    """As bytes while nobody has let it pass: to parse takes many times the memory."""


async def _as_it_is(message: Any) -> Any:
    return message


class Messages:
    """The messages of a request stream, as a handler behind gates iterates over them."""

    def __init__(
        self,
        requests: AsyncIterator[Any],
        before: Callable[[], Awaitable[None]],
        parsed: Callable[[Any], Awaitable[Any]] = _as_it_is,
        silence_s_max: float | None = None,
    ) -> None:
        """Only assigns.

        Args:
            requests: as they come.
            before: returns when the next one may be read.
            parsed: makes the message of what came.
            silence_s_max: seconds without one after which TimeoutError ends the stream; None: never.
        """
        self._silence_s_max: Final = silence_s_max
        self._parsed: Final = parsed
        self._requests: Final = requests
        self._before: Final = before
        self.size_bytes = 0
        """How large the last one was on the wire."""

    def __aiter__(self) -> "Messages":
        """Itself."""
        return self

    async def __anext__(self) -> Any:
        """The next one, once the gates let it be read."""
        await self._before()
        if self._silence_s_max is None:
            sized = await anext(self._requests)
        else:
            async with asyncio.timeout(self._silence_s_max):
                sized = await anext(self._requests)
        self.size_bytes = sized.size_bytes
        data = sized.message
        del sized
        return await self._parsed(data)


class Meter(Protocol):
    """Measures what calls with one request and one answer take."""

    @property
    def is_on(self) -> bool:
        """Whether anything is to be measured at present."""

    async def measured(self, call: Call, request: Any, answering: Awaitable[Any]) -> Any:
        """The answer to a call, perhaps with a word on how long to wait."""


class GateInterceptor(grpc.aio.ServerInterceptor):
    """Leads calls of a server through gates. Stands inside the one that turns errors into answers."""

    def __init__(
        self,
        gates: Sequence[Gate],
        meter: Meter | None = None,
        *,
        answers: Answers | None = None,
        clock: Clock | None = None,
        methods: str = OURS,
        bytes_max: int = CONTROL_BYTES_MAX,
        read_s_max: float = READ_S_MAX,
        silence_s_max: float | None = None,
    ) -> None:
        """Only assigns.

        Args:
            gates: calls pass them in this order.
            meter: measures what calls behind them take.
            answers: counts what they are answered; None: nobody does.
            clock: deadlines of calls are times of it, as those of the gates are; None: the machine's.
            methods: how the methods begin whose calls these are; all others go on as they came.
            bytes_max: the largest request of a method without records.
            read_s_max: within so many seconds after its turn has come, a call brings the one message that it has.
            silence_s_max: for so long a request stream may say nothing before it is ended; None: for ever.
        """
        self._gates: Final = tuple(gates)
        self._meter: Final = meter
        self._answers: Final = answers
        self._calls: Final = GrpcCalls(clock=clock) if answers is None else GrpcCalls(answers.budget.call, clock)
        self._methods: Final = methods
        self._bytes_max: Final = bytes_max
        self._read_s_max: Final = read_s_max
        self._silence_s_max: Final = silence_s_max

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """The handler behind the gates; the one around this remembers it."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not self._gates or not method.startswith(self._methods):
            return handler
        parsing = Parsing(method, handler.request_deserializer, bytes_max=self._bytes_max)
        parse, render = _sized, handler.response_serializer
        if handler.request_streaming and handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(
                self._streaming(parsing, method, handler.stream_stream, many=True), parse, render
            )
        if handler.request_streaming:
            return grpc.stream_unary_rpc_method_handler(
                self._single(parsing, method, handler.stream_unary, many=True), parse, render
            )
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(
                self._streaming(parsing, method, handler.unary_stream, many=False), parse, render
            )
        return grpc.stream_unary_rpc_method_handler(
            self._single(parsing, method, handler.unary_unary, many=False), parse, render
        )

    @asynccontextmanager
    async def _passed(self, method: str, call: Call) -> AsyncIterator[list[Pass]]:
        passes: list[Pass] = []
        with ExitStack() as leaving:
            for gate in self._gates:
                found = await gate.enter(method, call)
                if found is not None:
                    passes.append(found)
                    leaving.callback(found.leave)
            yield passes

    async def _request(
        self,
        parsing: Parsing,
        method: str,
        requests: AsyncIterator[Any],
        call: Call,
        passes: Sequence[Pass],
        answer: Answer | None,
        *,
        many: bool,
    ) -> Any:
        """What the handler gets: one message, or an iterator of them."""
        if many:
            for one in passes:
                # The call may last for days: what it had for a message that is about to be read is free for others.
                one.took(0)
                one.lasts()
            return Messages(
                requests, lambda: self._before_a_message(method, call), parsing.message, self._silence_s_max
            )
        async with asyncio.timeout(self._read_s_max):
            sized = await only_message(requests)
        size, data = sized.size_bytes, sized.message
        del sized
        try:
            for one in passes:
                one.took(size)
            request = await parsing.message(data)
            if answer is not None:
                answer.asked(request, size)
            return request
        finally:
            # What was thrown away must not wait, in the frames of the error, for the collector of cycles.
            del data

    async def _before_a_message(self, method: str, call: Call) -> None:
        for gate in self._gates:
            await gate.read(method, call)

    def _single(self, parsing: Parsing, method: str, behaviour: Any, *, many: bool) -> Any:
        async def serve(requests: AsyncIterator[Any], context: Context) -> Any:
            call = self._calls.of(context)
            async with self._passed(method, call) as passes:
                answer = None if self._answers is None else self._answers.begin(method, call)
                request = await self._request(parsing, method, requests, call, passes, answer, many=many)
                answering = behaviour(request, context)
                if not many and self._meter is not None and self._meter.is_on:
                    answering = self._meter.measured(call, request, answering)
                # A handler that has taken out of its request what it needs lets go of the rest.
                del request
                response = await answering
                if answer is not None:
                    answer.made(response)
                return response

        return serve

    def _streaming(self, parsing: Parsing, method: str, behaviour: Any, *, many: bool) -> Any:
        async def serve(requests: AsyncIterator[Any], context: Context) -> None:
            call = self._calls.of(context)
            async with self._passed(method, call) as passes:
                answer = None if self._answers is None else self._answers.begin(method, call)
                request = await self._request(parsing, method, requests, call, passes, answer, many=many)
                for one in passes:
                    one.lasts()
                responses = behaviour(request, context)
                # Else the frame of a stream at rest would keep its request.
                del request
                if not isinstance(responses, AsyncIterator):
                    await responses
                    return
                async with aclosing(responses):  # type: ignore[type-var]  # it is a generator
                    async for response in responses:
                        async with nullcontext() if answer is None else answer.sending(response):
                            await context.write(response)

        return serve


def _sized(data: bytes) -> Sized:
    return Sized(len(data), data)


async def only_message(requests: AsyncIterator[Any]) -> Any:
    """The one request of a call that has one. Raises RegnumError: it came without."""
    async for request in requests:
        return request
    raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, "the call came without its message; send one")
