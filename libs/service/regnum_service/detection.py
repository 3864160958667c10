"""How one process notices that another one is dead, faster than the other's session ends (safety rule S9).

It holds a health watch open on a listener of the other. The kernel ends the stream when the process dies; two refused
attempts to connect, 20 ms apart, then prove it. A stream that ends for another reason is opened again. Silence proves
nothing: a paused process keeps what it has until its session ends.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

import grpc
from grpc_health.v1 import health_pb2
from regnum_model.contact import KNOCKS_AFTER_BREAK, Contact, knock_pause_s, proves_death
from regnum_model.nodes import Address
from regnum_telemetry import tracing

from regnum_service.channel import Open, open_channel
from regnum_service.clock import Clock

WATCH: Final = "/grpc.health.v1.Health/Watch"
"""The method that is held open."""

RETRY_INTERVAL_S: Final = 0.2
"""Pause before a stream is opened again."""

CONNECT_TIMEOUT_S: Final = 0.5
"""Time after which an attempt counts as unanswered."""

Probe = Callable[[Address], Awaitable[Contact]]
"""One attempt to connect."""


class Detector(Protocol):
    """Watches another process."""

    async def wait_dead(self, listener: Address) -> int:
        """Return when the process that listens there is proved dead: the moment of the first sign, wall time in ns."""


async def connect(address: Address) -> Contact:
    """Try to connect, and hang up at once."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(address.host, address.port)
    except ConnectionRefusedError:
        return Contact.REFUSED
    except (OSError, TimeoutError, ValueError):
        # A name that can be no host's is a ValueError.
        return Contact.NO_ANSWER
    writer.transport.abort()
    return Contact.ACCEPTED


async def is_dead(address: Address, probe: Probe, clock: Clock, *, attempts: int) -> bool:
    """Whether two attempts in a row are refused, within so many attempts.

    A process that is being killed may still seem to listen for some milliseconds after its streams broke.
    """
    contacts: list[Contact] = []
    for attempt in range(attempts):
        if attempt:
            await clock.sleep(knock_pause_s(contacts))
        contacts.append(await probe(address))
        if proves_death(contacts[-2:]):
            return True
        if attempt and contacts[-1] is Contact.NO_ANSWER:
            return False
    return False


class HealthWatchDetector:
    """Detector over grpc.health.v1."""

    def __init__(self, clock: Clock, probe: Probe = connect, open_one: Open = open_channel) -> None:
        """Only assigns; ``open_one`` opens the channel whose stream is held."""
        self._clock = clock
        self._probe = probe
        self._open_one: Final = open_one

    async def wait_dead(self, listener: Address) -> int:
        """Return when the process that listens there is proved dead: the moment of the first sign, wall time in ns."""
        while True:
            await self._watch(listener)
            noticed_unix_nano = tracing.now_unix_nano()
            if await is_dead(listener, self._probe, self._clock, attempts=KNOCKS_AFTER_BREAK):
                return noticed_unix_nano
            await self._clock.sleep(RETRY_INTERVAL_S)

    async def _watch(self, listener: Address) -> None:
        """Return when the stream ends."""
        channel = self._open_one(listener)
        try:
            # No deadline: the stream is there to be broken; keep-alive ends it when the peer freezes.
            watch = channel.unary_stream(
                WATCH,
                request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )
            async for _ in watch(health_pb2.HealthCheckRequest(service="")):
                pass
        except grpc.aio.AioRpcError:
            return
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await channel.close()
