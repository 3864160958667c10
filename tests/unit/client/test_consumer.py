"""The consumer: from where it was told, each record once and in order, whatever happens to leaders."""

import asyncio
import random
import struct
from collections.abc import AsyncIterator

import google_crc32c
import pytest
from regnum.types.v1 import errors_pb2
from regnum_client import (
    EARLIEST,
    LATEST,
    ClientClosedError,
    Consumer,
    ConsumerSettings,
    OffsetOutOfRangeError,
    ResetPolicy,
    TopicPartition,
    UnreadableBatchError,
)
from regnum_client.consumer.fetching.intake import STORAGE_ERROR_S
from regnum_client.producer.trouble import TOLD_AFTER_S
from regnum_client.records import ConsumedRecord
from regnum_records.build import CodecName, build_batch
from regnum_records.header import CRC_START, HEADER_BYTES, read_header
from regnum_records.record import NewRecord
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from regnum_testing.clock import SkippingClock
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.waiting import DEADLINE_S, until, within

T0 = TopicPartition("t", 0)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.create("t")
        yield running


def consumer_of(cluster: FakeCluster, *, clock: Clock | None = None, **settings: object) -> Consumer:
    return Consumer(
        cluster.bootstrap,
        settings=ConsumerSettings(**{"fetch_wait_ms": 50, **settings}),  # type: ignore[arg-type]
        clock=clock,
        chance=random.Random(5),
    )


def write(
    cluster: FakeCluster, first: int, last: int, *, topic: str = "t", partition: int = 0, batch: int = 10
) -> None:
    """Records numbered first .. last - 1, some to a batch."""
    for start in range(first, last, batch):
        records = [NewRecord(value=str(number).encode()) for number in range(start, min(start + batch, last))]
        cluster.partitions[(topic, partition)].append(build_batch(records, timestamp_ms=1000))


async def read(consumer: Consumer, count: int) -> list[ConsumedRecord]:
    records: list[ConsumedRecord] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(records) < count:
            records += await consumer.read(records_max=count - len(records), timeout_s=1.0)
    return records


def offsets(records: list[ConsumedRecord]) -> list[int]:
    return [record.offset for record in records]


async def test_from_the_first_record_to_the_last_and_on(cluster: FakeCluster) -> None:
    write(cluster, 0, 95)
    async with consumer_of(cluster) as consumer:
        assert await consumer.assign("t", start=EARLIEST) == (T0,)
        assert offsets(await read(consumer, 95)) == list(range(95))
        assert consumer.position(T0) == 95
        assert await consumer.read(timeout_s=0.05) == []
        write(cluster, 95, 100)
        assert [record.value for record in await read(consumer, 5)] == [b"95", b"96", b"97", b"98", b"99"]


async def test_from_the_middle_of_a_batch(cluster: FakeCluster) -> None:
    write(cluster, 0, 40)
    async with consumer_of(cluster) as consumer:
        await consumer.assign("t", start=17)
        assert offsets(await read(consumer, 23)) == list(range(17, 40))


async def test_from_the_end(cluster: FakeCluster) -> None:
    write(cluster, 0, 40)
    async with consumer_of(cluster) as consumer:
        await consumer.assign("t", start=LATEST)
        write(cluster, 40, 43)
        assert offsets(await read(consumer, 3)) == [40, 41, 42]


async def test_the_end_is_waited_for_until_a_new_leader_knows_it(cluster: FakeCluster) -> None:
    write(cluster, 0, 40)
    cluster.partitions[T0].end_questions_refused = 3
    async with consumer_of(cluster) as consumer:
        await consumer.assign("t", start=LATEST)
        assert consumer.position(T0) == 40


async def test_a_leader_that_never_learns_the_end_is_named_when_the_time_is_up(cluster: FakeCluster) -> None:
    cluster.partitions[T0].end_questions_refused = 1_000
    async with consumer_of(cluster, offsets_timeout_s=0.3) as consumer:
        with pytest.raises(RegnumError, match="t/0") as caught:
            await consumer.assign("t", start=LATEST)
    assert caught.value.code == errors_pb2.ERROR_CODE_OFFSET_NOT_AVAILABLE


async def test_iteration_waits_for_records(cluster: FakeCluster) -> None:
    async with consumer_of(cluster) as consumer:
        await consumer.assign("t")
        first = asyncio.ensure_future(anext(aiter(consumer)))
        fetches = cluster.calls["Fetch"]
        await until(lambda: cluster.calls["Fetch"] > fetches)
        write(cluster, 0, 1)
        assert (await first).value == b"0"


