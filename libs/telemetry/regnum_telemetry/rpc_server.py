"""Spans of served calls: for those whose caller sent a place in a trace, and that are not refused.

A call without one gets no span: beats, fetches and most produce requests cost a look at their metadata and no more.
Neither does one that is refused, as a whole or because its caller may not do a part of it (``tracing.refuse``), nor
anything that was done for it: a caller without rights has nothing written down by a header. At listeners of clients
neither does a call that its caller gives up before it is answered: nothing says yet what it was allowed. Health and
reflection, which every client may ask, have none.
The servicer's task runs within the span's place, so that what it hands on can carry it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import aclosing
from typing import Any, Final, TypeAlias

import grpc

from regnum_telemetry import conventions, propagation, tracing
from regnum_telemetry.tracing import Kind, Span

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""
Handler = Any
"""grpc.RpcMethodHandler, whose stubs are generic and whose class is not."""

_FAULTS: Final = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
"""Statuses that are the server's fault; others are answers."""


_REFUSALS: Final = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
"""Statuses of calls that were not carried out for what they are or for who makes them. (What another process of the
cluster hears otherwise, that its epoch is past for example, belongs to the story of a failover.)"""

_ALL_BUT_FAULTS: Final = frozenset(grpc.StatusCode) - _FAULTS - {grpc.StatusCode.OK}
"""Statuses of refusals where anybody may call."""

_OPEN_TO_ALL: Final = "/grpc."
"""How the methods of health and reflection begin."""


class TracingInterceptor(grpc.aio.ServerInterceptor):
    """Wraps every handler of a server once. Stands before all other interceptors, whose answers it sees."""

    def __init__(self, *, for_clients: bool = False) -> None:
        """Only assigns; ``for_clients``: anybody may call, and every answer but OK and a fault is a refusal."""
        self._refusals: Final = _ALL_BUT_FAULTS if for_clients else _REFUSALS
        self._wrapped: Final[dict[int, tuple[Handler, Handler]]] = {}
        """By the handler's id, whom the first of the pair keeps alive: a method has several, one of which refuses."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """The handler itself, or one with a span for a caller that sent a place."""
        handler = await continuation(handler_call_details)
        place = propagation.from_metadata(handler_call_details.invocation_metadata)
        if handler is None or not place or not tracing.tracer().recording:
            return handler
        method = handler_call_details.method
        if method.startswith(_OPEN_TO_ALL):
            return handler
        known = self._wrapped.get(id(handler))
        if known is None:
            known = self._wrapped[id(handler)] = (handler, _wrap(method.removeprefix("/"), handler, self._refusals))
        return known[1]


_Statuses: TypeAlias = Collection[grpc.StatusCode]


def _wrap(name: str, handler: Handler, refusals: _Statuses) -> Handler:
    parse, render = handler.request_deserializer, handler.response_serializer
    if handler.request_streaming and handler.response_streaming:
        return grpc.stream_stream_rpc_method_handler(_streaming(name, handler.stream_stream, refusals), parse, render)
    if handler.request_streaming:
        return grpc.stream_unary_rpc_method_handler(_single(name, handler.stream_unary, refusals), parse, render)
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(_streaming(name, handler.unary_stream, refusals), parse, render)
    return grpc.unary_unary_rpc_method_handler(_single(name, handler.unary_unary, refusals), parse, render)


def _single(name: str, behaviour: Any, refusals: _Statuses) -> Any:
    async def call(request: Any, context: Context) -> Any:
        span, served = _begin(name, context), tracing.ServedCall()
        try:
            with tracing.within(span.context), tracing.serving(served):
                return await behaviour(request, context)
        except asyncio.CancelledError:
            _give_up(served, refusals)
            raise
        finally:
            _end(span, context, served, refusals)

    return call


def _streaming(name: str, behaviour: Any, refusals: _Statuses) -> Any:
    async def call(request: Any, context: Context) -> None:
        span, served, answers = _begin(name, context), tracing.ServedCall(), False
        try:
            with tracing.within(span.context), tracing.serving(served):
                responses = behaviour(request, context)
                if not isinstance(responses, AsyncIterator):
                    # It writes for itself, perhaps for days: what is done for it meanwhile is not kept back.
                    served.settle()
                    answers = True
                    await responses
                    return
                async with aclosing(responses):  # type: ignore[type-var]
                    async for response in responses:
                        served.settle()
                        answers = True
                        await context.write(response)
        except asyncio.CancelledError:
            if not answers:
                _give_up(served, refusals)
            raise
        finally:
            _end(span, context, served, refusals)

    return call


def _begin(name: str, context: Context) -> Span:
    return tracing.tracer().start(
        name,
        parent=propagation.from_metadata(context.invocation_metadata()),
        kind=Kind.SERVER,
        attributes={conventions.RPC_SYSTEM: conventions.RPC_SYSTEM_NAME, conventions.RPC_METHOD: name},
    )


def _give_up(served: tracing.ServedCall, refusals: _Statuses) -> None:
    """The caller has left, which gRPC gives no status: nothing it was not let do before is written down for it."""
    if grpc.StatusCode.CANCELLED in refusals:
        served.refused = True


def _end(span: Span, context: Context, served: tracing.ServedCall, refusals: _Statuses) -> None:
    code = context.code()
    # Until something else is said, a status is OK, and gRPC gives it as 0.
    status = code if isinstance(code, grpc.StatusCode) else grpc.StatusCode.OK
    if status in refusals:
        served.refused = True
    served.settle()
    if served.refused:
        # A span that does not end is not exported.
        return
    span.set({conventions.RPC_STATUS: status.name})
    if status in _FAULTS:
        span.fail(status.name)
    span.end()
