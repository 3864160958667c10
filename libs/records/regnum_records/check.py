"""What a broker accepts as a batch.

Goals: every reader can decode what is accepted, and each field of the head by which a log is kept or searched says what
the records say; what is refused is refused with the number of the record and a reason. Kafka's LogValidator does the
same, but that it leaves the names of headers alone, which are to be UTF-8.

Constraints: on the path of every produced byte, so the records are decoded by the compiled codec that readers use, one
at a time. Made-up bytes must not take much longer than honest ones, nor much memory.

Algorithm: the head's fields, the checksum, then each record: the codec checks lengths, counts and names of headers, and
here the offsets have to be 0, 1, 2 and so on, and each number in as few bytes as it can be written in (``numbers``).
The largest timestamp is that of the records, whatever the head says, as in Kafka. Records are decompressed for it under
the limit of readers, and only from what each of Kafka's clients decompresses (``uncompressed_view``, strict). A record
is decoded in one go, with all of its headers; so where one could have very many, the lengths are walked over first, and
the headers of long ones counted.

What is stored already is not checked by these rules (``read``): it stays where it is, and readers are told of it.
"""

import struct
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatch

from regnum_records.checksum import checksum
from regnum_records.decompress import DECOMPRESSED_BYTES_MAX, uncompressed_view
from regnum_records.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidRecordError,
    KeyMissingError,
    RecordBatchError,
)
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
from regnum_records.numbers import TIMES_APART_MS, first_padded, least_size, varint

RECORDS_MAX: Final = 500_000
"""Records of one batch: the walk over them takes some 100 ms at this number."""
HEADERS_MAX: Final = 500_000
"""Headers of all records of a batch, which take as long."""
SHORT_BYTES_MAX: Final = 512 * 1024
"""Bytes of a record, or of all of a batch, in which headers need not be counted beforehand."""
HEADERS_OF_RECORD_MAX: Final = SHORT_BYTES_MAX // 2
"""Headers of one record: as many as a short one has room for, and decoded without a pause, some 35 ms."""
RECORD_BYTES_MIN: Final = 6
"""Bytes of the smallest record body: attributes, two deltas, and three lengths."""
NO_TIMESTAMP: Final = -1
"""Timestamp of a record that has none, and the smallest that a head has as the largest (Kafka's)."""

_MAX_TIMESTAMP_POSITION: Final = 35
_CRC_POSITION: Final = 17


def accepted_batch(
    data: bytes, *, bytes_max: int, unpacked_bytes_max: int = DECOMPRESSED_BYTES_MAX, keys_required: bool = False
) -> bytes:
    """``data``, checked as ``check_batch`` does, as it is to be stored: a wrong largest timestamp is set right.

    Raises as ``check_batch`` does.
    """
    header, latest_ms = _checked(data, bytes_max, unpacked_bytes_max, keys_required=keys_required)
    if header.max_timestamp_ms == latest_ms:
        return data
    changed = bytearray(data)
    struct.pack_into(">q", changed, _MAX_TIMESTAMP_POSITION, latest_ms)
    struct.pack_into(">I", changed, _CRC_POSITION, checksum(changed, CRC_START, len(changed)))
    return bytes(changed)


def check_batch(
    data: bytes, *, bytes_max: int, unpacked_bytes_max: int = DECOMPRESSED_BYTES_MAX, keys_required: bool = False
) -> BatchHeader:
    """The head of ``data``, which must be exactly one batch that every reader can read.

    Its largest timestamp is that of its records, which ``data`` may say otherwise.

    Args:
        data: the batch.
        bytes_max: its largest size.
        unpacked_bytes_max: the largest size of its records once they are decompressed; they are to no more than that.
        keys_required: whether every record must have a key, as in a topic that is compacted.

    Raises:
        KeyMissingError: it has a record without a key.
        InvalidRecordError: it has a record that readers cannot read; the message says which, and why.
        UnpackedTooLargeError: its records have more than ``unpacked_bytes_max`` bytes once they are decompressed.
        CorruptBatchError: it is no such batch; the message says why.
        BatchTooLargeError: it has more than ``bytes_max`` bytes.
    """
    header, latest_ms = _checked(data, bytes_max, unpacked_bytes_max, keys_required=keys_required)
    return header if header.max_timestamp_ms == latest_ms else header._replace(max_timestamp_ms=latest_ms)


def _checked(data: bytes, bytes_max: int, unpacked_bytes_max: int, *, keys_required: bool) -> tuple[BatchHeader, int]:
    """The head as it came, and the largest timestamp of the records."""
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
    with uncompressed_view(data, header, bytes_max=unpacked_bytes_max, strict=True) as plain:
        is_long = len(plain) - HEADER_BYTES > SHORT_BYTES_MAX
        if is_long:
            _walk(plain, header.record_count)
        return header, _check_records(plain, header, keys_required=keys_required, headers_counted=is_long)


