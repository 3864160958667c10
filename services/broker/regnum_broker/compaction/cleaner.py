"""Compacts the logs of this broker that want it, one after another, and looks at no others.

A log is looked at when its topic's settings change, when it closes a segment, and when what it waits for (that records
are committed, or old enough) may have come. Every replica does it by itself, the leader's and the followers' alike.

What takes long runs on a thread of its own, at a pace (``pace``); what changes the log is short jobs of the writer, one
for each segment. What is given up in the middle, by a stop or a truncation, has changed nothing but what is whole.
"""

import asyncio
import contextlib
from functools import partial
from typing import Final

import structlog
from regnum_model.ids import PartitionKey
from regnum_records.errors import CorruptBatchError
from regnum_service.clock import Clock

from regnum_broker.compaction.cleanable import AGAIN_MS
from regnum_broker.compaction.pace import CompactionStoppedError, Pace
from regnum_broker.compaction.work import Work, look, prepare
from regnum_broker.log.disk.disk import DamagedFileError
from regnum_broker.log.errors import CorruptLogError, ResourceExhaustedError, UnknownReplicaError
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.log.replica.segment import Segment
from regnum_broker.log.replica.swapping import CleanedSegment
from regnum_broker.replication.replicas import Replicas
from regnum_broker.retention.due import DueIndex
from regnum_broker.storage import Storage

PAUSE_S_MAX: Final = 60.0
"""Longest pause between two looks at the clock, which people may set."""


class LogCleaner:
    """Belongs to the event loop."""

    def __init__(self, *, replicas: Replicas, storage: Storage, keys_max: int, clock: Clock) -> None:
        """Only assigns.

        Args:
            replicas: whose logs.
            storage: has the threads.
            keys_max: so many keys are kept in memory; a log with more new ones is gone through several times.
            clock: source of time.
        """
        self._replicas: Final = replicas
        self._storage: Final = storage
        self._keys_max: Final = keys_max
        self._clock: Final = clock
        self._pace: Final = Pace(clock, storage.wait_for_stop)
        self._due: Final[DueIndex[PartitionKey]] = DueIndex()
        self._uncleanable: Final[dict[PartitionKey, ReplicaLog]] = {}
        """Logs with damaged segments; one that is copied anew is another log."""
        self._log: Final = structlog.get_logger("log cleaner")
        self.looked_at = 0
        """Logs looked at so far."""

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
        """Look at the logs that are due, and compact those whose time it is, each once."""
        now_ms = self._clock.wall_ms()
        closed = self._storage.directory.segments_closed
        for key in self._replicas.take_unclean():
            self._due.set(key, now_ms)
        while closed:
            self._due.set(closed.popleft(), now_ms)
        for key in self._due.take(now_ms, count_max=len(self._due)):
            await self._look_at(key)

    async def _look_at(self, key: PartitionKey) -> None:
        partition = self._replicas.get(key)
        if partition is None or not partition.log.settings.is_compacted or self._uncleanable.get(key) is partition.log:
            return
        self.looked_at += 1
        log = partition.log
        try:
            self._due.set(key, await self._clean(log, partition.high_watermark))
        except CompactionStoppedError:
            return
        except (UnknownReplicaError, CorruptLogError):
            # It is gone, or offline by itself.
            self._uncleanable.pop(key, None)
        except ResourceExhaustedError as error:
            self._log.warning("log not compacted", topic=log.topic, partition=key.partition, reason=str(error))
            self._due.set(key, self._clock.wall_ms() + AGAIN_MS)

    async def _clean(self, log: ReplicaLog, high_watermark: int) -> int | None:
        """Compact a log, if it is time; returns when to look again, milliseconds since 1970."""
        storage, now_ms = self._storage, self._clock.wall_ms()
        work = await storage.clean(partial(self._prepared, log, high_watermark, now_ms))
        if not isinstance(work, Work):
            return work
        after = 0
        for group in work.groups:
            made = await storage.clean(partial(self._rewritten, work, group))
            if isinstance(made, CleanedSegment):
                if not await storage.write(partial(log.swap, group, made, cuts=work.cuts)):
                    return now_ms + AGAIN_MS
                after += made.summary.size_bytes
            elif made:
                after += sum(segment.size_bytes for segment in group)
            else:
                return None if log.key in self._uncleanable else now_ms + AGAIN_MS
        if storage.directory.files_left:
            storage.remove_files()
        # Here, and not where appends wait for it.
        await storage.clean(log.sync_swapped)
        await storage.write(partial(log.note_cleaned, work.until, now_ms=self._clock.wall_ms(), cuts=work.cuts))
        self._log.info(
            "log compacted",
            topic=log.topic,
            partition=log.key.partition,
            until=work.until,
            bytes_before=work.size_bytes,
            bytes_after=after,
        )
        # There may be more than there was memory for, or more by now.
        return self._clock.wall_ms()

    def _prepared(self, log: ReplicaLog, high_watermark: int, now_ms: int) -> Work | int | None:
        """On the cleaner's thread: what is to be done, or when to look again."""
        closed, found = look(log, high_watermark=high_watermark, now_ms=now_ms)
        if not found.is_due:
            return found.again_ms
        self._pace.begin()
        try:
            return prepare(log, closed, found, now_ms=now_ms, keys_max=self._keys_max, went_on=self._pace.went_on)
        except (DamagedFileError, CorruptBatchError) as error:
            return None if self._is_damaged(log, closed, error) else now_ms + AGAIN_MS

    def _rewritten(self, work: Work, group: tuple[Segment, ...]) -> CleanedSegment | bool:
        """On the cleaner's thread: what takes the place of some segments; True: they stay; False: given up."""
        self._pace.begin()
        if not work.log.is_made_of(group):
            return False
        try:
            return work.rewrite(group, went_on=self._pace.went_on) or True
        except (DamagedFileError, CorruptBatchError) as error:
            self._is_damaged(work.log, group, error)
            return False

    def _is_damaged(self, log: ReplicaLog, segments: tuple[Segment, ...], error: Exception) -> bool:
        """Whether segments that cannot be read are in the log still: it is not compacted any more then."""
        if not log.is_made_of(segments):
            # They were truncated, or deleted, while they were read.
            return False
        self._uncleanable[log.key] = log
        self._log.error(
            "log cannot be compacted",
            topic=log.topic,
            partition=log.key.partition,
            reason=str(error),
            effect="it grows; delete the replica's folder while the broker is stopped, and it is copied anew",
        )
        return True
