"""Where a consumer reads and what it leaves for later: pauses, seeks, moments, and whole batches."""

import asyncio
import logging
import random
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client import (
    AtTime,
    Consumer,
    ConsumerSettings,
    RecordBatch,
    ResetPolicy,
    TopicPartition,
    UnreadableBatchError,
)
from regnum_client.records import ConsumedRecord
from regnum_records.build import CodecName, build_batch
from regnum_records.header import CRC_START
from regnum_records.record import NewRecord
from regnum_service.errors import RegnumError
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.create("t", partitions=2)
        yield running


def consumer_of(cluster: FakeCluster, **settings: object) -> Consumer:
    return Consumer(
        cluster.bootstrap,
        settings=ConsumerSettings(**{"fetch_wait_ms": 50, **settings}),  # type: ignore[arg-type]
        chance=random.Random(5),
    )


def write(
    cluster: FakeCluster,
    partition: int,
    *timestamps_ms: int,
    records: int = 10,
    codec: CodecName = "none",
    value: bytes = b"value",
) -> None:
    """A batch for each timestamp."""
    for timestamp_ms in timestamps_ms or (1000,):
        batch = build_batch([NewRecord(value=value)] * records, timestamp_ms=timestamp_ms, codec=codec)
        cluster.partitions["t", partition].append(batch)


async def read(consumer: Consumer, count: int) -> list[ConsumedRecord]:
    records: list[ConsumedRecord] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(records) < count:
            records += await consumer.read(records_max=count - len(records), timeout_s=1.0)
    return records


async def batches(consumer: Consumer, count: int) -> list[RecordBatch]:
    found: list[RecordBatch] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(found) < count:
            batch = await consumer.read_batch(timeout_s=1.0)
            if batch is not None:
                found.append(batch)
    return found


def places(records: list[ConsumedRecord]) -> set[tuple[int, int]]:
    return {(record.partition, record.offset) for record in records}


async def test_a_paused_partition_gives_nothing_and_goes_on_where_it_was(cluster: FakeCluster) -> None:
    write(cluster, 0, records=30)
    write(cluster, 1, records=30)
    async with consumer_of(cluster) as consumer:
        await consumer.assign("t")
        seen = await read(consumer, 5)
        first = TopicPartition("t", seen[0].partition)
        other = P1 if first == P0 else P0
        consumer.pause(first)
        assert consumer.paused == {first}
        assert consumer.position(first) == 5
        rest = await read(consumer, 30)
        assert places(rest) == {(other.partition, offset) for offset in range(30)}
        write(cluster, first.partition)
        assert await consumer.read(timeout_s=0.2) == []
        consumer.resume(first)
        assert consumer.paused == frozenset()
        assert [record.offset for record in await read(consumer, 35)] == list(range(5, 40))


async def test_what_is_paused_takes_no_room_and_asks_no_leader(cluster: FakeCluster) -> None:
    write(cluster, 0)
    async with consumer_of(cluster) as consumer:
        await consumer.assign("t", partitions=[0])
        await until(lambda: consumer.unread_bytes > 0)
        consumer.pause(P0)
        fetches = cluster.calls["Fetch"]
        assert consumer.unread_bytes == 0
        # A sample: time for several polls. Nothing tells that something will not happen.
        await asyncio.sleep(0.3)
        assert cluster.calls["Fetch"] <= fetches + 1, "one that was on its way, and no other"
        consumer.pause(P0)
        consumer.resume(P0)
        consumer.resume(P0)
        assert len(await read(consumer, 10)) == 10


async def test_a_partition_that_is_paused_while_it_stands_in_line_for_a_poll_is_not_asked_for() -> None:
    """It was fetched and handed out all the same, as soon as its leader took another poll."""
    async with FakeCluster(brokers=1) as cluster:
        cluster.create("t", partitions=2)
        cluster.brokers[1].throttles.append(300)
        async with consumer_of(cluster) as consumer:
            await consumer.assign("t", partitions=[0])
            fetcher = consumer._fetcher
            assert fetcher is not None
            await until(lambda: any(P0 in line for _, line in fetcher._departures.lines()), "it waits for the throttle")
            consumer.pause(P0)
            write(cluster, 0)
            write(cluster, 1)
            await consumer.assign("t", partitions=[1])
            assert places(await read(consumer, 10)) == {(1, offset) for offset in range(10)}
            assert consumer.unread_bytes == 0
            consumer.resume(P0)
            assert places(await read(consumer, 10)) == {(0, offset) for offset in range(10)}


