"""Members of one group against a coordinator in this process: they read all the time, and are looked at."""

import asyncio
import random
from collections.abc import Iterable
from typing import Any, Final

from regnum_client import Consumer, ConsumerSettings, TopicPartition
from regnum_client.records import ConsumedRecord
from regnum_records.build import build_batch
from regnum_records.record import NewRecord

from regnum_testing.fake_cluster import FakeCluster


def member(cluster: FakeCluster, *, topics: Iterable[str] = ("t",), **more: Any) -> Consumer:
    """A member of group ``g`` with short times; ``more``: of its place in the group, and settings."""
    place = {name: more.pop(name) for name in ("group_instance_id", "listener", "clock") if name in more}
    settings = {"fetch_wait_ms": 20, "heartbeat_interval_s": 0.02, "auto_commit_interval_s": 0.05, **more}
    return Consumer(
        cluster.bootstrap,
        topics=topics,
        group_id="g",
        settings=ConsumerSettings(**settings),
        chance=random.Random(5),
        **place,
    )


def write(cluster: FakeCluster, partition: int, count: int, topic: str = "t") -> None:
    """So many records in one batch: their numbers."""
    records = [NewRecord(value=b"%d" % number) for number in range(count)]
    cluster.partitions[topic, partition].append(build_batch(records, timestamp_ms=1000))


class Reading:
    """Reads all the time."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer: Final = consumer
        self.records: list[ConsumedRecord] = []
        """What was handed out."""
        self.task: Final = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while True:
            self.records += await self.consumer.read(timeout_s=0.02)

    async def stop(self) -> None:
        """Read no more."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    @property
    def has(self) -> frozenset[TopicPartition]:
        """Its partitions; AssertionError when reading has ended."""
        assert not self.task.done(), self.task
        return self.consumer.assignment
