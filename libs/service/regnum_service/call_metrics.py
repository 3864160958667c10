"""Served calls as metrics: how long each took and how it ended, and how many are under way on each listener.

Stands before all other interceptors, whose statuses it sees. A call costs two looks at the clock, one at the status
and one recording; methods that nobody serves are not wrapped, so the number of series is that of the methods served.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any, Final

import grpc
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Histogram, Labels, Metrics

from regnum_service.clock import Clock

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""
Handler = Any
"""grpc.RpcMethodHandler, whose stubs are generic and whose class is not."""

CANCELLED: Final = grpc.StatusCode.CANCELLED.name
"""How a call ends whose caller, or whose server, gave it up."""

SERIES_MAX: Final = 100 * len(grpc.StatusCode)
"""Methods that a process serves, at most, by statuses: a call that succeeds is not to be among the rest."""


class MetricsInterceptor(grpc.aio.ServerInterceptor):
    """Wraps every handler of one listener once. Belongs to the listener's event loop."""

    def __init__(self, listener: str, metrics: Metrics, clock: Clock) -> None:
        """Only assigns, and lets the metrics read it.

        Args:
            listener: its name, for the labels.
            metrics: of the process.
            clock: source of time.
        """
        self._listener: Final = listener
        self._metrics: Final = metrics
        self._clock: Final = clock
        self._wrapped: Final[dict[int, tuple[Handler, Handler]]] = {}
        """By the handler's id, whom the first of the pair keeps alive."""
        self._methods: Final[list[_Method]] = []
        metrics.observe_also(instruments.CALLS_UNDER_WAY, self._under_way)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """The counted handler of a method; unknown methods pass (and are not remembered)."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return handler
        known = self._wrapped.get(id(handler))
        if known is None:
            # A call with a span has another handler than one without: both count as the same method.
            method = self._method(handler_call_details.method, streams=handler.response_streaming)
            known = self._wrapped[id(handler)] = (handler, method.wrap(handler))
        return known[1]

    def _method(self, path: str, *, streams: bool) -> "_Method":
        name = path.removeprefix("/")
        for method in self._methods:
            if method.name == name:
                return method
        made = _Method(name, self._metrics, self._clock, streams=streams)
        self._methods.append(made)
        return made

    def _under_way(self) -> Iterable[tuple[Labels, float]]:
        """Any thread."""
        methods = tuple(self._methods)
        yield (self._listener, "unary"), sum(method.under_way for method in methods if not method.streams)
        yield (self._listener, "stream"), sum(method.under_way for method in methods if method.streams)


class _Method:
    """What is counted of one method."""

    def __init__(self, name: str, metrics: Metrics, clock: Clock, *, streams: bool) -> None:
        self.name: Final = name
        self.streams: Final = streams
        """Whether it has many answers; requests do not tell: where there are gates all of them come as streams."""
        self.under_way = 0
        """Calls now."""
        self._now_s: Final = clock.monotonic
        self._metrics: Final = metrics
        self._ended: Final[dict[str, Histogram]] = {}

    def wrap(self, handler: Handler) -> Handler:
        """The same handler, counted."""
        parse, render = handler.request_deserializer, handler.response_serializer
        if handler.request_streaming and handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(self._streaming(handler.stream_stream), parse, render)
        if handler.request_streaming:
            return grpc.stream_unary_rpc_method_handler(self._single(handler.stream_unary), parse, render)
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(self._streaming(handler.unary_stream), parse, render)
        return grpc.unary_unary_rpc_method_handler(self._single(handler.unary_unary), parse, render)

    def _single(self, behaviour: Any) -> Any:
        async def call(request: Any, context: Context) -> Any:
            began_s = self._now_s()
            self.under_way += 1
            answered = False
            try:
                answer = await behaviour(request, context)
                answered = True
                return answer
            finally:
                self._record(context, began_s, answered=answered)

        return call

    def _streaming(self, behaviour: Any) -> Any:
        async def call(request: Any, context: Context) -> None:
            began_s = self._now_s()
            self.under_way += 1
            answered = False
            try:
                responses = behaviour(request, context)
                if isinstance(responses, AsyncIterator):
                    async with aclosing(responses):  # type: ignore[type-var]
                        async for response in responses:
                            await context.write(response)
                else:
                    await responses
                answered = True
            finally:
                self._record(context, began_s, answered=answered)

        return call

    def _record(self, context: Context, began_s: float, *, answered: bool) -> None:
        self.under_way -= 1
        code = context.code()
        # Until something else is said, a status is OK, and gRPC gives it as 0; a call that ends otherwise without a
        # status was given up by its caller or by the server's end.
        status = code.name if isinstance(code, grpc.StatusCode) and code.value[0] else "OK" if answered else CANCELLED
        histogram = self._ended.get(status)
        if histogram is None:
            calls = self._metrics.histogram(instruments.CALLS_SERVED, self.name, status, most=SERIES_MAX)
            histogram = self._ended[status] = calls
        histogram.record(self._now_s() - began_s)