async def test_a_seek_of_a_paused_partition_counts_when_it_goes_on(cluster: FakeCluster) -> None:
    write(cluster, 0, records=30)
    async with consumer_of(cluster) as consumer:
        await consumer.assign("t", partitions=[0])
        consumer.pause(P0)
        consumer.seek(P0, 20)
        assert await consumer.read(timeout_s=0.1) == []
        consumer.resume(P0)
        assert [record.offset for record in await read(consumer, 10)] == list(range(20, 30))


async def test_only_what_is_assigned_is_paused_and_then_all_or_nothing(cluster: FakeCluster) -> None:
    async with consumer_of(cluster) as consumer:
        await consumer.assign("t", partitions=[0])
        assert consumer.assignment == {P0}
        with pytest.raises(RegnumError, match="t/1 is not assigned"):
            consumer.pause(P0, P1)
        assert consumer.paused == frozenset()
        assert await consumer.partitions_of("t") == (P0, P1)


async def test_the_id_of_a_topic_is_asked_for_anew(cluster: FakeCluster) -> None:
    async with consumer_of(cluster) as consumer:
        assert await consumer.partitions_of("t") == (P0, P1)
        assert await consumer.topic_ids(["t", "none"]) == {"t": (before := cluster.topic_ids["t"])}
        cluster.delete("t")
        cluster.create("t", partitions=2)
        assert await consumer.topic_ids(["t"]) == {"t": cluster.topic_ids["t"]} != {"t": before}


async def test_to_the_ends_of_some_partitions_or_of_all(cluster: FakeCluster) -> None:
    cluster.partitions["t", 0].log_start = 100
    for partition in (0, 1):
        write(cluster, partition, records=20)
    async with consumer_of(cluster) as consumer:
        await consumer.assign("t")
        await consumer.seek_to_end()
        assert (consumer.position(P0), consumer.position(P1)) == (120, 20)
        await consumer.seek_to_beginning(P0)
        assert (consumer.position(P0), consumer.position(P1)) == (100, 20)
        assert places(await read(consumer, 20)) == {(0, offset) for offset in range(100, 120)}
        consumer.unassign(P1)
        with pytest.raises(RegnumError, match="t/1 is not assigned"):
            await consumer.seek_to_beginning(P0, P1)
        assert consumer.position(P0) == 120


async def test_offsets_for_moments(cluster: FakeCluster) -> None:
    write(cluster, 0, 1000, 2000, 3000)
    write(cluster, 1, 5000)
    async with consumer_of(cluster) as consumer:
        assert await consumer.offsets_for_times({P0: 1500, P1: 1500}) == {P0: 10, P1: 0}
        assert await consumer.offsets_for_times({P0: 3001, P1: 5000}) == {P0: None, P1: 0}
        assert await consumer.offsets_for_times({}) == {}
        with pytest.raises(RegnumError, match="-1 is no moment") as caught:
            await consumer.offsets_for_times({P0: -1})
        assert caught.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
        await consumer.assign("t", start=AtTime(2500))
        assert (consumer.position(P0), consumer.position(P1)) == (20, 0)
        await consumer.assign("t", start=AtTime(4000))
        assert (consumer.position(P0), consumer.position(P1)) == (30, 0), "the end, where nothing is so young"


