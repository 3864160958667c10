"""Moving log starts forward: what retention, a leader or a client asked for, many replicas in one go.

Each round is a job of the writer, an fsync beside it, and a job of the writer again (``log.starts``), for as many
replicas as wait; the files go in the background. So deletion costs appends two short jobs, however much is deleted.
Both go before the appends that wait: behind a disk that was slow for a moment there are many megabytes of those, twice,
and a small log would be larger by all of them. In which order the two come does not matter: what is deleted was
committed when it was asked for, and a truncation takes back what it has to (``log.starts``).
"""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import structlog
from regnum_model.ids import PartitionKey
from regnum_service.clock import Clock
from regnum_service.slices import slices

from regnum_broker.log.errors import ResourceExhaustedError
from regnum_broker.storage import Storage

MOVED_AT_ONCE: Final = 100
"""Replicas of one round: appends of others go between two."""

PAUSE_S: Final = 5.0
"""Pause after a disk had no room even to say that room is to be made."""


class StartMover:
    """Moves what is asked of it. Belongs to the event loop."""

    def __init__(self, *, storage: Storage, moved: Callable[[PartitionKey], None], clock: Clock) -> None:
        """Only assigns.

        Args:
            storage: where the logs are.
            moved: told of each replica whose log begins later now.
            clock: source of time.
        """
        self._storage: Final = storage
        self._moved: Final = moved
        self._clock: Final = clock
        self._wanted: Final[dict[PartitionKey, int]] = {}
        self._wake: Final = asyncio.Event()
        self._log: Final = structlog.get_logger("log starts")

    def ask(self, key: PartitionKey, offset: int) -> None:
        """Have a log begin there, soon, unless it does already. It must be committed up to there."""
        if offset > self._wanted.get(key, 0):
            self._wanted[key] = offset
            self._wake.set()

    async def run(self) -> None:
        """Move for ever; a task of the supervisor."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._wanted:
                part = dict(itertools.islice(self._wanted.items(), MOVED_AT_ONCE))
                for key in part:
                    del self._wanted[key]
                try:
                    await self.move(part)
                except ResourceExhaustedError as error:
                    self._log.warning("log starts not moved", reason=str(error), count=len(part))
                    for key, offset in part.items():
                        self._wanted[key] = max(offset, self._wanted.get(key, 0))
                    await self._clock.sleep(PAUSE_S)

    async def move(self, starts: Mapping[PartitionKey, int]) -> None:
        """Have logs begin there now. Those that do already, or do not reach so far, stay as they are.

        Raises:
            ResourceExhaustedError: no room; some may have moved.
            DirectoryFailedError: the disk failed.
        """
        storage = self._storage
        logs = storage.directory.starts
        async for part in slices(starts.items(), MOVED_AT_ONCE):
            recorded = await storage.write_first(partial(logs.record, dict(part)))
            if not recorded:
                continue
            await storage.sync_starts()
            moved = await storage.write_first(partial(logs.apply, recorded))
            if storage.directory.files_left:
                storage.remove_files()
            for key in moved:
                self._moved(key)
