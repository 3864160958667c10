"""Members of a group that keep what they processed, and committed offsets that somebody watches."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final

from regnum_client import Admin, CommitFailedError, Consumer, ConsumerSettings, TlsFiles, TopicPartition
from regnum_service.errors import RegnumError

SETTINGS: Final = ConsumerSettings(
    enable_auto_commit=False, session_timeout_s=6.0, heartbeat_interval_s=0.5, fetch_wait_ms=100
)
"""Commits are the reader's, after it has processed."""


class Processed:
    """What a group has processed: how often each record."""

    def __init__(self) -> None:
        self.times: Final[dict[TopicPartition, Counter[int]]] = {}

    def take(self, partition: TopicPartition, offset: int) -> None:
        """A record was processed."""
        self.times.setdefault(partition, Counter())[offset] += 1

    def covers(self, ends: dict[TopicPartition, int]) -> bool:
        """Whether every record below those offsets was processed."""
        return all(
            len(self.times.get(one, ())) >= end and set(range(end)) <= self.times.get(one, Counter()).keys()
            for one, end in ends.items()
        )

    @property
    def repeated(self) -> int:
        """How many more times than once, all records together."""
        return sum(times - 1 for counted in self.times.values() for times in counted.values())


class GroupReader:
    """A member that commits after processing."""

    def __init__(
        self,
        bootstrap: Sequence[str],
        topic: str,
        group_id: str,
        processed: Processed,
        *,
        tls: TlsFiles | None = None,
    ) -> None:
        self._consumer: Final = Consumer(
            bootstrap, topics=[topic], group_id=group_id, settings=SETTINGS, client_id="group-reader", tls=tls
        )
        self._processed: Final = processed
        self.refused = 0
        """Commits that came too late."""
        self.task: Final = asyncio.create_task(self._run(), name="group-reader")

    async def _run(self) -> None:
        async with self._consumer as consumer:
            while True:
                records = await consumer.read(records_max=200, timeout_s=1.0)
                for record in records:
                    self._processed.take(TopicPartition(record.topic, record.partition), record.offset)
                if records:
                    try:
                        await consumer.commit()
                    except CommitFailedError:
                        self.refused += 1
                    except RegnumError as error:
                        # No coordinator for as long as a commit may take: what it has not committed is committed next.
                        if not error.traits.retriable:
                            raise

    async def stop(self) -> None:
        """Leave. Raises what reading failed with."""
        self.task.cancel()
        done = await asyncio.gather(self.task, return_exceptions=True)
        if isinstance(done[0], BaseException) and not isinstance(done[0], asyncio.CancelledError):
            raise done[0]


class CommitWatch:
    """Looks at what a group has committed, all the time."""

    def __init__(self, admin: Admin, group_id: str) -> None:
        self._admin: Final = admin
        self._group_id: Final = group_id
        self.committed: dict[TopicPartition, int] = {}
        """Newest that were seen."""
        self.looks = 0
        """How often somebody answered."""
        self.went_back: list[str] = []
        """Offsets below those seen before."""
        self.task: Final = asyncio.create_task(self._run(), name="commit-watch")

    async def _run(self) -> None:
        while True:
            try:
                found = await self._admin.list_group_offsets(self._group_id)
            except RegnumError as error:
                if not error.traits.retriable:
                    raise
                continue
            self.looks += 1
            for partition, known in self.committed.items():
                now = found.get(partition)
                if now is None or now.offset < known:
                    self.went_back.append(f"{partition}: {known}, then {now}")
            self.committed = {partition: one.offset for partition, one in found.items()}
            await asyncio.sleep(0.05)  # a sample, not a wait

    async def stop(self) -> None:
        """Look no more. Raises what looking failed with."""
        self.task.cancel()
        done = await asyncio.gather(self.task, return_exceptions=True)
        if isinstance(done[0], BaseException) and not isinstance(done[0], asyncio.CancelledError):
            raise done[0]
