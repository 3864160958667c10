"""Load on a cluster, seen from inside it: writes, reads along, watches who is in sync, reads everything back.

    load.py run TOPIC PARTITIONS INTERVAL_MS     until the file STOP exists; lines of JSON on stdout
    load.py create TOPIC PARTITIONS
    load.py backlog TOPIC PARTITIONS MEGABYTES   as fast as it goes; one line
    load.py delete TOPIC
    load.py stop                                 has ``run`` end
    load.py clock                                what time it is here

It runs from a ConfigMap in a Pod of the product's own image, also of an older one: the standard library and the SDK are
all that it uses. Each partition has one record after another, each awaited, so that a time without acknowledgements is
one of the cluster (or of this process: ``late_ms`` says how late its own event loop was).
"""

import array
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from regnum_client import (
    EARLIEST,
    Admin,
    Consumer,
    EventFilter,
    EventKind,
    Producer,
    ProducerSettings,
    TopicPartition,
)
from regnum_client.records import RecordMetadata
from regnum_service.errors import RegnumError

# An emptyDir of this Pod alone.
STOP: Final = Path("/tmp/stop")  # noqa: S108
MIN_INSYNC: Final = 2
REPLICAS: Final = 3
SHOWN_S: Final = 0.2
"""Times without an acknowledgement that are told of."""
PADDING: Final = b"." * 64
UNKNOWN: Final = -1
"""Offset of a record that was not acknowledged."""
RETRIED_FOR_S: Final = 60.0
"""How long a question is asked again before it is given up."""


def tell(kind: str, **fields: object) -> None:
    """One line."""
    sys.stdout.write(json.dumps({"kind": kind, **fields}) + "\n")
    sys.stdout.flush()


class Written:
    """What was acknowledged in one partition."""

    def __init__(self, partition: int, now: float) -> None:
        self.partition: Final = partition
        self.offsets: Final = array.array("q")
        """Offset by number, UNKNOWN where it failed."""
        self.failed = 0
        self._last = now

    def acknowledged(self, offset: int, now: float) -> None:
        """The next number lies at that offset, since ``now``, seconds since 1970."""
        self.offsets.append(offset)
        if now - self._last >= SHOWN_S:
            tell("stall", begin=self._last, end=now, partition=self.partition)
        self._last = now

    def refused(self, error: str, now: float) -> None:
        """The next number was given up."""
        tell("failed", at=now, partition=self.partition, number=len(self.offsets), error=error[:300])
        self.offsets.append(UNKNOWN)
        self.failed += 1

    def without_s(self, now: float) -> float:
        """Seconds since the last acknowledgement."""
        return now - self._last


class ReadBack:
    """What the log holds of one partition, looked at in the order of offsets."""

    def __init__(self, offsets: "array.array[int]") -> None:
        self._offsets: Final = offsets
        self._times: Final = bytearray(len(offsets))
        self._highest = -1
        self.found = 0
        self.doubled = 0
        self.moved = 0
        self.out_of_order = 0
        self.invented = 0

    def record(self, number: int, offset: int) -> None:
        """The next record."""
        self.found += 1
        if not 0 <= number < len(self._offsets):
            self.invented += 1
            return
        if self._times[number]:
            self.doubled += 1
        elif self._offsets[number] not in {UNKNOWN, offset}:
            self.moved += 1
        self._times[number] = 1
        self.out_of_order += number < self._highest
        self._highest = max(self._highest, number)

    @property
    def lost(self) -> int:
        """Acknowledged records that were not found."""
        return sum(1 for seen, offset in zip(self._times, self._offsets, strict=True) if not seen and offset != UNKNOWN)


class BelowMinimum:
    """Partitions that have fewer in sync than they need, from when to when."""

    def __init__(self) -> None:
        self.states = 0
        """States that came: without one, nobody has looked."""
        self._since: Final[dict[tuple[str, int], tuple[float, int]]] = {}

    def state(self, topic: str, partition: int, in_sync: int, at: float) -> None:
        """So many replicas are in sync since then (seconds since 1970)."""
        self.states += 1
        self._set(topic, partition, in_sync, at)

    def _set(self, topic: str, partition: int, in_sync: int, at: float) -> None:
        key = topic, partition
        since = self._since.get(key)
        if in_sync < MIN_INSYNC:
            fewest = in_sync if since is None else min(in_sync, since[1])
            self._since[key] = (at if since is None else since[0]), fewest
        elif since is not None:
            del self._since[key]
            tell("below_minimum", topic=topic, partition=partition, begin=since[0], end=at, in_sync=since[1])

    def end(self, at: float) -> None:
        """No more states will come."""
        for topic, partition in tuple(self._since):
            self._set(topic, partition, MIN_INSYNC, at)


