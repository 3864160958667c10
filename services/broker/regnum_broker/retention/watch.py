"""Looks at the logs that this broker leads when something in them may have expired, and at no others.

A look is due when a leadership begins, when a topic's settings change, when the first records of a segment are written
(so by size a log is looked at once in a segment, and at rest never), and when the oldest segment reaches its age. What
is looked at while nothing may expire by time is kept to its size alone, and looked at again as soon as something may.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from regnum_model.ids import PartitionKey
from regnum_service.clock import Clock
from regnum_service.slices import Turns

from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.replicas import Replicas
from regnum_broker.retention import expiry
from regnum_broker.retention.due import DueIndex
from regnum_broker.retention.mover import StartMover
from regnum_broker.storage import Storage

LOOKED_AT_ONCE: Final = 1_000
"""Logs of one look by age; the others come in the next, at once."""

SLICE: Final = 2_000
"""Segments of logs looked at between two turns of the event loop (safety rule S22); a log counts for SEGMENTS_MIN."""

SEGMENTS_MIN: Final = 40
"""So many segments take as long as what a look at any log takes besides."""

AGAIN_MS: Final = 10_000
"""A log with segments that have expired and are not committed yet is looked at again after this time."""

PAUSE_S_MAX: Final = 60.0
"""Longest pause between two looks at the clock, which people may set."""


class RetentionWatch:
    """Decides where logs begin that this broker leads. Belongs to the event loop."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        storage: Storage,
        mover: StartMover,
        clock: Clock,
        expiry_now_ms: Callable[[], int | None],
    ) -> None:
        """Only assigns.

        Args:
            replicas: whose logs.
            storage: says which logs have begun a segment.
            mover: moves their starts.
            clock: source of time.
            expiry_now_ms: milliseconds since 1970, as far as records may expire by that; None: they may not.
        """
        self._expiry_now_ms: Final = expiry_now_ms
        self._held_back: Final[set[PartitionKey]] = set()
        self._replicas: Final = replicas
        self._storage: Final = storage
        self._mover: Final = mover
        self._clock: Final = clock
        self._due: Final[DueIndex[PartitionKey]] = DueIndex()
        self.looked_at = 0
        """Logs looked at so far."""

    async def run(self) -> None:
        """Look for ever; a task of the supervisor."""
        wake = self._storage.segments_begun
        self._replicas.unlooked.attach(wake)
        while True:
            wake.clear()
            await self.look()
            soonest = self._due.soonest
            pause_s = PAUSE_S_MAX if soonest is None else (soonest - self._clock.wall_ms()) / 1000
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(max(pause_s, 0.0), PAUSE_S_MAX)):
                    await wake.wait()

    async def look(self) -> None:
        """Look at the logs that are due."""
        expiry_ms = self._expiry_now_ms()
        now_ms = self._clock.wall_ms() if expiry_ms is None else expiry_ms
        keys = dict.fromkeys(self._replicas.take_unlooked())
        if expiry_ms is not None:
            # The moments at which they were due were of a clock that may have gone back since.
            keys |= dict.fromkeys(self._held_back)
            self._held_back.clear()
        begun = self._storage.directory.segments_begun
        while begun:
            keys[begun.popleft()] = None
        keys |= dict.fromkeys(self._due.take(now_ms, count_max=LOOKED_AT_ONCE))
        turns = Turns(SLICE)
        for key in keys:
            await turns.took(SEGMENTS_MIN + self._look_at(key, now_ms, by_age=expiry_ms is not None))

    def _look_at(self, key: PartitionKey, now_ms: int, *, by_age: bool) -> int:
        """Returns how many segments it has looked at."""
        partition = self._replicas.get(key)
        settings = None if partition is None else partition.log.settings
        if partition is None or settings is None or not settings.is_limited or partition.topic in expiry.KEPT_WHOLE:
            self._due.set(key, None)
            return 0
        if not isinstance(partition.role, Leadership):
            # Whoever leads decides, and this broker looks again when it does.
            self._due.set(key, None)
            return 0
        self.looked_at += 1
        log, high_watermark = partition.log, partition.high_watermark
        present = log.log_start_offset
        if not by_age:
            self._held_back.add(key)
        limits = expiry.Limits(size_bytes=settings.retention_bytes, age_ms=settings.retention_ms if by_age else None)
        segments = _facts(log)
        start = expiry.log_start(segments, present=present, high_watermark=high_watermark, now_ms=now_ms, limits=limits)
        if start > present:
            self._mover.ask(key, start)
        left = [segment for segment in segments if segment.next_offset > start]
        due_ms = expiry.due_ms(left, limits)
        expired = expiry.log_start(left, present=start, high_watermark=log.log_end_offset, now_ms=now_ms, limits=limits)
        if expired > start or (due_ms is not None and due_ms <= now_ms):
            due_ms = now_ms + AGAIN_MS
        self._due.set(key, due_ms)
        return len(segments)


def _facts(log: ReplicaLog) -> list[expiry.SegmentFacts]:
    """What of a log decides. The last segment may grow meanwhile: it is then younger, and larger, than it says."""
    return [
        expiry.SegmentFacts(
            next_offset=segment.next_offset,
            size_bytes=segment.size_bytes,
            timestamp_ms_max=segment.timestamp_ms_max,
            written_ms=segment.written_ms,
        )
        for segment in log.segments
    ]
