"""Brings logs to the disk in time, where ``flush.ms`` asks for it, and looks at no others.

A log is noted with its first append since it was flushed last, and flushed once for all that came until its time is up.
"""

import asyncio
import contextlib
from typing import Final

from regnum_model.ids import PartitionKey
from regnum_service.clock import Clock
from regnum_service.slices import slices

from regnum_broker.retention.due import DueIndex
from regnum_broker.storage import Storage

PAUSE_S_MAX: Final = 60.0
"""Longest pause between two looks at the clock, which people may set."""

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
            pause_s = PAUSE_S_MAX if soonest is None else (soonest - self._clock.wall_ms()) / 1000
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(max(pause_s, 0.0), PAUSE_S_MAX)):
                    await wake.wait()

    async def look(self) -> None:
        """Flush the logs whose time is up."""
        directory = self._storage.directory
        noted = directory.unflushed
        while noted:
            self._due.set(*noted.popleft())
        due = self._due.take(self._clock.wall_ms(), count_max=len(self._due))
        if due:
            self._storage.flush_put_off()
        async for part in slices(due, FLUSHED_AT_ONCE):
            replicas = directory.replicas
            await self._storage.flush([replicas[key] for key in part if key in replicas])
