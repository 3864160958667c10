"""Consumers that read all topics of a pattern: new ones come, deleted ones go, alone and in a group."""

from collections.abc import AsyncIterator

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client import Consumer, ConsumerSettings, TopicPartition
from regnum_service.errors import RegnumError
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.group_members import Reading, member, write
from regnum_testing.waiting import until, within

SETTINGS = ConsumerSettings(topics_refresh_s=0.1, fetch_wait_ms=50)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        for topic in ("orders-eu", "orders-us", "invoices"):
            running.create(topic, partitions=2)
        yield running


def read_of(consumer: Consumer) -> set[str]:
    return {one.topic for one in consumer.assignment}


async def test_all_topics_that_match_are_read_new_ones_too_and_deleted_ones_no_more(cluster: FakeCluster) -> None:
    async with Consumer(cluster.bootstrap, settings=SETTINGS) as consumer:
        assigned = await consumer.subscribe(pattern="orders-.*")
        assert {one.topic for one in assigned} == read_of(consumer) == {"orders-eu", "orders-us"}
        assert len(assigned) == 4
        cluster.create("orders-jp", partitions=1)
        cluster.create("reorders-jp", partitions=1)
        await until(lambda: read_of(consumer) == {"orders-eu", "orders-us", "orders-jp"}, "a new one is read")
        cluster.delete("orders-us")
        await until(lambda: read_of(consumer) == {"orders-eu", "orders-jp"}, "one that is gone is not")


async def test_a_topic_that_is_deleted_or_made_anew_between_two_looks_ends_no_reading(cluster: FakeCluster) -> None:
    """The reader was told, of each one and until it let go of it, that a topic is gone which it had not named."""
    settings = ConsumerSettings(topics_refresh_s=1000.0, fetch_wait_ms=50)
    async with Consumer(cluster.bootstrap, settings=settings) as consumer:
        await consumer.subscribe(pattern="orders-.*")
        reading = Reading(consumer)
        cluster.delete("orders-us")
        await until(lambda: {one.topic for one in reading.has} == {"orders-eu"}, "one that is gone is read no more")
        cluster.delete("orders-eu")
        cluster.create("orders-eu", partitions=1)
        write(cluster, 0, 3, topic="orders-eu")
        await until(lambda: len(reading.has) == 1, "the old one is not read any more")
        await until(lambda: [one.topic for one in reading.records] == ["orders-eu"] * 3, "and the new one is, from 0")
        assert [one.offset for one in reading.records] == [0, 1, 2]
        assert reading.has == {TopicPartition("orders-eu", 0)}
        await reading.stop()


async def test_members_of_a_group_share_the_topics_of_a_pattern_as_they_come_and_go(cluster: FakeCluster) -> None:
    settings = {"topics_refresh_s": 0.1}
    async with member(cluster, topics=(), **settings) as first, member(cluster, topics=(), **settings) as second:
        for consumer in (first, second):
            assert await consumer.subscribe(pattern="orders-(eu|us|jp)") == ()
        one, two = Reading(first), Reading(second)
        await until(lambda: len(one.has) == len(two.has) == 2, "they share")
        assert {part.topic for part in one.has | two.has} == {"orders-eu", "orders-us"}
        cluster.create("orders-jp", partitions=2)
        await until(lambda: len(one.has | two.has) == 6 and len(one.has) == 3, "what came is shared, too")
        cluster.delete("orders-eu")
        await until(
            lambda: {part.topic for part in one.has | two.has} == {"orders-us", "orders-jp"}, "what went is gone"
        )
        await one.stop()
        await two.stop()


async def test_a_pattern_under_which_nothing_is_yet_waits_for_topics(cluster: FakeCluster) -> None:
    async with member(cluster, topics=(), topics_refresh_s=0.1) as consumer:
        assert await consumer.subscribe(pattern="later-.*") == ()
        reading = Reading(consumer)
        cluster.create("later-1", partitions=3)
        await until(lambda: len(reading.has) == 3, "it came")
        assert {(part.topic, part.partition) for part in reading.has} == {("later-1", number) for number in range(3)}
        await reading.stop()


async def test_what_is_no_pattern_or_comes_with_topics_is_refused_and_changes_nothing(cluster: FakeCluster) -> None:
    async with Consumer(cluster.bootstrap, settings=SETTINGS) as consumer:
        await consumer.subscribe(pattern="orders-eu")
        for topics, pattern in (((), "(a"), (("invoices",), "orders-.*"), ((), "")):
            with pytest.raises(RegnumError) as refused:
                await within(consumer.subscribe(*topics, pattern=pattern))
            assert refused.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
        assert read_of(consumer) == {"orders-eu"}
        cluster.delete("orders-eu")
        await until(lambda: not read_of(consumer), "the pattern is followed as before")


async def test_a_topic_whose_begin_cannot_be_found_is_told_and_tried_again(cluster: FakeCluster) -> None:
    """It was left out without a word, for ever: what matches had not changed since."""
    cluster.elect("orders-us", 0, -1)
    settings = ConsumerSettings(topics_refresh_s=0.05, fetch_wait_ms=50, offsets_timeout_s=0.05)
    async with Consumer(cluster.bootstrap, settings=settings) as consumer:
        with pytest.raises(RegnumError, match="orders-us/0 has no leader"):
            await within(consumer.subscribe(pattern="orders-.*"))
        cluster.create("orders-jp")
        cluster.elect("orders-jp", 0, -1)
        cluster.elect("orders-us", 0, 1)
        await within(consumer.subscribe(pattern="orders-us|orders-eu|late.*"))
        cluster.create("late")
        cluster.elect("late", 0, -1)
        looks = cluster.calls["GetMetadata"]
        await until(lambda: cluster.calls["GetMetadata"] > looks + 5, "it cannot be read now")
        cluster.elect("late", 0, 1)
        await until(lambda: "late" in read_of(consumer), "and is when it can")
