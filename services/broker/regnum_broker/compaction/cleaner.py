"""Compacts the logs of this broker that want it, the dirtiest first, and looks at no others.

A log is looked at when its topic's settings change, when it closes a segment, and when what it waits for (that records
are committed, or old enough) may have come; what is looked at while nothing may expire by time, again as soon as
something may. Every replica does it by itself, the leader's and the followers' alike.

What takes long runs on a thread of its own, at a pace (``pace``), and in steps of a segment (``passes``). Two logs are
gone through at a time, in turns, of which only one may be a large one (``dirty_logs``).
"""

import asyncio
import contextlib
import random
from collections.abc import Callable
from enum import Enum
from typing import Final

import structlog
from regnum_model.ids import PartitionKey
from regnum_records.check import RECORDS_MAX
from regnum_service.clock import Clock
from regnum_service.slices import Turns
from regnum_telemetry.instruments import broker as instruments
from regnum_telemetry.metrics import Metrics

from regnum_broker.compaction.cleanable import AGAIN_MS
from regnum_broker.compaction.dirty_logs import SMALL_BYTES, DirtyLogs
from regnum_broker.compaction.offset_map import SALT_MAX
from regnum_broker.compaction.pace import CompactionStoppedError, Pace
from regnum_broker.compaction.passes import Ended, Pass
from regnum_broker.compaction.work import look
from regnum_broker.log.errors import CorruptLogError, ResourceExhaustedError, UnknownReplicaError
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.replication.replicas import Replicas
from regnum_broker.retention.due import DueIndex
from regnum_broker.storage import Storage

PAUSE_S_MAX: Final = 60.0
"""Longest pause between two looks at the clock, which people may set."""

SLICE: Final = 2_000
"""Segments of logs looked at between two turns of the event loop (safety rule S22); a log counts for SEGMENTS_MIN."""

SEGMENTS_MIN: Final = 40
"""So many segments take as long as what a look at any log takes besides."""


class Place(Enum):
    """One of the logs that are gone through at a time."""

    ANY = "any"
    """For any log."""
    SMALL = "small"
    """For small ones."""


