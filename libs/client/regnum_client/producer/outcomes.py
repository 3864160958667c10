"""Ends the futures of records, and keeps the account of what is still open: buffer, batches, the producer itself."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_service.errors import Code, RegnumError

from regnum_client.errors import BufferFullError, ClientClosedError, DeliveryTimeoutError, SequenceBrokenError
from regnum_client.producer.batches.lane import Batch
from regnum_client.records import RecordMetadata, TopicPartition

Receipt = tuple[asyncio.Future[RecordMetadata], int]
"""The future of a record, and its timestamp."""


class Appended(NamedTuple):
    """Where the broker appended a batch."""

    base_offset: int
    """Offset of its first record. -1: the broker cannot say, or did not."""
    append_ms: int | None = None
    """Time that all its records have got; None: they have those that they came with."""

    @classmethod
    def told(cls, result: log_pb2.ProduceResult) -> "Appended":
        """As the broker says."""
        return cls(result.base_offset, result.log_append_time_ms if result.HasField("log_append_time_ms") else None)


class Outcomes:
    """What became of records. Belongs to one event loop."""

    def __init__(self, *, buffer_bytes: int, delivery_timeout_s: float) -> None:
        self._buffer_bytes: Final = buffer_bytes
        self._delivery_timeout_s: Final = delivery_timeout_s
        self._buffered_bytes = 0
        self._door: Final = asyncio.Lock()
        """Held by the first of those who wait for room; it lets them in one after another."""
        self._line: Final[dict[object, None]] = {}
        """Who waits for room, in order."""
        self._freed: Final = asyncio.Event()
        self._closed = False
        self._open: dict[Batch[Receipt], asyncio.Future[None] | None] = {}
        self._failure: RegnumError | None = None
        self._event: Final = asyncio.Event()
        self.batches_split = 0
        """Batches in whose place two others went."""
        self.batches_throttled = 0
        """Times that a leader had no room for a batch, and it was sent again."""

    @property
    def buffered_bytes(self) -> int:
        """Records not yet acknowledged, in bytes."""
        return self._buffered_bytes

    # The sender's alarm clock.

    def wake(self) -> None:
        """Let the sender turn."""
        self._event.set()

    async def woken(self, within_s: float) -> None:
        """Wait until ``wake``, at most that long."""
        if not self._event.is_set():
            try:
                async with asyncio.timeout(within_s):
                    await self._event.wait()
            except TimeoutError:
                return
        self._event.clear()

    # The buffer.

    def has_room(self, size_bytes: int) -> bool:
        """A record of that size may come in now; one larger than the buffer may when nothing else is in it."""
        return not self._line and self._fits(size_bytes)

    async def room(self, size_bytes: int, *, wait_s: float, because: Callable[[], str]) -> None:
        """Wait for room, first come first served; ``because``: why records wait, should it be in vain.

        Raises BufferFullError and ClientClosedError.
        """
        place = object()
        self._line[place] = None
        try:
            async with asyncio.timeout(wait_s), self._door:
                while not self._closed and not self._fits(size_bytes):
                    self._freed.clear()
                    await self._freed.wait()
        except TimeoutError:
            # A batch may have ended in this very turn; then there is room for who is first in the line.
            is_first = next(iter(self._line)) is place
            if not self._closed and not (is_first and self._fits(size_bytes)):
                raise BufferFullError(buffer_bytes=self._buffer_bytes, waited_s=wait_s, last=because()) from None
        finally:
            del self._line[place]
        if self._closed:
            raise self._failure or ClientClosedError("producer")

    def take_in(self, batch: Batch[Receipt], size_bytes: int) -> None:
        """A record was appended to the batch."""
        self._buffered_bytes += size_bytes
        self._open.setdefault(batch, None)

    async def all_ended(self) -> None:
        """Wait for every batch that is open now."""
        loop = asyncio.get_running_loop()
        endings: list[asyncio.Future[None]] = []
        for batch, known in self._open.items():
            ending = loop.create_future() if known is None else known
            self._open[batch] = ending
            endings.append(ending)
        if endings:
            await asyncio.wait(endings)

    # Endings.

    def acknowledged(self, partition: TopicPartition, batch: Batch[Receipt], appended: Appended) -> None:
        """The brokers have the batch."""
        base_offset, append_ms = appended
        for index, (future, timestamp_ms) in enumerate(batch.receipts):
            if not future.done():
                offset = base_offset + index if base_offset >= 0 else -1
                time_ms = timestamp_ms if append_ms is None else append_ms
                future.set_result(RecordMetadata(partition.topic, partition.partition, offset, time_ms))
        self._end(batch)

    def split(self, batch: Batch[Receipt], parts: Sequence[Batch[Receipt]]) -> None:
        """These batches have taken its place: it has ended when all of them have."""
        self.batches_split += 1
        ending = self._open.pop(batch, None)
        left = len(parts)

        def ended(_part: asyncio.Future[None]) -> None:
            nonlocal left
            left -= 1
            if not left and ending is not None and not ending.done():
                ending.set_result(None)

        for part in parts:
            self._open[part] = None
            if ending is not None:
                whole = self._open[part] = asyncio.get_running_loop().create_future()
                whole.add_done_callback(ended)

    def refused(self, partition: TopicPartition, batch: Batch[Receipt], code: Code, message: str) -> None:
        """The leader will not take the batch; ``maybe_written`` among the error's metadata: but it may have it."""
        where = {"topic": partition.topic, "partition": str(partition.partition)}
        if batch.maybe_written:
            message += "; the record may be in the log all the same"
            where["maybe_written"] = "true"
        self._fail(batch, RegnumError(code, f"{partition.topic}/{partition.partition}: {message}", metadata=where))

    def not_there(
        self, partition: TopicPartition, batches: Iterable[Batch[Receipt] | None], *, was_there: bool
    ) -> None:
        """The topic has no such partition; ``was_there``: it had one while this producer lived."""
        why = "the topic has this partition no more, it was removed"
        if not was_there:
            # A topic node that was written by hand may leave numbers out.
            why = f"the topic has no partition {partition.partition}; see `regnum topics describe {partition.topic}`"
        for batch in batches:
            if batch is not None:
                message = f"{why}{'' if batch.maybe_written else '; the record was not written'}"
                self.refused(partition, batch, errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION, message)

    def timed_out(self, partition: TopicPartition, batch: Batch[Receipt], *, last: str) -> None:
        """Nobody acknowledged the batch in time."""
        self._fail(
            batch,
            DeliveryTimeoutError(
                partition, timeout_s=self._delivery_timeout_s, maybe_written=batch.maybe_written, last=last
            ),
        )

    def sequence_broken(self, partition: TopicPartition, batch: Batch[Receipt], *, because: str) -> None:
        """The batch cannot be sent again under its numbers, nor safely under others."""
        self._fail(batch, SequenceBrokenError(partition, maybe_written=batch.maybe_written, because=because))

    def abandon(self) -> None:
        """Fail whatever is open, because the producer ends."""
        error = self._failure or ClientClosedError("producer")
        self._closed = True
        for batch in tuple(self._open):
            self._fail(batch, error)
        self._freed.set()

    def fail(self, error: RegnumError) -> None:
        """The producer cannot go on: whatever is open fails with this."""
        self._failure = error
        self.abandon()

    def _fail(self, batch: Batch[Receipt], error: BaseException) -> None:
        for future, _ in batch.receipts:
            if not future.done():
                future.set_exception(error)
        self._end(batch)

    def _end(self, batch: Batch[Receipt]) -> None:
        if batch not in self._open:
            return
        ending = self._open.pop(batch)
        if ending is not None:
            ending.set_result(None)
        self._buffered_bytes -= batch.size_bytes
        self._freed.set()

    def _fits(self, size_bytes: int) -> bool:
        return self._buffered_bytes == 0 or self._buffered_bytes + size_bytes <= self._buffer_bytes
