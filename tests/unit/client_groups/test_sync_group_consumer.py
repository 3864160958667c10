"""Groups without asyncio: what was read ahead and not handed out is nobody's, and goes back when the group moves on."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

import pytest
from regnum_client import ConsumerSettings, NoOffsetForPartitionError, ResetPolicy, TopicPartition
from regnum_client.sync import Consumer, RebalanceListener
from regnum_records.build import build_batch
from regnum_records.record import NewRecord
from regnum_service.errors import RegnumError
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.waiting import DEADLINE_S

T = TypeVar("T")
P = [TopicPartition("t", number) for number in range(2)]
FAST = ConsumerSettings(fetch_wait_ms=20, heartbeat_interval_s=0.02, auto_commit_interval_s=0.05)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.create("t", partitions=2)
        for partition in range(2):
            records = [NewRecord(value=b"%d" % number) for number in range(100)]
            running.partitions["t", partition].append(build_batch(records, timestamp_ms=1000))
        yield running


async def beside(work: Callable[[], T]) -> T:
    """Run what blocks in a thread, as the cluster needs this one."""
    return await asyncio.wait_for(asyncio.to_thread(work), DEADLINE_S)


async def test_what_was_read_ahead_is_not_committed(cluster: FakeCluster) -> None:
    def work() -> list[tuple[int, int]]:
        with Consumer(cluster.bootstrap, topics=["t"], group_id="g", settings=FAST) as consumer:
            seen = [next(consumer) for _ in range(5)]
            consumer.commit()
            found = consumer.committed([P[seen[-1].partition]])
            assert [one.offset for one in found.values() if one is not None] == [5]
            seen += [next(consumer) for _ in range(3)]
        with Consumer(cluster.bootstrap, topics=["t"], group_id="g", settings=FAST) as consumer:
            seen += [next(consumer) for _ in range(193)]
            return [(one.partition, one.offset) for one in seen]

    seen = await beside(work)
    assert len(set(seen)) == 200
    assert len(seen) == 201, "the one that was in hand at the end"


async def test_a_partition_whose_beginning_nobody_has_said_is_not_committed(cluster: FakeCluster) -> None:
    """Offset 0 was, and the next member read it from there in place of asking where to begin."""

    def work() -> None:
        settings = ConsumerSettings(auto_offset_reset=ResetPolicy.FAIL, enable_auto_commit=False, fetch_wait_ms=20)
        with Consumer(cluster.bootstrap, topics=["t"], group_id="g", settings=settings) as consumer:
            with pytest.raises(NoOffsetForPartitionError):
                next(consumer)
            consumer.seek(P[0], 4)
            consumer.commit()

    await beside(work)
    assert [cluster.groups.offset("g", "t", number) for number in range(2)] == [4, None]


async def test_a_second_member_gets_its_share_while_the_first_reads_on(cluster: FakeCluster) -> None:
    def work() -> None:
        first = Consumer(cluster.bootstrap, topics=["t"], group_id="g", settings=FAST)
        second = Consumer(cluster.bootstrap, topics=["t"], group_id="g", settings=FAST)
        with first:
            seen = [next(first) for _ in range(3)]
            with second:
                while len(second.assignment) < 1 or len(first.assignment) > 1:
                    seen += first.read(records_max=1, timeout_s=0.01)
                    seen += second.read(records_max=1, timeout_s=0.01)
                while len(seen) < 200:
                    seen += first.read(records_max=7, timeout_s=0.01)
                    seen += second.read(records_max=7, timeout_s=0.01)
                assert not first.assignment & second.assignment
        assert len({(one.partition, one.offset) for one in seen}) == 200

    await beside(work)


async def test_a_listener_may_commit_and_seek_and_must_not_read(cluster: FakeCluster) -> None:
    class Told(RebalanceListener):
        def __init__(self) -> None:
            self.consumer: Consumer
            self.heard: list[str] = []

        def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
            for one in partitions:
                self.consumer.seek(one, 90)
            with pytest.raises(RegnumError, match="must not read"):
                next(self.consumer)
            self.heard.append("assigned")

        def on_partitions_revoked(self, partitions: Iterable[TopicPartition]) -> None:
            self.consumer.commit(dict.fromkeys(partitions, 50))
            self.heard.append("revoked")

    def work() -> list[str]:
        told = Told()
        consumer = Consumer(cluster.bootstrap, topics=["t"], group_id="g", listener=told, settings=FAST)
        told.consumer = consumer
        with consumer:
            assert next(consumer).offset == 90
        return told.heard

    assert await beside(work) == ["assigned", "revoked"]
    assert [cluster.groups.offset("g", "t", number) for number in range(2)] == [50, 50]
