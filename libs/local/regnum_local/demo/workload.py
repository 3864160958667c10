"""Steady load: one writer for each partition that numbers its records, and a reader that follows along or none."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from regnum_client import EARLIEST, Consumer, ConsumerSettings, Producer, ResetPolicy, TlsFiles, TopicPartition
from regnum_client.records import RecordMetadata
from regnum_service.clock import Clock

from regnum_local.demo.verdict import Acknowledged, Verdict, judge, judge_reader

PADDING = b"." * 200
"""Makes a record about as large as a small business event."""
READ_S: Final = 60.0
"""Within which a reader has come to the last acknowledged record once nothing is written any more."""


def encode_number(number: int) -> bytes:
    """The value of the record with that number."""
    return str(number).encode("ascii") + b" " + PADDING


def decode_number(value: bytes | None) -> int:
    """The number in a record's value; -1 for a value that no writer made."""
    head = (value or b"").partition(b" ")[0]
    return int(head) if head.isdigit() else -1


@dataclass(slots=True, kw_only=True)
class History:
    """What the writer of one partition did and was told."""

    sent: int = 0
    """Numbers handed to the producer: 0 .. sent-1."""
    acknowledged: list[Acknowledged] = field(default_factory=list)
    """Acknowledgements, in the order in which they came."""
    moments: list[float] = field(default_factory=list)
    """When they came, on the monotonic clock, in seconds."""
    failures: list[str] = field(default_factory=list)
    """Records the producer gave up, with its reason."""


class Load:
    """Writers and a reader over the partitions of some topics. ``start`` begins, ``finish`` flushes and ends."""

    def __init__(
        self,
        *,
        producer: Producer,
        consumer: Consumer | None,
        partitions: Sequence[TopicPartition],
        interval_s: float,
        clock: Clock,
    ) -> None:
        self._producer = producer
        self._consumer = consumer
        self._interval_s = interval_s
        self._clock = clock
        self._stopping = asyncio.Event()
        self._read_until_s: float | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._reading: asyncio.Task[None] | None = None
        self.histories = {partition: History() for partition in partitions}
        self.consumed: dict[TopicPartition, list[tuple[int, int]]] = {partition: [] for partition in partitions}

    @property
    def acknowledged(self) -> int:
        """Records acknowledged so far."""
        return sum(len(history.acknowledged) for history in self.histories.values())

    @property
    def read(self) -> int:
        """Records read so far."""
        return sum(len(records) for records in self.consumed.values())

    async def start(self) -> None:
        """Begin to write, and to read where there is a consumer."""
        if self._consumer is not None:
            await self._assign(self._consumer)
        for partition in self.histories:
            name = f"write {partition.topic}-{partition.partition}"
            self._tasks.append(asyncio.create_task(self._write(partition), name=name))
        if self._consumer is not None:
            self._reading = asyncio.create_task(self._follow(self._consumer), name="read")

    async def _assign(self, consumer: Consumer) -> None:
        for topic in sorted({partition.topic for partition in self.histories}):
            numbers = [partition.partition for partition in self.histories if partition.topic == topic]
            await consumer.assign(topic, partitions=numbers, start=EARLIEST)

    async def abandon(self) -> None:
        """End at once, with whatever is on its way; does nothing after ``finish``."""
        tasks = [*self._tasks, *([] if self._reading is None else [self._reading])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def finish(self) -> None:
        """Stop writing, wait for every acknowledgement, read what was acknowledged; raises what a task raised.

        What the reader has not been given within READ_S is left to the judge.
        """
        self._stopping.set()
        await asyncio.gather(*self._tasks)
        if self._reading is not None:
            self._read_until_s = self._clock.monotonic() + READ_S
            await self._reading

    def judged(self, logs: Mapping[TopicPartition, Sequence[tuple[int, int]]]) -> tuple[Verdict, Verdict]:
        """What became of the records of all partitions: by reads of the whole logs, and by what the reader was given.

        ``logs``: (offset, number) of every record, as ``read_everything`` finds them after ``finish``.
        """
        verdict, reader = Verdict(), Verdict()
        for partition, history in self.histories.items():
            log, read = logs[partition], self.consumed[partition]
            verdict += judge(sent=history.sent, acknowledged=history.acknowledged, log=log)
            reader += judge_reader(sent=history.sent, acknowledged=history.acknowledged, log=log, read=read)
        return verdict, reader

    async def _write(self, partition: TopicPartition) -> None:
        history = self.histories[partition]
        pending: set[asyncio.Future[RecordMetadata]] = set()
        due = self._clock.monotonic()
        while not self._stopping.is_set():
            number = history.sent
            delivery = await self._producer.send(partition.topic, encode_number(number), partition=partition.partition)
            history.sent += 1
            delivery.add_done_callback(self._told(history, number))
            pending.add(delivery)
            delivery.add_done_callback(pending.discard)
            due = max(due + self._interval_s, self._clock.monotonic())
            await self._clock.sleep(due - self._clock.monotonic())
        await asyncio.gather(*pending, return_exceptions=True)

    def _told(self, history: History, number: int) -> Callable[[asyncio.Future[RecordMetadata]], None]:
        def take(delivery: asyncio.Future[RecordMetadata]) -> None:
            error = None if delivery.cancelled() else delivery.exception()
            if delivery.cancelled() or error is not None:
                history.failures.append(f"record {number}: {error or 'cancelled'}")
                return
            history.acknowledged.append(Acknowledged(number=number, offset=delivery.result().offset))
            history.moments.append(self._clock.monotonic())

        return take

    async def _follow(self, consumer: Consumer) -> None:
        while self._reads_on():
            for record in await consumer.read(timeout_s=0.2):
                key = TopicPartition(record.topic, record.partition)
                self.consumed[key].append((record.offset, decode_number(record.value)))

    def _reads_on(self) -> bool:
        if self._read_until_s is None:
            return True
        return self._clock.monotonic() < self._read_until_s and self._is_behind()

    def _is_behind(self) -> bool:
        """Whether the reader has not come to the last acknowledged record of each partition."""
        return any(
            max((ack.offset for ack in history.acknowledged), default=-1) > (read[-1][0] if read else -1)
            for history, read in zip(self.histories.values(), self.consumed.values(), strict=True)
        )


async def read_everything(
    bootstrap: Sequence[str], partitions: Sequence[TopicPartition], *, tls: TlsFiles | None = None
) -> dict[TopicPartition, list[tuple[int, int]]]:
    """Read whole partitions from the beginning: (offset, number) of every committed record."""
    logs: dict[TopicPartition, list[tuple[int, int]]] = {partition: [] for partition in partitions}
    async with Consumer(bootstrap, settings=ConsumerSettings(reset=ResetPolicy.FAIL), tls=tls) as consumer:
        ends = await consumer.end_offsets(partitions)
        for topic in sorted({partition.topic for partition in partitions}):
            numbers = [partition.partition for partition in partitions if partition.topic == topic]
            await consumer.assign(topic, partitions=numbers, start=EARLIEST)
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for record in await consumer.read(records_max=10_000, timeout_s=1.0):
                logs[TopicPartition(record.topic, record.partition)].append(
                    (record.offset, decode_number(record.value))
                )
    return logs
