"""What a broker accepts as a batch.

Goals: everything that is stored can be read by every reader; bytes that were damaged or made up are refused, with a
reason.

Constraints: on the path of every produced byte, so the records are not decoded and nothing is copied but for
the checksum.

Algorithm: the head's fields, the checksum, then a walk from length to length that must take exactly as many steps as
the head counts records and end at the end. A batch with a right checksum and a wrong count would stop every reader.
Compressed records are decompressed for it, under the limit of readers: what none could decompress is refused, and a
head cannot claim more records than there are. The walk ends with the first record too many.
"""

from typing import Final

import google_crc32c

from regnum_records.decompress import decompress
from regnum_records.errors import BatchTooLargeError, CorruptBatchError, KeyMissingError
from regnum_records.header import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER_BYTES,
    MAGIC,
    NO_PRODUCER_ID,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    Codec,
    read_header,
)

RECORDS_MAX: Final = 500_000
"""Records of one batch: the walk over them holds up whoever appends next, some 50 ms at this number."""
NUMBER_BYTES_MAX: Final = 10
"""Bytes of a number in a record: more are looked at in none."""
RECORD_BYTES_MIN: Final = 6
"""Bytes of the smallest record body: attributes, two deltas, and three lengths."""


def check_batch(data: bytes, *, bytes_max: int, keys_required: bool = False) -> BatchHeader:
    """The head of ``data``, which must be exactly one batch that every reader can read.

    Args:
        data: the batch.
        bytes_max: its largest size.
        keys_required: whether every record must have a key, as in a topic that is compacted.

    Raises:
        KeyMissingError: it has a record without a key.
        CorruptBatchError: it is not; the message says why.
        BatchTooLargeError: it has more than ``bytes_max`` bytes.
    """
    if len(data) > bytes_max:
        raise BatchTooLargeError(size_bytes=len(data), bytes_max=bytes_max)
    header = read_header(data)
    if header.size_bytes != len(data):
        raise CorruptBatchError(
            f"the batch says it has {header.size_bytes} bytes and came with {len(data)}: send exactly one batch"
        )
    _check_fields(header)
    _check_producer(header)
    verify_crc(data, header)
    codec = Codec(header.attributes & CODEC_MASK)
    plain, position = (data, HEADER_BYTES) if codec is Codec.NONE else (decompress(data[HEADER_BYTES:], codec), 0)
    _walk(plain, position, header.record_count)
    if keys_required:
        _check_keys(plain, position)
    return header


def verify_crc(data: Buffer, header: BatchHeader, position: int = 0) -> None:
    """Compare the checksum of the batch at ``position`` with its bytes.

    Raises:
        CorruptBatchError: they differ.
    """
    found = google_crc32c.value(bytes(data[position + CRC_START : position + header.size_bytes]))
    if found != header.crc:
        raise CorruptBatchError(
            f"checksum 0x{header.crc:08x} is not that of the bytes (0x{found:08x})",
            base_offset=header.base_offset,
            next_offset=header.next_offset,
        )


def _check_fields(header: BatchHeader) -> None:
    if header.magic != MAGIC:
        raise CorruptBatchError(f"magic {header.magic} is not supported: send record batches of version 2")
    codec = header.attributes & CODEC_MASK
    if codec > max(Codec):
        raise CorruptBatchError(f"codec {codec} is not one of none, gzip, snappy, lz4, zstd")
    if header.attributes & TRANSACTIONAL_BIT:
        raise CorruptBatchError("transactional batches are not supported")
    if header.attributes & CONTROL_BIT:
        raise CorruptBatchError("control batches are written by brokers only")
    if header.attributes & ~CODEC_MASK:
        raise CorruptBatchError(f"attributes 0x{header.attributes & 0xFFFF:04x} have bits that a producer must not set")
    if header.record_count < 1 or header.record_count != header.last_offset_delta + 1:
        raise CorruptBatchError(
            f"record count {header.record_count} and last offset delta {header.last_offset_delta} do not fit together"
        )
    if header.record_count > RECORDS_MAX:
        raise CorruptBatchError(f"the batch counts {header.record_count} records, at most {RECORDS_MAX} are allowed")


def _check_producer(header: BatchHeader) -> None:
    if header.producer_id == NO_PRODUCER_ID:
        if header.producer_epoch != -1 or header.base_sequence != -1:
            raise CorruptBatchError("a batch without a producer id has neither producer epoch nor sequence")
    elif header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0:
        raise CorruptBatchError(
            f"producer id {header.producer_id}, epoch {header.producer_epoch}, sequence {header.base_sequence}:"
            " all three are needed and none may be negative"
        )


def _walk(data: bytes, position: int, record_count: int) -> None:
    """Step over ``record_count`` records, whose zigzag varint lengths must lead exactly to the end."""
    end, found = len(data), 0
    try:
        while position < end and found <= record_count:
            byte = data[position]
            position += 1
            if byte >= 0x80:
                following = data[position]
                position += 1
                byte = (byte & 0x7F) | (following << 7)
                if following >= 0x80:
                    byte, position = _long_varint(data, position, byte & 0x3FFF)
            length = byte >> 1
            if byte & 1 or length < RECORD_BYTES_MIN:
                raise CorruptBatchError(f"record {found} has an impossible length")
            position += length
            found += 1
    except IndexError:
        raise CorruptBatchError(f"record {found} has a length that does not end") from None
    if position > end:
        raise CorruptBatchError(f"record {found - 1} goes {position - end} bytes beyond the end of the batch")
    if found != record_count:
        more = " or more" if position < end else ""
        raise CorruptBatchError(f"the head counts {record_count} records, the batch has {found}{more}")


def _check_keys(data: bytes, position: int) -> None:
    """Step over the records, which were walked over before, and look whether each key has a length.

    No number is decoded for it but the length of the record: of the others only the end counts, and a negative length
    of a key, which says that there is none, is odd as it is written. This runs where appends are, so it is to be quick.
    """
    number, end = 0, len(data)
    try:
        while position < end:
            length = data[position]
            position += 1
            if length >= 0x80:
                value, position = _varint(data, position - 1)
                length = value << 1
            following_record = position + (length >> 1)
            # Attributes, then the time and the offset, relative to the head's.
            at = position + 1
            if data[at] >= 0x80:
                at = _end_of_number(data, at)
            at += 1
            if data[at] >= 0x80:
                at = _end_of_number(data, at)
            at += 1
            if at >= following_record:
                raise CorruptBatchError(f"record {number} ends in its head")
            if data[at] & 1:
                raise KeyMissingError(f"record {number} of the batch has no key, and its topic is compacted")
            position = following_record
            number += 1
    except IndexError:
        raise CorruptBatchError(f"record {number} ends in its head") from None


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """The zigzag varint at a position, and where it ends."""
    value = shift = 0
    while (byte := data[position]) >= 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        position += 1
        if shift > 63:
            raise CorruptBatchError("a number in a record has more than ten bytes")
    value |= byte << shift
    return (value >> 1) ^ -(value & 1), position + 1


def _end_of_number(data: bytes, at: int) -> int:
    """Where the last byte of a number is."""
    last = at + NUMBER_BYTES_MAX
    while data[at] >= 0x80:
        at += 1
        if at >= last:
            raise CorruptBatchError(f"a number in a record has more than {NUMBER_BYTES_MAX} bytes")
    return at


def _long_varint(data: bytes, position: int, low: int) -> tuple[int, int]:
    """The rest of a varint whose first two bytes gave ``low``, and the position after it; at most five bytes in all."""
    value, shift = low, 14
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 28:
            raise CorruptBatchError("a record length has more than five bytes")
