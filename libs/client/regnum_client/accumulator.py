"""Fills batches, one for each partition, until they are full or have waited long enough. Pure."""

from collections.abc import Callable
from typing import Final, Generic

from regnum_records.build import BatchBuilder, CodecName, Headers

from regnum_client.content import BuiltContent
from regnum_client.lane import Batch, R
from regnum_client.records import TopicPartition


class _Open(Generic[R]):
    """A batch that still takes records."""

    __slots__ = ("batch", "builder")

    def __init__(self, batch: Batch[R], builder: BatchBuilder) -> None:
        self.batch: Final = batch
        self.builder: Final = builder


class Accumulator(Generic[R]):
    """Open batches by partition, and closed ones until they are taken."""

    def __init__(
        self,
        *,
        batch_bytes: int,
        codec: CodecName,
        linger_s: float,
        delivery_timeout_s: float,
        on_closed: Callable[[TopicPartition], None],
    ) -> None:
        self._batch_bytes: Final = batch_bytes
        self._codec: Final[CodecName] = codec
        self._linger_s: Final = linger_s
        self._delivery_timeout_s: Final = delivery_timeout_s
        self._on_closed: Final = on_closed
        self._open: dict[TopicPartition, _Open[R]] = {}
        """In the order in which they were opened."""
        self._closed: list[tuple[TopicPartition, Batch[R]]] = []

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
        current = self._open.get(partition)
        if current is not None:
            before = current.builder.size_bytes
            if not current.builder.append(key=key, value=value, timestamp_ms=timestamp_ms, headers=headers):
                self._close(partition)
                current = None
        if current is None:
            builder = BatchBuilder(bytes_max=self._batch_bytes, codec=self._codec)
            before = builder.size_bytes
            builder.append(key=key, value=value, timestamp_ms=timestamp_ms, headers=headers)
            batch: Batch[R] = Batch(BuiltContent(builder), opened_s=now_s, deadline_s=now_s + self._delivery_timeout_s)
            current = self._open[partition] = _Open(batch, builder)
        current.batch.receipts.append(receipt)
        current.batch.size_bytes += size_bytes
        after = current.builder.size_bytes
        if after + (after - before) > self._batch_bytes:
            # Another record like this one would not fit: no need to wait for it.
            self._close(partition)
        return current.batch

    def close_due(self, now_s: float) -> None:
        """Close the batches that have waited long enough."""
        while self._open:
            partition, oldest = next(iter(self._open.items()))
            if oldest.batch.opened_s + self._linger_s > now_s:
                return
            self._close(partition)

    def close_all(self) -> None:
        """Close every batch."""
        for partition in tuple(self._open):
            self._close(partition)

    def take_closed(self) -> list[tuple[TopicPartition, Batch[R]]]:
        """The batches closed since the last call, first to last."""
        closed, self._closed = self._closed, []
        return closed

    @property
    def has_closed(self) -> bool:
        """There are closed batches to take."""
        return bool(self._closed)

    @property
    def next_due_s(self) -> float | None:
        """When the oldest open batch will have waited long enough."""
        for oldest in self._open.values():
            return oldest.batch.opened_s + self._linger_s
        return None

    def _close(self, partition: TopicPartition) -> None:
        self._closed.append((partition, self._open.pop(partition).batch))
        self._on_closed(partition)
