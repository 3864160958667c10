"""Batches whose records get the time of their append."""

import pytest
from regnum_records.build import CodecName
from regnum_records.check import check_batch, verify_crc
from regnum_records.compacted import retaining
from regnum_records.errors import CorruptBatchError
from regnum_records.header import LOG_APPEND_TIME_BIT, read_header
from regnum_records.read import first_at_or_after, read_records
from regnum_records.stamping import at_append_time
from regnum_testing.batches import TIMESTAMP_MS, batch_of

APPEND_MS = TIMESTAMP_MS - 1_000
"""A leader's clock may be behind that of a producer."""


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_all_records_of_a_batch_have_the_time_of_its_append(codec: CodecName) -> None:
    sent = batch_of(b"a", b"b", codec=codec)
    stored = at_append_time(sent, APPEND_MS)
    header = read_header(stored)
    verify_crc(stored, header)
    assert (header.attributes, header.max_timestamp_ms) == (
        read_header(sent).attributes | LOG_APPEND_TIME_BIT,
        APPEND_MS,
    )
    assert [(one.value, one.timestamp_ms) for one in read_records(stored)] == [(b"a", APPEND_MS), (b"b", APPEND_MS)]
    assert len(stored) == len(sent)


def test_such_records_are_found_by_that_time() -> None:
    stored = at_append_time(batch_of(b"a", b"b"), APPEND_MS)
    found = first_at_or_after(stored, APPEND_MS, from_offset=1)
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (1, APPEND_MS)
    assert first_at_or_after(stored, APPEND_MS + 1) is None


def test_what_compaction_leaves_of_them_keeps_it() -> None:
    stored = at_append_time(batch_of(b"a", b"b", b"c"), APPEND_MS)
    left = retaining(stored, read_header(stored), [True, False, True], max_timestamp_ms=APPEND_MS)
    assert [(one.offset, one.timestamp_ms) for one in read_records(left)] == [(0, APPEND_MS), (2, APPEND_MS)]


def test_no_producer_says_so_itself() -> None:
    with pytest.raises(CorruptBatchError, match="must not set"):
        check_batch(at_append_time(batch_of(b"a"), APPEND_MS), bytes_max=1_000)
