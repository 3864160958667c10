"""Record batches as they are handed to an application: nothing is decoded before somebody asks for it."""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from regnum_records.errors import CorruptBatchError
from regnum_records.header import BatchHeader, Codec
from regnum_records.read import decode_records

from regnum_client.errors import UnreadableBatchError
from regnum_client.records import ConsumedRecord, TopicPartition


class RecordBatch:
    """Records of one partition that were written together.

    To go through it decodes it, at once and each time anew; until then it is bytes and a head. That is done in the
    caller's thread: a few thousand records at most by default, half a million at the worst, so a caller on an event
    loop calls ``decoded``. Either raises UnreadableBatchError where checksum or records are wrong; the
    consumer has gone on behind the batch by then.

    >>> with regnum_client.sync.Consumer(bootstrap) as consumer:
    ...     _ = consumer.assign("orders")
    ...     batch = next(consumer.batches())
    >>> batch.first_offset, [record.value for record in batch][:1]
    (0, [b'first'])
    """

    __slots__ = ("_data", "_from_offset", "_header", "_partition")

    def __init__(self, partition: TopicPartition, header: BatchHeader, data: bytes, *, from_offset: int) -> None:
        self._partition: Final = partition
        self._header: Final = header
        self._data: Final = data
        self._from_offset: Final = from_offset

    @property
    def topic(self) -> str:
        """Topic name."""
        return self._partition.topic

    @property
    def partition(self) -> int:
        """Partition number."""
        return self._partition.partition

    @property
    def first_offset(self) -> int:
        """Offset from which on its records are shown: reading may have begun in the middle of it."""
        return max(self._header.base_offset, self._from_offset)

    @property
    def next_offset(self) -> int:
        """Offset after its last record: what to commit when all of it is done."""
        return self._header.next_offset

    @property
    def max_timestamp_ms(self) -> int:
        """Largest timestamp of its records, milliseconds since 1970."""
        return self._header.max_timestamp_ms

    @property
    def codec(self) -> Codec:
        """How its records are compressed. Raises ValueError for a number that is no codec's."""
        return self._header.codec

    @property
    def raw(self) -> bytes:
        """The whole batch as it is stored (Kafka's format, version 2), also what lies before ``first_offset``."""
        return self._data

    def __len__(self) -> int:
        """Offsets from the first shown to the last: records, where no compaction has taken some out."""
        return self.next_offset - self.first_offset

    def __iter__(self) -> Iterator[ConsumedRecord]:
        return iter(self._decode())

    async def decoded(self) -> Sequence[ConsumedRecord]:
        """Its records, decoded in a thread."""
        return await asyncio.to_thread(self._decode)

    def _decode(self) -> list[ConsumedRecord]:
        try:
            return list(
                decode_records(self._data, partial(ConsumedRecord, *self._partition), from_offset=self._from_offset)
            )
        except CorruptBatchError as error:
            raise UnreadableBatchError(
                self._partition, offset=self.first_offset, next_offset=error.next_offset, reason=str(error)
            ) from error

    def __repr__(self) -> str:
        where = f"{self.topic}-{self.partition}"
        return f"RecordBatch({where}, offsets {self.first_offset} to {self.next_offset - 1}, {len(self._data)} bytes)"