async def test_a_reset_says_what_it_left_out(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.partitions["t", 0].log_start = 100
    write(cluster, 0)
    with caplog.at_level(logging.WARNING, "regnum_client"):
        async with consumer_of(cluster, reset=ResetPolicy.EARLIEST) as consumer:
            await consumer.assign("t", partitions=[0], start=5)
            await read(consumer, 10)
    assert "t/0: offset 5 is not in the log (the log has 100 to 110); reading goes on at 100" in caplog.text


@pytest.mark.parametrize("codec", ["none", "zstd"])
async def test_batches_are_what_single_records_are(cluster: FakeCluster, codec: CodecName) -> None:
    write(cluster, 0, 1000, 2000, 3000, codec=codec)
    async with consumer_of(cluster) as consumer:
        await consumer.assign("t", partitions=[0], start=17)
        records = await read(consumer, 13)
        consumer.seek(P0, 17)
        found = await batches(consumer, 2)
        assert [(one.first_offset, one.next_offset, len(one)) for one in found] == [(17, 20, 3), (20, 30, 10)]
        assert [record for batch in found for record in batch] == records
        assert await found[0].decoded() == records[:3]
        assert (found[1].topic, found[1].partition, found[1].max_timestamp_ms) == ("t", 0, 3000)
        assert found[1].codec.name.lower() == codec
        assert found[1].raw == cluster.partitions[P0].batches[2][1]
        assert repr(found[0]).startswith("RecordBatch(t-0, offsets 17 to 19, ")
        assert consumer.position(P0) == 30
        assert await consumer.read_batch(timeout_s=0.05) is None


async def test_batches_and_records_in_turn_skip_nothing_and_repeat_nothing(cluster: FakeCluster) -> None:
    chance = random.Random(3)
    write(cluster, 0, *[1000] * 40, value=b"v" * 2000)
    async with consumer_of(cluster, partition_max_bytes=100_000) as consumer:
        await consumer.assign("t", partitions=[0])
        offsets: list[int] = []
        while len(offsets) < 400:
            if chance.random() < 0.5:
                offsets += [record.offset for record in (await batches(consumer, 1))[0]]
            else:
                offsets += [record.offset for record in await read(consumer, min(400 - len(offsets), 13))]
    assert offsets == list(range(400))


async def test_iterating_over_batches_waits_and_a_seek_takes_effect_at_once(cluster: FakeCluster) -> None:
    async with consumer_of(cluster) as consumer:
        await consumer.assign("t", partitions=[0])
        iterator = consumer.batches()
        first = asyncio.ensure_future(anext(iterator))
        fetches = cluster.calls["Fetch"]
        await until(lambda: cluster.calls["Fetch"] > fetches)
        write(cluster, 0, 1000, 2000, 3000)
        assert (await first).first_offset == 0
        consumer.seek(P0, 25)
        assert (await anext(iterator)).first_offset == 25


async def test_a_batch_with_a_wrong_checksum_is_found_by_whoever_decodes_it(cluster: FakeCluster) -> None:
    write(cluster, 0, 1000, 2000)
    header, data = cluster.partitions[P0].batches[0]
    hurt = bytearray(data)
    hurt[CRC_START + 50] ^= 1
    cluster.partitions[P0].batches[0] = (header, bytes(hurt))
    async with consumer_of(cluster) as consumer:
        await consumer.assign("t", partitions=[0])
        bad, good = await batches(consumer, 2)
        with pytest.raises(UnreadableBatchError) as caught:
            iter(bad)
        assert caught.value.next_offset == 10
        assert [record.offset for record in good] == list(range(10, 20))


async def test_bytes_that_are_no_batch_are_an_error_before_them(cluster: FakeCluster) -> None:
    write(cluster, 0, 1000, 2000)
    header, data = cluster.partitions[P0].batches[1]
    cluster.partitions[P0].batches[1] = (header, data[:8] + struct.pack(">i", 3) + data[12:])
    async with consumer_of(cluster) as consumer:
        await consumer.assign("t", partitions=[0])
        with pytest.raises(UnreadableBatchError):
            await batches(consumer, 2)


async def one_by_one(consumer: Consumer, count: int) -> None:
    for _ in range(count):
        await anext(consumer)


async def test_calls_are_counted_in_batches_where_nobody_asks_for_single_records(cluster: FakeCluster) -> None:
    """What the reader's side of the SDK does on the event loop, for 20 batches: counted, because time is not."""

    async def calls_for(records: int, work: Callable[[Consumer], Awaitable[object]]) -> int:
        partition = cluster.partitions[P0]
        partition.batches, partition.log_start = [], 0
        write(cluster, 0, *[1000] * 20, records=records)
        calls = 0

        def count(_frame: object, event: str, _argument: object) -> None:
            nonlocal calls
            calls += event in {"call", "c_call"}

        async with consumer_of(cluster) as consumer:
            await consumer.assign("t", partitions=[0])
            await until(lambda: consumer.unread_bytes > 0)
            sys.setprofile(count)
            try:
                await work(consumer)
            finally:
                sys.setprofile(None)
            assert consumer.position(P0) == 20 * records
        return calls

    few, many = [await calls_for(records, lambda consumer: batches(consumer, 20)) for records in (2, 200)]
    assert many <= few * 1.2
    together = await calls_for(200, lambda consumer: read(consumer, 4000))
    single = await calls_for(200, lambda consumer: one_by_one(consumer, 4000))
    assert together * 4 < single
