"""What is accepted as a batch, and what is refused."""

import struct

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from regnum_records.check import check_batch
from regnum_records.decompress import DECOMPRESSED_BYTES_MAX
from regnum_records.errors import BatchTooLargeError, CorruptBatchError, RecordBatchError
from regnum_records.header import CRC_START, HEADER_BYTES
from regnum_testing.batches import batch_of

ATTRIBUTES, LAST_DELTA, PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE, COUNT = 21, 23, 43, 51, 53, 57


def resealed(batch: bytes, *changes: tuple[str, int, int]) -> bytes:
    """The batch with other fields and a checksum that fits them: what only a hostile or broken producer sends."""
    changed = bytearray(batch)
    for form, position, value in changes:
        struct.pack_into(form, changed, position, value)
    struct.pack_into(">I", changed, 17, google_crc32c.value(bytes(changed[CRC_START:])))
    return bytes(changed)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_batch_of_each_codec_is_accepted(codec):
    header = check_batch(batch_of(*[b"value" * 20] * 50, codec=codec), bytes_max=10_000)
    assert header.record_count == 50
    assert header.codec.name.lower() == codec


def test_records_with_long_lengths_are_walked():
    header = check_batch(
        batch_of(b"", b"x" * 57, b"x" * 58, b"x" * 8_185, b"x" * 8_186, b"x" * 2_000_000), bytes_max=1 << 22
    )
    assert header.record_count == 6


def test_too_large_says_how_large():
    batch = batch_of(b"x" * 1000)
    with pytest.raises(BatchTooLargeError, match=f"{len(batch)} bytes, at most 1000"):
        check_batch(batch, bytes_max=1000)
    check_batch(batch, bytes_max=len(batch))


def test_bytes_after_the_batch_are_refused():
    batch = batch_of(b"a")
    for data in (batch + b"\0", batch + batch, batch[:-1]):
        with pytest.raises(CorruptBatchError, match="exactly one batch"):
            check_batch(data, bytes_max=1000)


def test_every_flipped_bit_is_noticed_but_in_what_the_leader_sets():
    batch = batch_of(b"some value", producer_id=5, producer_epoch=0, base_sequence=0)
    for position in (*range(8, 12), *range(16, len(batch))):
        for bit in range(8):
            flipped = bytearray(batch)
            flipped[position] ^= 1 << bit
            with pytest.raises(CorruptBatchError):
                check_batch(bytes(flipped), bytes_max=1000)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([(">i", COUNT, 4)], "do not fit together"),
        ([(">i", COUNT, 4), (">i", LAST_DELTA, 3)], "counts 4 records, the batch has 3"),
        ([(">i", COUNT, 2), (">i", LAST_DELTA, 1)], "counts 2 records, the batch has 3"),
        ([(">i", COUNT, 0), (">i", LAST_DELTA, -1)], "do not fit together"),
        ([(">i", COUNT, -5), (">i", LAST_DELTA, -6)], "do not fit together"),
        ([(">i", COUNT, -(2**31)), (">i", LAST_DELTA, 2**31 - 1)], "do not fit together"),
        ([(">b", 16, 1)], "magic 1"),
        ([(">h", ATTRIBUTES, 5)], "codec 5"),
        ([(">h", ATTRIBUTES, 0x10)], "transactional"),
        ([(">h", ATTRIBUTES, 0x20)], "control"),
        ([(">h", ATTRIBUTES, 0x40)], "attributes 0x0040"),
        ([(">h", ATTRIBUTES, 0x08)], "attributes 0x0008"),
        ([(">q", PRODUCER_ID, 5)], "all three"),
        ([(">q", PRODUCER_ID, -2)], "all three"),
        ([(">q", PRODUCER_ID, 5), (">h", PRODUCER_EPOCH, 0)], "all three"),
        ([(">b", HEADER_BYTES, 3)], "record 0 has an impossible length"),
        ([(">b", HEADER_BYTES, 2)], "record 0 has an impossible length"),
        ([(">b", HEADER_BYTES, 127)], "impossible length"),
        ([(">b", HEADER_BYTES, 126)], "beyond the end"),
    ],
)
def test_a_right_checksum_does_not_excuse_wrong_fields(changes, message):
    with pytest.raises(CorruptBatchError, match=message):
        check_batch(resealed(batch_of(b"a", b"b", b"c"), *changes), bytes_max=1000)


def test_a_record_length_of_more_than_five_bytes():
    batch = bytearray(batch_of(b"a" * 20))
    batch[HEADER_BYTES : HEADER_BYTES + 6] = b"\x80" * 6
    with pytest.raises(CorruptBatchError, match="more than five bytes"):
        check_batch(resealed(bytes(batch)), bytes_max=1000)


def test_a_record_length_that_does_not_end():
    batch = bytearray(batch_of(b"a"))
    batch[-1] = 0x80
    batch[HEADER_BYTES] -= 2
    with pytest.raises(CorruptBatchError, match="does not end"):
        check_batch(resealed(bytes(batch)), bytes_max=1000)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("count", [1, 199, 201, 499_999, 2**31 - 1])
def test_a_compressed_batch_cannot_claim_other_records_than_it_has(codec, count):
    batch = batch_of(*[b"value"] * 200, codec=codec)
    assert batch[ATTRIBUTES + 1] & 7, "compressed"
    claimed = resealed(batch, (">i", COUNT, count), (">i", LAST_DELTA, count - 1))
    with pytest.raises(CorruptBatchError, match="counts"):
        check_batch(claimed, bytes_max=10_000)


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_what_no_reader_could_decompress_is_not_taken(codec):
    batch = batch_of(bytes(DECOMPRESSED_BYTES_MAX + 1), codec=codec)
    assert len(batch) < 1 << 20
    with pytest.raises(CorruptBatchError):
        check_batch(batch, bytes_max=1 << 20)


def test_compressed_bytes_that_are_no_records_are_not_taken():
    batch = bytearray(batch_of(b"value" * 100, codec="gzip"))
    batch[HEADER_BYTES + 20] ^= 0xFF
    with pytest.raises(CorruptBatchError):
        check_batch(resealed(bytes(batch)), bytes_max=10_000)


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_hostile_bytes_raise_nothing_else(data):
    with pytest.raises(RecordBatchError):
        check_batch(data, bytes_max=150)


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.integers(16, 120), st.integers(0, 255)), max_size=6),
    st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
)
def test_hostile_batches_with_a_right_checksum_raise_nothing_else(changes, codec):
    batch = bytearray(batch_of(b"abc" * 30, b"def" * 30, codec=codec))
    for position, value in changes:
        batch[position % len(batch)] = value
    try:
        header = check_batch(resealed(bytes(batch)), bytes_max=1000)
    except RecordBatchError:
        return
    assert header.record_count == header.last_offset_delta + 1 > 0
