"""Calls with a span: a channel that adds one to each call made within a place of a trace, and costs nothing otherwise.

Not an interceptor of grpc.aio: those wrap every call in a further task, traced or not.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Self

import grpc

from regnum_telemetry import conventions, propagation, tracing
from regnum_telemetry.tracing import Kind, Span

Multicallable = Any
"""One of grpc.aio's multicallables, whose stubs are generic and whose classes are not."""
Call = Any
"""One of grpc.aio's calls."""

DIRECT: Final[tuple[tuple[str, int], ...]] = (("grpc.enable_http_proxy", 0),)
"""Options of every channel: whatever the environment says of web proxies, they do not stand between processes."""

_ENDING: Final[set[asyncio.Task[None]]] = set()
"""Tasks that end a span; the event loop alone would not keep them."""


def _as_it_is(call: Call) -> Call:
    return call


class TracedChannel(grpc.aio.Channel):
    """Passes everything to another channel."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        *,
        host: str,
        port: int,
        metadata: Sequence[tuple[str, str]] = (),
        given_out: Callable[[Call], Call] = _as_it_is,
    ) -> None:
        """Only assigns.

        Args:
            channel: what the calls go over.
            host: where it goes to, for the spans.
            port: of the same.
            metadata: what every call brings besides its own.
            given_out: what callers get of a call.
        """
        self._channel: Final = channel
        self._metadata: Final = tuple(metadata)
        self._given_out: Final = given_out
        self._host: Final = host
        self._port: Final = port

    def unary_unary(self, method: Any, *arguments: Any, **named: Any) -> Multicallable:
        """A call with one request and one answer."""
        return self._traced(method, self._channel.unary_unary(method, *arguments, **named))

    def unary_stream(self, method: Any, *arguments: Any, **named: Any) -> Multicallable:
        """A call with one request and a stream of answers."""
        return self._traced(method, self._channel.unary_stream(method, *arguments, **named))

    def stream_unary(self, method: Any, *arguments: Any, **named: Any) -> Multicallable:
        """A call with a stream of requests and one answer."""
        return self._traced(method, self._channel.stream_unary(method, *arguments, **named))

    def stream_stream(self, method: Any, *arguments: Any, **named: Any) -> Multicallable:
        """A call with a stream each way."""
        return self._traced(method, self._channel.stream_stream(method, *arguments, **named))

    async def close(self, grace: float | None = None) -> None:
        """Close it."""
        await self._channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:  # noqa: FBT001, FBT002 - gRPC's own
        """State of the connection."""
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait for another state."""
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Wait until it is connected."""
        await self._channel.channel_ready()

    async def __aenter__(self) -> Self:
        await self._channel.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._channel.__aexit__(*error)  # type: ignore[arg-type]

    def _traced(self, method: Any, multicallable: Multicallable) -> Multicallable:
        name = (method.decode() if isinstance(method, bytes) else str(method)).removeprefix("/")

        def start(*arguments: Any, metadata: Sequence[tuple[str, str | bytes]] | None = None, **named: Any) -> Call:
            if self._metadata:
                metadata = (*self._metadata, *(metadata or ()))
            place = tracing.current()
            if not place:
                return self._given_out(multicallable(*arguments, metadata=metadata, **named))
            span = tracing.tracer().start(
                name,
                parent=place,
                kind=Kind.CLIENT,
                attributes={
                    conventions.RPC_SYSTEM: conventions.RPC_SYSTEM_NAME,
                    conventions.RPC_METHOD: name,
                    conventions.SERVER_ADDRESS: self._host,
                    conventions.SERVER_PORT: self._port,
                },
            )
            extended = (*(metadata or ()), (propagation.TRACEPARENT, span.context)) if span.context else metadata
            call = multicallable(*arguments, metadata=extended, **named)
            call.add_done_callback(_ender(span))
            return self._given_out(call)

        return start


def _ender(span: Span) -> Callable[[Call], None]:
    def end(call: Call) -> None:
        at_unix_nano = tracing.now_unix_nano()

        async def finish() -> None:
            # At once: the call is done.
            code = await call.code()
            span.set({conventions.RPC_STATUS: code.name})
            if code is not grpc.StatusCode.OK:
                span.fail(code.name)
            span.end(at_unix_nano)

        task = asyncio.get_running_loop().create_task(finish(), name="end-span")
        _ENDING.add(task)
        task.add_done_callback(_ENDING.discard)

    return end
