"""Batches as compaction leaves them: some of their records taken out, what is left with the offsets that it had. Pure.

Goals: an offset never comes to mean another record, and the offsets of a log have no hole: each batch begins where the
one before it ends, also where compaction has taken whole batches out. So whoever follows a log by its heads (a
follower, a start after a kill, a search) can tell what was taken out from what was lost.

Algorithm: a batch that loses some of its records keeps its head, with the count, the length, the largest timestamp and
the checksum of what is left; its base offset and last offset delta stay, and so do its producer's numbers. In place of
batches that are gone altogether stands one without records and without a producer, a *filler*, with their offsets and
their leader epoch: 61 bytes, and any reader of the format takes it for a batch that has nothing to say. (Kafka leaves a
hole there.)

What is left of a compressed batch is compressed anew, and a producer may have gone to more trouble than is gone to by
default. So where it would have more bytes than before, it is stored as it is, or by zstd at a level that takes longer
(two seconds at most, without the interpreter), where that is less: up to 4 MiB of records do not grow then. Of what
still grows, nothing becomes larger than any batch that a producer may send: made up to do so, it is refused.
"""

import gzip
from collections.abc import Iterator, Sequence
from typing import Final, assert_never

import google_crc32c
from aiokafka.codec import lz4_encode, snappy_encode, zstd_encode

from regnum_records.build import NO_PRODUCER_EPOCH
from regnum_records.decompress import decompress
from regnum_records.errors import CorruptBatchError
from regnum_records.header import (
    CODEC_MASK,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    Codec,
)

STRONGEST_BYTES_MAX: Final = 4 * 1024 * 1024
STRONGEST_LEVEL: Final = 19
"""Of zstd, for so many bytes of records: two seconds of a processor."""
STRONG_LEVEL: Final = 12
"""For more: a window of 4 MiB, and some 20 ms for each MiB."""
SIZE_BYTES_MAX: Final = 32 * 1024 * 1024
"""Largest batch that a broker may be told to take: one that has become larger than this, and than it was, is refused.
Half of what a message has room for."""

NO_TIMESTAMP: Final = -1
"""Timestamp of a batch that has no record (Kafka's)."""


def is_filler(header: BatchHeader) -> bool:
    """Whether a batch stands for offsets only: any part of these can be stood for by another one."""
    return header.record_count == 0 and header.producer_id == NO_PRODUCER_ID


def filler(*, base_offset: int, last_offset: int, leader_epoch: int) -> bytes:
    """A batch that stands for offsets whose records are gone.

    Args:
        base_offset: the first of them.
        last_offset: the last, at most 2147483647 further.
        leader_epoch: in which they were written.
    """
    return _batch(
        BatchHeader(
            base_offset=base_offset,
            batch_length=0,
            leader_epoch=leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=0,
            last_offset_delta=last_offset - base_offset,
            base_timestamp_ms=NO_TIMESTAMP,
            max_timestamp_ms=NO_TIMESTAMP,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            record_count=0,
        ),
        b"",
        attributes=0,
        record_count=0,
        max_timestamp_ms=NO_TIMESTAMP,
    )


def retaining(batch: bytes, header: BatchHeader, kept: Sequence[bool], *, max_timestamp_ms: int) -> bytes:
    """The batch with the records only that are kept; compressed as it was.

    Args:
        batch: its bytes, which have been read (``decode_records``) and found good.
        header: its head.
        kept: for each of its records, in order, whether it stays.
        max_timestamp_ms: largest timestamp of those that do; of no meaning if none does.

    Raises:
        CorruptBatchError: it has not that many records, or what is left would be too large.
    """
    if True not in kept:
        return _batch(
            header, b"", attributes=header.attributes & ~CODEC_MASK, record_count=0, max_timestamp_ms=NO_TIMESTAMP
        )
    codec = Codec(header.attributes & CODEC_MASK)
    plain = decompress(batch[HEADER_BYTES:], codec)
    records = b"".join(_kept_records(plain, kept))
    before = len(batch) - HEADER_BYTES
    body, codec = _smallest(records, codec, bytes_max=before)
    if len(body) > max(before, SIZE_BYTES_MAX - HEADER_BYTES):
        raise CorruptBatchError(
            f"the batch at offset {header.base_offset} had {len(batch)} bytes and would have {len(body)} with fewer"
            " records: it was compressed by means that take more memory than there is for it"
        )
    return _batch(
        header,
        body,
        attributes=header.attributes & ~CODEC_MASK | codec,
        record_count=sum(kept),
        max_timestamp_ms=max_timestamp_ms,
    )


def _batch(header: BatchHeader, body: bytes, *, attributes: int, record_count: int, max_timestamp_ms: int) -> bytes:
    head = bytearray(
        HEADER.pack(
            header.base_offset,
            HEADER_BYTES - LENGTH_PREFIX_BYTES + len(body),
            header.leader_epoch,
            header.magic,
            0,
            attributes,
            header.last_offset_delta,
            header.base_timestamp_ms,
            max_timestamp_ms,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            record_count,
        )
    )
    crc: int = google_crc32c.extend(google_crc32c.value(bytes(head[CRC_START:])), body)
    head[CRC_START - 4 : CRC_START] = crc.to_bytes(4, "big")
    return bytes(head) + body


def _kept_records(plain: bytes, kept: Sequence[bool]) -> list[bytes]:
    """The bytes of the records that stay: offsets and times in them go by the head, which keeps what they go by."""
    parts: list[bytes] = []
    position = 0
    try:
        for stays in kept:
            start, value, shift = position, 0, 0
            while (byte := plain[position]) >= 0x80:
                value |= (byte & 0x7F) << shift
                shift += 7
                position += 1
            position += 1 + ((value | (byte << shift)) >> 1)
            if stays:
                parts.append(plain[start:position])
    except IndexError:
        position = -1
    if position != len(plain):
        raise CorruptBatchError(f"the batch has not {len(kept)} records")
    return parts


def _smallest(records: bytes, codec: Codec, *, bytes_max: int) -> tuple[bytes, Codec]:
    """Records as they are stored, and by which codec: the first way that takes so many bytes, or the one with least."""
    best = records, Codec.NONE
    for found in _ways(records, codec):
        if len(found[0]) <= bytes_max:
            return found
        best = min(best, found, key=lambda one: len(one[0]))
    return best


def _ways(records: bytes, codec: Codec) -> Iterator[tuple[bytes, Codec]]:
    match codec:
        case Codec.NONE:
            pass
        case Codec.GZIP:
            yield gzip.compress(records), codec
        case Codec.SNAPPY:
            yield bytes(snappy_encode(records)), codec
        case Codec.LZ4:
            yield bytes(lz4_encode(records)), codec
        case Codec.ZSTD:
            yield bytes(zstd_encode(records)), codec
        case _:
            assert_never(codec)
    yield records, Codec.NONE
    level = STRONGEST_LEVEL if len(records) <= STRONGEST_BYTES_MAX else STRONG_LEVEL
    yield bytes(zstd_encode(records, level)), Codec.ZSTD
