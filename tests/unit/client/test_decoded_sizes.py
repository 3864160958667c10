"""Small batches that become very large ones when they are decompressed: a consumer holds a few of them at a time."""

from collections.abc import AsyncIterator

import pytest
from regnum_client import Consumer, ConsumerSettings, TopicPartition
from regnum_client.consumer.reader import DECODED_BYTES
from regnum_records.build import build_batch
from regnum_records.read import decode_batches
from regnum_records.record import NewRecord
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.waiting import DEADLINE_S

T0 = TopicPartition("t", 0)
VALUE_BYTES = DECODED_BYTES // 2
BATCHES = 12


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """A topic of a few KB that holds 48 MiB."""
    async with FakeCluster() as running:
        running.create("t")
        for _ in range(BATCHES):
            batch = build_batch([NewRecord(value=bytes(VALUE_BYTES))], timestamp_ms=1000, codec="zstd")
            assert len(batch) < 2_000
            running.partitions[T0].append(batch)
        yield running


async def test_what_is_decoded_at_a_time_is_counted_as_it_is_when_decompressed(cluster: FakeCluster) -> None:
    async with Consumer(cluster.bootstrap, settings=ConsumerSettings(fetch_wait_ms=50)) as consumer:
        await consumer.assign("t")
        sizes: list[int] = []
        while sum(sizes) < BATCHES:
            records = await consumer.read(records_max=500, timeout_s=DEADLINE_S)
            assert records
            assert {len(record.value or b"") for record in records} == {VALUE_BYTES}
            sizes.append(len(records))
    assert max(sizes) * VALUE_BYTES <= DECODED_BYTES, "though all of it came in one answer"


async def test_what_is_compressed_is_decoded_on_a_thread_however_small_it_is(cluster: FakeCluster) -> None:
    async with Consumer(cluster.bootstrap, settings=ConsumerSettings(fetch_wait_ms=50)) as consumer:
        await consumer.assign("t")
        reader = consumer._reading()
        while not reader.wants_thread:
            assert reader.next_records(1) == [], "nothing is decoded before the thread is asked"
            if not reader.wants_thread:
                assert await reader.something_arrives(DEADLINE_S)
        await reader.decode()
        assert len(reader.next_records(500)) * VALUE_BYTES <= DECODED_BYTES


def test_each_batch_says_how_large_it_was_when_it_was_decompressed() -> None:
    plain = build_batch([NewRecord(value=b"v")] * 3, timestamp_ms=1000)
    packed = build_batch([NewRecord(value=bytes(100_000))], timestamp_ms=1000, codec="gzip")
    found = [(len(records), size) for records, size in decode_batches(plain + packed, lambda *_: None)]
    assert found[0] == (3, len(plain))
    assert found[1][0] == 1
    assert 100_000 < found[1][1] < 101_000
