"""Time as an argument: services take a Clock in their constructors and never ask the machine."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Source of time."""

    def monotonic(self) -> float:
        """Seconds that only grow; for leases and time-outs. The zero means nothing."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 in UTC; only for what people and records show."""

    async def sleep(self, seconds: float) -> None:
        """Return after that time."""


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    def monotonic(self) -> float:
        """Seconds of the machine's monotonic clock."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """The machine's time of day."""
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        """Sleep on the running event loop."""
        await asyncio.sleep(seconds)
