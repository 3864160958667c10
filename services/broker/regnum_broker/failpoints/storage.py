"""A log directory whose appends and journal a failpoint may be about."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from regnum_service.clock import Clock
from regnum_service.failpoints.trigger import FailpointTrigger
from regnum_service.pools import MakePool, thread_pool
from regnum_telemetry.metrics import Metrics

from regnum_broker.log.directory import LogDirectory
from regnum_broker.storage import Storage

T = TypeVar("T")


class FailpointStorage(Storage):
    """A Storage that works when the failpoint lets it. What producers send is told by its size from other work."""

    def __init__(
        self,
        directory: LogDirectory,
        trigger: FailpointTrigger,
        *,
        clock: Clock,
        metrics: Metrics | None = None,
        make_pool: MakePool = thread_pool,
    ) -> None:
        """Only assigns."""
        super().__init__(directory, clock=clock, metrics=metrics, make_pool=make_pool)
        self._trigger: Final = trigger

    async def write_later(
        self, job: Callable[[], T], *, size_bytes: int = 0, replicated: bool = False
    ) -> asyncio.Future[T]:
        """See Storage. It waits on the writer thread, so that what comes behind it stays behind it."""
        trigger = self._trigger

        def write() -> T:
            trigger.reach_on_thread("append")
            return job()

        produced = size_bytes and not replicated
        return await super().write_later(write if produced else job, size_bytes=size_bytes, replicated=replicated)

    async def sync_journal(self) -> None:
        """See Storage."""
        await self._trigger.reach("journal")
        await super().sync_journal()
