"""Heads of batches: fields, order, torn tails, assignment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_records.check import check_batch
from regnum_records.errors import CorruptBatchError
from regnum_records.header import (
    ASSIGNED_BYTES,
    HEADER_BYTES,
    Codec,
    assign,
    assigned_prefix,
    complete_bytes,
    end_of_batches,
    iterate,
    read_header,
)
from regnum_testing.batches import assigned_batch, batch_of


def test_fields_of_a_produced_batch():
    header = read_header(batch_of(b"a", b"b", timestamp_ms=5, producer_id=9, producer_epoch=2, base_sequence=40))
    assert (header.base_offset, header.magic, header.record_count, header.last_offset_delta) == (0, 2, 2, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (9, 2, 40, 41)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (5, 5)
    assert header.codec is Codec.NONE


def test_assigned_offset_and_epoch_leave_the_checksum_right():
    assigned = assign(batch_of(b"a", b"b", b"c"), base_offset=100, leader_epoch=7)
    header = check_batch(bytes(assigned), bytes_max=1000)
    assert (header.base_offset, header.last_offset, header.next_offset, header.leader_epoch) == (100, 102, 103, 7)


def test_prefix_is_what_assign_writes():
    batch = batch_of(b"a")
    prefix = assigned_prefix(batch, base_offset=2**40, leader_epoch=3)
    assert prefix + batch[ASSIGNED_BYTES:] == bytes(assign(batch, base_offset=2**40, leader_epoch=3))


@pytest.mark.parametrize(
    ("base", "count", "last"), [(0, 1, 0), (10, 5, 14), (2**31 - 1, 1, 2**31 - 1), (2**31 - 1, 2, 0), (2**31 - 2, 4, 1)]
)
def test_last_sequence_wraps_to_zero(base, count, last):
    batch = batch_of(*[b"x"] * count, producer_id=1, producer_epoch=0, base_sequence=base)
    assert read_header(batch).last_sequence == last


def test_a_batch_without_producer_has_no_last_sequence():
    assert read_header(batch_of(b"x", b"y")).last_sequence == -1


def test_iterate_stops_before_a_torn_tail():
    first = assigned_batch(b"a", b"b", base_offset=0)
    second = assigned_batch(b"c", base_offset=2)
    for cut in range(1, len(second)):
        buffer = first + second[:cut]
        assert [(at, header.base_offset) for at, header in iterate(buffer)] == [(0, 0)]
        assert complete_bytes(buffer) == len(first)
    assert [(at, header.base_offset) for at, header in iterate(first + second)] == [(0, 0), (len(first), 2)]


def test_a_length_below_a_head_is_corrupt():
    batch = bytearray(batch_of(b"a"))
    batch[8:12] = (48).to_bytes(4, "big")
    with pytest.raises(CorruptBatchError, match="length 48"):
        list(iterate(bytes(batch)))


def test_too_few_bytes_for_a_head():
    with pytest.raises(CorruptBatchError, match="60 bytes"):
        read_header(bytes(HEADER_BYTES - 1))


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data):
    try:
        parts = list(iterate(data))
    except CorruptBatchError:
        return
    assert sum(header.size_bytes for _, header in parts) <= len(data)


def test_ends_of_some_batches_are_found_by_their_lengths():
    sizes = [len(batch_of(bytes(size))) for size in (1, 50, 3)]
    buffer = b"".join(batch_of(bytes(size)) for size in (1, 50, 3))
    assert end_of_batches(buffer, 0, 1) == (sizes[0], 1)
    assert end_of_batches(buffer, sizes[0], 1) == (sizes[0] + sizes[1], 1)
    assert end_of_batches(buffer, 0, 3) == end_of_batches(buffer, 0, 9) == (len(buffer), 3)
    assert end_of_batches(b"", 0, 5) == (0, 0)
    # A torn one, one without a whole length, and one whose length is none belong to what is before them.
    for torn in (batch_of(b"x")[:-1], b"\0" * 11, b"\0" * 8 + b"\xff" * 4 + bytes(60)):
        end, _ = end_of_batches(buffer + torn, sizes[0], 9)
        assert end == len(buffer + torn)
