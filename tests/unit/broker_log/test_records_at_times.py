"""What a log answers for a moment is a record, as Kafka's: the first whose timestamp is not before it (KIP-33)."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import google_crc32c
import pytest
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.log.replica.shown import DECODED_MAX
from regnum_model.ids import LeaderEpoch
from regnum_records.build import build_batch
from regnum_records.read import Placed
from regnum_records.record import NewRecord
from regnum_testing.log_directories import ReopenedDirectory, offset_at

CODECS: tuple[Literal["none", "gzip", "snappy", "lz4", "zstd"], ...] = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[ReplicaLog]:
    place = ReopenedDirectory(tmp_path, segment_bytes=64 * 1024)
    place.open()
    yield place.replica()
    place.kill()


def batch(*timestamps_ms: int, codec: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none") -> bytes:
    records = [NewRecord(value=b"v" * 100, timestamp_ms=at) for at in timestamps_ms]
    return build_batch(records, timestamp_ms=0, codec=codec)


def changed(whole: bytes, *, max_timestamp_ms: int | None = None, attributes: int = 0, garbage: bool = False) -> bytes:
    """The batch under another head, or with records that are none; the checksum is right."""
    data = bytearray(whole)
    struct.pack_into(">h", data, 21, struct.unpack_from(">h", data, 21)[0] | attributes)
    if max_timestamp_ms is not None:
        struct.pack_into(">q", data, 35, max_timestamp_ms)
    if garbage:
        data[61:] = b"\xff" * (len(data) - 61)
    struct.pack_into(">I", data, 17, google_crc32c.value(bytes(data[21:])))
    return bytes(data)


def append(log: ReplicaLog, *batches: bytes) -> None:
    for one in batches:
        log.append_as_leader([one], leader_epoch=LeaderEpoch(0))


@pytest.mark.parametrize("codec", CODECS)
def test_it_is_a_record_within_its_batch(log: ReplicaLog, codec: Literal["none", "gzip"]) -> None:
    append(log, batch(1_000, 1_010, 1_020, codec=codec), batch(1_030, 1_040, codec=codec))
    asked = (0, 1_000, 1_001, 1_010, 1_011, 1_021, 1_030, 1_031, 1_041)
    found = [log.record_at_or_after(at) for at in asked]
    places = [(0, 1_000), (0, 1_000), (1, 1_010), (1, 1_010), (2, 1_020), (3, 1_030), (3, 1_030), (4, 1_040)]
    assert found == [*(Placed(*one) for one in places), None]


def test_times_may_go_back_within_a_batch(log: ReplicaLog) -> None:
    append(log, batch(50, 200, 100), batch(10, 300))
    assert [offset_at(log, at) for at in (0, 60, 150, 201)] == [0, 1, 1, 4]


def test_a_log_start_within_a_batch_leaves_out_what_is_before_it(log: ReplicaLog) -> None:
    append(log, batch(1_000, 1_010, 1_020))
    log.begin_at(1)
    assert log.record_at_or_after(0) == Placed(1, 1_010)


def test_the_time_of_the_append_is_that_of_every_record_of_its_batch(log: ReplicaLog) -> None:
    """KIP-32: message.timestamp.type LogAppendTime is a bit of the batch, and its time the largest of the head."""
    append(log, batch(1_000), changed(batch(1, 2, 3), attributes=0x08, max_timestamp_ms=2_000))
    assert [log.record_at_or_after(at) for at in (1_001, 2_000, 2_001)] == [Placed(1, 2_000), Placed(1, 2_000), None]


def test_a_head_that_claims_too_much_is_not_believed(log: ReplicaLog) -> None:
    append(log, changed(batch(1_000, 1_001), max_timestamp_ms=9_000), batch(5_000))
    assert log.record_at_or_after(4_000) == Placed(2, 5_000)
    assert log.record_at_or_after(6_000) is None


def test_of_many_such_heads_only_a_few_are_looked_into(log: ReplicaLog) -> None:
    append(log, *(changed(batch(1_000), max_timestamp_ms=9_000) for _ in range(DECODED_MAX + 3)), batch(8_000))
    assert log.record_at_or_after(8_000) == Placed(DECODED_MAX, None), "nothing at or after the moment is before it"


def test_of_a_batch_that_cannot_be_decoded_it_is_the_begin(log: ReplicaLog) -> None:
    append(log, batch(1_000), changed(batch(2_000, 2_001, codec="zstd"), garbage=True))
    assert log.record_at_or_after(2_001) == Placed(1, None)


def test_the_largest_timestamp_is_that_of_a_record_and_need_not_be_the_last(log: ReplicaLog) -> None:
    """KIP-734: the first of them that have it, of those below an offset."""
    assert log.record_of_max_timestamp(9) is None
    append(log, batch(50, 300, 100), batch(10, 300), batch(20, 400), batch(30))
    found = [log.record_of_max_timestamp(end) for end in (0, 3, 5, 7, 8, 99)]
    assert found == [None, Placed(1, 300), Placed(1, 300), Placed(6, 400), Placed(6, 400), Placed(6, 400)]


def test_the_largest_timestamp_is_not_one_of_a_record_that_is_gone(log: ReplicaLog) -> None:
    append(log, batch(9_000), batch(500, 700), batch(600), batch(8_000))
    assert log.record_of_max_timestamp(4) == Placed(0, 9_000)
    log.begin_at(1)
    assert [log.record_of_max_timestamp(end) for end in (4, 5)] == [Placed(2, 700), Placed(4, 8_000)]
    log.begin_at(3)
    assert [log.record_of_max_timestamp(end) for end in (4, 5)] == [Placed(3, 600), Placed(4, 8_000)]


def test_the_largest_timestamp_of_many_segments(log: ReplicaLog) -> None:
    """Against all records: whichever the log begins and ends with, and in whatever order the times are."""
    times = [(number * 7_919) % 3_001 for number in range(2_000)]
    for first in range(0, len(times), 4):
        append(log, batch(*times[first : first + 4]))
    assert len(log.segments) > 3
    for start in (0, 4, 400, 1_112):
        log.begin_at(start)
        for end in (start, start + 4, 800, 1_500, 1_996, 2_000):
            wanted = max(range(start, end), key=lambda offset: (times[offset], -offset), default=None)
            found = log.record_of_max_timestamp(end)
            assert found == (None if wanted is None else Placed(wanted, times[wanted])), (start, end)


def test_a_head_that_claims_the_largest_timestamp_is_told_as_a_batch(log: ReplicaLog) -> None:
    append(log, batch(1_000), changed(batch(10, 11), max_timestamp_ms=9_000), batch(2_000))
    assert log.record_of_max_timestamp(9) == Placed(1, None)
    append(log, changed(batch(12, 13, codec="zstd"), max_timestamp_ms=10_000, garbage=True))
    assert log.record_of_max_timestamp(9) == Placed(4, None)


def test_records_without_a_timestamp_have_no_largest(log: ReplicaLog) -> None:
    append(log, changed(batch(5), max_timestamp_ms=-1))
    assert log.record_of_max_timestamp(9) is None
