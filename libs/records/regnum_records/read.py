"""Reading the records of batches, with aiokafka's compiled codec."""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

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
    read_header,
)
from regnum_records.record import Record

T = TypeVar("T")
"""What a record becomes."""
Headers = tuple[tuple[str, bytes | None], ...]
Make = Callable[[int, int, bytes | None, bytes | None, Headers], T]
"""Makes it of offset, timestamp in milliseconds, key, value, headers."""

_UNDECODABLE: Final = (CorruptRecordException, ValueError, IndexError, OverflowError, MemoryError, RuntimeError)
"""What the compiled codec raises for bytes that are no records."""
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
    return decode_records(buffer, _record, from_offset=from_offset, decompressed_bytes_max=decompressed_bytes_max)


def decode_records(
    buffer: Buffer, make: Make[T], *, from_offset: int = 0, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[T]:
    """As ``read_records``, with records made by the caller: one object for each record, and not one more."""
    for records, _ in decode_batches(
        buffer, make, from_offset=from_offset, decompressed_bytes_max=decompressed_bytes_max
    ):
        yield from records


def decode_batches(
    buffer: Buffer, make: Make[T], *, from_offset: int = 0, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[tuple[list[T], int]]:
    """As ``decode_records``, a batch at a time: its records, and how many bytes it was when it was decompressed."""
    for position, header in iterate(buffer):
        if header.next_offset > from_offset:
            yield _records(buffer, position, header, decompressed_bytes_max, make, from_offset)


class Placed(NamedTuple):
    """Where a record is in its log, and in time."""

    offset: int
    """Its offset."""
    timestamp_ms: int | None
    """Its timestamp, milliseconds since 1970; that of the append, where the batch says that it has that (KIP-32).
    None: not known, the batch cannot be decoded."""


def first_at_or_after(
    batch: Buffer, timestamp_ms: int, *, from_offset: int = 0, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Placed | None:
    """The first record of one batch at or after a moment, with an offset from ``from_offset`` on; None: there is none.

    In their order in the batch, and no further: what is held besides the plain batch is one record. Raises
    CorruptBatchError: it cannot be decoded, or is too large then.
    """
    header = read_header(batch)
    plain = _checked(batch, 0, header, decompressed_bytes_max)
    if plain is None:
        return None
    _check_count(header, plain)
    try:
        for record in DefaultRecordBatch(plain):
            if record.offset > header.last_offset:
                raise _beyond(record.offset, header)
            if record.offset >= from_offset and record.timestamp >= timestamp_ms:
                return Placed(record.offset, record.timestamp)
    except _UNDECODABLE as error:
        raise _undecodable(error) from None
    return None


def _record(offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers) -> Record:
    return Record(offset=offset, timestamp_ms=timestamp_ms, key=key, value=value, headers=headers)


def _records(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    decompressed_bytes_max: int,
    make: Make[T],
    from_offset: int,
) -> tuple[list[T], int]:
    try:
        plain = _checked(buffer, position, header, decompressed_bytes_max)
        return ([], header.size_bytes) if plain is None else (_decode(plain, header, make, from_offset), len(plain))
    except CorruptBatchError as error:
        raise CorruptBatchError(
            f"batch at offset {header.base_offset}: {error}; to skip it, read on at offset {header.next_offset}",
            base_offset=header.base_offset,
            next_offset=header.next_offset,
        ) from None


def _checked(buffer: Buffer, position: int, header: BatchHeader, decompressed_bytes_max: int) -> bytes | None:
    """A batch without compression; None: it has no records of applications."""
    _check_fields(header)
    verify_crc(buffer, header, position)
    if header.attributes & CONTROL_BIT:
        return None
    return _uncompressed(bytes(buffer[position : position + header.size_bytes]), header, decompressed_bytes_max)


def _check_fields(header: BatchHeader) -> None:
    if header.magic != MAGIC:
        raise CorruptBatchError(f"magic {header.magic} is not supported")
    # Fewer is right: compaction takes records out, and what is left keeps its offsets.
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
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


def _check_offsets(found: Sequence[Any], header: BatchHeader) -> None:
    """Rising, and within the batch: so one that has as many records as offsets has each of them."""
    before = header.base_offset - 1
    for record in found:
        offset = record.offset
        if offset <= before:
            raise CorruptBatchError("the offsets of its records do not rise")
        before = offset
    if before > header.last_offset:
        raise _beyond(before, header)


def _beyond(offset: int, header: BatchHeader) -> CorruptBatchError:
    return CorruptBatchError(f"a record has offset {offset}, the batch ends with {header.last_offset}")


def _check_count(header: BatchHeader, plain: bytes) -> None:
    if header.record_count > len(plain) - HEADER_BYTES:
        raise CorruptBatchError(f"{header.record_count} records do not fit into {len(plain) - HEADER_BYTES} bytes")


def _undecodable(error: Exception) -> CorruptBatchError:
    return error if isinstance(error, CorruptBatchError) else CorruptBatchError(f"records cannot be decoded: {error!r}")


def _decode(batch: bytes, header: BatchHeader, make: Make[T], from_offset: int) -> list[T]:
    _check_count(header, batch)
    try:
        # Not one call of the compiled codec, which keeps the interpreter from an event loop for part of a second.
        found = [record for record in DefaultRecordBatch(batch)]  # noqa: C416
        _check_offsets(found, header)
        return [
            make(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
            for record in found
            if record.offset >= from_offset
        ]
    except _UNDECODABLE as error:
        raise _undecodable(error) from None
