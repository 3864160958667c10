"""Gates: what a call passes before its message is read.

Goals: a call that has to wait costs a few kilobytes and not its message; whoever decides that it waits knows whose
connection it is.

gRPC's asyncio server reads the message of a call with one request before any code of ours runs. A handler with a
request *stream* is started first and reads for itself, and on the wire the two are the same. So where a listener has
gates its handlers are served as those of streams: they pass the gates, then read. What a client has sent of a message
that nobody reads stays with it, but for one window of flow control (``GrpcServer``: ``unread_bytes_max``).
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any, Final, Protocol

import grpc
from regnum.types.v1 import errors_pb2

from regnum_service.errors import RegnumError

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""
Handler = Any
"""grpc.RpcMethodHandler, whose stubs are generic and whose class is not."""

OURS: Final = "/regnum."
"""How the methods of our own services begin: health and reflection pass no gate."""


class Gate(Protocol):
    """Decides when a call may go on. A pass that is not None is called once the call has ended."""

    async def enter(self, method: str, context: Context) -> Callable[[], None] | None:
        """Return when the call may go on. Raises RegnumError to refuse it."""

    async def read(self, method: str, context: Context) -> None:
        """Return when the next message of a request stream may be read. Raises RegnumError to end the stream."""


class GateInterceptor(grpc.aio.ServerInterceptor):
    """Leads the calls of a server through its gates. Stands inside the one that turns errors into answers."""

    def __init__(self, gates: Sequence[Gate]) -> None:
        """Only assigns; calls pass the gates in this order."""
        self._gates: Final = tuple(gates)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """The handler behind the gates; the one around this remembers it."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not self._gates or not method.startswith(OURS):
            return handler
        parse, render = handler.request_deserializer, handler.response_serializer
        if handler.request_streaming and handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(
                self._streaming(method, handler.stream_stream, many=True), parse, render
            )
        if handler.request_streaming:
            return grpc.stream_unary_rpc_method_handler(
                self._single(method, handler.stream_unary, many=True), parse, render
            )
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(
                self._streaming(method, handler.unary_stream, many=False), parse, render
            )
        return grpc.stream_unary_rpc_method_handler(
            self._single(method, handler.unary_unary, many=False), parse, render
        )

    @asynccontextmanager
    async def _passed(self, method: str, context: Context) -> AsyncIterator[None]:
        async with AsyncExitStack() as passes:
            for gate in self._gates:
                leave = await gate.enter(method, context)
                if leave is not None:
                    passes.callback(leave)
            yield

    def _single(self, method: str, behaviour: Any, *, many: bool) -> Any:
        async def call(requests: AsyncIterator[Any], context: Context) -> Any:
            async with self._passed(method, context):
                request = self._read(method, requests, context) if many else await _only(requests)
                return await behaviour(request, context)

        return call

    def _streaming(self, method: str, behaviour: Any, *, many: bool) -> Any:
        async def call(requests: AsyncIterator[Any], context: Context) -> None:
            async with self._passed(method, context):
                request = self._read(method, requests, context) if many else await _only(requests)
                responses = behaviour(request, context)
                if not isinstance(responses, AsyncIterator):
                    await responses
                    return
                async with aclosing(responses):  # type: ignore[type-var]  # it is a generator
                    async for response in responses:
                        await context.write(response)

        return call

    async def _read(self, method: str, requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        while True:
            for gate in self._gates:
                await gate.read(method, context)
            try:
                request = await anext(requests)
            except StopAsyncIteration:
                return
            yield request


async def _only(requests: AsyncIterator[Any]) -> Any:
    """The one request of a call that has one."""
    async for request in requests:
        return request
    raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, "the call came without its message; send one")
