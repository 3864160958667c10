"""Time that stands still until a test moves it."""

import asyncio
import heapq
import itertools
from typing import Final

from regnum_service.clock import SystemClock

START_S: Final = 1e9
"""Later than any machine's own monotonic clock: where the two are mixed, a test fails everywhere, and not only on a
machine that has just booted."""


class FakeClock:
    """A Clock whose time is moved by ``advance``. Sleepers wake in the order of their deadlines."""

    def __init__(self, *, start_s: float = START_S, wall_ms: int = 1_700_000_000_000) -> None:
        self._now_s = start_s
        self._wall_zero_ms = wall_ms - round(start_s * 1000)
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        """Seconds, as far as the test has moved them."""
        return self._now_s

    def wall_ms(self) -> int:
        """Milliseconds that move along."""
        return self._wall_zero_ms + round(self._now_s * 1000)

    async def sleep(self, seconds: float) -> None:
        """Return when the test has moved time that far; zero or less only lets others run."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now_s + seconds, next(self._order), future))
        await future

    @property
    def sleepers(self) -> int:
        """How many tasks sleep now."""
        return sum(1 for _, _, future in self._sleepers if not future.done())

    async def advance(self, seconds: float) -> None:
        """Move time; each sleeper wakes at its own moment and runs, with all it sets off, before time moves on."""
        until_s = self._now_s + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= until_s:
            deadline_s, _, future = heapq.heappop(self._sleepers)
            if future.done():
                continue
            self._now_s = max(self._now_s, deadline_s)
            future.set_result(None)
            await settle()
        self._now_s = until_s
        await settle()

    def skip(self, seconds: float) -> None:
        """Move time without waking anybody: what a blocked event loop looks like."""
        self._now_s += seconds

    def jump(self, seconds: float) -> None:
        """Have the wall clock show another time at the same moment."""
        self._wall_zero_ms += round(seconds * 1000)


class SkippingClock(SystemClock):
    """Real time, for tests over real sockets, that a test can move on."""

    skipped_s = 0.0

    def monotonic(self) -> float:
        """Seconds, those that were skipped among them."""
        return super().monotonic() + self.skipped_s


class PatientClock(SystemClock):
    """Real time at a twentieth of its pace: a limit that is short for a person is long enough for a busy machine."""

    def monotonic(self) -> float:
        """Seconds since the start of some machine, twenty of which pass as one."""
        return super().monotonic() / 20


async def settle(turns: int = 20) -> None:
    """Let tasks that can run, run: enough turns of the loop for chains of callbacks that wait for no I/O."""
    for _ in range(turns):
        await asyncio.sleep(0)
