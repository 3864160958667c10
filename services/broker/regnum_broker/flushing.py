"""Brings logs to the disk in time, where ``flush.ms`` asks for it, and looks at no others.

A log is noted with its first append since it was flushed last, and flushed once for all that came until its time is up.
Its time is counted from when the flusher takes the note, by a clock that nobody sets.
"""

import asyncio
import contextlib
from typing import Final

from regnum_model.ids import PartitionKey
from regnum_service.clock import Clock
from regnum_service.slices import slices

from regnum_broker.retention.due import DueIndex
from regnum_broker.storage import Storage

FLUSHED_AT_ONCE: Final = 100
"""Logs of one job of the thread that flushes: what else it has to do goes between."""


class LogFlusher:
    """Belongs to the event loop."""

    def __init__(self, *, storage: Storage, clock: Clock) -> None:
        """Only assigns."""
        self._storage: Final = storage
        self._clock: Final = clock
        self._due: Final[DueIndex[PartitionKey]] = DueIndex()

    async def run(self) -> None:
        """Flush for ever; a task of the supervisor."""
        wake = self._storage.unflushed
        while True:
            wake.clear()
            await self.look()
            soonest = self._due.soonest
            pause_s = None if soonest is None else max(soonest - self._now_ms(), 0) / 1000
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await wake.wait()

    async def look(self) -> None:
        """Flush the logs whose time is up."""
        directory = self._storage.directory
        noted, now_ms = directory.unflushed, self._now_ms()
        while noted:
            key, delay_ms = noted.popleft()
            self._due.set(key, now_ms + delay_ms)
        due = self._due.take(now_ms, count_max=len(self._due))
        if due:
            self._storage.flush_put_off()
        async for part in slices(due, FLUSHED_AT_ONCE):
            replicas = directory.replicas
            await self._storage.flush([replicas[key] for key in part if key in replicas])

    def _now_ms(self) -> int:
        """Milliseconds of the monotonic clock."""
        return int(self._clock.monotonic() * 1000)
