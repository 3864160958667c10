"""Reading the records of batches, with aiokafka's compiled codec."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch

from regnum_records.check import verify_crc
from regnum_records.decompress import DECOMPRESSED_BYTES_MAX, uncompressed
from regnum_records.errors import CorruptBatchError
from regnum_records.header import (
    CONTROL_BIT,
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    Buffer,
    iterate,
    read_header,
)
from regnum_records.record import Record

T = TypeVar("T")
"""What a record becomes."""
Headers = tuple[tuple[str, bytes | None], ...]
Make = Callable[[int, int, bytes | None, bytes | None, Headers], T]
"""Makes it of offset, timestamp in milliseconds, key, value, headers."""


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


def records_of(plain: bytes, header: BatchHeader, *, from_offset: int = 0) -> Iterator[Record]:
    """The records of a batch that ``unpack`` gave, one at a time: no more is made than is taken.

    Raises:
        CorruptBatchError: the next record is bad; those before it have been given.
    """
    for record in _one_by_one(plain, header):
        if record.offset >= from_offset:
            yield _record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))


def _one_by_one(plain: bytes, header: BatchHeader) -> Iterator[Any]:
    before = header.base_offset - 1
    with _told(header), _decoding():
        _check_room(plain, header)
        for record in DefaultRecordBatch(plain):
            if not before < record.offset <= header.last_offset:
                raise CorruptBatchError(
                    f"offset {record.offset} follows {before}, and the batch ends with {header.last_offset}"
                )
            before = record.offset
            yield record


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
    plain = unpack(batch, 0, header, bytes_max=decompressed_bytes_max)
    for record in _one_by_one(plain, header) if plain else ():
        if record.offset >= from_offset and record.timestamp >= timestamp_ms:
            return Placed(record.offset, record.timestamp)
    return None


def unpack(buffer: Buffer, position: int, header: BatchHeader, *, bytes_max: int) -> bytes:
    """A batch with its records as they are without compression; empty for one that has none for readers.

    Raises:
        UnpackingError: it has more than ``bytes_max`` bytes then, or cannot be decompressed.
        CorruptBatchError: it is bad.
    """
    with _told(header):
        _check_fields(header)
        verify_crc(buffer, header, position)
        if header.attributes & CONTROL_BIT:
            return b""
        return uncompressed(bytes(buffer[position : position + header.size_bytes]), header, bytes_max=bytes_max)


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
    with _told(header):
        plain = unpack(buffer, position, header, bytes_max=decompressed_bytes_max)
        return (_decode(plain, header, make, from_offset), len(plain)) if plain else ([], header.size_bytes)


@contextmanager
def _told(header: BatchHeader) -> Iterator[None]:
    """What is wrong is told with the batch in which it is, and where reading can go on."""
    try:
        yield
    except CorruptBatchError as error:
        if error.next_offset is not None:
            raise
        raise type(error)(
            f"batch at offset {header.base_offset}: {error}; to skip it, read on at offset {header.next_offset}",
            base_offset=header.base_offset,
            next_offset=header.next_offset,
        ) from None


def _check_fields(header: BatchHeader) -> None:
    if header.magic != MAGIC:
        raise CorruptBatchError(f"magic {header.magic} is not supported")
    # Fewer is right: compaction takes records out, and what is left keeps its offsets.
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise CorruptBatchError(
            f"record count {header.record_count} and last offset delta {header.last_offset_delta} do not fit"
        )


def _check_offsets(found: Sequence[Any], header: BatchHeader) -> None:
    """Rising, and within the batch: so one that has as many records as offsets has each of them."""
    before = header.base_offset - 1
    for record in found:
        offset = record.offset
        if offset <= before:
            raise CorruptBatchError("the offsets of its records do not rise")
        before = offset
    if before > header.last_offset:
        raise CorruptBatchError(f"a record has offset {before}, the batch ends with {header.last_offset}")


def _decode(batch: bytes, header: BatchHeader, make: Make[T], from_offset: int) -> list[T]:
    with _decoding():
        _check_room(batch, header)
        # Not one call of the compiled codec, which keeps the interpreter from an event loop for part of a second.
        found = [record for record in DefaultRecordBatch(batch)]  # noqa: C416
        _check_offsets(found, header)
        return [
            make(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
            for record in found
            if record.offset >= from_offset
        ]


def _check_room(batch: bytes, header: BatchHeader) -> None:
    if header.record_count > len(batch) - HEADER_BYTES:
        raise CorruptBatchError(f"{header.record_count} records do not fit into {len(batch) - HEADER_BYTES} bytes")


@contextmanager
def _decoding() -> Iterator[None]:
    """Whatever the compiled codec raises for bytes that are no records."""
    try:
        yield
    except (CorruptRecordException, ValueError, IndexError, OverflowError, MemoryError, RuntimeError) as error:
        if isinstance(error, CorruptBatchError):
            raise
        raise CorruptBatchError(f"records cannot be decoded: {error!r}") from None
