"""Reading the records of batches, with aiokafka's compiled codec."""

import struct
from collections.abc import Iterator
from typing import Final

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch

from regnum_records.check import verify_crc
from regnum_records.decompress import DECOMPRESSED_BYTES_MAX, decompress
from regnum_records.errors import CorruptBatchError
from regnum_records.header import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    BatchHeader,
    Buffer,
    Codec,
    iterate,
)
from regnum_records.record import Record

_LENGTH_POSITION: Final = 8
_ATTRIBUTES_POSITION: Final = 21


def read_records(
    buffer: Buffer, *, from_offset: int = 0, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[Record]:
    """The records of all complete batches in ``buffer`` with offsets from ``from_offset`` on; a torn tail is left out.

    Raises:
        CorruptBatchError: a batch is bad; ``base_offset`` says which, and reading can go on at ``next_offset``. Its
        records
            are never returned in part.
    """
    for position, header in iterate(buffer):
        if header.next_offset <= from_offset:
            continue
        for record in _records(buffer, position, header, decompressed_bytes_max):
            if record.offset >= from_offset:
                yield record


def _records(buffer: Buffer, position: int, header: BatchHeader, decompressed_bytes_max: int) -> list[Record]:
    try:
        _check_fields(header)
        verify_crc(buffer, header, position)
        if header.attributes & CONTROL_BIT:
            return []
        plain = _uncompressed(bytes(buffer[position : position + header.size_bytes]), header, decompressed_bytes_max)
        return _decode(plain, header)
    except CorruptBatchError as error:
        raise CorruptBatchError(
            f"batch at offset {header.base_offset}: {error}; to skip it, read on at offset {header.next_offset}",
            base_offset=header.base_offset,
            next_offset=header.next_offset,
        ) from None


def _check_fields(header: BatchHeader) -> None:
    if header.magic != MAGIC:
        raise CorruptBatchError(f"magic {header.magic} is not supported")
    if header.record_count < 0 or header.record_count != header.last_offset_delta + 1:
        raise CorruptBatchError(
            f"record count {header.record_count} and last offset delta {header.last_offset_delta} do not fit"
        )


def _uncompressed(batch: bytes, header: BatchHeader, bytes_max: int) -> bytes:
    try:
        codec = Codec(header.attributes & CODEC_MASK)
    except ValueError:
        raise CorruptBatchError(f"codec {header.attributes & CODEC_MASK} is not known") from None
    if codec is Codec.NONE:
        return batch
    records = decompress(batch[HEADER_BYTES:], codec, bytes_max=bytes_max)
    head = bytearray(batch[:HEADER_BYTES])
    struct.pack_into(">i", head, _LENGTH_POSITION, HEADER_BYTES - LENGTH_PREFIX_BYTES + len(records))
    struct.pack_into(">h", head, _ATTRIBUTES_POSITION, header.attributes & ~CODEC_MASK)
    return bytes(head) + records


def _decode(batch: bytes, header: BatchHeader) -> list[Record]:
    if header.record_count > len(batch) - HEADER_BYTES:
        raise CorruptBatchError(f"{header.record_count} records do not fit into {len(batch) - HEADER_BYTES} bytes")
    try:
        records = [
            Record(
                offset=record.offset,
                timestamp_ms=record.timestamp,
                key=record.key,
                value=record.value,
                headers=tuple(record.headers),
            )
            for record in DefaultRecordBatch(batch)
        ]
    except (CorruptRecordException, ValueError, IndexError, OverflowError, MemoryError, RuntimeError) as error:
        raise CorruptBatchError(f"records cannot be decoded: {error!r}") from None
    if any(record.offset != header.base_offset + index for index, record in enumerate(records)):
        raise CorruptBatchError("the offsets of its records do not follow one another")
    return records
