"""Fills batches, one for each partition. Pure. All times are monotonic seconds.

Goals: no record waits longer for company than the linger, while it could travel; whatever has to wait for another
reason travels in few large batches, because the number of calls is what a slow path limits, not their size.

Algorithm: a batch is *open* from its first record on. After its linger, or with ``batch_bytes``, it is *ready*: the
sender may take it, and is told so once. One that has ``batch_bytes``, or has been ready for PATIENCE_S, is *large*: it
need not wait for others of its partition that are under way. (Where answers take a second, a record would wait for one
before it begins to wait for its own.) It takes records until the sender does take it, or until it is full, which it is
at ``batch_bytes_max``; then it is *closed*. So where calls are what is scarce, batches grow, and where they are not,
they are as large as asked for. A batch that waits for very long is closed too, so that the records that came last have
nearly the whole delivery time-out: a batch fails as a whole, by the time of its first record.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic

from regnum_records.build import BatchBuilder, CodecName, Headers

from regnum_client.producer.batches.content import BuiltContent
from regnum_client.producer.batches.lane import Batch, R
from regnum_client.records import TopicPartition

PATIENCE_S: Final = 0.05
"""How long a batch waits for others of its partition that are under way."""

PASSED_OVER_S: Final = 0.2
"""When a batch has been ready for so long, each further record passes the turn on. (Where leaders have more to do than
they can, batches are ready for up to that time; with less, they would become smaller there.)"""

OPEN_SHARE_MAX: Final = 0.1
"""Share of the delivery time-out after which a batch takes no further records."""


class _Open(Generic[R]):
    """A batch that still takes records."""

    __slots__ = ("batch", "builder", "turns_at_bytes")

    def __init__(self, batch: Batch[R], builder: BatchBuilder, turns_at_bytes: int) -> None:
        self.batch: Final = batch
        self.builder: Final = builder
        self.turns_at_bytes = turns_at_bytes
        """At that size it is large; afterwards: at that size records without a key go to another partition again."""


class Accumulator(Generic[R]):
    """Open batches by partition, and closed ones until they are taken."""

    def __init__(
        self,
        *,
        batch_bytes: int,
        batch_bytes_max: int,
        codec: CodecName,
        linger_s: float,
        delivery_timeout_s: float,
        on_turned: Callable[[TopicPartition], None],
    ) -> None:
        self._batch_bytes: Final = batch_bytes
        self._full_bytes: Final = max(batch_bytes, batch_bytes_max)
        self._codec: Final[CodecName] = codec
        self._linger_s: Final = linger_s
        self._delivery_timeout_s: Final = delivery_timeout_s
        self._on_turned: Final = on_turned
        """Called when a batch is ready or full, with each ``batch_bytes`` of one that grows, and with each record that
        joins one that nobody takes (PASSED_OVER_S): the next record without a key goes to another partition."""
        self._open: Final = OrderedDict[TopicPartition, _Open[R]]()
        """Batches that wait for company, in the order in which they were opened. (A dict goes through all that were
        taken from it to find its first.)"""
        self._ready: dict[TopicPartition, _Open[R]] = {}
        """Batches that have waited long enough, or are large, and that nobody has taken yet."""
        self._large: Final[dict[TopicPartition, None]] = {}
        """Those of them that are large."""
        self._patient: Final = OrderedDict[TopicPartition, _Open[R]]()
        """The others of them, in the order in which they were opened."""
        self._turned: list[TopicPartition] = []
        """Those that became large since the last ``become_ready``."""
        self._closed: list[tuple[TopicPartition, Batch[R]]] = []
        self._limits: dict[str, int] = {}
        """Bytes of a batch of topics whose leaders take less than it may grow to (``max.message.bytes``)."""

    def append(
        self,
        partition: TopicPartition,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        receipt: R,
        size_bytes: int,
        now_s: float,
    ) -> Batch[R]:
        """Put a record into its partition's batch, which is returned; it takes ``size_bytes`` from the buffer."""
        current = self._open.get(partition) or self._ready.get(partition)
        if current is not None and now_s - current.batch.opened_s > self._delivery_timeout_s * OPEN_SHARE_MAX:
            self._close(partition)
            current = None
        if current is not None:
            before = current.builder.size_bytes
            if not current.builder.append(key=key, value=value, timestamp_ms=timestamp_ms, headers=headers):
                self._close(partition)
                current = None
        if current is None:
            builder = BatchBuilder(bytes_max=self._limit_of(partition.topic), codec=self._codec)
            before = builder.size_bytes
            builder.append(key=key, value=value, timestamp_ms=timestamp_ms, headers=headers)
            batch: Batch[R] = Batch(BuiltContent(builder), opened_s=now_s, deadline_s=now_s + self._delivery_timeout_s)
            current = self._open[partition] = _Open(batch, builder, self._batch_bytes)
        current.batch.receipts.append(receipt)
        current.batch.size_bytes += size_bytes
        after = current.builder.size_bytes
        if after + (after - before) > self._limit_of(partition.topic):
            # Another record like this one would not fit: no need to wait for it.
            self._close(partition)
        elif after + (after - before) > current.turns_at_bytes:
            self._grown(partition, current, after)
        elif now_s > current.batch.opened_s + self._linger_s + PASSED_OVER_S and partition in self._ready:
            # A leader that is gone or silent: nothing else would pass the turn on.
            self._on_turned(partition)
        return current.batch

    def _grown(self, partition: TopicPartition, current: _Open[R], size_bytes: int) -> None:
        """A batch has become large, or larger still."""
        current.turns_at_bytes = size_bytes + self._batch_bytes
        self._on_turned(partition)
        if partition not in self._large:
            self._large[partition] = None
            self._turned.append(partition)
            self._ready[partition] = current
            self._open.pop(partition, None)
            self._patient.pop(partition, None)

    def limit(self, topic: str, size_bytes: int) -> int | None:
        """From now on close batches of a topic at that size, and return it; None if it is not less than so far."""
        if size_bytes >= self._limit_of(topic):
            return None
        self._limits[topic] = max(1, size_bytes)
        return self._limits[topic]

    def _limit_of(self, topic: str) -> int:
        return self._limits.get(topic, self._full_bytes) if self._limits else self._full_bytes

    def become_ready(self, now_s: float) -> list[TopicPartition]:
        """Partitions whose batches have waited long enough, or became large, since the last call."""
        ready, self._turned = self._turned, []
        while self._open:
            partition, oldest = next(iter(self._open.items()))
            if oldest.batch.opened_s + self._linger_s > now_s:
                break
            self._ready[partition] = self._patient[partition] = oldest
            del self._open[partition]
            self._on_turned(partition)
            ready.append(partition)
        while self._patient:
            partition, oldest = next(iter(self._patient.items()))
            if self._patient_until_s(oldest) > now_s:
                break
            del self._patient[partition]
            self._large[partition] = None
            ready.append(partition)
        return ready

    def __contains__(self, partition: object) -> bool:
        """There is a batch that takes records."""
        return partition in self._open or partition in self._ready

    def forget(self, topic: str) -> None:
        """Nothing is sent to it any more: what its leaders take is found out anew."""
        self._limits.pop(topic, None)

    def is_ready(self, partition: TopicPartition) -> bool:
        """There is a batch to take."""
        return partition in self._ready

    def is_large(self, partition: TopicPartition) -> bool:
        """There is one to take that need not wait for others of its partition."""
        return partition in self._large

    def take(self, partition: TopicPartition) -> Batch[R] | None:
        """The ready batch of a partition, which takes no records from now on; None: there is none."""
        taken = self._ready.pop(partition, None)
        self._large.pop(partition, None)
        self._patient.pop(partition, None)
        return None if taken is None else taken.batch

    def take_expired(self, partition: TopicPartition, now_s: float) -> Batch[R] | None:
        """The ready batch of a partition, if its time is up."""
        ready = self._ready.get(partition)
        return self.take(partition) if ready is not None and ready.batch.deadline_s <= now_s else None

    def deadline_s(self, partition: TopicPartition) -> float:
        """When the time of the ready batch of a partition is up; infinity when there is none."""
        ready = self._ready.get(partition)
        return float("inf") if ready is None else ready.batch.deadline_s

    def close_all(self) -> None:
        """Close every batch."""
        for partition in (*self._ready, *self._open):
            self._close(partition)

    def take_closed(self) -> list[tuple[TopicPartition, Batch[R]]]:
        """The batches closed since the last call, first to last."""
        closed, self._closed = self._closed, []
        return closed

    @property
    def has_more(self) -> bool:
        """There are closed batches to take, or large ones that nobody was told of."""
        return bool(self._closed or self._turned)

    @property
    def next_ready_s(self) -> float | None:
        """When the oldest open batch will have waited long enough."""
        for oldest in self._open.values():
            return oldest.batch.opened_s + self._linger_s
        return None

    @property
    def next_large_s(self) -> float:
        """When the oldest ready batch will have waited long enough for others under way; infinity: none waits."""
        for oldest in self._patient.values():
            return self._patient_until_s(oldest)
        return float("inf")

    def _patient_until_s(self, ready: _Open[R]) -> float:
        return ready.batch.opened_s + self._linger_s + PATIENCE_S

    def _close(self, partition: TopicPartition) -> None:
        lingering = self._open.pop(partition, None)
        closed = self._ready.pop(partition) if lingering is None else lingering
        self._large.pop(partition, None)
        self._patient.pop(partition, None)
        self._closed.append((partition, closed.batch))
        if lingering is not None:
            self._on_turned(partition)
