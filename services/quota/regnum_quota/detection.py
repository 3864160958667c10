"""How a standby notices that the active process is dead, faster than its session ends.

It holds a health watch open on the active one's listener. The kernel ends the stream when the process dies; two
refused attempts to connect, 100 ms apart, then prove it. A stream that ends for another reason is opened again.
Silence proves nothing: a paused process keeps its seat until its session ends.
"""

import asyncio
import enum
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

import grpc
from grpc_health.v1 import health_pb2
from regnum_model.nodes import Address
from regnum_service.channel import open_channel
from regnum_service.clock import Clock

WATCH: Final = "/grpc.health.v1.Health/Watch"
"""The method that is held open."""

RETRY_INTERVAL_S: Final = 0.2
"""Pause before a stream is opened again."""

REFUSAL_INTERVAL_S: Final = 0.1
"""Pause between two attempts to connect."""

CONNECT_TIMEOUT_S: Final = 0.5
"""Time after which an attempt counts as unanswered."""

ATTEMPTS: Final = 10
"""Attempts to connect after the stream broke: a process that is being killed may seem to listen for a moment more."""


class Contact(enum.Enum):
    """Outcome of one attempt to connect."""

    ACCEPTED = "accepted"
    """Something listens."""
    REFUSED = "refused"
    """The host answered that nothing listens."""
    NO_ANSWER = "no answer"
    """Neither; proves nothing."""


Probe = Callable[[Address], Awaitable[Contact]]
"""One attempt to connect."""


class Detector(Protocol):
    """Watches another process."""

    async def wait_dead(self, listener: Address) -> None:
        """Return when the process that listens there is proved dead."""


async def connect(address: Address) -> Contact:
    """Try to connect, and hang up at once."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(address.host, address.port)
    except ConnectionRefusedError:
        return Contact.REFUSED
    except (OSError, TimeoutError, ValueError):
        # ValueError: a name that no resolver would even be asked for.
        return Contact.NO_ANSWER
    writer.transport.abort()
    return Contact.ACCEPTED


class HealthWatchDetector:
    """Detector over grpc.health.v1."""

    def __init__(self, clock: Clock, probe: Probe = connect) -> None:
        self._clock = clock
        self._probe = probe

    async def wait_dead(self, listener: Address) -> None:
        """Return when the process that listens there is proved dead."""
        while True:
            await _watch(listener)
            if await self.is_dead(listener):
                return
            await self._clock.sleep(RETRY_INTERVAL_S)

    async def is_dead(self, listener: Address) -> bool:
        """Whether two attempts to connect in a row are refused."""
        before = Contact.ACCEPTED
        for attempt in range(ATTEMPTS):
            if attempt:
                await self._clock.sleep(REFUSAL_INTERVAL_S)
            contact = await self._probe(listener)
            if contact is Contact.REFUSED and before is Contact.REFUSED:
                return True
            if attempt and contact is Contact.NO_ANSWER:
                return False
            before = contact
        return False


async def _watch(listener: Address) -> None:
    """Return when the stream ends."""
    channel = open_channel(listener)
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
