"""One compaction of one log, in the steps that the cleaner's thread does: what is newest, and each segment anew."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from regnum_broker.compaction.cleanable import Cleanable, SegmentFacts, cleanable, grouped
from regnum_broker.compaction.retained import Newest, Retention
from regnum_broker.compaction.rewriting import note_newest, rewrite
from regnum_broker.log.replica.cleaned import cleaned_until, deletions_done_until
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.log.replica.segment import DamagedSegmentError, Segment
from regnum_broker.log.replica.swapping import CleanedSegment


class NoRoomForKeysError(Exception):
    """One batch alone has more keys than are kept in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is to be done for one log."""

    log: ReplicaLog
    groups: tuple[tuple[Segment, ...], ...]
    """Segments, by what they become, oldest first: to be rewritten and swapped in this order."""
    retention: Retention
    """What stays; goes through the groups with whoever does."""
    until: int
    """Up to here the log is compacted afterwards."""
    size_bytes: int
    """Bytes of the segments."""
    cuts: int
    """What ``ReplicaLog.cuts`` was before anything was read."""

    def rewrite(self, group: tuple[Segment, ...], *, went_on: Callable[[], None]) -> CleanedSegment | None:
        """Write what takes the place of some segments; None: they may stay. Raises as ``rewriting.rewrite`` does."""
        interval_bytes = self.log.settings.index_interval_bytes
        return rewrite(group, self.retention, self.log.disk, index_interval_bytes=interval_bytes, went_on=went_on)


def look(log: ReplicaLog, *, high_watermark: int, now_ms: int, by_age: bool) -> tuple[tuple[Segment, ...], Cleanable]:
    """What of a log may be compacted now: which segments, and whether it is time (see ``cleanable``). Any thread."""
    closed = log.segments[:-1]
    found = cleanable(
        [_facts(segment) for segment in closed],
        cleaned_offset=cleaned_until(log.cleaned),
        log_start_offset=log.log_start_offset,
        high_watermark=high_watermark,
        now_ms=now_ms,
        by_age=by_age,
        settings=log.settings,
    )
    return closed[: found.count], found


class Noting:
    """What is newest in the part of a log that is not compacted yet, learned from one segment after another."""

    def __init__(
        self, log: ReplicaLog, closed: tuple[Segment, ...], found: Cleanable, *, keys_max: int, salt: int = 1
    ) -> None:
        """Nothing is known yet.

        Args:
            log: which.
            closed: its segments that may be compacted.
            found: what is known of them.
            keys_max: so many keys are kept in memory.
            salt: of the map of keys.

        Raises:
            DamagedFileError: the segments are not those of the log any more.
        """
        begin = found.dirty_offset
        self.closed: Final = closed
        """What may be compacted."""
        self._log: Final = log
        self._begin: Final = begin
        self._cuts: Final = log.cuts
        if closed and not log.is_made_of(closed):
            raise DamagedSegmentError("segments were cut before they were read")
        self._newest: Final = Newest(
            begin=begin,
            keys_max=min(keys_max, found.end_offset - begin),
            producers=log.producers.entries,
            salt=salt,
        )
        self._left: Final = deque(segment for segment in closed if segment.next_offset > begin)

    @property
    def next_bytes(self) -> int:
        """Bytes of the segment that is next; 0: there is none."""
        return self._left[0].size_bytes if self._left else 0

    def step(self, *, went_on: Callable[[], None]) -> bool:
        """Go through the next segment; returns whether all is known, or as much as there is room for.

        Args:
            went_on: called after each batch.

        Raises:
            CorruptBatchError: a batch is damaged.
            DamagedFileError: a file is not what it was.
        """
        if self._left and not note_newest(self._newest, self._left.popleft(), begin=self._begin, went_on=went_on):
            self._left.clear()
        return not self._left

    def work(self, *, now_ms: int | None) -> Work:
        """What is to be done by what is known.

        Args:
            now_ms: milliseconds since 1970; None: that is not to be believed, and deletions stay, however old.

        Raises:
            NoRoomForKeysError: a batch has more records than there is memory for.
        """
        log, newest, settings = self._log, self._newest, self._log.settings
        if newest.end <= self._begin:
            raise NoRoomForKeysError(f"the batch at offset {self._begin} has more records than there is memory for")
        within = [segment for segment in self.closed if segment.base_offset < newest.end]
        groups: list[tuple[Segment, ...]] = []
        for count in grouped([_facts(segment) for segment in within], size_bytes_max=settings.segment_bytes):
            groups.append(tuple(within[:count]))
            del within[:count]
        done = 0
        if now_ms is not None:
            done = deletions_done_until(log.cleaned, now_ms=now_ms, delete_retention_ms=settings.delete_retention_ms)
        return Work(
            log=log,
            groups=tuple(groups),
            retention=Retention(newest, deletions_done=done),
            until=newest.end,
            size_bytes=sum(segment.size_bytes for group in groups for segment in group),
            cuts=self._cuts,
        )


def _facts(segment: Segment) -> SegmentFacts:
    return SegmentFacts(
        base_offset=segment.base_offset,
        next_offset=segment.next_offset,
        size_bytes=segment.size_bytes,
        written_ms=segment.written_ms,
        began_ms=segment.began_ms,
    )
