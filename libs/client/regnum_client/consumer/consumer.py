"""Reads records from partitions, in order, across changes of leader.

The ``fetcher`` brings batches, a ``cursor`` for each partition says where it stands, the ``reader`` decodes and hands
out. This module is the door.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from regnum.types.v1 import errors_pb2
from regnum_service.channel import Channels
from regnum_service.clock import Clock, SystemClock
from regnum_service.errors import RegnumError

from regnum_client.cluster.bootstrap import bootstrap_addresses
from regnum_client.cluster.connections import Connections
from regnum_client.cluster.enquiry import ANSWER_S
from regnum_client.cluster.metadata import Metadata
from regnum_client.cluster.offsets import FIRST, HIGH_WATERMARK, OffsetLookup
from regnum_client.consumer.batches import RecordBatch
from regnum_client.consumer.cursor import Cursor
from regnum_client.consumer.fetching.fetcher import Fetcher
from regnum_client.consumer.positions import EARLIEST, LATEST, AtTime, Start
from regnum_client.consumer.reader import Reader
from regnum_client.consumer.settings import ConsumerSettings
from regnum_client.consumer.subscriptions import Subscriptions
from regnum_client.errors import ClientClosedError
from regnum_client.records import ConsumedRecord, TopicPartition

RECORDS_PER_TURN: Final = 500
"""Records of an iteration after which the event loop gets a turn."""
BATCHES_PER_TURN: Final = 16
"""The same for an iteration of batches."""
RECORDS_PER_READ: Final = 5_000
"""Records that one read returns at most."""


class Consumer:
    """Reads assigned partitions. One event loop, one reader at a time.

    Each record of a partition comes once and in order, whatever happens to its leader, from the offset where reading
    began.

    >>> async def main() -> None:
    ...     async with Consumer(bootstrap) as consumer:
    ...         await consumer.assign("orders")
    ...         async for record in consumer:
    ...             print(record.offset, record.value)
    ...             break
    >>> asyncio.run(main())
    0 b'first'
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
        self._reader: Reader | None = None
        self._handed_out = 0
        self._subscriptions: Final = Subscriptions()

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
        self._reader = Reader(self._fetcher)
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
                raise _no_partition_error(topic, number, len(view.partitions))
        chosen = tuple(TopicPartition(topic, number) for number in numbers)
        offsets: Mapping[TopicPartition, int]
        if start == EARLIEST:
            offsets = await self.beginning_offsets(chosen)
        elif start == LATEST:
            offsets = await self.end_offsets(chosen)
        elif isinstance(start, AtTime):
            found = await self.offsets_for_times(dict.fromkeys(chosen, start.timestamp_ms))
            ends = await self.end_offsets(one for one, offset in found.items() if offset is None)
            offsets = {one: ends[one] if offset is None else offset for one, offset in found.items()}
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
                self._subscriptions.add(topic, view.topic_id, (one.partition for one in assigned))
            chosen.extend(assigned)
        self._follow_topics()
        return tuple(chosen)

    def _follow_topics(self) -> None:
        if self._metadata is not None and self._fetcher is not None:
            self._subscriptions.follow(self._metadata.view, self._fetcher)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """Partitions that are read, paused ones among them."""
        return frozenset(self._open()[1].cursors)

    async def partitions_of(self, topic: str) -> tuple[TopicPartition, ...]:
        """All partitions of a topic. Raises UNKNOWN_TOPIC_OR_PARTITION for one that does not exist."""
        view = await self._open()[0].topic(topic, timeout_s=self._settings.topic_wait_s)
        return tuple(TopicPartition(topic, number) for number in sorted(view.partitions))

    def unassign(self, partition: TopicPartition) -> None:
        """Stop reading a partition; nothing happens when it is not assigned."""
        self._open()[1].unassign(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on reading an assigned partition at ``offset``."""
        cursor = self._cursor(partition)
        cursor.seek(offset)
        self._open()[1].go_on(cursor)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first offset that the log has now, in these assigned partitions or in all."""
        self._seek_all(await self.beginning_offsets(partitions or self.assignment))

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on at the present high watermark, in these assigned partitions or in all."""
        self._seek_all(await self.end_offsets(partitions or self.assignment))

    def _seek_all(self, offsets: Mapping[TopicPartition, int]) -> None:
        # All or none: one may have been unassigned meanwhile.
        for partition in offsets:
            self._cursor(partition)
        for partition, offset in offsets.items():
            self.seek(partition, offset)

    def pause(self, *partitions: TopicPartition) -> None:
        """Read nothing from these assigned partitions until ``resume``; others go on, positions stay.

        What was fetched of them and not read is let go of, and fetched again then.
        """
        for cursor in [self._cursor(partition) for partition in partitions]:
            self._open()[1].pause(cursor)

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on reading these assigned partitions, paused or not."""
        for cursor in [self._cursor(partition) for partition in partitions]:
            self._open()[1].resume(cursor)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """Assigned partitions that are paused."""
        return frozenset(partition for partition, cursor in self._open()[1].cursors.items() if cursor.paused)

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

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | None]:
        """Where to begin so as to miss no record at or after a moment, for each partition; None: none is so young.

        It is the first offset of the batch that has the first such record: older ones of that batch come before it.
        Moments are milliseconds since 1970, from 0 on; INVALID_REQUEST for others.
        """
        lookup = await self._lookup_of(timestamps_ms)
        return await lookup.look_up_times(timestamps_ms, timeout_s=self._settings.offsets_timeout_s)

    async def read(self, *, records_max: int = 500, timeout_s: float = 1.0) -> list[ConsumedRecord]:
        """The next records, of any partition, in the order of each; empty when none came in the time."""
        reader = self._reading()
        records: list[ConsumedRecord] = []
        deadline_s = self._clock.monotonic() + timeout_s
        while not records:
            # Nothing is waited for once there are records: whoever gives a read up loses none.
            if reader.wants_thread:
                await reader.decode()
            while (room := min(records_max, RECORDS_PER_READ) - len(records)) > 0:
                try:
                    some = reader.next_records(room)
                except RegnumError:
                    if records:
                        # What was read is handed out first; the next call meets the error again.
                        break
                    raise
                if not some:
                    break
                records += some
            if reader.wants_thread:
                continue
            left_s = deadline_s - self._clock.monotonic()
            if not records and (left_s <= 0 or not await self._reading().something_arrives(left_s)):
                break
        return records

    async def read_batch(self, *, timeout_s: float = 1.0) -> RecordBatch | None:
        """The next batch, of any partition, not decoded; None when none came in the time."""
        reader = self._reading()
        deadline_s = self._clock.monotonic() + timeout_s
        while (batch := reader.next_batch()) is None:
            left_s = deadline_s - self._clock.monotonic()
            if left_s <= 0 or not await self._reading().something_arrives(left_s):
                return None
        return batch

    async def batches(self) -> AsyncIterator[RecordBatch]:
        """Batches without end, not decoded: for those who take records on in bulk, or look at few of them.

        They come as single records would, from the same positions; a position is behind a batch once it is handed
        out. One may change between batches and records at any time.
        """
        handed_out = 0
        while True:
            batch = self._reading().next_batch()
            if batch is None:
                await self._reading().something_arrives(None)
                continue
            yield batch
            handed_out += 1
            if handed_out % BATCHES_PER_TURN == 0:
                await asyncio.sleep(0)

    def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        """Records without end."""
        return self

    async def __anext__(self) -> ConsumedRecord:
        self._handed_out += 1
        if self._handed_out % RECORDS_PER_TURN == 0:
            await asyncio.sleep(0)
        reader = self._reading()
        while not (records := reader.next_records(1)):
            if reader.wants_thread:
                await reader.decode()
            else:
                await self._reading().something_arrives(None)
        return records[0]

    def _reading(self) -> Reader:
        self._open()
        if self._reader is None:
            raise ClientClosedError("consumer")
        return self._reader

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
        wanted = tuple(partitions)
        lookup = await self._lookup_of(wanted)
        return await lookup.look_up(wanted, query, timeout_s=self._settings.offsets_timeout_s)

    async def _lookup_of(self, partitions: Iterable[TopicPartition]) -> OffsetLookup:
        """The lookup, once the topics of these partitions are known."""
        metadata, _ = self._open()
        topics = {partition.topic for partition in partitions}
        await metadata.use(topics, timeout_s=max(self._settings.topic_wait_s, ANSWER_S))
        for topic in topics:
            await metadata.topic(topic, timeout_s=self._settings.topic_wait_s)
        if self._lookup is None:
            raise ClientClosedError("consumer")
        return self._lookup


def _no_partition_error(topic: str, number: int, partitions: int) -> RegnumError:
    return RegnumError(
        errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
        f"topic {topic!r} has no partition {number}; it has 0 to {partitions - 1}",
        metadata={"topic": topic, "partition": str(number)},
    )