def keys_of(place: Place, *, keys_max: int) -> int:
    """So many of the keys in memory are for the log in a place: a quarter for small ones, the rest for any.

    A log that has a batch with more keys can never be compacted, so small ones have more where a quarter is less than
    what a batch may have: as much as that, or a half.
    """
    small = max(keys_max // 4, min(RECORDS_MAX, keys_max // 2))
    return max(1, small if place is Place.SMALL else keys_max - small)


class LogCleaner:
    """Belongs to the event loop."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        storage: Storage,
        keys_max: int,
        clock: Clock,
        expiry_now_ms: Callable[[], int | None],
        chance: random.Random,
        metrics: Metrics | None = None,
        small_bytes: int = SMALL_BYTES,
    ) -> None:
        """Registers gauges, and else only assigns.

        Args:
            replicas: whose logs.
            storage: has the threads.
            keys_max: so many keys are kept in memory; a log with more new ones is gone through several times.
            clock: source of time.
            expiry_now_ms: milliseconds since 1970, as far as anything is old by that; None: nothing is, so records
                younger than ``min.compaction.lag.ms`` and deletions stay.
            chance: spreads the keys in memory; nobody may foresee it.
            metrics: where the numbers go.
            small_bytes: a log with at most so many bytes to go through does not wait for larger ones.
        """
        self._replicas: Final = replicas
        self._storage: Final = storage
        self._keys_max: Final = keys_max
        self._clock: Final = clock
        self._expiry_now_ms: Final = expiry_now_ms
        self._held_back: Final[set[PartitionKey]] = set()
        self._chance: Final = chance
        self.pace: Final = Pace(clock, storage.wait_for_stop)
        """How fast it goes; may be set at any time."""
        self._due: Final[DueIndex[PartitionKey]] = DueIndex()
        self._dirty: Final[DirtyLogs[PartitionKey]] = DirtyLogs(small_bytes=small_bytes)
        self._passes: Final[dict[Place, Pass]] = {}
        """Those under way."""
        self._uncleanable: Final[dict[PartitionKey, ReplicaLog]] = {}
        """Logs with damaged segments; one that is copied anew is another log."""
        self._ran_s = clock.monotonic()
        self._log: Final = structlog.get_logger("log cleaner")
        self.looked_at = 0
        """Logs looked at so far."""
        shown = metrics or Metrics()
        self._read_bytes: Final = shown.counter(instruments.CLEANER_READ)
        self._written_bytes: Final = shown.counter(instruments.CLEANER_WRITTEN)
        shown.observe(instruments.CLEANER_WAITING, lambda: len(self._dirty) + len(self._passes))
        shown.observe(instruments.CLEANER_DIRTIEST, lambda: self._dirty.dirtiest)
        shown.observe(instruments.CLEANER_UNCLEANABLE, lambda: len(self._uncleanable))
        shown.observe(instruments.CLEANER_LAST_RUN, lambda: clock.monotonic() - self._ran_s)

    async def run(self) -> None:
        """Compact for ever; a task of the supervisor."""
        wake = self._storage.segments_closed
        self._replicas.unclean.attach(wake)
        while True:
            wake.clear()
            await self.look()
            soonest = self._due.soonest
            pause_s = PAUSE_S_MAX if soonest is None else (soonest - self._clock.wall_ms()) / 1000
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(max(pause_s, 0.0), PAUSE_S_MAX)):
                    await wake.wait()

    async def look(self) -> None:
        """Look at the logs that are due, and compact those whose time it is, until none is left."""
        while True:
            await self._take_in()
            self._begin_passes()
            if not self._passes:
                return
            try:
                for place, under_way in tuple(self._passes.items()):
                    await self._go_on(place, under_way)
            except CompactionStoppedError:
                self._passes.clear()
                return

    async def _take_in(self) -> None:
        """Have those logs wait that are due and whose time it is."""
        expiry_ms = self._expiry_now_ms()
        now_ms = self._clock.wall_ms() if expiry_ms is None else expiry_ms
        self._ran_s = self._clock.monotonic()
        for key in [key for key, log in self._uncleanable.items() if self._log_of(key) is not log]:
            del self._uncleanable[key]
        closed = self._storage.directory.segments_closed
        for key in self._replicas.take_unclean():
            self._due.set(key, now_ms)
        while closed:
            self._due.set(closed.popleft(), now_ms)
        while self._held_back and expiry_ms is not None:
            # The moments at which they were due were of a clock that may have gone back since.
            self._due.set(self._held_back.pop(), now_ms)
        turns = Turns(SLICE)
        under_way = {one.log.key for one in self._passes.values()}
        for key in self._due.take(now_ms, count_max=len(self._due)):
            # One that is under way is looked at when it ends.
            if key not in under_way:
                await turns.took(SEGMENTS_MIN + self._look_at(key, now_ms, by_age=expiry_ms is not None))

    def _log_of(self, key: PartitionKey) -> ReplicaLog | None:
        partition = self._replicas.get(key)
        return None if partition is None else partition.log

    def _look_at(self, key: PartitionKey, now_ms: int, *, by_age: bool) -> int:
        """Returns how many segments it has looked at."""
        partition = self._replicas.get(key)
        if partition is None or not partition.log.settings.is_compacted or key in self._uncleanable:
            self._dirty.discard(key)
            return 0
        self.looked_at += 1
        log = partition.log
        if not by_age:
            self._held_back.add(key)
        _, found = look(log, high_watermark=partition.high_watermark, now_ms=now_ms, by_age=by_age)
        if found.is_due:
            self._dirty.put(
                key, is_overdue=found.is_overdue, dirty_ratio=found.dirty_ratio, size_bytes=found.size_bytes
            )
        else:
            self._dirty.discard(key)
            self._due.set(key, found.again_ms)
        return len(log.segments)

    def _begin_passes(self) -> None:
        for place in Place:
            while place not in self._passes and (key := self._dirty.take(small=place is Place.SMALL)) is not None:
                partition = self._replicas.get(key)
                if partition is not None:
                    self._passes[place] = Pass(
                        partition.log,
                        high_watermark=partition.high_watermark,
                        keys_max=keys_of(place, keys_max=self._keys_max),
                        salt=self._chance.randint(1, SALT_MAX),
                        storage=self._storage,
                        pace=self.pace,
                        clock=self._clock,
                        expiry_now_ms=self._expiry_now_ms,
                    )

    async def _go_on(self, place: Place, under_way: Pass) -> None:
        log, ended = under_way.log, None
        read_bytes, written_bytes = under_way.read_bytes, under_way.written_bytes
        try:
            ended = await under_way.step()
        except (UnknownReplicaError, CorruptLogError):
            # It is gone, or offline by itself.
            ended = Ended(again_ms=None)
        except ResourceExhaustedError as error:
            self._log.warning("log not compacted", topic=log.topic, partition=log.key.partition, reason=str(error))
            ended = Ended(again_ms=self._clock.wall_ms() + AGAIN_MS)
        self._read_bytes.add(under_way.read_bytes - read_bytes)
        self._written_bytes.add(under_way.written_bytes - written_bytes)
        if ended is None:
            return
        del self._passes[place]
        if self._expiry_now_ms() is None:
            self._held_back.add(log.key)
        if ended.is_damaged:
            self._uncleanable[log.key] = log
        self._due.set(log.key, ended.again_ms)
