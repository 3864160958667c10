"""``retention``: a topic written as fast as it goes stays near its limit, whatever happens to its brokers.

One producer with acks=all and one consumer keep going while, once in each part of the time, a follower is killed and
comes back, and then the broker that leads the first partition. Every tenth of a second the segments of every replica
are measured as they lie on the disk. A leader keeps at least the limit; a replica may have a tenth more, and that is a
complaint otherwise. At the end everything that is left is read: what was acknowledged and not deleted must be there.

A consumer that is slower than the producer falls off the start of the log one day; it then goes on where the log
begins, as its settings say. What it left out is a figure and no harm; records out of order are.
"""

import asyncio
from array import array
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from regnum_client import (
    EARLIEST,
    Admin,
    Consumer,
    ConsumerSettings,
    Producer,
    ProducerSettings,
    ResetPolicy,
    TopicPartition,
)
from regnum_client.records import RecordMetadata

from regnum_bench.figures import Round
from regnum_bench.shape import ShapeError
from regnum_bench.stand import Measured, Run, Stand, stand
from regnum_bench.waiting import MeasureError

TOPIC: Final = "bench-retained"
"""What is written to."""
SAMPLE_S: Final = 0.1
"""Between two looks at the sizes of replicas."""
CYCLE_S: Final = 60.0
"""One follower and one leader are killed in each part of the time that is so long, or in all of it if it is shorter."""
LARGEST_RATIO: Final = 1.1
"""Of the limit: above, a replica has kept too much."""
UNKNOWN: Final = -1
"""Of an offset whose acknowledgement has not come."""
_AT: Final = {"kill follower": 0.15, "follower back": 0.35, "kill leader": 0.55, "leader back": 0.75}
"""When things happen, in parts of a cycle."""


@dataclass(slots=True)
class Sizes:
    """How large replicas are, by the limit."""

    limit_bytes: int
    root: Path
    times_s: list[float] = field(default_factory=list)
    ratios: dict[str, list[float]] = field(default_factory=dict)
    """Largest of a broker's replicas at each of these times."""

    def look(self, brokers: tuple[int, ...], at_s: float) -> None:
        """Measure. Segments that are being removed do not count."""
        self.times_s.append(at_s)
        for id in brokers:
            self.ratios.setdefault(f"broker {id}", []).append(max(self.of(id), default=0) / self.limit_bytes)

    def of(self, id: int) -> list[int]:
        """Bytes of each replica of a broker."""
        found: list[int] = []
        for folder in (self.root / f"broker-{id}" / "replicas").glob("*"):
            size = 0
            for file in folder.glob("*.log"):
                # It may go at any moment.
                with suppress(FileNotFoundError):
                    size += file.stat().st_size
            found.append(size)
        return found

    @property
    def largest(self) -> float:
        """Of any replica at any time."""
        return max((value for values in self.ratios.values() for value in values), default=0.0)


