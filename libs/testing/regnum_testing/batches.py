"""Sample record batches."""

import struct
from collections.abc import Sequence

import google_crc32c
from regnum_records.build import CodecName, build_batch
from regnum_records.header import CRC_START, HEADER, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, assign
from regnum_records.read import read_records
from regnum_records.record import NewRecord

TIMESTAMP_MS = 1_700_000_000_000
"""Time of sample records, unless told otherwise."""


def batch_of(
    *values: bytes,
    timestamp_ms: int = TIMESTAMP_MS,
    codec: CodecName = "none",
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """A batch as a producer sends it."""
    return build_batch(
        [NewRecord(value=value) for value in values],
        timestamp_ms=timestamp_ms,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def assigned_batch(
    *values: bytes, base_offset: int, leader_epoch: int = 0, timestamp_ms: int = TIMESTAMP_MS, base_sequence: int = -1
) -> bytes:
    """A batch as a leader stores it; a base sequence makes it producer 7's, in epoch 0."""
    known = base_sequence >= 0
    batch = batch_of(
        *values,
        timestamp_ms=timestamp_ms,
        producer_id=7 if known else -1,
        producer_epoch=0 if known else -1,
        base_sequence=base_sequence,
    )
    return bytes(assign(batch, base_offset=base_offset, leader_epoch=leader_epoch))


def values_of(buffer: bytes) -> Sequence[bytes | None]:
    """The values of all records of some batches."""
    return [record.value for record in read_records(buffer)]


def number(value: int) -> bytes:
    """A zigzag varint."""
    left = (value << 1) ^ (value >> 63)
    found = bytearray()
    while left >= 0x80:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((*found, left))


def raw_record(
    delta: int = 0,
    *,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    key_size: int | None = None,
    value_size: int | None = None,
    headers: bytes = b"\0",
    time_delta_ms: int = 0,
    size: int | None = None,
) -> bytes:
    """A record that no encoder makes: sizes that are given are said whatever is there; ``headers`` with count."""
    content = b"".join(
        number((len(data) if data is not None else -1) if said is None else said) + (data or b"")
        for data, said in ((key, key_size), (value, value_size))
    )
    body = b"\0" + number(time_delta_ms) + number(delta) + content + headers
    return number(len(body) if size is None else size) + body


def raw_header(name: bytes, value: bytes | None = b"x", *, name_size: int | None = None) -> bytes:
    """A header of a record."""
    said = number(len(name) if name_size is None else name_size)
    return said + name + (number(-1) if value is None else number(len(value)) + value)


def raw_batch(
    *records: bytes, count: int | None = None, timestamp_ms: int = TIMESTAMP_MS, max_ms: int | None = None
) -> bytes:
    """A batch of any bytes, with the right checksum: what only a hostile or broken producer sends."""
    body, counted = b"".join(records), len(records) if count is None else count
    latest = timestamp_ms if max_ms is None else max_ms
    size = HEADER_BYTES - LENGTH_PREFIX_BYTES + len(body)
    return resealed(
        HEADER.pack(0, size, -1, MAGIC, 0, 0, counted - 1, timestamp_ms, latest, -1, -1, -1, counted) + body
    )


def resealed(batch: bytes | bytearray) -> bytes:
    """The batch with the checksum of what is in it now."""
    sealed = bytearray(batch)
    struct.pack_into(">I", sealed, CRC_START - 4, google_crc32c.value(bytes(sealed[CRC_START:])))
    return bytes(sealed)


MALFORMED = {
    "header count -27": (raw_batch(raw_record(), raw_record(1, headers=number(-27))), "record 1 .*headers -27"),
    "more headers than there are": (raw_batch(raw_record(headers=number(2) + raw_header(b"a"))), "record 0 .*read"),
    "header name size -62": (
        raw_batch(raw_record(headers=number(1) + raw_header(b"abc", name_size=-62))),
        "record 0 .*header key size -62",
    ),
    "header name beyond the batch": (
        raw_batch(raw_record(headers=number(1) + raw_header(b"abc", name_size=99))),
        "record 0 .*read 99 bytes",
    ),
    "header name not UTF-8": (
        raw_batch(raw_record(), raw_record(1), raw_record(2, headers=number(1) + raw_header(b"\xff\xfe"))),
        "record 2 .*name of a header is not UTF-8",
    ),
    "key beyond the batch": (raw_batch(raw_record(key_size=1000)), "record 0 .*read 1000 bytes"),
    "key into the next record": (raw_batch(raw_record(key_size=9), raw_record(1)), "record 0 "),
    "key of 2**63 - 1 bytes": (raw_batch(raw_record(key_size=2**63 - 1)), "record 0 .*too large"),
    "value beyond the batch": (raw_batch(raw_record(value_size=1000)), "record 0 .*read 1000 bytes"),
    "two records at one offset": (raw_batch(raw_record(0), raw_record(0)), "record 1 .*offset delta 0"),
    "offsets fall": (raw_batch(raw_record(1), raw_record(0)), "record 0 .*offset delta 1"),
    "an offset beyond the batch": (raw_batch(raw_record(5)), "record 0 .*offset delta 5"),
    "an offset of 2**40": (raw_batch(raw_record(2**40)), "record 0 .*offset delta"),
    "an offset below the batch": (raw_batch(raw_record(-1)), "record 0 .*offset delta -1"),
    "bytes behind the headers": (raw_batch(raw_record(headers=b"\0zzzz")), "record 0 .*expected to read 12"),
    "a record longer than it says": (raw_batch(raw_record(size=7)), "record"),
    "a time that no 64 bits hold": (
        raw_batch(raw_record(), raw_record(1, time_delta_ms=2**63 - 1)),
        "record 1 .*base timestamp",
    ),
    "a number of eleven bytes": (raw_batch(number(20) + b"\0" + b"\x80" * 11 + bytes(8)), "record 0 "),
}
"""Batches whose heads and checksums are right and whose records no reader can read, and what is said of them."""
