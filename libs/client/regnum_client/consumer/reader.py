"""From fetched chunks to records and batches in the reader's hand.

Constraints: no event loop is held, so chunks that may have many records are decoded on a thread, in portions; a
``seek`` takes effect at once, also in the middle of a chunk.
"""

import asyncio
import logging
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Final

from regnum_records.errors import CorruptBatchError
from regnum_records.header import CODEC_MASK, iterate
from regnum_records.read import decode_batches

from regnum_client.consumer.batches import RecordBatch
from regnum_client.consumer.cursor import Chunk, Cursor
from regnum_client.consumer.deserializers import Deserializers
from regnum_client.consumer.fetching.fetcher import Fetcher
from regnum_client.errors import UnreadableBatchError
from regnum_client.records import ConsumedRecord
from regnum_client.tasks import Tasks

_LOG: Final = logging.getLogger("regnum_client")

DECODED_ON_LOOP_MAX: Final = 16 * 1024
"""Bytes of a chunk that is decoded without a thread, if nothing of it is compressed: a few thousand records at most."""
DECODED_RECORDS: Final = 2_000
"""Records that are decoded before they are handed over, and those of the batch with the last of them."""
DECODED_BYTES: Final = 8 * 1024 * 1024
"""The same for what batches are when they are decompressed: small ones may become very large ones."""


class _Reading:
    """The chunk that is being read."""

    __slots__ = (
        "_batches",
        "_chunk",
        "_decoding",
        "_ended",
        "_failure",
        "_is_heavy",
        "_records",
        "_source",
        "cursor",
        "generation",
        "next_offset",
        "wants_thread",
    )

    def __init__(self, cursor: Cursor, chunk: Chunk) -> None:
        self.cursor: Final = cursor
        self.generation: Final = cursor.generation
        self.next_offset: Final = chunk.next_offset
        self.wants_thread = False
        """Records have to be decoded, and there may be so many that a thread should do it."""
        self._chunk: Final = chunk
        # What is compressed may be of any size when it is not (safety rule S22).
        self._is_heavy: Final = len(chunk.buffer) > DECODED_ON_LOOP_MAX or any(
            header.attributes & CODEC_MASK for _, header in iterate(chunk.buffer)
        )
        self._source: Iterator[tuple[list[ConsumedRecord], int]] | None = None
        self._records: Iterator[ConsumedRecord] = iter(())
        self._ended = False
        self._failure: CorruptBatchError | None = None
        self._batches: Iterator[RecordBatch] | None = None
        self._decoding: asyncio.Task[tuple[Iterator[ConsumedRecord], CorruptBatchError | None, bool]] | None = None

    @property
    def _from_offset(self) -> int:
        return max(self._chunk.from_offset, self.cursor.position)

    def next_records(self, records_max: int) -> list[ConsumedRecord]:
        """The next records; none at the end, or when more have to be decoded. Raises CorruptBatchError."""
        if self._source is None:
            make = partial(ConsumedRecord, *self.cursor.partition)
            self._source = decode_batches(self._chunk.buffer, make, from_offset=self._from_offset)
            self._batches = self._decoding = None
            self.wants_thread = self._is_heavy
            if not self.wants_thread:
                self._records, self._failure, self._ended = self._decode(self._source)
        if self.wants_thread:
            return []
        while not (some := list(islice(self._records, records_max))):
            if self._failure is not None:
                raise self._failure
            if self._ended:
                break
            if self._is_heavy:
                self.wants_thread = True
                break
            self._records, self._failure, self._ended = self._decode(self._source)
        return some

    def leave_out(self, error: CorruptBatchError) -> bool:
        """Go on behind the batch that ``next_records`` cannot read; False: where that is, is not known."""
        if error.next_offset is None:
            return False
        self.cursor.position = min(error.next_offset, self.next_offset)
        self._source, self._failure = None, None
        return True

    async def decode(self, tasks: Tasks) -> None:
        """Decode more records on a thread. May be given up and called again."""
        if self._source is None:
            return
        if self._decoding is None:
            decoding = asyncio.to_thread(self._decode, self._source)
            self._decoding = tasks.start_question("consumer-decoder", decoding)
        # The thread goes on when the caller does not.
        self._records, self._failure, self._ended = await tasks.answer_of(asyncio.shield(self._decoding))
        self._decoding = None
        self.wants_thread = False

    @staticmethod
    def _decode(
        source: Iterator[tuple[list[ConsumedRecord], int]],
    ) -> tuple[Iterator[ConsumedRecord], CorruptBatchError | None, bool]:
        some: list[ConsumedRecord] = []
        decoded_bytes = 0
        try:
            for records, size_bytes in source:
                some += records
                decoded_bytes += size_bytes
                if len(some) >= DECODED_RECORDS or decoded_bytes >= DECODED_BYTES:
                    return iter(some), None, False
        except CorruptBatchError as error:
            return iter(some), error, True
        return iter(some), None, True

    def next_batch(self) -> RecordBatch | None:
        """The next batch with something that was not read; None at the end."""
        if self._batches is None:
            self._batches = self._undecoded()
            # Whoever reads records afterwards begins where the batches ended.
            self._source = None
            self.wants_thread = False
        return next(self._batches, None)

    def _undecoded(self) -> Iterator[RecordBatch]:
        for at, header in iterate(self._chunk.buffer):
            # What compaction has left of batches that are gone has nothing to hand out.
            if header.next_offset > self._from_offset and header.record_count:
                data = self._chunk.buffer[at : at + header.size_bytes]
                yield RecordBatch(self.cursor.partition, header, data, from_offset=self._from_offset)


