"""Sample record batches."""

from collections.abc import Sequence

from regnum_records.build import CodecName, build_batch
from regnum_records.header import assign
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
