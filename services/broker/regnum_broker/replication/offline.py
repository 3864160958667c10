"""Replicas that turn out to be damaged while the broker runs: used no longer, and the controller told.

Whoever finds the damage (a truncation, an append, a read) may be on any thread. The replica leaves the directory on the
writer thread, after everything handed in before; then it loses its role and its name here, so that an order for it is
refused and nobody waits for it. The others are not affected, and neither is the broker.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

import structlog
from regnum_model.ids import PartitionKey

from regnum_broker.log.errors import CorruptLogError
from regnum_broker.replication.fetchers import Fetchers
from regnum_broker.replication.replicas import Replicas
from regnum_broker.storage import Storage


class OfflineReplicas:
    """Takes damaged replicas offline. Belongs to the event loop; ``damaged`` is for any thread."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        fetchers: Fetchers,
        storage: Storage,
        report: Callable[[Collection[PartitionKey]], None],
    ) -> None:
        self._replicas: Final = replicas
        self._fetchers: Final = fetchers
        self._storage: Final = storage
        self._report: Final = report
        self._found: Final[asyncio.Queue[CorruptLogError]] = asyncio.Queue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._log: Final = structlog.get_logger("storage")

    def damaged(self, error: CorruptLogError) -> None:
        """A replica is damaged. Said more than once, the first time counts."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._found.put_nowait, error)

    async def run(self) -> None:
        """Take replicas offline for ever; a task of the supervisor."""
        self._loop = asyncio.get_running_loop()
        self._storage.directory.on_damage(self.damaged)
        while True:
            await self._take_offline(await self._found.get())

    async def _take_offline(self, error: CorruptLogError) -> None:
        directory = self._storage.directory
        if not await self._storage.write(lambda: directory.take_offline(error)):
            return
        self._log.error(
            "replica offline", topic_id=error.key.topic_id, partition=error.key.partition, reason=error.reason
        )
        self._fetchers.forget(error.key)
        self._replicas.remove(error.key)
        self._report([error.key])
