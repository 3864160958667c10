"""Reading past stored batches that cannot be decoded, when that is asked for."""

from collections.abc import AsyncIterator

import pytest
from regnum_client import Consumer, ConsumerSettings, TopicPartition, UnreadableBatchError
from regnum_records.build import build_batch
from regnum_records.record import NewRecord
from regnum_testing.batches import MALFORMED
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.waiting import within

T0 = TopicPartition("t", 0)
POISON, _ = MALFORMED["header count -27"]
"""Two records: both are left out."""


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.create("t")
        yield running


def write(cluster: FakeCluster, *values: bytes) -> None:
    """A batch for each value; an empty one stands for a batch that cannot be decoded."""
    for value in values:
        batch = build_batch([NewRecord(value=value)], timestamp_ms=1000) if value else POISON
        cluster.partitions[T0].append(batch)


async def values(cluster: FakeCluster, count: int, **settings: bool) -> list[bytes | None]:
    found: list[bytes | None] = []
    made = ConsumerSettings(fetch_wait_ms=50, **settings)  # type: ignore[arg-type]
    async with Consumer(cluster.bootstrap, settings=made) as consumer:
        await consumer.assign("t")
        while len(found) < count:
            found += [record.value for record in await within(consumer.read(records_max=count - len(found)))]
        assert consumer.position(T0) > 0
    return found


async def test_an_error_names_partition_offset_and_the_option(cluster: FakeCluster) -> None:
    write(cluster, b"a", b"", b"b")
    with pytest.raises(
        UnreadableBatchError, match=r"offset 1 of t/0 .*record.*seek\(\) to 3.*skip_unreadable"
    ) as caught:
        await values(cluster, 2)
    assert caught.value.next_offset == 3
    assert "--skip-unreadable" in str(caught.value)


@pytest.mark.parametrize("large", [False, True])
async def test_they_are_left_out_when_told_to_with_a_warning_each(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, large: bool
) -> None:
    """Decoded on the event loop, and on a thread."""
    last = b"c" * (20_000 if large else 1)
    write(cluster, b"", b"a", b"", b"", b"b", b"", last)
    assert await values(cluster, 3, skip_unreadable=True) == [b"a", b"b", last]
    told = [record.message for record in caplog.records if "left out" in record.message]
    assert len(told) == 4
    assert "t/0: left out, as skip_unreadable asks for: batch at offset 3: " in told[1]


async def test_the_command_reads_to_the_end_past_them(cluster: FakeCluster) -> None:
    write(cluster, b"a", b"", b"b", b"")
    regnum = CommandHere(cluster.bootstrap)
    refused = await regnum("consume", "t", "--until", "end")
    assert (refused.status, refused.out) == (1, "a\n")
    assert "offset 1 of t/0" in refused.err
    assert "--skip-unreadable" in refused.err
    ran = await regnum("consume", "t", "--until", "end", "--skip-unreadable")
    assert (ran.status, ran.out) == (0, "a\nb\n"), ran.err
