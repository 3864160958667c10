"""Notices a disk that answers no more: its leaderships would stay here for ever.

A write that hangs in the kernel ends neither by an error nor by a time-out. So operations under way are looked at from
the event loop, and one that is still the same after the time-out ends the broker. Only time in which the loop saw it
counts: a process or a machine that stood still has not shown that the disk does.

The time-out is for one operation, not for a job of many. The longest of them is the fsync of a whole segment.
"""

from collections.abc import Callable, Mapping
from typing import Final

from regnum_service.clock import Clock

from regnum_broker.log.directory import LogDirectory

LOOKS: Final = 10
"""Looks in the time of the time-out."""


class Stalls:
    """How long each thread has waited for the same operation. Pure but for what it remembers."""

    def __init__(self, *, interval_s: float) -> None:
        self._interval_s: Final = interval_s
        self._waits: dict[int, tuple[int, float]] = {}
        self._looked_s: float | None = None

    def longest_s(self, under_way: Mapping[int, int], *, now_s: float) -> float:
        """Take a look at the operations (number by thread); returns the longest wait for one, in seconds."""
        elapsed_s = 0.0 if self._looked_s is None else min(now_s - self._looked_s, 2 * self._interval_s)
        self._looked_s = now_s
        waits: dict[int, tuple[int, float]] = {}
        for thread, operation in under_way.items():
            seen, waited_s = self._waits.get(thread, (operation, -elapsed_s))
            waits[thread] = (operation, waited_s + elapsed_s if seen == operation else 0.0)
        self._waits = waits
        return max((waited_s for _, waited_s in waits.values()), default=0.0)


class DiskWatch:
    """Belongs to the event loop."""

    def __init__(
        self, *, directory: LogDirectory, timeout_s: float, clock: Clock, waits: Callable[[float], None]
    ) -> None:
        """Only assigns.

        Args:
            directory: whose disk.
            timeout_s: how long one operation may take.
            clock: source of time.
            waits: told at every look how long the disk has not come back with one, in seconds.
        """
        self._waits: Final = waits
        self._directory: Final = directory
        self._timeout_s: Final = timeout_s
        self._clock: Final = clock

    async def run(self) -> None:
        """Look for ever; a task of the supervisor.

        Raises:
            DirectoryHungError: the disk answers no more.
        """
        interval_s = self._timeout_s / LOOKS
        stalls = Stalls(interval_s=interval_s)
        while True:
            await self._clock.sleep(interval_s)
            waited_s = stalls.longest_s(self._directory.operations.under_way, now_s=self._clock.monotonic())
            self._waits(waited_s)
            if waited_s >= self._timeout_s:
                raise self._directory.give_up(waited_s)