async def test_all_partitions_each_in_order(cluster: FakeCluster) -> None:
    cluster.create("wide", partitions=5)
    for partition in range(5):
        write(cluster, 0, 100, topic="wide", partition=partition)
    async with consumer_of(cluster, partition_max_bytes=200) as consumer:
        await consumer.assign("wide")
        records = await read(consumer, 500)
    for partition in range(5):
        assert [record.offset for record in records if record.partition == partition] == list(range(100))


async def test_a_change_of_leader_skips_nothing_and_repeats_nothing(cluster: FakeCluster) -> None:
    write(cluster, 0, 50)
    async with consumer_of(cluster, partition_max_bytes=200) as consumer:
        await consumer.assign("t")
        records = await read(consumer, 25)
        await cluster.brokers[1].stop()
        cluster.elect("t", 0, 2)
        write(cluster, 50, 80)
        records += await read(consumer, 40)
        cluster.elect("t", 0, 3)
        write(cluster, 80, 100)
        records += await read(consumer, 35)
    assert offsets(records) == list(range(100))


async def test_a_frozen_leader_is_left_when_another_leads(cluster: FakeCluster) -> None:
    write(cluster, 0, 10)
    async with consumer_of(cluster, request_timeout_s=60.0) as consumer:
        await consumer.assign("t")
        await read(consumer, 10)
        await cluster.brokers[1].freeze()
        fetches = cluster.calls["Fetch"]
        await until(lambda: cluster.calls["Fetch"] > fetches)
        cluster.elect("t", 0, 2)
        write(cluster, 10, 20)
        assert offsets(await read(consumer, 10)) == list(range(10, 20))
        cluster.brokers[1].thawed.set()


async def test_an_offset_that_is_gone_is_an_error_by_default(cluster: FakeCluster) -> None:
    cluster.partitions[("t", 0)].log_start = 100
    write(cluster, 100, 110)
    async with consumer_of(cluster) as consumer:
        await consumer.assign("t", start=5)
        with pytest.raises(OffsetOutOfRangeError, match=r"offset 5 of t/0 .*the log has 100 to 110"):
            await read(consumer, 1)
        consumer.seek(T0, 105)
        assert offsets(await read(consumer, 5)) == list(range(105, 110))


@pytest.mark.parametrize(("policy", "first"), [(ResetPolicy.EARLIEST, 100), (ResetPolicy.LATEST, 110)])
async def test_an_offset_that_is_gone_can_be_replaced(cluster: FakeCluster, policy: ResetPolicy, first: int) -> None:
    cluster.partitions[("t", 0)].log_start = 100
    write(cluster, 100, 110)
    async with consumer_of(cluster, reset=policy) as consumer:
        await consumer.assign("t", start=5)
        await until(lambda: consumer.position(T0) == first)
        write(cluster, 110, 111)
        assert (await read(consumer, 1))[0].offset == first


async def test_what_was_fetched_before_an_offset_that_is_gone_is_still_read(cluster: FakeCluster) -> None:
    """Retention overtakes a slow reader: what it has in hand is not thrown away with what is gone."""
    write(cluster, 0, 60)
    async with consumer_of(cluster, reset=ResetPolicy.EARLIEST, partition_max_bytes=200) as consumer:
        await consumer.assign("t")
        first = await read(consumer, 1)
        log = cluster.partitions[T0]
        await until(lambda: consumer.unread_bytes == sum(len(batch) for _, batch in log.batches[1:3]))
        log.batches, log.log_start = log.batches[5:], 50
        rest = offsets(await read(consumer, 39))
    assert offsets(first) + rest == [*range(30), *range(50, 60)]


