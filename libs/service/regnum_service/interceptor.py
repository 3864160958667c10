"""How errors leave a handler (the second of two places that catch everything; the supervisor is the other).

RegnumError                    its status, with details
a failed call to another one   the error that it stands for
TimeoutError                   REQUEST_TIMED_OUT
a message that does not parse  INVALID_REQUEST
a cancelled or aborted call    passes
work cancelled by others       BROKER_NOT_AVAILABLE: gRPC would send nothing, and the caller would wait
the client hung up, or the
server stops                   the call ends; nobody is there to be told
NotImplementedError            UNIMPLEMENTED: a call that its servicer leaves to a base class
anything else                  INTERNAL without the text; from a service of ours the supervisor stops the service, for
                               it is a broken invariant and nobody knows what was left half done. A service of a
                               library (reflection) holds nothing of ours: there it is a line in the log
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, NoReturn

import grpc
import structlog
from google.protobuf.message import DecodeError
from grpc_status import rpc_status
from regnum.types.v1 import errors_pb2

from regnum_service.errors import RegnumError
from regnum_service.status import from_rpc_error, to_status

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""
Handler = Any
"""grpc.RpcMethodHandler, whose stubs are generic and whose class is not."""
Deserializer = Callable[[bytes], Any]
Serializer = Callable[[Any], bytes]

OURS: Final = "/regnum."
"""How the methods of our own services begin."""

_TIMED_OUT: Final = "not done in time; the outcome is unknown, so look before repeating"
_UNIMPLEMENTED: Final = "this server knows the call and does not answer it; ask without it"
_CANCELLED: Final = "the server gave the work up, perhaps because it stops; try again, at another one if there is one"


def _strict(deserializer: Deserializer) -> Deserializer:
    def parse(data: bytes) -> Any:
        try:
            return deserializer(data)
        except DecodeError as error:
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST,
                "the message does not parse; check that client and server use the same protocol files",
            ) from error

    return parse


def _unless_encoded(serializer: Serializer | None) -> Serializer | None:
    """A handler whose answer may be large encodes it in pieces (see ``encoding``) and returns bytes."""
    if serializer is None:
        return None
    return lambda response: response if isinstance(response, bytes) else serializer(response)


class Reads:
    """The messages of a request stream, each by a read of the call itself.

    gRPC's own iterator and its generator hold each other, and the generator the last message: each call would leave
    its message to the collector of cycles, and one that was under way when the survivors of a long collection were
    frozen (``collector``) would leave it for ever.
    """

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        """Only assigns."""
        self._context: Final = context

    def __aiter__(self) -> "Reads":
        """Itself."""
        return self

    async def __anext__(self) -> Any:
        """The next one."""
        message = await self._context.read()
        if message is grpc.aio.EOF:
            raise StopAsyncIteration
        return message


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Wraps every handler of a server once. What an error of a call held is free once the call has ended."""

    def __init__(self, fail: Callable[[str, BaseException], None]) -> None:
        self._fail: Final = fail
        self._log: Final = structlog.get_logger("server")
        self._wrapped: dict[str, Handler] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """The wrapped handler of a method; unknown methods pass (and are not remembered)."""
        method = handler_call_details.method
        wrapped = self._wrapped.get(method)
        if wrapped is None:
            handler = await continuation(handler_call_details)
            if handler is None:
                return handler
            wrapped = self._wrapped[method] = self._wrap(method, handler)
        return wrapped

    def _wrap(self, method: str, handler: Handler) -> Handler:
        deserializer = _strict(handler.request_deserializer or bytes)
        serializer = _unless_encoded(handler.response_serializer)
        # A request stream parses inside the handler's own reads, so that the error passes through it; a single request
        # is parsed here, because gRPC would answer a parser's error itself, with its text.
        if handler.request_streaming and handler.response_streaming:
            behaviour = self._streaming(method, handler.stream_stream, None)
            return grpc.stream_stream_rpc_method_handler(behaviour, deserializer, serializer)
        if handler.request_streaming:
            behaviour = self._single(method, handler.stream_unary, None)
            return grpc.stream_unary_rpc_method_handler(behaviour, deserializer, serializer)
        if handler.response_streaming:
            behaviour = self._streaming(method, handler.unary_stream, deserializer)
            return grpc.unary_stream_rpc_method_handler(behaviour, None, serializer)
        behaviour = self._single(method, handler.unary_unary, deserializer)
        return grpc.unary_unary_rpc_method_handler(behaviour, None, serializer)

    def _single(self, method: str, behaviour: Any, parse: Deserializer | None) -> Any:
        async def call(request: Any, context: Context) -> Any:
            try:
                return await behaviour(Reads(context) if parse is None else parse(request), context)
            except asyncio.CancelledError as error:
                await _pass_on(context, error)
            except Exception as error:  # noqa: BLE001
                await self._answer(method, context, error)

        return call

    def _streaming(self, method: str, behaviour: Any, parse: Deserializer | None) -> Any:
        async def call(request: Any, context: Context) -> None:
            try:
                responses = behaviour(Reads(context) if parse is None else parse(request), context)
                if not isinstance(responses, AsyncIterator):
                    await responses
                    return
                async with contextlib.aclosing(responses):  # type: ignore[type-var]
                    async for response in responses:
                        await context.write(response)
            except asyncio.CancelledError as error:
                await _pass_on(context, error)
            except Exception as error:  # noqa: BLE001
                await self._answer(method, context, error)

        return call

    async def _answer(self, method: str, context: Context, error: Exception) -> NoReturn:
        if isinstance(error, grpc.aio.AbortError):
            _let_go_of(error)
            raise error
        if isinstance(error, RegnumError):
            await abort(context, error)
        if isinstance(error, grpc.aio.AioRpcError):
            await abort(context, from_rpc_error(error))
        if isinstance(error, TimeoutError):
            await abort(context, RegnumError(errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, _TIMED_OUT))
        # gRPC's own words for "client gone" and "server stopping". Misuse of a live call is a defect all the same.
        if isinstance(error, grpc.aio.BaseError) and (context.done() or not isinstance(error, grpc.aio.UsageError)):
            raise asyncio.CancelledError from error
        if isinstance(error, NotImplementedError):
            await _answer_with(context, grpc.StatusCode.UNIMPLEMENTED, _UNIMPLEMENTED)
        if method.startswith(OURS):
            self._fail(method, error)
        else:
            self._log.error("a call failed", method=method, error=repr(error), exc_info=error)
        await abort(
            context,
            RegnumError(errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR, "unexpected failure; see the server's log"),
        )


