"""The records of a batch under construction, and its bytes once it is closed. Pure."""

import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import google_crc32c
from regnum_records.build import NO_PRODUCER_EPOCH, BatchBuilder, CodecName
from regnum_records.header import CRC_START, NO_PRODUCER_ID, Codec, read_header
from regnum_records.read import read_records
from regnum_records.record import Record

from regnum_client.producer.batches.lane import Identity

_CODECS: Final[Mapping[Codec, CodecName]] = MappingProxyType(
    {Codec.NONE: "none", Codec.GZIP: "gzip", Codec.SNAPPY: "snappy", Codec.LZ4: "lz4", Codec.ZSTD: "zstd"}
)
_UNBOUNDED: Final = 2**31 - 1
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_AT: Final = 43


def renumbered(batch: bytes, identity: Identity | None, base_sequence: int) -> bytes:
    """The same records under another producer identity, with the checksum that belongs to it."""
    changed = bytearray(batch)
    _PRODUCER.pack_into(
        changed,
        _PRODUCER_AT,
        NO_PRODUCER_ID if identity is None else identity.producer_id,
        NO_PRODUCER_EPOCH if identity is None else identity.producer_epoch,
        base_sequence,
    )
    _CRC.pack_into(changed, _CRC_AT, google_crc32c.value(bytes(changed[CRC_START:])))
    return bytes(changed)


class BuiltContent:
    """A batch builder that keeps its bytes, so that every repeat sends the same ones."""

    __slots__ = ("_body", "_builder", "_numbers", "_record_count")

    def __init__(self, builder: BatchBuilder) -> None:
        self._builder: BatchBuilder | None = builder
        self._record_count = 0
        self._body = b""
        self._numbers: tuple[Identity | None, int] = (None, -1)

    def halves(self) -> "tuple[BuiltContent, BuiltContent] | None":
        """The same records as two batches; None: there is one record only, or the batch was never built."""
        if self._builder is not None or self._record_count < 2:
            return None
        records = list(read_records(self._body))
        codec = _CODECS[read_header(self._body).codec]
        middle = len(records) // 2
        return _rebuilt(records[:middle], codec), _rebuilt(records[middle:], codec)

    @property
    def size_bytes(self) -> int:
        """Bytes of the batch before compression while it is being built, and of the finished one afterwards."""
        return len(self._body) if self._builder is None else self._builder.size_bytes

    @property
    def record_count(self) -> int:
        """Number of records."""
        return self._record_count if self._builder is None else self._builder.record_count

    def encoded(self, identity: Identity | None, base_sequence: int) -> bytes:
        """The batch as it travels. The first call closes it."""
        numbers = (identity, base_sequence)
        if self._builder is not None:
            self._record_count = self._builder.record_count
            self._body = self._builder.build(
                producer_id=NO_PRODUCER_ID if identity is None else identity.producer_id,
                producer_epoch=NO_PRODUCER_EPOCH if identity is None else identity.producer_epoch,
                base_sequence=base_sequence,
            )
            self._builder = None
        elif numbers != self._numbers:
            self._body = renumbered(self._body, identity, base_sequence)
        self._numbers = numbers
        return self._body


def _rebuilt(records: Sequence[Record], codec: CodecName) -> BuiltContent:
    builder = BatchBuilder(bytes_max=_UNBOUNDED, codec=codec)
    for record in records:
        builder.append(key=record.key, value=record.value, timestamp_ms=record.timestamp_ms, headers=record.headers)
    return BuiltContent(builder)
