"""A member that wants a topic which is not there: its application hears so in time, and gets it when it appears."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from regnum.types.v1 import errors_pb2
from regnum_service.errors import RegnumError
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.group_members import member, write
from regnum_testing.waiting import until, within


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(brokers=1) as running:
        yield running


async def test_a_missing_topic_is_told_once_and_read_when_it_appears(cluster: FakeCluster) -> None:
    async with member(cluster, topics=["late"], topic_wait_s=0.05) as consumer:
        with pytest.raises(RegnumError, match="'late' does not exist") as caught:
            await within(anext(consumer))
        assert caught.value.code == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
        waits = asyncio.create_task(anext(consumer))
        asked = cluster.calls["GetMetadata"]
        await until(lambda: cluster.calls["GetMetadata"] > asked + 1, "it goes on looking")
        assert not waits.done(), "told once"
        cluster.create("late")
        write(cluster, 0, 1, "late")
        assert (await within(waits)).value == b"0"


async def test_one_of_two_keeps_the_other_not_waiting(cluster: FakeCluster) -> None:
    cluster.create("t")
    write(cluster, 0, 1)
    async with member(cluster, topics=["t", "mispelt"], topic_wait_s=0.05) as consumer:
        heard: list[object] = []
        while len(heard) < 2:
            try:
                heard += await consumer.read(timeout_s=1.0)
            except RegnumError as error:
                heard.append(error.code)
        assert errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION in heard


async def test_a_topic_that_is_deleted_is_missed_as_well(cluster: FakeCluster) -> None:
    cluster.create("t")
    write(cluster, 0, 1)
    async with member(cluster, topic_wait_s=0.05) as consumer:
        assert (await within(anext(consumer))).offset == 0
        cluster.delete("t")
        consumer._metadata.request()  # type: ignore[union-attr]
        with pytest.raises(RegnumError, match="does not exist") as caught:
            await within(anext(consumer))
        assert caught.value.code == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION


async def test_no_answer_says_nothing_of_a_topic(cluster: FakeCluster) -> None:
    """While no broker answers, that is the error, once; the topic exists, and is read when one answers again."""
    cluster.create("t")
    (broker,) = cluster.brokers.values()
    async with member(cluster, topics=(), topic_wait_s=0.05) as consumer:
        await broker.freeze()
        await consumer.subscribe("t")
        with pytest.raises(RegnumError) as caught:
            await within(anext(consumer))
        assert caught.value.code != errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
        waits = asyncio.create_task(anext(consumer))
        broker.frozen.clear()
        broker.thawed.set()
        write(cluster, 0, 1)
        assert (await within(waits)).offset == 0
