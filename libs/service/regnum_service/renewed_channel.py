"""A channel to one name, which is made anew when it has become old, and without a call that notices.

Goals: whoever calls a name reaches whoever has it now, within ``RENEWED_AFTER_S`` and one connection. A Pod that is
replaced keeps its name and has another address; while it is away, its name may stand for nothing.

Constraints: gRPC asks for a name again when a connection fails, at most every
``grpc.dns_min_time_between_resolutions_ms``. When the name is unknown it waits 1 s, then 1.6 times as long each time,
up to 2 minutes, and nothing that Python can reach ends that wait: after 20 s without a name it found the new address
7 s after that was there (measured, grpcio 1.85.1). When a connection ends it asks at once, while the Pod is still
going, and no more: the first call after that, a minute later, tries the address of before until a second is over. Nor
does a channel take other credentials.

Algorithm: each call asks whether the channel is old: what it was made of changed (``version``), or it goes to a name
and has been failing for ``RENEWED_AFTER_S``, or its connection ended. Then the call goes over a new channel, and the
one before is closed when the last of its calls ends: a stream stays where it began. When a call ends ``version`` is
asked, too, so that a stream that ended with its certificate finds the new one when it comes again. Calls that fail are
repeated by who makes them, so that a channel nobody calls costs nothing; one that is called costs a new one in
``RENEWED_AFTER_S``.
"""

import asyncio
import ipaddress
import time
from collections.abc import Callable
from typing import Any, Final, Self

import grpc

Multicallable = Any
"""One of grpc.aio's multicallables, whose stubs are generic and whose classes are not."""
Call = Any
"""One of grpc.aio's calls."""

RENEWED_AFTER_S: Final = 2.0
"""Age from which a channel that fails, or has lost its connection, is given up for another."""

NAME_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    # 30 s by default, for which a channel keeps the address of a Pod that is gone.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    # A lost packet is sent again after 2 s, and then after 4 s: the first call of a new channel took 6.0 s where the
    # name server was silent for 2.5 s. Another channel asks at once.
    ("grpc.dns_ares_query_timeout", 2_500),
)
"""Options of channels to names."""


def is_name(host: str) -> bool:
    """Whether a host is given by a name, which may come to stand for another address."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return True
    return False


def _unchanging() -> int:
    return 0


class RenewedChannel(grpc.aio.Channel):
    """A channel to one name. Belongs to one event loop."""

    def __init__(
        self,
        make: Callable[[], grpc.aio.Channel],
        *,
        follows_name: bool,
        version: Callable[[], int] = _unchanging,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Makes the first one, which connects with its first call.

        Args:
            make: makes a channel as it has to be now.
            follows_name: whether one that fails is made anew.
            version: of what they are made of; another one than before: the next call goes over a new one.
            now_s: seconds that only grow.
        """
        self._make: Final = make
        self._follows_name: Final = follows_name
        self._version: Final = version
        self._now_s: Final = now_s
        self._old: Final[set[_Standing]] = set()
        self._closing: Final[set[asyncio.Task[None]]] = set()
        self.renewals: int = 0
        """Channels made after the first."""
        self._closed = False
        self._standing = self._made(version())

    def unary_unary(self, method: Any, *arguments: Any, **named: Any) -> Multicallable:
        """A call with one request and one answer."""
        return self._following(lambda channel: channel.unary_unary(method, *arguments, **named))

    def unary_stream(self, method: Any, *arguments: Any, **named: Any) -> Multicallable:
        """A call with one request and a stream of answers."""
        return self._following(lambda channel: channel.unary_stream(method, *arguments, **named))

    def stream_unary(self, method: Any, *arguments: Any, **named: Any) -> Multicallable:
        """A call with a stream of requests and one answer."""
        return self._following(lambda channel: channel.stream_unary(method, *arguments, **named))

    def stream_stream(self, method: Any, *arguments: Any, **named: Any) -> Multicallable:
        """A call with a stream each way."""
        return self._following(lambda channel: channel.stream_stream(method, *arguments, **named))

    async def close(self, grace: float | None = None) -> None:
        """Close it, with those that wait for their last calls."""
        self._closed = True
        for standing in (*self._old, self._standing):
            await standing.channel.close(grace)
        self._old.clear()
        await asyncio.gather(*self._closing)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:  # noqa: FBT001, FBT002 - gRPC's own
        """State of the connection."""
        return self._current().channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait for another state."""
        await self._current().channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Wait until it is connected."""
        await self._current().channel.channel_ready()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def _current(self) -> "_Standing":
        standing = self._standing
        if self._closed:
            # gRPC says so to whoever comes so late; a new one nobody would close.
            return standing
        version = self._version()
        if standing.version == version and not self._is_lost(standing):
            return standing
        self._standing = self._made(version)
        self.renewals += 1
        self._old.add(standing)
        standing.retire(self._close_old)
        return self._standing

    def _made(self, version: int) -> "_Standing":
        """Of that version or a later one, which the next call would then make once more."""
        return _Standing(self._make(), version, self._now_s())

    def _is_lost(self, standing: "_Standing") -> bool:
        if not self._follows_name or self._now_s() - standing.made_s < RENEWED_AFTER_S:
            return False
        state = standing.channel.get_state()
        # Nobody has called an idle one yet, or its connection has ended: a call begins to connect.
        return state is grpc.ChannelConnectivity.TRANSIENT_FAILURE or (
            state is grpc.ChannelConnectivity.IDLE and standing.was_called
        )

    def _following(self, make: Callable[[grpc.aio.Channel], Multicallable]) -> Multicallable:
        of: _Standing | None = None
        made: Multicallable = None

        def start(*arguments: Any, **named: Any) -> Call:
            nonlocal of, made
            standing = self._current()
            if standing is not of:
                of, made = standing, make(standing.channel)
            return standing.counted(made(*arguments, **named), self._call_ended)

        return start

    def _call_ended(self, _call: Call) -> None:
        if not self._closed:
            self._version()

    def _close_old(self, standing: "_Standing") -> None:
        self._old.discard(standing)
        task = asyncio.get_running_loop().create_task(standing.channel.close(), name="close-old-channel")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


class _Standing:
    """A channel, and how many calls are on it."""

    __slots__ = ("_calls", "_done", "channel", "made_s", "version", "was_called")

    def __init__(self, channel: grpc.aio.Channel, version: int, made_s: float) -> None:
        self.channel: Final = channel
        self.version: Final = version
        """Of what it was made of."""
        self.made_s: Final = made_s
        """When."""
        self.was_called = False
        self._calls = 0
        self._done: Callable[[_Standing], None] | None = None

    def counted(self, call: Call, ended: Callable[[Call], None]) -> Call:
        """The same call; ``ended`` hears that it has."""
        self._calls += 1
        self.was_called = True
        call.add_done_callback(self._ended)
        call.add_done_callback(ended)
        return call

    def retire(self, done: Callable[["_Standing"], None]) -> None:
        """No calls are added; ``done`` hears when the last one has ended."""
        self._done = done
        if not self._calls:
            done(self)

    def _ended(self, _call: Call) -> None:
        self._calls -= 1
        if not self._calls and self._done is not None:
            self._done(self)