async def _pass_on(context: Context, error: asyncio.CancelledError) -> NoReturn:
    task = asyncio.current_task()
    if context.done() or (task is not None and task.cancelling()):
        try:
            raise error
        finally:
            # This frame is part of its traceback.
            del error
    await abort(context, RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, _CANCELLED))


async def abort(context: Context, error: RegnumError) -> NoReturn:
    """End a call with an error, with its details."""
    status = rpc_status.to_status(to_status(error))
    await _answer_with(context, status.code, status.details, status.trailing_metadata)


async def _answer_with(context: Context, code: grpc.StatusCode, details: str, trailing: Any = ()) -> NoReturn:
    try:
        await context.abort(code, details, trailing)
    except grpc.aio.AbortError as aborted:
        _let_go_of(aborted)
        raise
    except grpc.aio.BaseError as gone:
        raise asyncio.CancelledError from gone
    raise AssertionError("abort returned")


def _let_go_of(aborted: grpc.aio.AbortError) -> None:
    """Once the call has ended, leave nothing of it to the collector of cycles.

    gRPC keeps the error with the call, and its traceback has the frames that have the call, and its request.
    """

    def let_go() -> None:
        aborted.__traceback__ = aborted.__context__ = None

    asyncio.get_running_loop().call_soon(let_go)
