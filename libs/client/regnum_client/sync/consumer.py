"""The consumer for services without asyncio."""

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from regnum_service.channel import Channels

from regnum_client.consumer.batches import RecordBatch
from regnum_client.consumer.consumer import Consumer as AsyncConsumer
from regnum_client.consumer.settings import ConsumerSettings
from regnum_client.records import ConsumedRecord, TopicPartition
from regnum_client.sync.bridge import Blocking, Bridge, Face, OnLoop

READ_AHEAD_RECORDS: Final = 500
"""Records that an iteration fetches from the event loop at a time."""
WAIT_S: Final = 3600.0
"""How long one read of an iteration waits; then it reads again."""


class Consumer(Face[AsyncConsumer]):
    """Reads assigned partitions, from any thread; of several that read at a time, each record goes to one.

    >>> from regnum_client.sync import Consumer
    >>> with Consumer(bootstrap) as consumer:
    ...     _ = consumer.assign("orders", partitions=[0])
    ...     for record in consumer:
    ...         print(record.offset, record.value)
    ...         break
    ...     consumer.position(TopicPartition("orders", 0))
    0 b'first'
    1
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str] | None = None,
        *,
        settings: ConsumerSettings | None = None,
        client_id: str = "regnum-consumer",
        channels: Channels | None = None,
    ) -> None:
        super().__init__(
            Bridge(
                "consumer",
                lambda: AsyncConsumer(bootstrap, settings=settings, client_id=client_id, channels=channels),
            )
        )
        self._hand: Final = _Hand()
        self._reading: Final = threading.Lock()

    assign = Blocking(AsyncConsumer.assign, settles=True)
    subscribe = Blocking(AsyncConsumer.subscribe, settles=True)
    unassign = OnLoop(AsyncConsumer.unassign, settles=True)
    seek = OnLoop(AsyncConsumer.seek, settles=True)
    seek_to_beginning = Blocking(AsyncConsumer.seek_to_beginning, settles=True)
    seek_to_end = Blocking(AsyncConsumer.seek_to_end, settles=True)
    pause = OnLoop(AsyncConsumer.pause, settles=True)
    resume = OnLoop(AsyncConsumer.resume)
    partitions_of = Blocking(AsyncConsumer.partitions_of)
    beginning_offsets = Blocking(AsyncConsumer.beginning_offsets)
    end_offsets = Blocking(AsyncConsumer.end_offsets)
    offsets_for_times = Blocking(AsyncConsumer.offsets_for_times)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """As ``assignment`` of the async consumer."""
        return self.bridge.wait(self._assignment())

    async def _assignment(self) -> frozenset[TopicPartition]:
        return self.bridge.client.assignment

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """As ``paused`` of the async consumer."""
        return self.bridge.wait(self._paused())

    async def _paused(self) -> frozenset[TopicPartition]:
        return self.bridge.client.paused

    @property
    def unread_bytes(self) -> int:
        """As ``unread_bytes`` of the async consumer."""
        return self.bridge.client.unread_bytes

    def position(self, partition: TopicPartition) -> int:
        """Offset of the record that comes next from an assigned partition, in this very thread of reading."""
        return self.bridge.wait(self._position(partition))

    async def _position(self, partition: TopicPartition) -> int:
        behind = self.bridge.client.position(partition)
        return self._hand.positions().get(partition, behind)

    def read(self, *, records_max: int = 500, timeout_s: float = 1.0) -> list[ConsumedRecord]:
        """The next records, of any partition, in the order of each; empty when none came in the time."""
        with self._reading:
            records = self._hand.take(records_max)
            if not records:
                self.bridge.wait(self._fill(records_max, timeout_s))
                records = self._hand.take(records_max)
            return records

    def read_batch(self, *, timeout_s: float = 1.0) -> RecordBatch | None:
        """The next batch, of any partition, not decoded; None when none came in the time."""
        with self._reading:
            self.bridge.wait(self._fill_batch(timeout_s))
            return self._hand.take_batch()

    def batches(self) -> Iterator[RecordBatch]:
        """Batches without end, not decoded."""
        while True:
            batch = self.read_batch(timeout_s=WAIT_S)
            if batch is not None:
                yield batch

    def __iter__(self) -> Iterator[ConsumedRecord]:
        """Records without end."""
        return self

    def __next__(self) -> ConsumedRecord:
        with self._reading:
            _ = self.bridge.client
            while not (records := self._hand.take(1)):
                self.bridge.wait(self._fill(READ_AHEAD_RECORDS, WAIT_S))
            return records[0]

    def settle(self) -> None:
        """Give back what was fetched from the loop and is in nobody's hands yet: it is read again from there on."""
        given_back = self._hand.empty()
        if given_back:
            client = self.bridge.client
            assigned = client.assignment
            for partition in given_back.keys() & assigned:
                client.seek(partition, given_back[partition])

    async def _fill(self, records_max: int, timeout_s: float) -> None:
        # What comes while the caller gives up (Ctrl-C) is in the hand for the next one.
        if self._hand.has_batch:
            self.settle()
        self._hand.put(await self.bridge.client.read(records_max=records_max, timeout_s=timeout_s))

    async def _fill_batch(self, timeout_s: float) -> None:
        if self._hand.has_batch:
            return
        self.settle()
        batch = await self.bridge.client.read_batch(timeout_s=timeout_s)
        if batch is not None:
            self._hand.put_batch(batch)


class _Hand:
    """What was read on the loop and was not handed out yet: records, or one batch."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._records: deque[ConsumedRecord] = deque()
        self._batch: RecordBatch | None = None

    @property
    def has_batch(self) -> bool:
        """There is a batch."""
        return self._batch is not None

    def put(self, records: Sequence[ConsumedRecord]) -> None:
        """These come behind the others."""
        with self._lock:
            self._records.extend(records)

    def put_batch(self, batch: RecordBatch) -> None:
        """This one is all there is."""
        with self._lock:
            self._batch = batch

    def take(self, records_max: int) -> list[ConsumedRecord]:
        """The first records."""
        with self._lock:
            return [self._records.popleft() for _ in range(min(records_max, len(self._records)))]

    def take_batch(self) -> RecordBatch | None:
        """The batch, if there is one."""
        with self._lock:
            batch, self._batch = self._batch, None
            return batch

    def positions(self) -> dict[TopicPartition, int]:
        """Where it begins, for each partition that it has something of."""
        with self._lock:
            return self._positions()

    def empty(self) -> dict[TopicPartition, int]:
        """Let go of all; returns ``positions``."""
        with self._lock:
            first = self._positions()
            self._records.clear()
            self._batch = None
            return first

    def _positions(self) -> dict[TopicPartition, int]:
        first: dict[TopicPartition, int] = {}
        for record in self._records:
            first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        if self._batch is not None:
            first.setdefault(TopicPartition(self._batch.topic, self._batch.partition), self._batch.first_offset)
        return first
