"""Records that were fetched and are lost in an unclean election: nobody reads on as if nothing had happened."""

import logging
from collections.abc import AsyncIterator

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client import Consumer, ConsumerSettings, LogTruncationError, ResetPolicy, TopicPartition
from regnum_records.build import build_batch
from regnum_records.record import NewRecord
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.waiting import DEADLINE_S, eventually

T0 = TopicPartition("t", 0)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.create("t")
        yield running


def write(cluster: FakeCluster, *values: bytes) -> None:
    """One batch under the present leader."""
    cluster.partitions[T0].append(build_batch([NewRecord(value=value) for value in values], timestamp_ms=1000))


def lose(cluster: FakeCluster, offset: int) -> None:
    """Another leader, whose log ends there."""
    cluster.partitions[T0].truncate(offset)
    cluster.elect(*T0, 2 if cluster.partitions[T0].leader == 1 else 1)


def consumer_of(cluster: FakeCluster, reset: ResetPolicy = ResetPolicy.FAIL) -> Consumer:
    return Consumer(cluster.bootstrap, settings=ConsumerSettings(fetch_wait_ms=50, reset=reset))


async def read(consumer: Consumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    while len(values) < count:
        some = await consumer.read(records_max=count - len(values), timeout_s=DEADLINE_S)
        assert some, f"nothing came after {values}"
        values += [record.value for record in some]
    return values


async def test_what_was_read_and_is_lost_is_an_error_that_says_where_to_go_on(cluster: FakeCluster) -> None:
    write(cluster, b"kept")
    write(cluster, b"lost", b"lost too")
    async with consumer_of(cluster) as consumer:
        await consumer.assign("t")
        assert await read(consumer, 3) == [b"kept", b"lost", b"lost too"]
        lose(cluster, 1)
        write(cluster, b"new", b"newer", b"newest", b"last")
        with pytest.raises(LogTruncationError, match=r"records 1 to 2 of t/0 .*seek\(\) to 1") as caught:
            await read(consumer, 1)
        error = caught.value
        assert (error.code, error.partition) == (errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE, T0)
        assert (error.offset, error.divergent_offset, error.leader_epoch) == (3, 1, 0)
        with pytest.raises(LogTruncationError):
            await consumer.read(timeout_s=1.0)
        consumer.seek(T0, error.divergent_offset, leader_epoch=error.leader_epoch)
        assert await read(consumer, 4) == [b"new", b"newer", b"newest", b"last"]


@pytest.mark.parametrize("policy", [ResetPolicy.EARLIEST, ResetPolicy.LATEST])
async def test_whoever_asked_for_a_reset_reads_everything_that_came_instead(
    cluster: FakeCluster, policy: ResetPolicy, caplog: pytest.LogCaptureFixture
) -> None:
    write(cluster, b"kept")
    write(cluster, b"lost")
    async with consumer_of(cluster, policy) as consumer:
        await consumer.assign("t")
        assert await read(consumer, 2) == [b"kept", b"lost"]
        lose(cluster, 1)
        write(cluster, b"new", b"newer")
        with caplog.at_level(logging.WARNING, logger="regnum_client"):
            assert await read(consumer, 2) == [b"new", b"newer"]
    assert f"reading goes on at 1, as reset={policy.value} asks for" in caplog.text


async def test_what_was_fetched_and_not_read_gives_way_silently(cluster: FakeCluster) -> None:
    write(cluster, b"kept")
    write(cluster, b"lost")
    async with consumer_of(cluster) as consumer:
        await consumer.assign("t")
        assert await read(consumer, 1) == [b"kept"]
        lose(cluster, 1)
        write(cluster, b"new")

        async def fetched_anew() -> bool:
            return consumer.unread_bytes > 0

        await eventually(fetched_anew, what="the new leader's record, at an offset that had been fetched")
        assert await read(consumer, 1) == [b"new"]


async def test_a_position_that_was_kept_with_its_epoch_is_compared_when_it_is_taken_up(cluster: FakeCluster) -> None:
    write(cluster, b"kept")
    write(cluster, b"lost")
    async with consumer_of(cluster) as consumer:
        await consumer.assign("t")
        await read(consumer, 2)
        position = consumer.position(T0)
        epoch = consumer.leader_epoch_before(T0, position)
    assert (position, epoch) == (2, 0)
    lose(cluster, 1)
    write(cluster, b"new", b"newer")
    async with consumer_of(cluster) as consumer:
        await consumer.assign("t", start=position)
        consumer.seek(T0, position, leader_epoch=epoch)
        with pytest.raises(LogTruncationError) as caught:
            await read(consumer, 1)
        assert (caught.value.divergent_offset, caught.value.leader_epoch) == (1, None)


async def test_two_losses_one_after_the_other_are_two_errors(cluster: FakeCluster) -> None:
    write(cluster, b"0")
    cluster.elect(*T0, 2)
    write(cluster, b"1")
    cluster.elect(*T0, 3)
    write(cluster, b"2")
    async with consumer_of(cluster) as consumer:
        await consumer.assign("t")
        assert await read(consumer, 3) == [b"0", b"1", b"2"]
        for offset in (2, 1):
            lose(cluster, offset)
            with pytest.raises(LogTruncationError) as caught:
                await read(consumer, 1)
            assert caught.value.divergent_offset == offset
            consumer.seek(T0, offset, leader_epoch=caught.value.leader_epoch)
        write(cluster, b"new")
        assert await read(consumer, 1) == [b"new"]
