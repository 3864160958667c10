"""A compressed batch is accepted where each of Kafka's clients decompresses it, and read wherever it is stored already.

Kafka's own client reads LZ4 frames of independent blocks alone, and no zlib; librdkafka reads the first gzip member
alone, and no LZ4 frame with bytes behind it.
"""

import gzip
import io
import struct
import zlib

import cramjam
import google_crc32c
import pytest
from aiokafka.codec import gzip_encode, lz4_encode
from regnum_records.build import CodecName
from regnum_records.check import check_batch
from regnum_records.errors import CorruptBatchError
from regnum_records.header import CRC_START, HEADER_BYTES, Codec
from regnum_records.lz4_frame import BLOCKS_MAX, check_frame
from regnum_records.read import read_records
from regnum_testing.batches import batch_of

LENGTH, CRC, ATTRIBUTES = 8, 17, 21
VALUES = [b"value %d" % number * 40 for number in range(800)]
PLAIN = batch_of(*VALUES)
RECORDS = PLAIN[HEADER_BYTES:]
HALF = len(RECORDS) // 2


def packed(body: bytes, codec: Codec) -> bytes:
    """The batch of all values with other bytes for its records."""
    batch = bytearray(PLAIN[:HEADER_BYTES] + body)
    struct.pack_into(">i", batch, LENGTH, len(batch) - 12)
    struct.pack_into(">h", batch, ATTRIBUTES, codec)
    struct.pack_into(">I", batch, CRC, google_crc32c.value(bytes(batch[CRC_START:])))
    return bytes(batch)


def check(body: bytes, codec: Codec) -> None:
    check_batch(packed(body, codec), bytes_max=1 << 20)


def lz4(data: bytes, **options: bool) -> bytes:
    encoder = cramjam.lz4.Compressor(level=1, **options)
    encoder.compress(data)
    return bytes(encoder.finish())


def with_size(frame: bytes) -> bytes:
    """As encoders that know the size beforehand write it, but for the checksum of the head."""
    return frame[:4] + bytes([frame[4] | 0x08]) + frame[5:6] + bytes(8) + frame[6:]


def empty_block_first(frame: bytes) -> bytes:
    """A block of no bytes that is not compressed, with its checksum where the frame has these."""
    checksum = struct.pack("<I", 0x02CC5D05) if frame[4] & 0x10 else b""
    return frame[:7] + struct.pack("<I", 0x8000_0000) + checksum + frame[7:]


REFUSED = {
    "zlib": (zlib.compress(RECORDS), Codec.GZIP, "incorrect header check"),
    "two gzip members": (gzip.compress(RECORDS[:HALF]) + gzip.compress(RECORDS[HALF:]), Codec.GZIP, "more members"),
    "gzip and zlib": (gzip.compress(RECORDS[:HALF]) + zlib.compress(RECORDS[HALF:]), Codec.GZIP, "more members"),
    "linked LZ4 blocks": (lz4(RECORDS, block_linked=True), Codec.LZ4, "independent blocks"),
    "cramjam's own choice": (bytes(cramjam.lz4.compress(RECORDS)), Codec.LZ4, "independent blocks"),
    "two LZ4 frames": (lz4_encode(RECORDS[:HALF]) + lz4_encode(RECORDS[HALF:]), Codec.LZ4, "exactly one"),
    "LZ4 with an empty block": (empty_block_first(lz4(RECORDS, block_linked=False)), Codec.LZ4, "exactly one"),
    "skippable frame first": (struct.pack("<II", 0x184D2A50, 1) + b"x" + lz4_encode(RECORDS), Codec.LZ4, "begin"),
}


@pytest.mark.parametrize(("body", "codec", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_only_some_clients_decompress_is_refused_and_read_where_it_is_stored(
    body: bytes, codec: Codec, reason: str
) -> None:
    with pytest.raises(CorruptBatchError, match=reason):
        check(body, codec)
    assert [record.value for record in read_records(packed(body, codec))] == VALUES


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("count", [1, len(VALUES)])
def test_what_the_sdk_packs_is_accepted(codec: CodecName, count: int) -> None:
    batch = batch_of(*VALUES[:count], codec=codec)
    assert check_batch(batch, bytes_max=1 << 20).codec.name.lower() == codec


NAMED = io.BytesIO()
with gzip.GzipFile("name", "wb", fileobj=NAMED) as file:
    file.write(RECORDS)
ACCEPTED = {
    "aiokafka's gzip": (gzip_encode(RECORDS), Codec.GZIP),
    "gzip with a name": (NAMED.getvalue(), Codec.GZIP),
    "aiokafka's LZ4": (bytes(lz4_encode(RECORDS)), Codec.LZ4),
    "LZ4 without checksums": (lz4(RECORDS, block_linked=False, content_checksum=False), Codec.LZ4),
    "LZ4 with a checksum of all": (lz4(RECORDS, block_linked=False, content_checksum=True), Codec.LZ4),
}


@pytest.mark.parametrize(("body", "codec"), ACCEPTED.values(), ids=ACCEPTED)
def test_what_encoders_of_kafkas_clients_make_is_accepted(body: bytes, codec: Codec) -> None:
    check(body, codec)
    assert [record.value for record in read_records(packed(body, codec))] == VALUES


def test_a_frame_that_says_its_size_is_walked_as_well() -> None:
    frame = bytes(lz4_encode(RECORDS))
    assert len(RECORDS) > 4 << 16, "of several blocks"
    check_frame(memoryview(with_size(frame)))
    for wrong in (frame[:-1], frame[:6], b"", frame + b"\0", with_size(frame)[:-1]):
        with pytest.raises(CorruptBatchError):
            check_frame(memoryview(wrong))


def test_the_blocks_of_a_frame_are_bounded() -> None:
    """A block of one byte costs as much of the walk as one of 64 KiB."""
    head, block, end = b"\x04\x22\x4d\x18\x60\x40\x82", struct.pack("<I", 0x8000_0001) + b"x", bytes(4)
    check_frame(memoryview(head + block * BLOCKS_MAX + end))
    with pytest.raises(CorruptBatchError, match="more blocks"):
        check_frame(memoryview(head + block * (BLOCKS_MAX + 1) + end))
