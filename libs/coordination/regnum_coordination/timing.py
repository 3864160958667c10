"""Time and pauses as the recipes need them; ``regnum_service.clock.SystemClock`` and the test clock both fit."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """Source of time."""

    def monotonic(self) -> float:
        """Seconds that only grow."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for what people read."""

    async def sleep(self, seconds: float) -> None:
        """Return after that time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait between attempts."""

    first_s: float = 0.05
    """Seconds before the second attempt."""
    longest_s: float = 1.0
    """Seconds that no wait exceeds."""
    chance: Callable[[], float] = random.random
    """Source of jitter: numbers from 0 to 1."""

    def pause_s(self, attempts: int) -> float:
        """Seconds to wait after that many failed attempts in a row: doubling, between half and all of it."""
        full_s = min(self.longest_s, math.ldexp(self.first_s, min(max(attempts - 1, 0), 30)))
        return full_s * (0.5 + self.chance() / 2)
