"""When those who send publications are woken: at once for what somebody waits for, and soon for the rest.

Goals: a new leader is known as soon as it can be; a flood of small news costs few messages, for each of them goes
through every metadata process to every broker.

Algorithm: a publication that can wait wakes at once if nothing woke for INTERVAL_S, and otherwise when that time is
over; one that cannot wait takes along what is left. The journal merges what is not sent yet, so nothing is kept here.

Example: a broker comes back, and joins 1,000 ISRs in 3 s, one after another: 6 or 7 messages for each broker.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from regnum_service.cancellation import end_task
from regnum_service.clock import Clock
from regnum_service.supervisor import Spawn

INTERVAL_S: Final = 0.5
"""Longest time for which a publication waits that can."""


class Waking:
    """Of one reign. Used by the controller's loop only."""

    def __init__(self, wake: Callable[[], None], *, clock: Clock, spawn: Spawn) -> None:
        """Only assigns; ``wake`` wakes all senders."""
        self._wake: Final = wake
        self._clock: Final = clock
        self._spawn: Final = spawn
        self._woke_s = -INTERVAL_S
        self._waits = False
        """Whether something was published since that can wait."""
        self._later: asyncio.Task[None] | None = None

    def at_once(self) -> None:
        """Somebody waits for it."""
        self._woke_s, self._waits = self._clock.monotonic(), False
        self._wake()

    def soon(self) -> None:
        """Nobody waits for it."""
        if self._left_s <= 0:
            self.at_once()
            return
        self._waits = True
        if self._later is None or self._later.done():
            self._later = self._spawn("publish what waited", self._when_over())

    def hurry(self) -> None:
        """What waits does not any longer."""
        if self._waits:
            self.at_once()

    async def close(self) -> None:
        """Wake nobody any more."""
        if self._later is not None:
            end_task(self._later)
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([self._later])

    @property
    def _left_s(self) -> float:
        return self._woke_s + INTERVAL_S - self._clock.monotonic()

    async def _when_over(self) -> None:
        # What woke meanwhile took along all that waited before it; what came since counts from then.
        while (left_s := self._left_s) > 0:
            await self._clock.sleep(left_s)
        if self._waits:
            self.at_once()