class Traffic:
    """One producer and one consumer, as fast as they go."""

    def __init__(self, run: Run, cluster: Stand) -> None:
        self._bootstrap: Final = cluster.cluster.bootstrap
        self._clock: Final = run.clock
        self._size: Final = run.shape.size
        self._partitions: Final = run.shape.partitions
        self._stopping = False
        self.numbers: Final = [array("q") for _ in range(run.shape.partitions)]
        """Number of the record at each acknowledged offset, by partition."""
        self.acknowledged = 0
        self.refused: list[str] = []
        """What the producer gave up."""
        self.longest_gap_s = 0.0
        """Longest time without an acknowledgement."""
        self._last_s = run.clock.monotonic()
        self.read = self.skipped = self.disordered = 0
        """Records that the consumer read, offsets that it left out, and records that came out of order."""

    def stop(self) -> None:
        """Write no more."""
        self._stopping = True

    async def write(self) -> None:
        """Write until told to stop, and until everything is acknowledged."""
        number, padding = 0, b"." * max(self._size - 20, 0)
        async with Producer(self._bootstrap, settings=ProducerSettings(delivery_timeout_s=120.0)) as producer:
            while not self._stopping:
                partition = number % self._partitions
                sent = await producer.send(TOPIC, b"%020d" % number + padding, partition=partition)
                sent.add_done_callback(self._noting(partition, number))
                number += 1

    def _noting(self, partition: int, number: int) -> Any:
        numbers = self.numbers[partition]

        def note(done: asyncio.Future[RecordMetadata]) -> None:
            if done.cancelled():
                return
            error = done.exception()
            if error is not None:
                self.refused.append(str(error))
                return
            now_s = self._clock.monotonic()
            self.longest_gap_s = max(self.longest_gap_s, now_s - self._last_s)
            self._last_s = now_s
            offset = done.result().offset
            if offset >= len(numbers):
                numbers.extend([UNKNOWN] * (offset + 1 - len(numbers)))
            numbers[offset] = number
            self.acknowledged += 1

        return note

    async def consume(self) -> None:
        """Read for ever."""
        following = [0] * self._partitions
        async with Consumer(self._bootstrap, settings=ConsumerSettings(reset=ResetPolicy.EARLIEST)) as consumer:
            await consumer.assign(TOPIC, start=EARLIEST)
            while True:
                for record in await consumer.read(records_max=2_000):
                    expected = following[record.partition]
                    self.read += 1
                    self.skipped += max(record.offset - expected, 0)
                    self.disordered += record.offset < expected
                    following[record.partition] = record.offset + 1

    async def missing(self) -> int:
        """How many acknowledged records that were not deleted are not there, or are others."""
        missing, partitions = 0, [TopicPartition(TOPIC, number) for number in range(self._partitions)]
        async with Consumer(self._bootstrap, settings=ConsumerSettings(reset=ResetPolicy.FAIL)) as consumer:
            begins, ends = await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)
            found = [array("q", [UNKNOWN]) * max(len(numbers), ends[one]) for one, numbers in self._by(partitions)]
            await consumer.assign(TOPIC, start=EARLIEST)
            while any(consumer.position(one) < ends[one] for one in partitions):
                for record in await consumer.read(records_max=2_000):
                    found[record.partition][record.offset] = int((record.value or b"-1")[:20])
        for one, numbers in self._by(partitions):
            for offset in range(begins[one], len(numbers)):
                missing += numbers[offset] not in {UNKNOWN, found[one.partition][offset]}
        return missing

    def _by(self, partitions: list[TopicPartition]) -> list[tuple[TopicPartition, "array[int]"]]:
        return [(one, self.numbers[one.partition]) for one in partitions]


