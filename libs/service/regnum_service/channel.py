"""Channels to other processes, with the options that make a dead or frozen peer show in seconds.

grpc.keepalive_timeout_ms alone finds no frozen peer; grpc.http2.ping_timeout_ms does. Our servers allow such pings.

Every channel is made here: of the services, the SDK, the store's driver, the benchmarks and the tests. None uses a web
proxy. gRPC reads ``grpc_proxy``, ``https_proxy`` and ``http_proxy`` from the environment, where machines and images set
them for package managers; a proxy reaches neither a process of the cluster nor a local one, so that a store, a broker
or a controller would seem to be away (decision 72).
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeAlias

import grpc
from regnum.types.v1 import errors_pb2
from regnum_model.nodes import Address
from regnum_telemetry.rpc_client import DIRECT, TracedChannel

from regnum_service.errors import RegnumError
from regnum_service.readable_answers import ReadableCall
from regnum_service.renewed_channel import NAME_OPTIONS, RenewedChannel, is_name

MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Largest message that any listener or channel takes."""

CHANNEL_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.ping_timeout_ms", 2_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Also the time one attempt to connect may take; 20 s by default.
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    # Who may repeat what is decided above gRPC (safety rule S20).
    ("grpc.enable_retries", 0),
    # A connection of its own, so that a dropped channel takes its back-off with it.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.service_config_disable_resolution", 1),
    # Nobody asks, and what it keeps is 3 of the 51 KiB that a connection takes (decision 56).
    ("grpc.enable_channelz", 0),
    *NAME_OPTIONS,
)

Options: TypeAlias = Sequence[tuple[str, Any]]
"""Names and values, as gRPC takes them."""

ADDRESSEE: Final = "regnum-addressee"
"""Metadata of calls to one known process: its role and id (``broker-3``). Another process that has come to stand at the
address refuses them (``addressee``); calls without it are taken by each."""


class Open(Protocol):
    """How a channel to an address is opened, on the running event loop; over TLS see ``tls.channels``."""

    def __call__(self, address: Address, addressee: str = "", /) -> grpc.aio.Channel:
        """The channel, which connects with its first call; ``addressee``: the process that is meant; empty: any."""


def aio_channel(
    target: str, *, credentials: grpc.ChannelCredentials | None = None, options: Options = ()
) -> grpc.aio.Channel:
    """A channel on the running event loop, which connects with its first call; without credentials in plaintext."""
    every = [*DIRECT, *options]
    if credentials is None:
        return grpc.aio.insecure_channel(target, options=every)
    return grpc.aio.secure_channel(target, credentials, options=every)


def blocking_channel(
    target: str, *, credentials: grpc.ChannelCredentials | None = None, options: Options = ()
) -> grpc.Channel:
    """The same in gRPC's blocking API, which has threads of its own."""
    every = [*DIRECT, *options]
    if credentials is None:
        return grpc.insecure_channel(target, options=every)
    return grpc.secure_channel(target, credentials, options=every)


def open_channel(address: Address, addressee: str = "") -> grpc.aio.Channel:
    """``Open`` in plaintext. The caller closes it."""

    def make() -> grpc.aio.Channel:
        return aio_channel(target(address), options=CHANNEL_OPTIONS)

    channel = RenewedChannel(make, follows_name=True) if is_name(address.host) else make()
    return addressed(channel, address, addressee)


def addressed(channel: grpc.aio.Channel, address: Address, addressee: str) -> grpc.aio.Channel:
    """A channel whose calls name their addressee, and fail where an answer cannot be read."""
    metadata = ((ADDRESSEE, addressee),) if addressee else ()
    return TracedChannel(channel, host=address.host, port=address.port, metadata=metadata, given_out=ReadableCall)


def target(address: Address) -> str:
    """The address as gRPC wants it."""
    return str(address)


class PeerChannel:
    """The channel to one incarnation of one process, opened with the first call. Belongs to one event loop."""

    def __init__(self, address: Address, addressee: str, *, gone: str, open_one: Open = open_channel) -> None:
        """Only assigns; ``addressee``: which process it is, ``gone``: what a call hears after ``close``."""
        self._address: Final = address
        self._addressee: Final = addressee
        self._gone: Final = gone
        self._open_one: Final = open_one
        self._channel: grpc.aio.Channel | None = None
        self._closed = False

    def get(self) -> grpc.aio.Channel:
        """The channel. Raises RegnumError once it has been closed."""
        if self._closed:
            # Whoever still had it would open one that nobody closes.
            raise RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, self._gone)
        if self._channel is None:
            self._channel = self._open_one(self._address, self._addressee)
        return self._channel

    async def renew(self) -> None:
        """Hang up; calls under way end with CANCELLED, and the next one goes over another channel."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def close(self) -> None:
        """Hang up, for good."""
        self._closed = True
        await self.renew()


class Channels:
    """One channel for each address and addressee, opened when first asked for. Belongs to one event loop."""

    def __init__(self, open_one: Open = open_channel) -> None:
        self._open_one = open_one
        self._channels: dict[tuple[Address, str], grpc.aio.Channel] = {}
        self._closed = False

    def get(self, address: Address, addressee: str = "") -> grpc.aio.Channel:
        """The channel to an address, and to one process there. Raises RegnumError once all have been closed."""
        if self._closed:
            # Whoever comes so late would open one that nobody closes.
            raise RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "this process stops and calls nobody")
        channel = self._channels.get((address, addressee))
        if channel is None:
            channel = self._channels[address, addressee] = self._open_one(address, addressee)
        return channel

    async def drop(self, address: Address, addressee: str = "") -> None:
        """Close that channel; its calls end with CANCELLED. The next get opens a new one at once."""
        channel = self._channels.pop((address, addressee), None)
        if channel is not None:
            await channel.close()

    async def close(self) -> None:
        """Close all channels, for good."""
        self._closed = True
        channels = tuple(self._channels.values())
        self._channels.clear()
        for channel in channels:
            await channel.close()
