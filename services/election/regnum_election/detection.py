"""How a standby notices that the controller's process is dead, faster than its session ends.

It holds a health watch open on the controller's lifeline listener. The kernel ends the stream when the process dies;
two refused attempts to connect then prove it. A stream that ends for another reason is opened again.
"""

import asyncio
from typing import Final

import grpc
from grpc_health.v1 import health_pb2
from regnum_model.nodes import Address
from regnum_service.channel import open_channel
from regnum_service.clock import Clock
from regnum_telemetry import tracing

from regnum_election.probing import Probe, is_dead

RETRY_INTERVAL_S: Final = 0.2
"""Pause before a stream is opened again."""

WATCH: Final = "/grpc.health.v1.Health/Watch"
"""The method that is held open."""

ATTEMPTS: Final = 10
"""Attempts to connect after the stream broke."""


class HealthWatchDetector:
    """Detector over grpc.health.v1."""

    def __init__(self, clock: Clock, probe: Probe) -> None:
        self._clock = clock
        self._probe = probe

    async def wait_dead(self, lifeline: Address) -> int:
        """Return when the process that listens there is proved dead: the moment of the first sign, wall time in ns."""
        while True:
            await self._watch(lifeline)
            noticed_unix_nano = tracing.now_unix_nano()
            if await is_dead(lifeline, self._probe, self._clock, attempts=ATTEMPTS):
                return noticed_unix_nano
            await self._clock.sleep(RETRY_INTERVAL_S)

    async def _watch(self, lifeline: Address) -> None:
        """Return when the stream ends."""
        channel = open_channel(lifeline)
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
            async with asyncio.timeout(1.0):
                await channel.close()
