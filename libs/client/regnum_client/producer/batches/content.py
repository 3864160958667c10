"""The records of a batch under construction, and its bytes once it is closed. Pure."""

import struct
from typing import Final

import google_crc32c
from regnum_records.build import NO_PRODUCER_EPOCH, BatchBuilder
from regnum_records.header import CRC_START, NO_PRODUCER_ID

from regnum_client.producer.batches.lane import Identity

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
