"""Channels over TLS that take up new certificates without a call that notices.

A gRPC channel keeps the credentials that it was made with, also when it connects anew. So each call asks whether the
files changed; if they did it goes over a new channel, and the one before is closed when the last of its calls ends: a
stream stays where it began.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Self

import grpc
from regnum_model.nodes import Address
from regnum_telemetry.rpc_client import TracedChannel

from regnum_service.channel import CHANNEL_OPTIONS, Open, open_channel, target
from regnum_service.tls.files import WatchedFiles

Multicallable = Any
"""One of grpc.aio's multicallables, whose stubs are generic and whose classes are not."""
Call = Any
"""One of grpc.aio's calls."""


def opener(files: WatchedFiles | None) -> Open:
    """How channels are opened: with these files over TLS; None: in plaintext."""
    if files is None:
        return open_channel

    def open_secure(address: Address) -> grpc.aio.Channel:
        return TracedChannel(RotatingChannel(address, files), host=address.host, port=address.port)

    return open_secure


class RotatingChannel(grpc.aio.Channel):
    """A channel over TLS to one address. Belongs to one event loop."""

    def __init__(
        self, address: Address, files: WatchedFiles, options: Sequence[tuple[str, int]] = CHANNEL_OPTIONS
    ) -> None:
        """Connects with its first call."""
        self._address: Final = address
        self._files: Final = files
        self._options: Final = options
        self._old: Final[set[_Standing]] = set()
        self._closing: Final[set[asyncio.Task[None]]] = set()
        self._standing = self._open()

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

    def _open(self) -> "_Standing":
        version = self._files.version
        credentials = self._files.pem.channel_credentials()
        channel = grpc.aio.secure_channel(target(self._address), credentials, options=self._options)
        return _Standing(channel, version)

    def _current(self) -> "_Standing":
        if self._files.is_due:
            # On a thread: this call still goes where the last one went, the next one finds what changed.
            asyncio.get_running_loop().run_in_executor(None, self._files.check)
        standing = self._standing
        if standing.version != self._files.version:
            self._standing = self._open()
            self._old.add(standing)
            standing.retire(self._close_old)
            standing = self._standing
        return standing

    def _following(self, make: Callable[[grpc.aio.Channel], Multicallable]) -> Multicallable:
        of: _Standing | None = None
        made: Multicallable = None

        def start(*arguments: Any, **named: Any) -> Call:
            nonlocal of, made
            standing = self._current()
            if standing is not of:
                of, made = standing, make(standing.channel)
            return standing.counted(made(*arguments, **named))

        return start

    def _close_old(self, standing: "_Standing") -> None:
        self._old.discard(standing)
        task = asyncio.get_running_loop().create_task(standing.channel.close(), name="close-old-channel")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


class _Standing:
    """A channel, and how many calls are on it."""

    __slots__ = ("_calls", "_done", "channel", "version")

    def __init__(self, channel: grpc.aio.Channel, version: int) -> None:
        self.channel: Final = channel
        self.version: Final = version
        """Of the files that it was made with."""
        self._calls = 0
        self._done: Callable[[_Standing], None] | None = None

    def counted(self, call: Call) -> Call:
        """The same call."""
        self._calls += 1
        call.add_done_callback(self._ended)
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