class Reader:
    """Hands out what the fetcher of one consumer brings."""

    def __init__(
        self,
        fetcher: Fetcher,
        tasks: Tasks,
        *,
        skip_unreadable: bool = False,
        deserializers: Deserializers | None = None,
    ) -> None:
        """Only assigns; ``skip_unreadable``: batches that cannot be decoded are left out."""
        self._deserializers: Final = deserializers
        self._tasks: Final = tasks
        self._fetcher: Final = fetcher
        self._skip_unreadable: Final = skip_unreadable
        self._reading: _Reading | None = None

    @property
    def wants_thread(self) -> bool:
        """There are records, and they have to be decoded first."""
        return self._reading is not None and self._reading.wants_thread

    async def decode(self) -> None:
        """Decode some, on a thread. May be given up and called again."""
        if self._reading is not None:
            await self._reading.decode(self._tasks)

    async def something_arrives(self, within_s: float | None) -> bool:
        """Wait until there may be something to read, or the consumer ends; False when the time is up first."""
        fetcher = self._fetcher
        fetcher.arrived.clear()
        if fetcher.arrivals:
            return True
        try:
            async with asyncio.timeout(within_s):
                await fetcher.arrived.wait()
        except TimeoutError:
            return False
        return True

    def next_records(self, records_max: int) -> list[ConsumedRecord]:
        """Next records that are here, of one partition; none: nothing is, or what is being read wants a thread."""
        while (reading := self._current()) is not None:
            try:
                records = reading.next_records(records_max)
            except CorruptBatchError as error:
                if self._skip_unreadable and reading.leave_out(error):
                    _LOG.warning("%s/%d: left out, as skip_unreadable asks for: %s", *reading.cursor.partition, error)
                    continue
                raise self._unreadable(reading.cursor, error) from error
            if records and self._deserializers is not None:
                done, failed = self._deserializers.apply(records)
                if failed is not None:
                    self._stand_before(reading.cursor, failed.offset)
                    if done:
                        return done
                    raise failed
                records = done
            if records:
                reading.cursor.position = records[-1].offset + 1
                return records
            if reading.wants_thread:
                return []
            self._end(reading)
        return []

    def next_batch(self) -> RecordBatch | None:
        """The next batch that is here; None: nothing is."""
        while (reading := self._current()) is not None:
            try:
                batch = reading.next_batch()
            except CorruptBatchError as error:
                raise self._unreadable(reading.cursor, error) from error
            if batch is not None:
                reading.cursor.position = batch.next_offset
                return batch
            self._end(reading)
        return None

    def _current(self) -> _Reading | None:
        """What is being read, or the next chunk, of the partition whose turn it is. Raises its error."""
        reading = self._reading
        if reading is not None and reading.cursor.generation == reading.generation:
            return reading
        begun = self._fetcher.begin_chunk()
        self._reading = None if begun is None else _Reading(*begun)
        return self._reading

    def _end(self, reading: _Reading) -> None:
        reading.cursor.position = reading.next_offset
        self._reading = None

    def _unreadable(self, cursor: Cursor, error: CorruptBatchError) -> UnreadableBatchError:
        """The consumer stands before the bad batch from now on."""
        at = cursor.position if error.base_offset is None else max(error.base_offset, cursor.position)
        self._stand_before(cursor, at)
        return UnreadableBatchError(cursor.partition, offset=at, next_offset=error.next_offset, reason=str(error))

    def _stand_before(self, cursor: Cursor, offset: int) -> None:
        """What was fetched from there on is fetched again."""
        self._reading = None
        cursor.go_back(offset)
        self._fetcher.go_on(cursor)
