"""Health and reflection on a listener of clients: their messages are tiny, and so few are read at once.

Goals: they pass no gate, so that a broker that is busy still says how it is; and take no more memory than they need.

gRPC has one largest message for all methods of a server, and tells nobody of a message before it is whole. So each call
that is being read may take as much as the largest produce request does. What can be bounded is how many are read at
once and for how long, if they are served as streams (see ``gates``): until its turn has come a message stays with its
sender. A connection reads one at a time, so that another one's check waits for the connections before it, and not for
their calls. A stream of reflection may bring a message at any time: there are few, and none for long.

Example: messages of 34 MiB at most: no more than 272 MiB, where a connection could have 3.4 GiB on its way before.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any, Final

import grpc
from regnum.types.v1 import errors_pb2

from regnum_service.errors import RegnumError
from regnum_service.gates import only_message
from regnum_service.request_sizes import Parsing

SMALL_BYTES_MAX: Final = 4 * 1024
"""Largest request: the name of a service, of a file, or of a symbol."""
READ_AT_ONCE: Final = 4
"""Calls of all connections whose messages are being read."""
CALLS_OF_CONNECTION: Final = 100
"""Calls of one connection that are read or wait for it."""
CALLS_MAX: Final = 2_000
"""Calls of all connections that are or do. Each may take 22 KiB, and a window of what it brings."""
READ_S_MAX: Final = 5.0
"""Within so long after its turn has come, a call brings its message."""
STREAMS_MAX: Final = 4
"""Streams of reflection that are open."""
STREAM_S_MAX: Final = 30.0
"""A stream of reflection is ended then."""
RETRY_MS: Final = 1_000
"""When whoever was refused tries again."""

OURS: Final = "/regnum."
"""How the methods of our own services begin: they have gates."""

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""
Handler = Any
"""grpc.RpcMethodHandler, whose stubs are generic and whose class is not."""


class _Line:
    """Calls of one connection whose messages are not read yet."""

    __slots__ = ("calls", "turn")

    def __init__(self) -> None:
        self.calls = 0
        self.turn: Final = asyncio.Lock()


class SmallCalls(grpc.aio.ServerInterceptor):
    """Reads the messages of other services than ours. Stands inside the one that turns errors into answers."""

    def __init__(
        self,
        *,
        read_at_once: int = READ_AT_ONCE,
        read_s_max: float = READ_S_MAX,
        calls_of_connection: int = CALLS_OF_CONNECTION,
        streams_max: int = STREAMS_MAX,
        stream_s_max: float = STREAM_S_MAX,
    ) -> None:
        """Only assigns; see the constants."""
        self._reading: Final = asyncio.Semaphore(read_at_once)
        self._read_s_max: Final = read_s_max
        self._calls_of_connection: Final = calls_of_connection
        self._streams_max: Final = streams_max
        self._stream_s_max: Final = stream_s_max
        self._lines: Final[dict[str, _Line]] = {}
        self._calls = 0
        self._streams = 0

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """The handler that reads for itself; the interceptor around this one remembers it."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or method.startswith(OURS):
            return handler
        parsing = Parsing(method, handler.request_deserializer, with_records=(), bytes_max=SMALL_BYTES_MAX)
        render = handler.response_serializer
        if handler.request_streaming:
            if not handler.response_streaming:
                return handler
            return grpc.stream_stream_rpc_method_handler(self._many(parsing, handler.stream_stream), None, render)
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(self._watch(parsing, handler.unary_stream), None, render)
        return grpc.stream_unary_rpc_method_handler(self._single(parsing, handler.unary_unary), None, render)

    def _single(self, parsing: Parsing, behaviour: Any) -> Any:
        async def call(requests: AsyncIterator[Any], context: Context) -> Any:
            return await behaviour(await self._message(parsing, requests, context), context)

        return call

    def _watch(self, parsing: Parsing, behaviour: Any) -> Any:
        async def call(requests: AsyncIterator[Any], context: Context) -> None:
            responses = behaviour(await self._message(parsing, requests, context), context)
            async with aclosing(responses):
                async for response in responses:
                    await context.write(response)

        return call

    def _many(self, parsing: Parsing, behaviour: Any) -> Any:
        async def messages(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
            async for data in requests:
                yield await parsing.message(data)

        async def call(requests: AsyncIterator[Any], context: Context) -> None:
            with self._stream():
                try:
                    async with asyncio.timeout(self._stream_s_max), aclosing(messages(requests)) as read:  # type: ignore[type-var]
                        responses = behaviour(read, context)
                        async with aclosing(responses):
                            async for response in responses:
                                await context.write(response)
                except TimeoutError:
                    raise RegnumError(
                        errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
                        f"such a stream lasts for {self._stream_s_max:g} s; open another one",
                    ) from None

        return call

    @contextmanager
    def _stream(self) -> Iterator[None]:
        if self._streams >= self._streams_max:
            raise _refusal(f"{self._streams} such streams are open, which is as many as there may be")
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    async def _message(self, parsing: Parsing, requests: AsyncIterator[Any], context: Context) -> Any:
        async with self._turn(context.peer()):
            try:
                async with asyncio.timeout(self._read_s_max):
                    data = await only_message(requests)
            except TimeoutError:
                raise RegnumError(
                    errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
                    f"the call did not bring its message within {self._read_s_max:g} s; send it with the call",
                ) from None
        try:
            return await parsing.message(data)
        finally:
            # What is thrown away must not wait in the frames of the error.
            del data

    @asynccontextmanager
    async def _turn(self, connection: str) -> AsyncIterator[None]:
        line = self._lines.setdefault(connection, _Line())
        if line.calls >= self._calls_of_connection or self._calls >= CALLS_MAX:
            if not line.calls:
                del self._lines[connection]
            raise _refusal("too many calls wait for their messages to be read")
        line.calls += 1
        self._calls += 1
        try:
            async with line.turn, self._reading:
                yield
        finally:
            self._calls -= 1
            line.calls -= 1
            if not line.calls:
                del self._lines[connection]


def _refusal(why: str) -> RegnumError:
    return RegnumError(
        errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED,
        f"{why}; nothing was done: wait, and ask again",
        retry_after_ms=RETRY_MS,
    )
