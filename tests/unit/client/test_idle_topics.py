"""A client forgets topics that it does not use any more, and loses nothing by it."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client import Admin, Consumer, Producer, SequenceBrokenError
from regnum_client.cluster.metadata import Metadata
from regnum_client.cluster.questions import IDLE_MAX_S
from regnum_client.producer.route import RESTS_S
from regnum_client.records import TopicPartition
from regnum_records.header import BatchHeader
from regnum_service.errors import RegnumError
from regnum_testing.clock import SkippingClock
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.producing import numbered, producer_to
from regnum_testing.waiting import DEADLINE_S, until


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        for name in ("t", "other"):
            running.create(name)
        yield running


@pytest.fixture
def clock() -> SkippingClock:
    return SkippingClock()


def metadata_of(client: Producer | Consumer) -> Metadata:
    metadata = client._metadata
    assert metadata is not None
    return metadata


async def look(client: Producer | Consumer, clock: SkippingClock, *, after_s: float = IDLE_MAX_S + 1) -> Metadata:
    """Let time go by; then the client asks about everything that it uses."""
    clock.skipped_s += after_s
    metadata = metadata_of(client)
    await metadata.newer_than(clock.monotonic(), timeout_s=DEADLINE_S)
    return metadata


def headers(cluster: FakeCluster, topic: str = "t") -> list[BatchHeader]:
    return [header for header, _ in cluster.partitions[topic, 0].batches]


async def send(producer: Producer, topic: str, *values: bytes | None) -> list[int]:
    """Each as a batch of its own; their offsets."""
    return [(await producer.send_and_wait(topic, value)).offset for value in values]


async def test_what_a_producer_does_not_use_is_forgotten_and_asked_for_no_more(
    cluster: FakeCluster, clock: SkippingClock
) -> None:
    async with producer_to(cluster, clock=clock) as producer:
        await send(producer, "t", b"0")
        sending = asyncio.create_task(send(producer, "never", b"0"))
        await until(lambda: ("never",) in cluster.named)
        clock.skipped_s += producer._settings.topic_wait_s
        with pytest.raises(RegnumError, match="never"):
            await sending
        await send(producer, "other", b"0")
        clock.skipped_s += IDLE_MAX_S + 1
        await send(producer, "other", b"1")
        metadata = await look(producer, clock, after_s=0)
        assert "never" in (cluster.named[-1] or ()), "it was in use until this question was answered"
        await metadata.newer_than(clock.monotonic(), timeout_s=DEADLINE_S)
        assert cluster.named[-1] == ("other",)
        assert set(metadata.view.topics) == {"other"}
        assert producer._sender is not None
        assert set(producer._sender.paths.known) == {TopicPartition("other", 0)}
        assert set(producer._partitioner._turn) == {"other"}


async def test_a_partition_that_is_used_again_goes_on_with_its_numbers(
    cluster: FakeCluster, clock: SkippingClock
) -> None:
    """Begun anew under the same producer id, the first records would be taken for repeats, and lost."""
    async with producer_to(cluster, clock=clock) as producer:
        for first in (0, 3, 6):
            assert await send(producer, "t", *numbered(first, first + 3)) == [first, first + 1, first + 2]
            metadata = await look(producer, clock)
            assert "t" not in metadata.view.topics
    assert cluster.values("t") == numbered(0, 9)
    assert [header.base_sequence for header in headers(cluster)] == list(range(9))
    assert len({header.producer_id for header in headers(cluster)}) == 1


async def test_after_a_day_a_partition_begins_anew_under_another_producer_id(
    cluster: FakeCluster, clock: SkippingClock
) -> None:
    async with producer_to(cluster, clock=clock) as producer:
        await send(producer, "t", *numbered(0, 3))
        first = cluster.producer_ids
        await look(producer, clock)
        await look(producer, clock, after_s=RESTS_S + 1)
        await until(lambda: cluster.producer_ids == first + 1, "another id is had before anybody needs it")
        assert await send(producer, "other", b"0") == [0]
        await look(producer, clock)
        assert producer._sender is not None
        assert set(producer._sender.paths._resting) == {TopicPartition("other", 0)}
        assert await send(producer, "t", *numbered(3, 6)) == [3, 4, 5]
    assert cluster.values("t") == numbered(0, 6)
    assert [(one.producer_id, one.base_sequence) for one in headers(cluster)] == [
        *((id, number) for id in (first, first + 1) for number in range(3)),
    ]


async def test_broken_numbers_are_not_mended_by_being_forgotten(cluster: FakeCluster, clock: SkippingClock) -> None:
    """The partition would get the same id again, from 0 on."""
    async with producer_to(cluster, clock=clock) as producer:
        await send(producer, "t", *numbered(0, 3))
        first = cluster.producer_ids
        cluster.answers["t", 0] = deque([errors_pb2.ERROR_CODE_INVALID_PRODUCER_EPOCH])
        with pytest.raises(SequenceBrokenError):
            await send(producer, "t", b"lost")
        await look(producer, clock)
        assert await send(producer, "t", *numbered(3, 5)) == [3, 4]
    assert cluster.values("t") == numbered(0, 5)
    assert [(one.producer_id, one.base_sequence) for one in headers(cluster)[3:]] == [(first + 1, 0), (first + 1, 1)]


async def test_a_topic_whose_records_wait_is_in_use(cluster: FakeCluster, clock: SkippingClock) -> None:
    async with producer_to(cluster, clock=clock, delivery_timeout_s=10 * IDLE_MAX_S) as producer:
        await send(producer, "t", b"0")
        cluster.elect("t", 0, -1)
        waiting = await producer.send("t", b"1")
        for _ in range(3):
            metadata = await look(producer, clock)
            assert "t" in metadata.view.topics
        cluster.elect("t", 0, 2)
        assert (await asyncio.wait_for(waiting, DEADLINE_S)).offset == 1
    assert cluster.values("t") == numbered(0, 2)


async def test_a_topic_that_a_consumer_reads_is_in_use_and_one_that_it_left_is_not(
    cluster: FakeCluster, clock: SkippingClock
) -> None:
    async with Consumer(cluster.bootstrap, clock=clock) as consumer, producer_to(cluster) as producer:
        (gone,) = await consumer.assign("t")
        await consumer.assign("other")
        metadata = await look(consumer, clock)
        assert set(metadata.view.topics) == {"t", "other"}
        consumer.unassign(gone)
        await look(consumer, clock)
        await metadata.newer_than(clock.monotonic(), timeout_s=DEADLINE_S)
        assert set(metadata.view.topics) == {"other"}
        assert cluster.named[-1] == ("other",)
        await send(producer, "t", b"0")
        await consumer.assign("t")
        assert [record.value for record in await consumer.read(timeout_s=DEADLINE_S)] == [b"0"]


async def test_a_topic_that_is_subscribed_to_is_in_use_without_partitions(
    cluster: FakeCluster, clock: SkippingClock
) -> None:
    async with Consumer(cluster.bootstrap, clock=clock) as consumer:
        for partition in await consumer.subscribe("t"):
            consumer.unassign(partition)
        metadata = await look(consumer, clock)
        assert set(metadata.view.topics) == {"t"}


async def test_an_admin_forgets_nothing(cluster: FakeCluster) -> None:
    """Its calls may wait for as long as they are told."""
    async with Admin(cluster.bootstrap) as admin:
        assert admin._metadata is not None
        assert admin._metadata.idle.release is None
