"""Brokers that are cut off from the rest and answer all the same: what they say is old, and clients notice."""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client import Consumer, ConsumerSettings, Producer, ProducerSettings
from regnum_client.cluster.connections import Connections
from regnum_client.cluster.metadata import SET_BACK_S, Metadata
from regnum_client.tasks import Tasks
from regnum_records.build import build_batch
from regnum_records.record import NewRecord
from regnum_service.channel import Channels
from regnum_testing.clock import SkippingClock
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.waiting import DEADLINE_S, until


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.create("t")
        yield running


class Picture:
    """A client's picture of the cluster, refreshed when the test says so."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.connections = Connections(Channels())
        self.clock = SkippingClock()
        self.metadata = Metadata(
            [broker.address for broker in cluster.brokers.values()],
            self.connections,
            clock=self.clock,
            chance=random.Random(3),
            client_id="test",
            tasks=Tasks("test"),
            # Its pauses would move the clock.
            watches=False,
        )

    async def __aenter__(self) -> Metadata:
        await self.metadata.start(timeout_s=DEADLINE_S)
        await self.metadata.topic("t", timeout_s=DEADLINE_S)
        return self.metadata

    async def __aexit__(self, *_: object) -> None:
        await self.metadata.close()
        await self.connections.close()


async def refresh(metadata: Metadata) -> None:
    await metadata.newer_than(metadata.view.as_of_s, timeout_s=DEADLINE_S)


def producer_to(cluster: FakeCluster) -> Producer:
    return Producer(cluster.bootstrap, settings=ProducerSettings(linger_ms=1.0), chance=random.Random(7))


def write(cluster: FakeCluster, value: bytes) -> None:
    cluster.partitions[("t", 0)].append(build_batch([NewRecord(value=value)], timestamp_ms=1000))


async def test_every_refresh_asks_another_broker(cluster: FakeCluster) -> None:
    async with Picture(cluster) as metadata:
        cluster.asked.clear()
        for _ in range(6):
            await refresh(metadata)
    # Who answers late on a busy machine is passed over once.
    assert set(cluster.asked) == {1, 2, 3}
    assert len(cluster.asked) >= 6
    assert all(one != next_ for one, next_ in zip(cluster.asked, cluster.asked[1:], strict=False))


async def test_a_broker_that_is_cut_off_is_not_believed_and_not_asked_again_at_once(cluster: FakeCluster) -> None:
    await cluster.brokers[2].cut_off()
    async with Picture(cluster) as metadata:
        cluster.elect("t", 0, 3)
        for _ in range(3):
            await refresh(metadata)
        assert metadata.view.leader_term("t", 0) == (cluster.topic_ids["t"], 3, 1)
        cluster.asked.clear()
        for _ in range(12):
            await refresh(metadata)
        assert 2 not in cluster.asked
        assert metadata.view.leader_term("t", 0) == (cluster.topic_ids["t"], 3, 1)


async def test_when_all_brokers_are_behind_the_picture_stays_and_does_not_hang(cluster: FakeCluster) -> None:
    for broker in cluster.brokers.values():
        await broker.cut_off()
    async with Picture(cluster) as metadata:
        cluster.elect("t", 0, 3)
        cluster.brokers[3].stale = None
        while metadata.view.leader_term("t", 0) != (cluster.topic_ids["t"], 3, 1):
            await refresh(metadata)
        await cluster.brokers[3].stop()
        before = metadata.view
        await refresh(metadata)
        assert metadata.view.as_of_s > before.as_of_s
        assert (metadata.view.brokers, metadata.view.topics) == (before.brokers, before.topics)


async def test_a_cluster_that_was_set_back_is_believed_after_some_minutes(cluster: FakeCluster) -> None:
    """Its store was restored: every version is lower than before, and the topic is another one of that name."""
    picture = Picture(cluster)
    async with picture as metadata:
        former = metadata.view.topics["t"].topic_id
        cluster.delete("t")
        cluster.create("t")
        cluster.version = 0
        await refresh(metadata)
        assert metadata.view.topics["t"].topic_id == former
        picture.clock.skipped_s += SET_BACK_S
        await refresh(metadata)
        assert metadata.view.topics["t"].topic_id == cluster.topic_ids["t"] != former


async def test_another_cluster_at_the_old_addresses_is_believed_after_some_minutes(cluster: FakeCluster) -> None:
    picture = Picture(cluster)
    async with picture as metadata:
        for _ in range(2):
            cluster.elect("t", 0, 3)
        await refresh(metadata)
        cluster.cluster_id = "new"
        cluster.partitions[("t", 0)].leader_epoch = 0
        cluster.version = 1_000
        await refresh(metadata)
        assert (metadata.view.cluster_id, metadata.view.leader_term("t", 0)) == ("fake", (cluster.topic_ids["t"], 3, 2))
        picture.clock.skipped_s += SET_BACK_S
        await refresh(metadata)
        assert (metadata.view.cluster_id, metadata.view.leader_term("t", 0)) == ("new", (cluster.topic_ids["t"], 3, 0))


async def test_a_consumer_leaves_a_deposed_leader_that_answers_every_poll(cluster: FakeCluster) -> None:
    write(cluster, b"before")
    settings = ConsumerSettings(fetch_wait_ms=50)
    async with Consumer(cluster.bootstrap, settings=settings, chance=random.Random(5)) as consumer:
        await consumer.assign("t")
        assert [record.value for record in await consumer.read(timeout_s=DEADLINE_S)] == [b"before"]
        await cluster.brokers[1].cut_off()
        cluster.elect("t", 0, 2)
        write(cluster, b"after")
        cluster.asked.clear()
        assert [record.value for record in await consumer.read(timeout_s=DEADLINE_S)] == [b"after"]
        assert cluster.asked[0] != 1, "another broker is asked, and its first answer is enough"


async def test_a_long_poll_to_a_deposed_leader_is_not_waited_for(cluster: FakeCluster) -> None:
    settings = ConsumerSettings(fetch_wait_ms=600_000)
    async with Consumer(cluster.bootstrap, settings=settings, chance=random.Random(5)) as consumer:
        await consumer.assign("t")
        await until(lambda: cluster.calls["Fetch"] > 0)
        await cluster.brokers[1].cut_off()
        cluster.elect("t", 0, 2)
        reading = asyncio.create_task(consumer.read(timeout_s=DEADLINE_S))
        await until(lambda: cluster.calls["Fetch"] > 1)
        write(cluster, b"after")
        assert [record.value for record in await reading] == [b"after"]


async def test_a_busy_partition_does_not_hide_a_quiet_one(cluster: FakeCluster) -> None:
    cluster.create("busy")
    settings = ConsumerSettings(fetch_wait_ms=50)
    async with Consumer(cluster.bootstrap, settings=settings, chance=random.Random(5)) as consumer:
        await consumer.assign("t")
        await consumer.assign("busy")
        await cluster.brokers[1].cut_off()
        cluster.elect("t", 0, 2)
        cluster.elect("busy", 0, 3)
        write(cluster, b"after")
        seen: set[str] = set()

        async def keep_busy() -> None:
            while True:
                batch = build_batch([NewRecord(value=b"x")], timestamp_ms=1000)
                cluster.partitions[("busy", 0)].append(batch)
                # Traffic, not a wait.
                await asyncio.sleep(0.05)

        busy = asyncio.create_task(keep_busy())
        async with asyncio.timeout(DEADLINE_S):
            while "t" not in seen:
                seen |= {record.topic for record in await consumer.read(timeout_s=1.0)}
        assert not busy.done(), "the other partition was busy all the time"
        busy.cancel()


async def test_a_producer_leaves_a_deposed_leader_that_confirms_nothing(cluster: FakeCluster) -> None:
    async with producer_to(cluster) as producer:
        await (await producer.send("t", b"0"))
        await cluster.brokers[1].cut_off()
        waiting = await producer.send("t", b"1")
        cluster.elect("t", 0, 2)
        async with asyncio.timeout(DEADLINE_S):
            assert (await waiting).offset == 1


async def test_a_call_that_carries_one_partition_that_moved_is_not_waited_for(cluster: FakeCluster) -> None:
    """The deposed leader led two; the other one has no leader any more."""
    cluster.create("wide", partitions=6)
    async with producer_to(cluster) as producer:
        for number in (0, 3):
            await (await producer.send("wide", b"0", partition=number))
        await cluster.brokers[1].cut_off()
        moved = await producer.send("wide", b"1", partition=0)
        stays = await producer.send("wide", b"1", partition=3)
        cluster.elect("wide", 0, 2)
        cluster.elect("wide", 3, -1)
        async with asyncio.timeout(DEADLINE_S):
            assert (await moved).offset == 1
        assert not stays.done()
        cluster.elect("wide", 3, 3)
        assert (await stays).offset == 1


async def test_a_leader_that_only_refuses_is_compared_with_what_others_say(cluster: FakeCluster) -> None:
    """NOT_ENOUGH_REPLICAS is no reason to look elsewhere; when it lasts, it is."""
    async with producer_to(cluster) as producer:
        await (await producer.send("t", b"0"))
        await cluster.brokers[1].cut_off()
        cluster.brokers[1].cut_off_at = None
        cluster.answers[("t", 0)] = deque([errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS] * 10)
        waiting = await producer.send("t", b"1")
        cluster.elect("t", 0, 2)
        cluster.asked.clear()
        async with asyncio.timeout(DEADLINE_S):
            assert (await waiting).offset == 1
        assert 1 not in cluster.asked[:1]


async def test_a_refusal_that_names_the_leader_needs_no_metadata(cluster: FakeCluster) -> None:
    async with producer_to(cluster) as producer:
        await (await producer.send("t", b"0"))
        for broker in cluster.brokers.values():
            await broker.cut_off()
            broker.cut_off_at = None
            broker.names_the_leader = True
        cluster.elect("t", 0, 3)
        async with asyncio.timeout(DEADLINE_S):
            assert (await (await producer.send("t", b"1"))).offset == 1
    settings = ConsumerSettings(fetch_wait_ms=50)
    async with Consumer(cluster.bootstrap, settings=settings, chance=random.Random(5)) as consumer:
        await consumer.assign("t", start=0)
        async with asyncio.timeout(DEADLINE_S):
            assert [record.value for record in await consumer.read(timeout_s=DEADLINE_S)] == [b"0", b"1"]
