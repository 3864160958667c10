"""Reads records from partitions, in order, across changes of leader.

The ``fetcher`` brings batches, a ``cursor`` for each partition says where it stands, and this module decodes and
hands out.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from regnum.types.v1 import errors_pb2
from regnum_model.ids import TopicId
from regnum_records.errors import CorruptBatchError
from regnum_records.read import read_records
from regnum_records.record import Record
from regnum_service.channel import Channels
from regnum_service.clock import Clock, SystemClock
from regnum_service.errors import RegnumError

from regnum_client.cluster.bootstrap import bootstrap_addresses
from regnum_client.cluster.connections import Connections
from regnum_client.cluster.enquiry import ANSWER_S
from regnum_client.cluster.metadata import Metadata
from regnum_client.consumer.cursor import Chunk, Cursor
from regnum_client.consumer.fetcher import Fetcher
from regnum_client.consumer.offsets import FIRST, HIGH_WATERMARK, OffsetLookup
from regnum_client.consumer.positions import EARLIEST, LATEST, ResetPolicy, Start
from regnum_client.errors import ClientClosedError, UnreadableBatchError
from regnum_client.records import ConsumedRecord, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """How a consumer behaves."""

    reset: ResetPolicy = ResetPolicy.FAIL
    """What happens when an offset is below the log start or above the log end."""
    fetch_wait_ms: int = 500
    """How long a broker may wait for records before it answers."""
    fetch_min_bytes: int = 1
    """A broker answers as soon as it has this many bytes."""
    fetch_max_bytes: int = 8 * 1024 * 1024
    """About how many bytes one answer carries at most."""
    partition_max_bytes: int = 1024 * 1024
    """About how many bytes of one partition an answer carries at most."""
    buffer_bytes: int = 64 * 1024 * 1024
    """About how many bytes are fetched ahead and not yet read, of all partitions together."""
    request_timeout_s: float = 10.0
    """Deadline of one call, on top of ``fetch_wait_ms``."""
    topic_wait_s: float = 5.0
    """How long ``assign`` waits for a topic that the brokers do not know yet, and ``start`` for a broker."""
    offsets_timeout_s: float = 30.0
    """How long the search for first and last offsets may take, changes of leader included."""


DECODED_ON_LOOP_MAX: Final = 16 * 1024
"""Bytes of a chunk that is decoded without a thread: a few thousand records at most."""
DECODED_RECORDS: Final = 2_000
"""Records that a thread decodes before it hands them over, or one batch."""
RECORDS_PER_TURN: Final = 500
"""Records of an iteration after which the event loop gets a turn."""
RECORDS_PER_READ: Final = 5_000
"""Records that one read returns at most."""


class _Reading:
    """The chunk that is being read."""

    __slots__ = (
        "_batches",
        "_decoding",
        "_ended",
        "_failure",
        "_records",
        "cursor",
        "generation",
        "next_offset",
        "wants_thread",
    )

    def __init__(self, cursor: Cursor, chunk: Chunk) -> None:
        self.cursor: Final = cursor
        self.generation: Final = cursor.generation
        self.next_offset: Final = chunk.next_offset
        self.wants_thread = len(chunk.buffer) > DECODED_ON_LOOP_MAX
        """Records have to be decoded, and there may be so many that a thread should do it."""
        self._batches: Final = read_records(chunk.buffer, from_offset=chunk.from_offset)
        self._records: Iterator[Record] = iter(()) if self.wants_thread else self._batches
        self._ended = not self.wants_thread
        self._failure: CorruptBatchError | None = None
        self._decoding: asyncio.Future[tuple[Iterator[Record], CorruptBatchError | None, bool]] | None = None

    async def decode(self) -> None:
        """Decode more records on a thread. May be given up and called again."""
        if self._decoding is None:
            self._decoding = asyncio.ensure_future(asyncio.to_thread(self._decode))
        # The thread goes on when the caller does not.
        self._records, self._failure, self._ended = await asyncio.shield(self._decoding)
        self._decoding = None
        self.wants_thread = False

    def _decode(self) -> tuple[Iterator[Record], CorruptBatchError | None, bool]:
        some: list[Record] = []
        try:
            for record in self._batches:
                some.append(record)
                if len(some) == DECODED_RECORDS:
                    return iter(some), None, False
        except CorruptBatchError as error:
            return iter(some), error, True
        return iter(some), None, True

    def next_record(self) -> Record | None:
        """The next record; None at the end, or when more have to be decoded. Raises CorruptBatchError."""
        record = next(self._records, None)
        if record is None and self._failure is not None:
            raise self._failure
        self.wants_thread = record is None and not self._ended
        return record


class Consumer:
    """Reads assigned partitions. One event loop, one reader at a time.

    Each record of a partition comes once and in order, whatever happens to its leader, from the offset where reading
    began.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str] | None = None,
        *,
        settings: ConsumerSettings | None = None,
        client_id: str = "regnum-consumer",
        clock: Clock | None = None,
        chance: random.Random | None = None,
        channels: Channels | None = None,
    ) -> None:
        self._bootstrap: Final = bootstrap
        self._settings: Final = settings or ConsumerSettings()
        self._client_id: Final = client_id
        self._clock: Final[Clock] = clock or SystemClock()
        self._chance: Final = chance or random.Random()
        self._connections: Final = Connections(channels or Channels())
        self._metadata: Metadata | None = None
        self._lookup: OffsetLookup | None = None
        self._fetcher: Fetcher | None = None
        self._reading: _Reading | None = None
        self._handed_out = 0
        self._subscribed: dict[str, tuple[TopicId, set[int]]] = {}
        """Topics of which all partitions are read: their ids, and partitions that were taken up."""

    async def start(self) -> None:
        """Find the cluster. Raises RegnumError when no broker answers within ``topic_wait_s``."""
        settings = self._settings
        metadata = Metadata(
            bootstrap_addresses(self._bootstrap),
            self._connections,
            clock=self._clock,
            chance=self._chance,
            client_id=self._client_id,
        )
        self._lookup = OffsetLookup(
            self._connections,
            metadata,
            clock=self._clock,
            chance=self._chance,
            client_id=self._client_id,
            request_timeout_s=settings.request_timeout_s,
        )
        self._fetcher = Fetcher(
            self._connections,
            metadata,
            self._lookup,
            clock=self._clock,
            chance=self._chance,
            client_id=self._client_id,
            reset=settings.reset,
            wait_ms=settings.fetch_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            partition_max_bytes=settings.partition_max_bytes,
            buffer_bytes=settings.buffer_bytes,
            request_timeout_s=settings.request_timeout_s,
        )
        metadata.listen(self._follow_topics)
        await metadata.start(timeout_s=settings.topic_wait_s)
        self._metadata = metadata
        self._fetcher.start()

    async def close(self) -> None:
        """Stop fetching and close the connections."""
        metadata, self._metadata = self._metadata, None
        if metadata is None:
            return
        if self._fetcher is not None:
            await self._fetcher.close()
            self._fetcher.arrived.set()
        await metadata.close()
        await self._connections.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def assign(
        self, topic: str, *, partitions: Iterable[int] | None = None, start: Start = EARLIEST
    ) -> tuple[TopicPartition, ...]:
        """Add partitions of a topic (all of them by default), to be read from ``start`` on.

        Raises UNKNOWN_TOPIC_OR_PARTITION for a topic or partition that does not exist.
        """
        metadata, fetcher = self._open()
        view = await metadata.topic(topic, timeout_s=self._settings.topic_wait_s)
        numbers = sorted(view.partitions) if partitions is None else list(partitions)
        if any(number not in view.partitions for number in numbers):
            # It may have been added since.
            view = (await metadata.topics([topic], timeout_s=self._settings.topic_wait_s)).get(topic, view)
        for number in numbers:
            if number not in view.partitions:
                raise RegnumError(
                    errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {topic!r} has no partition {number}; it has 0 to {len(view.partitions) - 1}",
                    metadata={"topic": topic, "partition": str(number)},
                )
        chosen = tuple(TopicPartition(topic, number) for number in numbers)
        offsets: Mapping[TopicPartition, int]
        if start == EARLIEST:
            offsets = await self.beginning_offsets(chosen)
        elif start == LATEST:
            offsets = await self.end_offsets(chosen)
        else:
            offsets = dict.fromkeys(chosen, int(start))
        for partition in chosen:
            fetcher.unassign(partition)
            fetcher.assign(Cursor(partition, view.topic_id, offsets[partition]))
        return chosen

    async def subscribe(self, *topics: str, start: Start = EARLIEST) -> tuple[TopicPartition, ...]:
        """Read all partitions of topics, those that are added later from their beginning (within a minute).

        One that is removed is left out from then on, with what was fetched of it and not read. There is no group: every
        consumer that subscribes reads everything. Raises as ``assign``.
        """
        chosen: list[TopicPartition] = []
        for topic in topics:
            assigned = await self.assign(topic, start=start)
            view = self._open()[0].view.topics.get(topic)
            if view is not None:
                self._subscribed[topic] = (view.topic_id, {one.partition for one in assigned})
            chosen.extend(assigned)
        self._follow_topics()
        return tuple(chosen)

    def _follow_topics(self) -> None:
        """There may be news of topics: take partitions up that were added, and let go of those that were removed."""
        metadata, fetcher = self._metadata, self._fetcher
        if metadata is None or fetcher is None:
            return
        for topic, (id, known) in self._subscribed.items():
            view = metadata.view.topics.get(topic)
            if view is None or view.topic_id != id:
                continue
            for number in known - view.partitions.keys():
                fetcher.unassign(TopicPartition(topic, number))
                known.discard(number)
            for number in sorted(view.partitions.keys() - known):
                known.add(number)
                fetcher.assign(Cursor(TopicPartition(topic, number), view.topic_id, 0))

    def unassign(self, partition: TopicPartition) -> None:
        """Stop reading a partition; nothing happens when it is not assigned."""
        self._open()[1].unassign(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on reading an assigned partition at ``offset``."""
        cursor = self._cursor(partition)
        cursor.seek(offset)
        self._open()[1].go_on(cursor)

    def position(self, partition: TopicPartition) -> int:
        """Offset of the record that comes next from an assigned partition."""
        return self._cursor(partition).position

    @property
    def unread_bytes(self) -> int:
        """What was fetched and not yet begun to be read, of all partitions."""
        return 0 if self._fetcher is None else self._fetcher.arrivals.unread_bytes

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """First offset of each log. Waits for leaders for ``offsets_timeout_s`` at most."""
        return await self._offsets(partitions, FIRST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """High watermark of each partition: records below it are committed."""
        return await self._offsets(partitions, HIGH_WATERMARK)

    async def read(self, *, records_max: int = 500, timeout_s: float = 1.0) -> list[ConsumedRecord]:
        """The next records, of any partition, in the order of each; empty when none came in the time."""
        self._open()
        records: list[ConsumedRecord] = []
        deadline_s = self._clock.monotonic() + timeout_s
        while not records:
            # Nothing is waited for once there are records: whoever gives a read up loses none.
            if self._reading is not None and self._reading.wants_thread:
                await self._reading.decode()
            while len(records) < min(records_max, RECORDS_PER_READ):
                try:
                    record = self._next()
                except RegnumError:
                    if records:
                        # What was read is handed out first; the next call meets the error again.
                        break
                    raise
                if record is None:
                    break
                records.append(record)
            if self._reading is not None and self._reading.wants_thread:
                continue
            left_s = deadline_s - self._clock.monotonic()
            if not records and (left_s <= 0 or not await self._something_arrives(left_s)):
                break
        return records

    def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        """Records without end."""
        return self

    async def __anext__(self) -> ConsumedRecord:
        self._handed_out += 1
        if self._handed_out % RECORDS_PER_TURN == 0:
            await asyncio.sleep(0)
        while (record := self._next()) is None:
            if self._reading is not None and self._reading.wants_thread:
                await self._reading.decode()
            else:
                await self._something_arrives(None)
        return record

    def _open(self) -> tuple[Metadata, Fetcher]:
        if self._metadata is None or self._fetcher is None:
            raise ClientClosedError("consumer")
        if self._fetcher.failure is not None:
            raise self._fetcher.failure
        return self._metadata, self._fetcher

    def _cursor(self, partition: TopicPartition) -> Cursor:
        cursor = self._open()[1].cursors.get(partition)
        if cursor is None:
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST,
                f"{partition.topic}-{partition.partition} is not assigned to this consumer; assign() it first",
            )
        return cursor

    async def _offsets(self, partitions: Iterable[TopicPartition], query: int) -> Mapping[TopicPartition, int]:
        metadata, _ = self._open()
        wanted = tuple(partitions)
        topics = {partition.topic for partition in wanted}
        await metadata.use(topics, timeout_s=max(self._settings.topic_wait_s, ANSWER_S))
        for topic in topics:
            await metadata.topic(topic, timeout_s=self._settings.topic_wait_s)
        if self._lookup is None:
            raise ClientClosedError("consumer")
        return await self._lookup.look_up(wanted, query, timeout_s=self._settings.offsets_timeout_s)

    async def _something_arrives(self, within_s: float | None) -> bool:
        _, fetcher = self._open()
        fetcher.arrived.clear()
        if fetcher.arrivals:
            return True
        try:
            async with asyncio.timeout(within_s):
                await fetcher.arrived.wait()
        except TimeoutError:
            return False
        return True

    def _next(self) -> ConsumedRecord | None:
        """The next record that is here; None: nothing is, or the one that is being read wants a thread."""
        while True:
            reading = self._reading
            if reading is None:
                reading = self._reading = self._begin()
                if reading is None:
                    return None
            cursor = reading.cursor
            if cursor.generation != reading.generation:
                self._reading = None
                continue
            try:
                if reading.wants_thread:
                    return None
                record = reading.next_record()
            except CorruptBatchError as error:
                self._reading = None
                at = cursor.position if error.base_offset is None else max(error.base_offset, cursor.position)
                cursor.seek(at)
                self._open()[1].go_on(cursor)
                raise UnreadableBatchError(
                    cursor.partition, offset=at, next_offset=error.next_offset, reason=str(error)
                ) from error
            if record is None and reading.wants_thread:
                return None
            if record is None:
                cursor.position = reading.next_offset
                self._reading = None
                continue
            cursor.position = record.offset + 1
            return ConsumedRecord(
                cursor.partition.topic,
                cursor.partition.partition,
                record.offset,
                record.timestamp_ms,
                record.key,
                record.value,
                record.headers,
            )

    def _begin(self) -> _Reading | None:
        """Begin with the next chunk, of the partition whose turn it is."""
        begun = self._open()[1].begin_chunk()
        return None if begun is None else _Reading(*begun)