class Load:
    """Writers, a reader and watchers of one topic."""

    def __init__(self, topic: str, partitions: int, interval_s: float) -> None:
        now = time.time()
        self._topic: Final = topic
        self._interval_s: Final = interval_s
        self._written: Final = [Written(number, now) for number in range(partitions)]
        self._begun: Final = now
        self._acked = 0
        self._worst_s = 0.0
        self._late_s = 0.0
        self._read = 0
        self._read_again = 0
        self._under_replicated = UNKNOWN
        self._controller = UNKNOWN
        self._below: Final = BelowMinimum()

    async def run(self) -> None:
        """Until STOP exists; then read back and tell."""
        async with Producer(settings=ProducerSettings(linger_ms=2.0), client_id="judge") as producer:
            writers = [asyncio.create_task(self._write(producer, one)) for one in self._written]
            watchers = [
                asyncio.create_task(watch)
                for watch in (self._tell_seconds(), self._measure_itself(), self._read_along(), self._follow_events())
            ] + [asyncio.create_task(self._look())]
            tell("started", at=time.time(), topic=self._topic, partitions=len(self._written))
            done, _ = await asyncio.wait(writers, return_when=asyncio.FIRST_EXCEPTION)
            await ended(watchers)
            for one in done:
                one.result()
        await self._read_back()

    async def _write(self, producer: Producer, written: Written) -> None:
        while not STOP.exists():
            begun = time.time()
            value = b"%d %s" % (len(written.offsets), PADDING)
            try:
                told = await (await producer.send(self._topic, value, partition=written.partition))
            except RegnumError as error:
                written.refused(repr(error), time.time())
            else:
                now = time.time()
                written.acknowledged(told.offset, now)
                self._acked += 1
                self._worst_s = max(self._worst_s, now - begun)
            await asyncio.sleep(self._interval_s)

    async def _tell_seconds(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            now = time.time()
            tell(
                "second",
                at=now,
                acked=self._acked,
                failed=sum(one.failed for one in self._written),
                worst_ms=round(self._worst_s * 1000),
                silent_ms=round(max(one.without_s(now) for one in self._written) * 1000),
                late_ms=round(self._late_s * 1000),
                read=self._read,
                read_again=self._read_again,
                under_replicated=self._under_replicated,
                controller=self._controller,
            )
            self._worst_s = self._late_s = 0.0

    async def _measure_itself(self) -> None:
        while True:
            begun = time.monotonic()
            await asyncio.sleep(0.02)
            self._late_s = max(self._late_s, time.monotonic() - begun - 0.02)

    async def _read_along(self) -> None:
        at: dict[int, int] = {}
        async with Consumer(client_id="judge-reader") as consumer:
            await consumer.assign(self._topic)
            while True:
                for record in await consumer.read(timeout_s=2.0):
                    self._read_again += record.offset <= at.get(record.partition, -1)
                    at[record.partition] = record.offset
                    self._read += 1

    async def _look(self) -> None:
        """How many partitions want a replica, and who the controller is, twice a second, as brokers have it."""
        async with Admin(client_id="judge-looks") as admin:
            while True:
                try:
                    async with asyncio.timeout(5.0):
                        view = await admin.describe_topic(self._topic)
                        cluster = await admin.describe_cluster()
                except (RegnumError, TimeoutError):
                    self._under_replicated = UNKNOWN
                else:
                    self._under_replicated = sum(len(one.isr) < REPLICAS for one in view.partitions.values())
                    self._controller = UNKNOWN if cluster.controller is None else cluster.controller.id
                await asyncio.sleep(0.5)

    async def _follow_events(self) -> None:
        """Every state of a partition, from the controller's event log, also those too short to be looked at."""
        kinds = frozenset({EventKind.LEADER_ELECTED, EventKind.ISR_CHANGED, EventKind.PARTITION_OFFLINE})
        chosen = EventFilter(kinds=kinds, since_unix_ms=round(self._begun * 1000))
        below, after = self._below, None
        try:
            async with Admin(client_id="judge-events") as admin:
                while True:
                    try:
                        pages = (
                            admin.events_after(chosen, follow=True)
                            if after is None
                            else admin.events_after(chosen, after=after, follow=True)
                        )
                        async for events in pages:
                            for event in events:
                                after = event.position
                                if event.after is not None and event.partition is not None and is_ours(event.topic):
                                    in_sync = 0 if event.after.leader is None else len(event.after.isr)
                                    below.state(event.topic, event.partition, in_sync, event.time_unix_ms / 1000)
                    except RegnumError as error:
                        tell("events", at=time.time(), error=str(error)[:200])
                        await asyncio.sleep(0.5)
        finally:
            below.end(time.time())

    async def _read_back(self) -> None:
        tell("reading_back", at=time.time())
        logs = [ReadBack(one.offsets) for one in self._written]
        partitions = [TopicPartition(self._topic, one.partition) for one in self._written]
        async with Consumer(client_id="judge-reads-back") as consumer:
            ends = await consumer.end_offsets(partitions)
            await consumer.assign(self._topic, start=EARLIEST)
            deadline = time.monotonic() + 180.0
            while any(consumer.position(one) < ends[one] for one in partitions) and time.monotonic() < deadline:
                for record in await consumer.read(records_max=2_000, timeout_s=1.0):
                    if record.offset < ends[TopicPartition(record.topic, record.partition)]:
                        logs[record.partition].record(number_of(record.value), record.offset)
        tell(
            "verdict",
            at=time.time(),
            acknowledged=self._acked,
            failed=sum(one.failed for one in self._written),
            found=sum(one.found for one in logs),
            lost=sum(one.lost for one in logs),
            doubled=sum(one.doubled for one in logs),
            moved=sum(one.moved for one in logs),
            out_of_order=sum(one.out_of_order for one in logs),
            invented=sum(one.invented for one in logs),
            read_again=self._read_again,
            states=self._below.states,
        )


async def ended(tasks: Sequence["asyncio.Task[None]"]) -> None:
    """End tasks that go on until then. Raises what one of them had ended with before: it has watched no more."""
    for one in tasks:
        one.cancel()
    for error in await asyncio.gather(*tasks, return_exceptions=True):
        if error is not None and not isinstance(error, asyncio.CancelledError):
            raise error


def number_of(value: bytes | None) -> int:
    """The number that a record begins with; UNKNOWN for one that is not of ``run``."""
    head = (value or b"").partition(b" ")[0]
    return int(head) if head.isdigit() else UNKNOWN


def is_ours(topic: str) -> bool:
    """Whether a topic is one of the judge's."""
    return topic.startswith("judge-")


@asynccontextmanager
async def asking() -> AsyncIterator[Admin]:
    """An admin client."""
    async with Admin(client_id="judge-admin") as admin:
        yield admin


async def create(topic: str, partitions: int) -> None:
    """Create a topic; asked again for RETRIED_FOR_S, since the cluster may only just have started."""
    deadline = time.monotonic() + RETRIED_FOR_S
    while True:
        try:
            async with asking() as admin:
                await admin.create_topic(
                    topic,
                    partitions=partitions,
                    replication_factor=REPLICAS,
                    configs={"min.insync.replicas": str(MIN_INSYNC)},
                )
        except RegnumError as error:
            if "exists" in str(error):
                return
            if time.monotonic() > deadline:
                raise
            tell("waiting", at=time.time(), error=str(error)[:300])
            await asyncio.sleep(1.0)
        else:
            return


async def backlog(topic: str, partitions: int, megabytes: int) -> None:
    """Write so much to a topic that is there."""
    begun, value = time.time(), b"b" * 32_000
    total = -(-megabytes * 1_000_000 // len(value))
    async with Producer(client_id="judge-backlog") as producer:
        last: list[asyncio.Future[RecordMetadata]] = []
        for number in range(total):
            last.append(await producer.send(topic, value, partition=number % partitions))
            if len(last) >= 2_000:
                await asyncio.gather(*last)
                last.clear()
        await asyncio.gather(*last)
    tell("backlog", at=time.time(), megabytes=megabytes, seconds=round(time.time() - begun, 1))


async def delete(topic: str) -> None:
    """Delete a topic; one that is gone is no error."""
    try:
        async with asking() as admin:
            await admin.delete_topic(topic)
    except RegnumError as error:
        tell("not_deleted", topic=topic, error=str(error)[:300])


async def main(arguments: list[str]) -> None:
    """What the head of this file says."""
    match arguments:
        case ["run", topic, partitions, interval_ms]:
            await create(topic, int(partitions))
            await Load(topic, int(partitions), int(interval_ms) / 1000).run()
        case ["create", topic, partitions]:
            await create(topic, int(partitions))
        case ["backlog", topic, partitions, megabytes]:
            await backlog(topic, int(partitions), int(megabytes))
        case ["delete", topic]:
            await delete(topic)
        case ["stop"]:
            STOP.touch()
        case ["clock"]:
            tell("clock", at=time.time())
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
