"""Time and pauses as the recipes need them; ``regnum_service.clock.SystemClock`` and the test clock both fit."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

OPERATION_TIMEOUT_S: Final = 1.5
"""Time after which a store operation without an answer counts as unknown and may be sent again (safety rule S1).

When a node of the store dies, what was on its way to it is heard of no more, and the others have a leader again after
1 to 3 s: a failover that falls into that time should not wait for much longer.
"""


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
