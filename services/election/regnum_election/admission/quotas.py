"""Everything about quotas of one reign, put together: what is set, who judges, who stands in."""

import asyncio
from collections.abc import Callable
from typing import Final

from regnum_coordination.port import Store
from regnum_model.bucket import Limit
from regnum_model.quotas import QuotaProcessNode
from regnum_service.cancellation import end_task
from regnum_service.clock import Clock
from regnum_service.supervisor import Spawn
from regnum_telemetry.metrics import Metrics

from regnum_election.admission.admissions import Admissions
from regnum_election.admission.exempt_users import ExemptUsers
from regnum_election.admission.kept_buckets import KeptBuckets
from regnum_election.admission.quota_book import QuotaBook
from regnum_election.admission.quota_process import ActiveQuotaProcess, QuotaChannel
from regnum_election.admission.stand_in import QuotaStandIn
from regnum_election.admission.usage import QuotaUsages
from regnum_election.reign.reign import Reign
from regnum_election.reign.writing import FencedStore


class Quotas:
    """The parts, and the tasks that keep them going.

    They end with the reign: what this process learnt of buckets is worth nothing once somebody else has charged them.
    """

    def __init__(
        self,
        reign: Reign,
        store: FencedStore,
        *,
        open_channel: Callable[[QuotaProcessNode], QuotaChannel],
        stand_in_limit: Limit | None,
        clock: Clock,
        spawn: Spawn,
        metrics: Metrics | None = None,
    ) -> None:
        self._spawn = spawn
        self._process = ActiveQuotaProcess(open_channel)
        self._exempt = ExemptUsers()
        kept = KeptBuckets()
        self.book: Final = QuotaBook(
            store,
            limits_changed=lambda former, limits: kept.limits_changed(former, limits, clock.monotonic()),
            wall_ms=clock.wall_ms,
        )
        """What is set."""
        self.admissions: Final = Admissions(
            name=f"{reign.controller_id}-{reign.epoch}",
            book=self.book,
            process=self._process,
            kept=kept,
            stand_in=QuotaStandIn(kept, limit=stand_in_limit, exempt=self._exempt),
            clock=clock,
            metrics=metrics,
        )
        """Who judges."""
        self.usages: Final = QuotaUsages(book=self.book, process=self._process, kept=kept, clock=clock)
        """Who uses what."""
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, store: Store) -> None:
        """Read and follow what the store says, and judge."""
        self._tasks = [
            self._spawn("watch-quotas", self.book.follow(store)),
            self._spawn("watch-exempt-users", self._exempt.follow(store)),
            self._spawn("watch-quota-process", self._process.follow(store)),
            self._spawn("admissions", self.admissions.run()),
            self._spawn("look-out-for-quota-process", self.admissions.look_out()),
        ]

    async def close(self) -> None:
        """The reign is over."""
        # Before anything is waited for: these answer who waits.
        self.book.close()
        self.admissions.close()
        for task in self._tasks:
            end_task(task)
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._process.close()
