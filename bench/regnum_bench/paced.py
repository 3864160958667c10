"""Records at a steady pace to many partitions in turn, numbered, and how long each acknowledgement took.

A record counts from the moment at which it was due, not from that at which it was handed over: what a producer that is
held up does not send would be missing from the slowest ones otherwise.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Final

from regnum_client import Producer, TopicPartition
from regnum_client.records import RecordMetadata
from regnum_local.demo.verdict import Acknowledged
from regnum_local.demo.workload import History
from regnum_service.clock import Clock

TICK_S: Final = 0.005
"""Records that are due within that time are sent together, so that pacing costs less than producing."""


def numbered(number: int, size: int) -> bytes:
    """A value of about so many bytes that ``decode_number`` reads."""
    head = str(number).encode("ascii") + b" "
    return head + b"." * max(0, size - len(head))


class PacedLoad:
    """One writer. ``fill`` first, then ``start``; ``finish`` flushes and ends. Belongs to one event loop."""

    def __init__(
        self, *, producer: Producer, partitions: Sequence[TopicPartition], per_s: float, size: int, clock: Clock
    ) -> None:
        """Only assigns.

        Args:
            producer: which sends; the only one for these partitions.
            partitions: they get one record each in turn.
            per_s: records a second, for all together.
            size: bytes of each value.
            clock: the machine's.
        """
        self.histories: Final = {partition: History() for partition in partitions}
        """What was sent to each, and what was told."""
        self.late_s = 0.0
        """Longest time by which the loop was late since it was last set to 0."""
        self._producer: Final = producer
        self._per_s: Final = per_s
        self._size: Final = size
        self._clock: Final = clock
        self._latencies: list[tuple[float, float]] = []
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._open: set[asyncio.Future[RecordMetadata]] = set()

    def timed(self, begin_s: float, end_s: float) -> list[tuple[float, float]]:
        """When records were due in that time, and the seconds to their acknowledgements; those that have got one."""
        return [(due_s, acked_s - due_s) for due_s, acked_s in self._latencies if begin_s <= due_s < end_s]

    async def fill(self, records_each: int, size: int, said: Callable[[int], None]) -> None:
        """So many records to each partition, as fast as it goes.

        Args:
            records_each: how many.
            size: bytes of each value.
            said: is told how many are sent.
        """
        sent = 0
        for partition, history in self.histories.items():
            for _ in range(records_each):
                await self._send(partition, history, numbered(history.sent, size))
            sent += records_each
            said(sent)
        await self._flush()

    async def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._write(), name="paced load")

    async def finish(self) -> None:
        """Stop writing and wait for every acknowledgement; raises what the writer raised."""
        self._stopping = True
        if self._task is not None:
            await self._task
        await self._flush()

    async def abandon(self) -> None:
        """End at once; does nothing after ``finish``."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _flush(self) -> None:
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _write(self) -> None:
        due_s = self._clock.monotonic()
        turns = cycle(self.histories.items())
        while not self._stopping:
            now_s = self._clock.monotonic()
            while due_s <= now_s:
                partition, history = next(turns)
                value = numbered(history.sent, self._size)
                delivery = await self._send(partition, history, value)
                delivery.add_done_callback(self._timed(due_s))
                due_s += 1 / self._per_s
            wakes_s = max(now_s + TICK_S, due_s)
            await self._clock.sleep(wakes_s - self._clock.monotonic())
            self.late_s = max(self.late_s, self._clock.monotonic() - wakes_s)

    async def _send(self, partition: TopicPartition, history: History, value: bytes) -> asyncio.Future[RecordMetadata]:
        number = history.sent
        delivery = await self._producer.send(partition.topic, value, partition=partition.partition)
        history.sent += 1
        self._open.add(delivery)

        def told(ended: asyncio.Future[RecordMetadata]) -> None:
            self._open.discard(ended)
            error = None if ended.cancelled() else ended.exception()
            if ended.cancelled() or error is not None:
                history.failures.append(f"record {number}: {error or 'cancelled'}")
            else:
                history.acknowledged.append(Acknowledged(number=number, offset=ended.result().offset))

        delivery.add_done_callback(told)
        return delivery

    def _timed(self, due_s: float) -> Callable[[asyncio.Future[RecordMetadata]], None]:
        def take(ended: asyncio.Future[RecordMetadata]) -> None:
            if not ended.cancelled() and ended.exception() is None:
                self._latencies.append((due_s, self._clock.monotonic()))

        return take