async def test_what_is_fetched_ahead_has_a_bound_for_all_partitions_together(cluster: FakeCluster) -> None:
    cluster.create("wide", partitions=30)
    for partition in range(30):
        for _ in range(20):
            records = [NewRecord(value=b"x" * 1000)]
            cluster.partitions[("wide", partition)].append(build_batch(records, timestamp_ms=1000))
    async with consumer_of(cluster, buffer_bytes=60_000, partition_max_bytes=5_000) as consumer:
        await consumer.assign("wide")

        async def quiet() -> int:
            while True:
                before = cluster.calls["Fetch"]
                for _ in range(200):
                    await asyncio.sleep(0.001)
                if cluster.calls["Fetch"] == before:
                    return before

        async with asyncio.timeout(DEADLINE_S):
            await quiet()
        assert max(cluster.fetched_bytes_max) <= 60_000 // 12, "a share for each of four polls to each of three leaders"
        # A poll brings its share and a batch more at most.
        assert consumer.unread_bytes <= 60_000 + 3 * 4 * 1_100
        assert len(await read(consumer, 600)) == 600


async def test_a_partition_without_room_for_its_batch_is_read_all_the_same(cluster: FakeCluster) -> None:
    for _ in range(5):
        cluster.partitions[T0].append(build_batch([NewRecord(value=b"x" * 10_000)], timestamp_ms=1000))
    async with consumer_of(cluster, buffer_bytes=100) as consumer:
        await consumer.assign("t")
        assert offsets(await read(consumer, 5)) == list(range(5))


