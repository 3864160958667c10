"""Building batches, with aiokafka's compiled codec."""

from collections.abc import Iterable
from typing import Final, Literal

from regnum_records.header import NO_PRODUCER_ID, NO_SEQUENCE
from regnum_records.record import NewRecord

CodecName = Literal["none", "gzip", "snappy", "lz4", "zstd"]
NO_PRODUCER_EPOCH: Final = -1


def build_batch(
    records: Iterable[NewRecord],
    *,
    timestamp_ms: int,
    codec: CodecName = "none",
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytes:
    """One batch of all ``records`` (at least one), base offset 0, leader epoch not assigned.

    Args:
        records: what goes in, in order.
        timestamp_ms: creation time of records that have none of their own.
        codec: compression; left out where it does not make the batch smaller.
        producer_id: id of an idempotent producer.
        producer_epoch: epoch of that id.
        base_sequence: sequence number of the first record.

    Raises:
        ValueError: there are no records.
    """
    raise NotImplementedError


class BatchBuilder:
    """Collects records of one batch up to a size, for a producer. Not for use from several threads."""

    def __init__(self, *, bytes_max: int, codec: CodecName = "none") -> None:
        raise NotImplementedError

    @property
    def record_count(self) -> int:
        """Records appended so far."""
        raise NotImplementedError

    @property
    def size_bytes(self) -> int:
        """Bytes of the batch so far, before compression."""
        raise NotImplementedError

    def append(
        self,
        *,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: tuple[tuple[str, bytes | None], ...] = (),
    ) -> bool:
        """Add a record. False: no room, nothing was added; the first record always finds room."""
        raise NotImplementedError

    def build(
        self,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
    ) -> bytes:
        """The finished batch. To be called once; ValueError if it is empty or was built before."""
        raise NotImplementedError


def record_size_bytes_max(
    *, key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...] = ()
) -> int:
    """Bytes that a batch of this one record has at most, before compression."""
    raise NotImplementedError
