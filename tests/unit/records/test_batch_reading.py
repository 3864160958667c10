"""Building and reading batches."""

import struct
from contextlib import suppress

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from regnum_records.build import BatchBuilder, build_batch, record_size_bytes_max
from regnum_records.check import check_batch
from regnum_records.decompress import decompress
from regnum_records.errors import CorruptBatchError
from regnum_records.header import HEADER_BYTES, Codec, assign, read_header
from regnum_records.read import read_records
from regnum_records.record import NewRecord, Record
from regnum_testing.batches import assigned_batch, batch_of

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def resealed(batch: bytearray) -> bytes:
    struct.pack_into(">I", batch, 17, google_crc32c.value(bytes(batch[21:])))
    return bytes(batch)


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=40)
@given(
    records=st.lists(
        st.builds(
            NewRecord,
            value=st.none() | st.binary(max_size=200),
            key=st.none() | st.binary(max_size=20),
            headers=st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3).map(tuple),
            timestamp_ms=st.none() | st.integers(0, 2**41),
        ),
        min_size=1,
        max_size=40,
    ),
    base_offset=st.integers(0, 2**50),
)
def test_what_goes_in_comes_out(codec, records, base_offset):
    batch = bytes(assign(build_batch(records, timestamp_ms=77, codec=codec), base_offset=base_offset, leader_epoch=1))
    check_batch(batch, bytes_max=1 << 20)
    assert list(read_records(batch)) == [
        Record(
            offset=base_offset + number,
            timestamp_ms=77 if record.timestamp_ms is None else record.timestamp_ms,
            key=record.key,
            value=record.value,
            headers=record.headers,
        )
        for number, record in enumerate(records)
    ]


def test_reading_starts_at_an_offset_and_leaves_out_a_torn_tail():
    buffer = b"".join(assigned_batch(b"a", b"b", base_offset=base) for base in (0, 2, 4))
    assert [record.offset for record in read_records(buffer[:-1], from_offset=1)] == [1, 2, 3]


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_bad_compressed_batch_names_where_to_go_on(codec):
    bad = bytearray(assign(batch_of(*[b"abc" * 50] * 9, codec=codec), base_offset=10, leader_epoch=0))
    bad[HEADER_BYTES + 4 : HEADER_BYTES + 12] = b"\xff" * 8
    buffer = assigned_batch(b"before", base_offset=9) + resealed(bad) + assigned_batch(b"after", base_offset=19)
    reader = read_records(buffer)
    assert next(reader).offset == 9
    with pytest.raises(CorruptBatchError, match="offset 10") as error:
        next(reader)
    assert (error.value.base_offset, error.value.next_offset) == (10, 19)
    assert [record.value for record in read_records(buffer, from_offset=error.value.next_offset)] == [b"after"]


def test_a_wrong_checksum_is_noticed_by_readers():
    batch = bytearray(assigned_batch(b"abcdef", base_offset=3))
    batch[-2] ^= 1
    with pytest.raises(CorruptBatchError, match="checksum"):
        list(read_records(bytes(batch)))


@pytest.mark.parametrize("count", [1, 3, 2**31 - 1])
def test_a_wrong_count_is_noticed_by_readers(count):
    batch = bytearray(assigned_batch(b"a", b"b", base_offset=0))
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">i", batch, 23, count - 1)
    with pytest.raises(CorruptBatchError):
        list(read_records(resealed(batch)))


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_small_batch_cannot_become_a_large_one(codec):
    batch = batch_of(b"\0" * 3_000_000, codec=codec)
    assert read_header(batch).codec is not Codec.NONE
    with pytest.raises(CorruptBatchError):
        list(read_records(batch, decompressed_bytes_max=1_000_000))
    assert len(list(read_records(batch, decompressed_bytes_max=3_100_000))) == 1


@settings(max_examples=200)
@given(data=st.binary(max_size=200), codec=st.sampled_from(list(Codec)))
def test_decompressing_any_bytes_raises_nothing_else(data, codec):
    try:
        result = decompress(data, codec, bytes_max=10_000)
    except CorruptBatchError:
        return
    assert len(result) <= 10_000


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.integers(16, 200), st.integers(0, 255)), max_size=8),
    st.sampled_from(CODECS),
)
def test_reading_hostile_batches_raises_nothing_else(changes, codec):
    batch = bytearray(batch_of(b"abc" * 30, b"def" * 30, codec=codec))
    for position, value in changes:
        batch[position % len(batch)] = value
    with suppress(CorruptBatchError):
        assert len(list(read_records(resealed(batch), decompressed_bytes_max=100_000))) <= 2


def test_a_full_builder_refuses_and_adds_nothing():
    builder = BatchBuilder(bytes_max=300)
    added = 0
    while builder.append(key=b"k", value=b"x" * 50, timestamp_ms=1):
        added += 1
    assert added == builder.record_count > 1
    batch = builder.build(producer_id=4, producer_epoch=1, base_sequence=12)
    header = check_batch(batch, bytes_max=300)
    assert builder.size_bytes == len(batch)
    assert (header.record_count, header.producer_id, header.producer_epoch, header.base_sequence) == (added, 4, 1, 12)


def test_the_first_record_always_finds_room():
    builder = BatchBuilder(bytes_max=100)
    assert builder.append(key=None, value=b"x" * 500, timestamp_ms=1)
    assert not builder.append(key=None, value=b"", timestamp_ms=1)
    assert record_size_bytes_max(key=None, value=b"x" * 500) >= len(builder.build())


def test_an_empty_or_spent_builder_does_not_build():
    builder = BatchBuilder(bytes_max=100)
    with pytest.raises(ValueError, match="at least one record"):
        builder.build()
    builder.append(key=None, value=b"x", timestamp_ms=1)
    builder.build()
    with pytest.raises(ValueError, match="built before"):
        builder.build()