def verify_crc(data: Buffer, header: BatchHeader, position: int = 0) -> None:
    """Compare the checksum of the batch at ``position`` with its bytes.

    Raises:
        CorruptBatchError: they differ.
    """
    found = checksum(data, position + CRC_START, position + header.size_bytes)
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
        # Its epoch and sequence mean nothing, whatever they are: aiokafka leaves 0 for a sequence.
        return
    if header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0:
        raise CorruptBatchError(
            f"producer id {header.producer_id}, epoch {header.producer_epoch}, sequence {header.base_sequence}:"
            " all three are needed and none may be negative"
        )


def _check_records(plain: Buffer, header: BatchHeader, *, keys_required: bool, headers_counted: bool) -> int:
    """Decode the records of a batch that is not compressed; the largest timestamp, which is at least NO_TIMESTAMP."""
    base, base_ms = header.base_offset, header.base_timestamp_ms
    delta, headers, least = 0, 0, 0
    # Nothing is between these: the first record is looked at, and then those that go beyond what there was.
    earliest_ms, latest_ms = TIMES_APART_MS, -TIMES_APART_MS
    try:
        for record in DefaultRecordBatch(plain):
            if record.offset - base != delta:
                raise InvalidRecordError(
                    f"record {delta} has the offset delta {record.offset - base}: these count up from 0"
                )
            apart_ms, key = record.timestamp - base_ms, record.key
            if not earliest_ms <= apart_ms <= latest_ms:
                if not -TIMES_APART_MS <= apart_ms < TIMES_APART_MS:
                    raise InvalidRecordError(f"record {delta} is further from the base timestamp than any time can be")
                earliest_ms, latest_ms = min(earliest_ms, apart_ms), max(latest_ms, apart_ms)
            if keys_required and key is None:
                raise KeyMissingError(f"record {delta} of the batch has no key, and its topic is compacted")
            if headers_counted:
                headers = _counted(headers + len(record.headers), delta)
            least += least_size(delta, apart_ms, key, record.value, record.headers)
            delta += 1
    except RecordBatchError:
        raise
    except (ValueError, IndexError, OverflowError, MemoryError, RuntimeError) as error:
        # Where it is the lengths, or how many there are, it is told so.
        _walk(plain, header.record_count)
        raise InvalidRecordError(f"record {delta} cannot be decoded: {_reason(error)}") from None
    if least != len(plain) - HEADER_BYTES:
        raise InvalidRecordError(f"record {first_padded(plain, base_ms)} has a number in more bytes than it needs")
    return max(NO_TIMESTAMP, base_ms + latest_ms)


def _counted(headers: int, record: int) -> int:
    if headers > HEADERS_MAX:
        raise InvalidRecordError(
            f"up to record {record} the batch has {headers} headers, at most {HEADERS_MAX} are taken"
        )
    return headers


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"the name of a header is not UTF-8 ({error.reason})"
    return str(error.args[0]) if error.args else type(error).__name__


def _walk(data: Buffer, record_count: int) -> None:
    """Step over ``record_count`` records, whose zigzag varint lengths must lead exactly to the end."""
    position, end, found = HEADER_BYTES, len(data), 0
    try:
        while position < end and found <= record_count:
            byte = data[position]
            position += 1
            if byte >= 0x80:
                following = data[position]
                position += 1
                byte = (byte & 0x7F) | (following << 7)
                if following >= 0x80:
                    byte, position = _long_varint(data, position, byte & 0x3FFF, found)
            length = byte >> 1
            if byte & 1 or length < RECORD_BYTES_MIN:
                raise InvalidRecordError(f"record {found} has an impossible length")
            if length > SHORT_BYTES_MAX:
                _check_header_count(data, position, found)
            position += length
            found += 1
    except IndexError:
        raise InvalidRecordError(f"record {found} has a length that does not end") from None
    if position > end:
        raise InvalidRecordError(f"record {found - 1} goes {position - end} bytes beyond the end of the batch")
    if found != record_count:
        more = " or more" if position < end else ""
        raise CorruptBatchError(f"the head counts {record_count} records, the batch has {found}{more}")


def _check_header_count(data: Buffer, position: int, record: int) -> None:
    """Look how many headers a record says it has, and at nothing else: whether it has them is for the codec to see."""
    try:
        for _ in ("attributes", "timestamp delta", "offset delta"):
            _, position = varint(data, position, record)
        for _ in ("key", "value"):
            size, position = varint(data, position, record)
            position += max(0, size)
        count, _ = varint(data, position, record)
    except IndexError:
        raise InvalidRecordError(f"record {record} ends in its head") from None
    if count > HEADERS_OF_RECORD_MAX:
        raise InvalidRecordError(
            f"record {record} says it has {count} headers, at most {HEADERS_OF_RECORD_MAX} are taken"
        )


def _long_varint(data: Buffer, position: int, low: int, record: int) -> tuple[int, int]:
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
            raise InvalidRecordError(f"the length of record {record} has more than five bytes")
