"""What a broker does by the clock: looks at ISRs, saves high watermarks, forgets producers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

from regnum_model.ids import PartitionKey
from regnum_service.clock import Clock
from regnum_service.slices import Turns, slices

from regnum_broker.log.directory import LogDirectory
from regnum_broker.log.errors import ResourceExhaustedError
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.replication.decisions.activity import observe
from regnum_broker.replication.isr_writer import IsrWriter
from regnum_broker.replication.replicas import Replicas
from regnum_broker.storage import Storage

ISR_INTERVAL_S: Final = 0.5
"""Time between two looks at leaderships whose ISR is not complete."""

ALL_INTERVAL_S: Final = 4.0
"""Time between two looks at all leaderships at most: what is not committed from one to the next is told."""

CHECKPOINT_INTERVAL_S: Final = 1.0
"""Time between two checkpoints of high watermarks."""

EXPIRY_INTERVAL_S: Final = 600.0
"""Time between two looks for idempotent producers that have gone away."""

SLICE: Final = 200
"""Partitions looked at before the event loop gets a turn."""

LEADERSHIPS_AT_ONCE: Final = 2_000
"""Leaderships asked whether they are at rest, before the event loop gets a turn."""

CHECKED_AT_ONCE: Final = 2_000
"""Replicas whose high watermark is compared with what was saved, before the event loop gets a turn."""


class IsrWatch:
    """Finds followers that lag or could join without any fetch saying so."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        writer: IsrWriter,
        lag_s: float,
        clock: Clock,
        tell_uncommitted: Callable[[frozenset[PartitionKey]], None],
    ) -> None:
        """Only assigns.

        Args:
            replicas: whose leaderships.
            writer: has ISRs changed.
            lag_s: seconds by which a follower may lag.
            clock: source of time.
            tell_uncommitted: takes the partitions in which records wait and nothing was committed since the look at
                all before, whenever they are others.
        """
        self._tell_uncommitted: Final = tell_uncommitted
        self._waiting: dict[PartitionKey, int] = {}
        self._uncommitted: frozenset[PartitionKey] = frozenset()
        self._replicas: Final = replicas
        self._writer: Final = writer
        self._lag_s: Final = lag_s
        self._clock: Final = clock

    async def run(self) -> None:
        """Look for ever; a task of the supervisor. All leaderships every few seconds, incomplete ones more often."""
        look_at_all_s = self._clock.monotonic()
        while True:
            await self._clock.sleep(min(ISR_INTERVAL_S, self._lag_s / 2))
            now_s = self._clock.monotonic()
            look_at_all = now_s >= look_at_all_s
            if look_at_all:
                look_at_all_s = now_s + min(ALL_INTERVAL_S, self._lag_s / 2)
            await self._look(look_at_all=look_at_all)

    async def _look(self, *, look_at_all: bool) -> None:
        looking = self._replicas.leading() if look_at_all else self._replicas.incomplete()
        waiting: dict[PartitionKey, int] = {}
        async for part in slices(looking, LEADERSHIPS_AT_ONCE):
            turns = Turns(SLICE)
            for leadership in part:
                if leadership.at_rest or leadership.partition.role is not leadership:
                    continue
                await turns.took()
                now_s = self._clock.monotonic()
                # A follower that was about to join and has stopped no longer holds the high watermark up.
                leadership.advance(now_s)
                if leadership.wanted_change(now_s) is not None:
                    self._writer.wake(leadership)
                partition = leadership.partition
                waits = partition.high_watermark < partition.log.log_end_offset
                if look_at_all and waits and leadership.isr_sufficient:
                    waiting[partition.key] = partition.high_watermark
        if look_at_all:
            self._note_waiting(waiting)

    def _note_waiting(self, waiting: dict[PartitionKey, int]) -> None:
        """Whatever the reason, nothing was committed where the high watermark is what it was at the look before."""
        before, self._waiting = self._waiting, waiting
        uncommitted = frozenset([key for key, mark in waiting.items() if before.get(key) == mark])
        if uncommitted != self._uncommitted:
            self._uncommitted = uncommitted
            self._tell_uncommitted(uncommitted)