async def retention(run: Run) -> Measured:
    """Figures of all of the time: one round."""
    shape = run.shape
    if shape.replication_factor < 3 or shape.brokers < 3:
        raise ShapeError("with a broker away, acks=all needs 3 brokers and 3 replicas")
    async with stand(run) as cluster:
        limit_bytes = int(shape.size_mb * 1_000_000)
        await cluster.admin.create_topic(
            TOPIC,
            partitions=shape.partitions,
            replication_factor=shape.replication_factor,
            configs={"retention.bytes": str(limit_bytes)},
        )
        sizes = Sizes(limit_bytes, cluster.cluster.data_dir)
        traffic = Traffic(run, cluster)
        begun_s = run.clock.monotonic()
        events: list[tuple[float, str]] = []
        async with asyncio.TaskGroup() as group:
            endless = [
                group.create_task(traffic.consume(), name="consume"),
                group.create_task(_watch(run, cluster, sizes, begun_s), name="watch"),
            ]
            writing = group.create_task(traffic.write(), name="write")
            await _hurt(run, cluster, begun_s, events)
            taken_s = run.clock.monotonic() - begun_s
            traffic.stop()
            await writing
            await _in_sync(run, cluster)
            for task in endless:
                task.cancel()
        missing = await traffic.missing()
    written_bytes = traffic.acknowledged * shape.size
    figures: Round = {
        "largest_ratio": sizes.largest,
        "limits_written": written_bytes / limit_bytes / shape.partitions,
        "written_mb_s": written_bytes / taken_s / 1e6,
        "read_mb_s": traffic.read * shape.size / taken_s / 1e6,
        "longest_gap_s": traffic.longest_gap_s,
        "kills_count": float(sum("kill" in what for _, what in events)),
        "skipped_count": float(traffic.skipped),
    }
    return Measured(
        rounds=(figures,),
        complaints=complaints(
            largest=sizes.largest, missing=missing, disordered=traffic.disordered, refused=len(traffic.refused)
        ),
        details={
            "acknowledged": traffic.acknowledged,
            "missing": missing,
            "refused": traffic.refused[:5],
            "series": {
                "what": "largest replica, in limits",
                "times_s": [round(at_s, 1) for at_s in sizes.times_s[::10]],
                "lines": {name: [round(value, 3) for value in values[::10]] for name, values in sizes.ratios.items()},
                "limit": LARGEST_RATIO,
                "events": [[round(at_s, 1), what] for at_s, what in events],
            },
        },
    )


def complaints(*, largest: float, missing: int, disordered: int, refused: int) -> tuple[str, ...]:
    """What is wrong. Pure."""
    found: list[str] = []
    if largest > LARGEST_RATIO:
        found.append(f"a replica had {largest:.2f} times the limit, more than {LARGEST_RATIO}")
    if missing:
        found.append(f"{missing} acknowledged records that were not deleted are not there")
    if disordered:
        found.append(f"{disordered} records came out of order")
    if refused:
        found.append(f"{refused} records were given up by the producer")
    return tuple(found)


async def _watch(run: Run, cluster: Stand, sizes: Sizes, begun_s: float) -> None:
    brokers = cluster.brokers
    while True:
        await asyncio.to_thread(sizes.look, brokers, run.clock.monotonic() - begun_s)
        await run.clock.sleep(SAMPLE_S)


async def _hurt(run: Run, cluster: Stand, begun_s: float, events: list[tuple[float, str]]) -> None:
    """Kill and restart, until the time is over."""
    seconds = run.shape.seconds
    cycles = max(1, round(seconds / CYCLE_S))
    victim = -1
    for cycle in range(cycles):
        for what, part in _AT.items():
            at_s = begun_s + (cycle + part) * seconds / cycles
            await run.clock.sleep(max(0.0, at_s - run.clock.monotonic()))
            if "kill" in what:
                leader = await _leader(cluster)
                victim = leader if "leader" in what else next(one for one in cluster.brokers if one != leader)
                run.progress.detail(f"kill -9 of broker {victim}, the {what.removeprefix('kill ')}")
                await cluster.kill(f"broker-{victim}")
            else:
                await cluster.mend(f"broker-{victim}")
            events.append((run.clock.monotonic() - begun_s, what))
            if "back" in what:
                await _in_sync(run, cluster)
    await run.clock.sleep(max(0.0, begun_s + seconds - run.clock.monotonic()))


async def _leader(cluster: Stand) -> int:
    (topic,) = [one async for one in cluster.admin.describe_topics([TOPIC])]
    if topic.partitions[0].leader < 0:
        raise MeasureError("the first partition has no leader: there is none to kill")
    return topic.partitions[0].leader


async def _in_sync(run: Run, cluster: Stand) -> None:
    async def holds() -> bool:
        async with Admin(cluster.cluster.bootstrap) as admin:
            (topic,) = [one async for one in admin.describe_topics([TOPIC])]
        return all(set(state.isr) == set(state.replicas) for state in topic.partitions.values())

    await run.deadline("every replica in sync").wait(holds, every_s=0.5, so_far=lambda: "some are not")