async def test_a_disk_that_cannot_be_read_is_told_and_then_raised(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    write(cluster, 0, 10)
    clock = SkippingClock()
    cluster.fetch_answers[T0] = errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR
    settings = ConsumerSettings(fetch_wait_ms=50)
    async with Consumer(cluster.bootstrap, settings=settings, chance=random.Random(5), clock=clock) as consumer:
        await consumer.assign("t")
        await until(lambda: cluster.calls["Fetch"] >= 2)
        asked = cluster.calls["GetMetadata"]
        clock.skipped_s += TOLD_AFTER_S
        await until(lambda: bool(caplog.records))
        assert "t/0 cannot be read" in caplog.text
        assert "said the test" in caplog.text
        # Another broker may lead by now.
        await until(lambda: cluster.calls["GetMetadata"] > asked)
        clock.skipped_s += STORAGE_ERROR_S
        with pytest.raises(RegnumError, match=r"t/0 cannot be read for .*its leader's disk: said the test") as caught:
            await read(consumer, 1)
        assert caught.value.code == errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR
        assert len(caplog.records) == 1, "once"
        del cluster.fetch_answers[T0]
        consumer.seek(T0, 0)
        assert offsets(await read(consumer, 10)) == list(range(10))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_a_batch_that_cannot_be_decompressed_is_named_and_can_be_left_out(
    cluster: FakeCluster, codec: CodecName
) -> None:
    """Its checksum is right: it was made wrong, so no replica has a better one."""
    for start in (0, 2_000, 4_000):
        records = [NewRecord(value=random.Random(number).randbytes(20)) for number in range(start, start + 2_000)]
        cluster.partitions[T0].append(build_batch(records, timestamp_ms=1000, codec=codec))
    batches = cluster.partitions[T0].batches
    damaged = bytearray(batches[1][1])
    damaged[HEADER_BYTES:] = bytes(byte ^ 0x5A for byte in damaged[HEADER_BYTES:])
    struct.pack_into(">I", damaged, 17, google_crc32c.value(bytes(damaged[CRC_START:])))
    batches[1] = (read_header(damaged), bytes(damaged))
    async with consumer_of(cluster) as consumer:
        await consumer.assign("t")
        assert offsets(await read(consumer, 2_000)) == list(range(2_000))
        with pytest.raises(UnreadableBatchError, match=r"offset 2000 of t/0 .*seek\(\) to 4000") as caught:
            await read(consumer, 1)
        assert caught.value.next_offset == 4_000
        consumer.seek(T0, caught.value.next_offset)
        assert offsets(await read(consumer, 2_000)) == list(range(4_000, 6_000))


async def test_a_bad_batch_is_named_and_can_be_left_out(cluster: FakeCluster) -> None:
    write(cluster, 0, 30)
    batches = cluster.partitions[("t", 0)].batches
    damaged = bytearray(batches[1][1])
    damaged[-3] ^= 0xFF
    batches[1] = (read_header(damaged), bytes(damaged))
    async with consumer_of(cluster) as consumer:
        await consumer.assign("t")
        assert offsets(await read(consumer, 10)) == list(range(10))
        with pytest.raises(UnreadableBatchError, match=r"offset 10 of t/0 .*seek\(\) to 20") as caught:
            await read(consumer, 1)
        with pytest.raises(UnreadableBatchError):
            await read(consumer, 1)
        assert caught.value.next_offset == 20
        consumer.seek(T0, 20)
        assert offsets(await read(consumer, 10)) == list(range(20, 30))


async def test_seek_forgets_what_was_fetched(cluster: FakeCluster) -> None:
    write(cluster, 0, 100)
    async with consumer_of(cluster) as consumer:
        await consumer.assign("t")
        await read(consumer, 3)
        consumer.seek(T0, 90)
        assert offsets(await read(consumer, 10)) == list(range(90, 100))
        consumer.seek(T0, 0)
        assert offsets(await read(consumer, 2)) == [0, 1]


async def test_a_recreated_topic_is_not_read_on_with_old_positions(cluster: FakeCluster) -> None:
    write(cluster, 0, 10)
    async with consumer_of(cluster) as consumer:
        await consumer.assign("t")
        await read(consumer, 10)
        cluster.delete("t")
        cluster.create("t")
        write(cluster, 0, 20)
        with pytest.raises(RegnumError, match="deleted and created again") as caught:
            await read(consumer, 1)
        assert caught.value.code == errors_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID


async def test_a_subscription_takes_up_new_partitions_and_lets_go_of_removed_ones(cluster: FakeCluster) -> None:
    cluster.create("wide", partitions=2)
    async with consumer_of(cluster) as consumer:
        assert await consumer.subscribe("wide") == (TopicPartition("wide", 0), TopicPartition("wide", 1))
        cluster.add_partitions("wide", 3)
        write(cluster, 0, 5, topic="wide", partition=2)
        # A minute later by itself; anything that fails brings it sooner.
        consumer._metadata.request()  # type: ignore[union-attr]
        records = await read(consumer, 5)
        assert {(record.partition, record.offset) for record in records} == {(2, offset) for offset in range(5)}
        cluster.remove_partitions("wide", 1)
        consumer._metadata.request()  # type: ignore[union-attr]
        fetcher = consumer._fetcher
        assert fetcher is not None
        await until(lambda: fetcher.cursors.keys() == {TopicPartition("wide", 0)}, "only what is left is read")
        write(cluster, 0, 1, topic="wide")
        assert [record.partition for record in await read(consumer, 1)] == [0]


async def test_a_partition_that_was_assigned_and_is_removed_is_an_error_until_it_is_let_go(
    cluster: FakeCluster,
) -> None:
    cluster.create("wide", partitions=2)
    async with consumer_of(cluster) as consumer:
        await consumer.assign("wide")
        cluster.remove_partitions("wide", 1)
        consumer._metadata.request()  # type: ignore[union-attr]
        with pytest.raises(RegnumError, match="was removed") as raised:
            await read(consumer, 1)
        assert raised.value.code == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
        consumer.unassign(TopicPartition("wide", 1))
        write(cluster, 0, 1, topic="wide")
        assert [record.partition for record in await read(consumer, 1)] == [0]


async def test_ends_are_asked_of_leaders(cluster: FakeCluster) -> None:
    cluster.create("wide", partitions=3)
    write(cluster, 0, 7, topic="wide", partition=1)
    cluster.partitions[("wide", 2)].log_start = 4
    async with consumer_of(cluster) as consumer:
        wide = [TopicPartition("wide", number) for number in range(3)]
        cluster.elect("wide", 0, 3)
        assert list((await consumer.end_offsets(wide)).values()) == [0, 7, 4] or await consumer.end_offsets(wide) == {
            wide[0]: 0,
            wide[1]: 7,
            wide[2]: 4,
        }
        assert (await consumer.beginning_offsets(wide))[wide[2]] == 4


async def test_what_does_not_exist(cluster: FakeCluster) -> None:
    clock = SkippingClock()
    async with consumer_of(cluster, clock=clock) as consumer:
        asked = cluster.calls["GetMetadata"]
        assigning = asyncio.create_task(consumer.assign("nowhere"))
        await until(lambda: cluster.calls["GetMetadata"] > asked, "it asks for the topic")
        clock.skipped_s += DEADLINE_S
        with pytest.raises(RegnumError, match="topic 'nowhere' does not exist"):
            await within(assigning)
        with pytest.raises(RegnumError, match="has no partition 3"):
            await consumer.assign("t", partitions=[3])
        with pytest.raises(RegnumError, match="is not assigned"):
            consumer.position(T0)
    with pytest.raises(ClientClosedError):
        await consumer.read()
