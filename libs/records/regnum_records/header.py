"""The head of a record batch v2: what stands in its first 61 bytes, and how batches follow one another.

Layout (big-endian): base offset i64, batch length i32 (bytes after this field), leader epoch i32, magic i8, CRC32C
u32 (of all that follows it), attributes i16, last offset delta i32, base timestamp i64, max timestamp i64, producer
id i64, producer epoch i16, base sequence i32, record count i32; then the records, compressed as one piece if the
attributes name a codec. Base offset and leader epoch lie before the checksum, so a leader sets them without computing
it anew.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from regnum_records.errors import CorruptBatchError

Buffer = bytes | bytearray | memoryview
"""What batches are read from."""

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
"""Bytes of a head: 61."""
LENGTH_PREFIX_BYTES: Final = 12
"""Bytes of base offset and batch length, which the batch length does not count."""
CRC_START: Final = 21
"""Position of the first byte that the checksum covers."""
MAGIC: Final = 2
"""The only format version that is taken."""
SEQUENCE_MAX: Final = 2**31 - 1
"""Sequence numbers go from 0 to here and begin again at 0."""
NO_PRODUCER_ID: Final = -1
"""Producer id of a batch without idempotence."""
NO_SEQUENCE: Final = -1
"""Base sequence of a batch without idempotence."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
"""All records have the largest timestamp of the head, whatever they say themselves (KIP-32)."""
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20

_ASSIGNED: Final = struct.Struct(">qii")
_EXTENT: Final = struct.Struct(">qi")
_COUNT: Final = struct.Struct(">i")


class Codec(IntEnum):
    """Compression of the records of a batch, with the number that stands in its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHeader(NamedTuple):
    """The head of one batch, as it stands in the bytes and in their order: nothing is checked yet.

    A tuple, because several are made for each batch on its way into a log, and a dataclass takes four times as long.
    """

    base_offset: int
    """Offset of the first record; set by the leader."""
    batch_length: int
    """Bytes after the length field."""
    leader_epoch: int
    """Leader epoch in which it was appended; set by the leader. -1: not assigned."""
    magic: int
    """Format version: 2."""
    crc: int
    """CRC32C of everything after it."""
    attributes: int
    """Bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control."""
    last_offset_delta: int
    """Offset of the last record minus base offset."""
    base_timestamp_ms: int
    """Timestamp of the first record, milliseconds since 1970."""
    max_timestamp_ms: int
    """Largest timestamp of its records, milliseconds since 1970."""
    producer_id: int
    """Id of an idempotent producer. -1: none."""
    producer_epoch: int
    """Epoch of that producer id. -1: none."""
    base_sequence: int
    """Sequence number of the first record. -1: none."""
    record_count: int
    """Number of records."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch."""
        return LENGTH_PREFIX_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        """Offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset after the last record."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """Compression of the records; ValueError if the number is not one of a known codec."""
        return Codec(self.attributes & CODEC_MASK)

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; -1 for a batch without one."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The head that begins at ``position``.

    Raises:
        CorruptBatchError: fewer than 61 bytes are left, or the length is too small for a head.
    """
    if position < 0 or len(buffer) - position < HEADER_BYTES:
        raise CorruptBatchError(f"{max(0, len(buffer) - position)} bytes are too few for the head of a batch (61)")
    header = BatchHeader._make(HEADER.unpack_from(buffer, position))
    if header.batch_length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
        raise CorruptBatchError(f"batch length {header.batch_length} is too small for the head of a batch")
    return header


def iterate(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Position and head of each complete batch from ``position`` on; stops before a torn tail.

    Raises:
        CorruptBatchError: a length is too small for a head.
    """
    end = len(buffer)
    while end - position >= HEADER_BYTES:
        header = read_header(buffer, position)
        if position + header.size_bytes > end:
            return
        yield position, header
        position += header.size_bytes


def complete_bytes(buffer: Buffer) -> int:
    """Bytes of ``buffer`` that are complete batches: where a torn tail begins."""
    end = len(buffer)
    position = 0
    while end - position >= LENGTH_PREFIX_BYTES:
        _, length = _EXTENT.unpack_from(buffer, position)
        if length < HEADER_BYTES - LENGTH_PREFIX_BYTES or position + LENGTH_PREFIX_BYTES + length > end:
            break
        position += LENGTH_PREFIX_BYTES + length
    return position


def end_of_batches(buffer: Buffer, position: int, batches_max: int) -> tuple[int, int]:
    """Where so many batches from ``position`` on end, at most, and how many these are.

    The end of ``buffer`` where a batch begins that is torn or none: whoever reads them says which.
    """
    end, count = len(buffer), 0
    while count < batches_max and end - position >= LENGTH_PREFIX_BYTES:
        _, length = _EXTENT.unpack_from(buffer, position)
        count += 1
        if length < HEADER_BYTES - LENGTH_PREFIX_BYTES or position + LENGTH_PREFIX_BYTES + length > end:
            return end, count
        position += LENGTH_PREFIX_BYTES + length
    return (position if end - position >= LENGTH_PREFIX_BYTES else end), count


def count_records(buffer: Buffer) -> int:
    """Records of the batches in ``buffer``, as their heads say; nothing is checked."""
    end = len(buffer) - HEADER_BYTES
    position = count = 0
    while position <= end:
        count += _COUNT.unpack_from(buffer, position + HEADER_BYTES - _COUNT.size)[0]
        position += LENGTH_PREFIX_BYTES + max(
            _EXTENT.unpack_from(buffer, position)[1], HEADER_BYTES - LENGTH_PREFIX_BYTES
        )
    return count


def end_offset_of(buffer: Buffer) -> int:
    """Offset after the last record of some whole batches, as their heads say; -1: there is none."""
    end = len(buffer) - HEADER_BYTES
    position = last = 0
    while position <= end:
        last = position
        position += LENGTH_PREFIX_BYTES + max(
            _EXTENT.unpack_from(buffer, position)[1], HEADER_BYTES - LENGTH_PREFIX_BYTES
        )
    return read_header(buffer, last).next_offset if position else -1


def assign(batch: Buffer, *, base_offset: int, leader_epoch: int) -> bytearray:
    """The batch with its offset and leader epoch set, the two fields outside the checksum."""
    assigned = bytearray(batch)
    _ASSIGNED.pack_into(assigned, 0, base_offset, len(assigned) - LENGTH_PREFIX_BYTES, leader_epoch)
    return assigned


def assigned_prefix(batch: Buffer, *, base_offset: int, leader_epoch: int) -> bytes:
    """The first 16 bytes of the batch as ``assign`` would make them, for a gathering write without a copy."""
    return _ASSIGNED.pack(base_offset, len(batch) - LENGTH_PREFIX_BYTES, leader_epoch)


ASSIGNED_BYTES: Final = _ASSIGNED.size
"""Bytes that ``assigned_prefix`` stands for: 16."""
