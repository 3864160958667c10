"""The consumer for services without asyncio."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Annotated, Any, Final

from regnum_service.channel import Channels
from regnum_service.tls.files import TlsFiles

from regnum_client.allowed import Between, checks_arguments
from regnum_client.consumer.batches import RecordBatch
from regnum_client.consumer.consumer import Consumer as AsyncConsumer
from regnum_client.consumer.consumer import Count
from regnum_client.consumer.groups.gate import Gate
from regnum_client.consumer.groups.listener import OffsetAndMetadata
from regnum_client.consumer.groups.listener import RebalanceListener as AsyncListener
from regnum_client.consumer.groups.session import ToCommit
from regnum_client.consumer.settings import ConsumerSettings
from regnum_client.records import ConsumedRecord, TopicPartition, by_partition
from regnum_client.sync.bridge import Blocking, Bridge, Face, OnLoop
from regnum_client.sync.listener import OffLoop, RebalanceListener

READ_AHEAD_RECORDS: Final = 500
"""Records that an iteration fetches from the event loop at a time."""
WAIT_S: Final = 3600.0
"""How long one read of an iteration waits; then it reads again."""


class _Behind(AsyncConsumer):
    """The async consumer, which knows that somebody in front of it reads ahead."""

    def __init__(self, *arguments: Any, kept_back: Callable[[], Mapping[TopicPartition, int]], **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._kept_back: Final = kept_back

    async def start(self) -> None:
        """As the async consumer."""
        await super().start()
        if self.gate is not None:
            self.gate.kept_back = self._kept_back

    async def leave(self) -> None:
        """Leave the group, if there is one, and stay open."""
        if self._group is not None:
            try:
                await self._group.leave()
            finally:
                await self._group.close()

    def positions(self) -> dict[TopicPartition, int]:
        """Those that say something: of a partition whose beginning nobody has said yet, 0 would be one."""
        _, fetcher = self._open()
        return {partition: cursor.position for partition, cursor in fetcher.cursors.items() if cursor.has_place}

    @property
    def gate(self) -> Gate | None:
        """Where the application and its group meet; None: there is no group."""
        return None if self._group is None else self._group.gate


@checks_arguments()
class Consumer(Face[_Behind]):
    """Reads partitions, those it is told or those of its group, from any thread; each record goes to one of them.

    >>> from regnum_client.sync import Consumer
    >>> with Consumer(bootstrap) as consumer:
    ...     _ = consumer.assign("orders", partitions=[0])
    ...     for record in consumer:
    ...         print(record.offset, record.value)
    ...         break
    ...     consumer.position(TopicPartition("orders", 0))
    0 b'first'
    1

    A member of a group reads from one thread: a record counts as done with when the next one is asked for.

    >>> for turn in range(2):
    ...     with Consumer(bootstrap, topics=["orders"], group_id="shipping") as consumer:
    ...         print(next(consumer).value)
    ...         consumer.commit()
    b'first'
    b'second'
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str] | None = None,
        *,
        topics: Iterable[str] = (),
        group_id: str | None = None,
        group_instance_id: str | None = None,
        listener: RebalanceListener | None = None,
        settings: ConsumerSettings | None = None,
        client_id: str = "regnum-consumer",
        channels: Channels | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        """As the async consumer; the listener is told in a thread of its own, and must not read."""
        self._hand: Final = _Hand()
        self._listening: Final = None if listener is None else OffLoop(listener)
        behind: AsyncListener | None = self._listening
        super().__init__(
            Bridge(
                "consumer",
                lambda: _Behind(
                    bootstrap,
                    topics=topics,
                    group_id=group_id,
                    group_instance_id=group_instance_id,
                    listener=behind,
                    settings=settings,
                    client_id=client_id,
                    channels=channels,
                    tls=tls,
                    kept_back=self._hand.not_done_with,
                ),
            )
        )
        self._reading: Final = threading.Lock()

    def close(self) -> None:
        """Leave the group, close the connections; nothing happens when it is not open, and after a fork in the child.

        A member commits as ``close`` of the async consumer.
        """
        if self.bridge.is_open and not self.bridge.is_on_loop:
            # Before it is closed: what hears of partitions that go may commit.
            self.bridge.wait(self.bridge.client.leave())
        super().close()

    def stop(self) -> None:
        """The same as ``close``, as other clients call it."""
        self.close()

    assign = Blocking(AsyncConsumer.assign, settles=True)
    subscribe = Blocking(AsyncConsumer.subscribe, settles=True)
    unassign = OnLoop(AsyncConsumer.unassign, settles=True)
    seek = OnLoop(AsyncConsumer.seek, settles=True)
    seek_to_beginning = Blocking(AsyncConsumer.seek_to_beginning, settles=True)
    seek_to_end = Blocking(AsyncConsumer.seek_to_end, settles=True)
    pause = OnLoop(AsyncConsumer.pause, settles=True)
    resume = OnLoop(AsyncConsumer.resume)
    partitions_of = Blocking(AsyncConsumer.partitions_of)
    topic_ids = Blocking(AsyncConsumer.topic_ids)
    beginning_offsets = Blocking(AsyncConsumer.beginning_offsets)
    end_offsets = Blocking(AsyncConsumer.end_offsets)
    offsets_for_times = Blocking(AsyncConsumer.offsets_for_times)
    committed = Blocking(AsyncConsumer.committed)

    def commit(self, offsets: ToCommit | None = None) -> None:
        """As ``commit`` of the async consumer: without ``offsets``, behind what was handed out to the caller."""
        self.bridge.wait(self._commit(offsets))

    async def _commit(self, offsets: ToCommit | None) -> None:
        client = self.bridge.client
        if offsets is None:
            ahead = self._hand.positions()
            positions = {one: ahead.get(one, at) for one, at in client.positions().items()}
            offsets = {one: OffsetAndMetadata(at, client.leader_epoch_before(one, at)) for one, at in positions.items()}
        await client.commit(offsets)

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

    leader_epoch_before = OnLoop(AsyncConsumer.leader_epoch_before)

    def position(self, partition: TopicPartition) -> int:
        """Offset of the record that comes next from an assigned partition, in this very thread of reading."""
        return self.bridge.wait(self._position(partition))

    async def _position(self, partition: TopicPartition) -> int:
        behind = self.bridge.client.position(partition)
        return self._hand.positions().get(partition, behind)

    def read(self, *, records_max: int = 500, timeout_s: float = 1.0) -> list[ConsumedRecord]:
        """The next records, of any partition, in the order of each; empty when none came in the time."""
        with self._turn():
            records = self._hand.take(records_max)
            if not records:
                self.bridge.wait(self._fill(records_max, timeout_s))
                records = self._hand.take(records_max)
            return records

    def read_batch(self, *, timeout_s: float = 1.0) -> RecordBatch | None:
        """The next batch, of any partition, not decoded; None when none came in the time."""
        with self._turn():
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
        with self._turn():
            while not (records := self._hand.take(1)):
                self.bridge.wait(self._fill(READ_AHEAD_RECORDS, WAIT_S))
            return records[0]

    def getone(self) -> ConsumedRecord:
        """The next record, of any partition, as soon as there is one (aiokafka's name of ``next``)."""
        return next(self)

    def getmany(
        self, *, timeout_ms: Annotated[float, Between(0)] = 0, max_records: Count | None = None
    ) -> dict[TopicPartition, list[ConsumedRecord]]:
        """The next records by partition, in the order of each; empty when none came in the time (aiokafka's ``read``).

        ``max_records``: 500 by default.
        """
        return by_partition(self.read(records_max=max_records or 500, timeout_s=timeout_ms / 1000))

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One thread reads at a time; it is done with what it had, as its group hears."""
        if self._listening is not None:
            self._listening.check_reader()
        with self._reading:
            gate = self.bridge.client.gate
            if gate is not None:
                gate.touch()
                self._hand.done()
                if gate.wanted:
                    self.bridge.wait(self._give_back())
            yield

    async def _give_back(self) -> None:
        self.settle()

    def settle(self) -> None:
        """Give back what was fetched from the loop and was not handed out yet: it is read again from there on."""
        given_back = self._hand.empty()
        if given_back:
            client = self.bridge.client
            assigned = client.assignment
            for partition in given_back.keys() & assigned:
                at = given_back[partition]
                client.seek(partition, at, leader_epoch=client.leader_epoch_before(partition, at))

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
    """What was read on the loop and was not handed out yet: records, or one batch; and what the caller has."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._records: deque[ConsumedRecord] = deque()
        self._batch: RecordBatch | None = None
        self._taken: list[ConsumedRecord] = []
        self._taken_batch: RecordBatch | None = None

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
            self._taken = [self._records.popleft() for _ in range(min(records_max, len(self._records)))]
            return self._taken

    def take_batch(self) -> RecordBatch | None:
        """The batch, if there is one."""
        with self._lock:
            self._taken_batch, self._batch = self._batch, None
            return self._taken_batch

    def done(self) -> None:
        """The caller is done with what it took last."""
        with self._lock:
            self._taken, self._taken_batch = [], None

    def positions(self) -> dict[TopicPartition, int]:
        """Where it begins, for each partition that it has something of."""
        with self._lock:
            return _first((), self._records, self._batch)

    def not_done_with(self) -> dict[TopicPartition, int]:
        """The same with what the caller took last and may be busy with."""
        with self._lock:
            first = _first(self._taken, (), self._taken_batch)
            return _first((), self._records, self._batch) | first

    def empty(self) -> dict[TopicPartition, int]:
        """Let go of all; returns ``positions``."""
        with self._lock:
            first = _first((), self._records, self._batch)
            self._records.clear()
            self._batch = None
            return first


def _first(
    taken: Sequence[ConsumedRecord], records: Iterable[ConsumedRecord], batch: RecordBatch | None
) -> dict[TopicPartition, int]:
    """The first offset of each partition."""
    first: dict[TopicPartition, int] = {}
    for record in chain(taken, records):
        first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
    if batch is not None:
        first.setdefault(TopicPartition(batch.topic, batch.partition), batch.first_offset)
    return first
