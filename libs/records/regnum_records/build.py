"""Building batches, with aiokafka's compiled codec."""

from collections.abc import Iterable
from typing import Any, Final, Literal, assert_never

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from regnum_records.header import HEADER_BYTES, MAGIC, NO_PRODUCER_ID, NO_SEQUENCE, Codec
from regnum_records.record import NewRecord

CodecName = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Headers = tuple[tuple[str, bytes | None], ...]
NO_PRODUCER_EPOCH: Final = -1

_UNBOUNDED: Final = 2**31 - 1


def codec_of(name: CodecName) -> Codec:
    """The codec with this name."""
    match name:
        case "none":
            return Codec.NONE
        case "gzip":
            return Codec.GZIP
        case "snappy":
            return Codec.SNAPPY
        case "lz4":
            return Codec.LZ4
        case "zstd":
            return Codec.ZSTD
        case _:
            assert_never(name)


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
    builder = BatchBuilder(bytes_max=_UNBOUNDED, codec=codec)
    for record in records:
        timestamp = timestamp_ms if record.timestamp_ms is None else record.timestamp_ms
        builder.append(key=record.key, value=record.value, timestamp_ms=timestamp, headers=record.headers)
    return builder.build(producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence)


class BatchBuilder:
    """Collects records of one batch up to a size, for a producer. Not for use from several threads."""

    def __init__(self, *, bytes_max: int, codec: CodecName = "none") -> None:
        self._builder: Any = DefaultRecordBatchBuilder(
            magic=MAGIC,
            compression_type=int(codec_of(codec)),
            is_transactional=0,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            batch_size=bytes_max,
        )
        self._record_count = 0
        self._size_bytes = HEADER_BYTES
        self._built = False

    @property
    def record_count(self) -> int:
        """Records appended so far."""
        return self._record_count

    @property
    def size_bytes(self) -> int:
        """Bytes of the batch so far, before compression."""
        return self._size_bytes

    def append(self, *, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers = ()) -> bool:
        """Add a record. False: no room, nothing was added; the first record always finds room."""
        added = self._builder.append(self._record_count, timestamp_ms, key, value, list(headers))
        if added is None:
            return False
        self._record_count += 1
        self._size_bytes += added.size
        return True

    def build(
        self,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
    ) -> bytes:
        """The finished batch. To be called once; ValueError if it is empty or was built before."""
        if self._record_count == 0:
            raise ValueError("a batch has at least one record: append one first")
        if self._built:
            raise ValueError("the batch was built before: keep its bytes to send them again")
        self._built = True
        self._builder.set_producer_state(producer_id, producer_epoch, base_sequence)
        return bytes(self._builder.build())


def record_size_bytes_max(*, key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """Bytes that a batch of this one record has at most, before compression."""
    return int(DefaultRecordBatchBuilder.estimate_size_in_bytes(key, value, list(headers)))