class Checkpointing:
    """Saves the high watermarks that moved, and says which partitions are busy by that."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        storage: Storage,
        clock: Clock,
        tell_busy: Callable[[frozenset[PartitionKey]], None],
    ) -> None:
        """Only assigns.

        Args:
            replicas: whose high watermarks.
            storage: where to.
            clock: source of time.
            tell_busy: takes the busy partitions whenever they are others.
        """
        self._replicas: Final = replicas
        self._storage: Final = storage
        self._clock: Final = clock
        self._tell_busy: Final = tell_busy
        self._busy: dict[PartitionKey, int] = {}

    async def run(self) -> None:
        """Save for ever; a task of the supervisor."""
        while True:
            await self._clock.sleep(CHECKPOINT_INTERVAL_S)
            await self.save()

    async def save(self) -> None:
        """Save once. At rest that looks at nothing, however many replicas there are."""
        moved = self._replicas.take_moved()
        with ExitStack() as undo:
            undo.callback(self._replicas.put_back, moved)
            values: dict[PartitionKey, int] = {}
            directory = self._storage.directory
            async for part in slices(moved.values(), CHECKED_AT_ONCE):
                for partition in part:
                    key, high_watermark = partition.key, partition.high_watermark
                    if high_watermark != directory.stored_high_watermark(key) and key in directory.replicas:
                        values[key] = high_watermark
            self._note_busy(values)
            if values:
                try:
                    await self._storage.write(lambda: _save(directory, values))
                except ResourceExhaustedError:
                    # Those of the last time stand, which are lower; the next time brings these.
                    return
            undo.pop_all()

    def _note_busy(self, moved: Iterable[PartitionKey]) -> None:
        busy = observe(self._busy, moved)
        if busy.keys() != self._busy.keys():
            self._tell_busy(frozenset(busy))
        self._busy = busy


class ProducerExpiry:
    """Forgets idempotent producers that have gone away: nobody says so, and each takes memory in each partition."""

    def __init__(
        self,
        *,
        storage: Storage,
        expiration_ms: int,
        clock: Clock,
        expiry_now_ms: Callable[[], int | None],
        may_forget: Callable[[], bool] = lambda: True,
    ) -> None:
        """Only assigns.

        Args:
            storage: where the logs are.
            expiration_ms: milliseconds without an append.
            clock: source of time.
            expiry_now_ms: milliseconds since 1970, as far as producers may be forgotten by that; None: they may not.
            may_forget: whether ``expiration_ms`` is what was set, as far as anything was.
        """
        self._expiry_now_ms: Final = expiry_now_ms
        self._storage: Final = storage
        self.expiration_ms = expiration_ms
        """Milliseconds without an append; may be replaced at any time."""
        self._clock: Final = clock
        self._may_forget: Final = may_forget

    async def run(self) -> None:
        """Forget for ever; a task of the supervisor."""
        while True:
            await self._clock.sleep(EXPIRY_INTERVAL_S)
            await self.expire()

    async def expire(self) -> None:
        """Forget once, a slice of the replicas at a time: appends go between."""
        now_ms = self._expiry_now_ms()
        if now_ms is None or not self._may_forget():
            return
        before_ms = now_ms - self.expiration_ms
        logs = tuple(self._storage.directory.replicas.values())
        async for part in slices(logs, SLICE):
            await self._storage.write(partial(_expire, part, before_ms))


def _expire(logs: Sequence[ReplicaLog], before_ms: int) -> None:
    for log in logs:
        log.expire_producers(before_ms)


def _save(directory: LogDirectory, moved: Mapping[PartitionKey, int]) -> None:
    """On the writer thread: a truncation that was under way may have gone below what the event loop still took."""
    replicas = directory.replicas
    within = {key: min(value, replicas[key].log_end_offset) for key, value in moved.items() if key in replicas}
    directory.checkpoint_high_watermarks(within)
