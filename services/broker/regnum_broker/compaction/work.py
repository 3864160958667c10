"""One compaction of one log, in the steps that the cleaner's thread does: what is newest, and each segment anew."""

from collections.abc import Callable
from dataclasses import dataclass

from regnum_records.errors import CorruptBatchError

from regnum_broker.compaction.cleanable import Cleanable, SegmentFacts, cleanable, grouped
from regnum_broker.compaction.retained import Newest, Retention
from regnum_broker.compaction.rewriting import note_newest, rewrite
from regnum_broker.log.replica.cleaned import cleaned_until, deletions_done_until
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.log.replica.segment import DamagedSegmentError, Segment
from regnum_broker.log.replica.swapping import CleanedSegment


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


def look(log: ReplicaLog, *, high_watermark: int, now_ms: int) -> tuple[tuple[Segment, ...], Cleanable]:
    """What of a log may be compacted now: which segments, and whether it is time. From any thread."""
    closed = log.segments[:-1]
    found = cleanable(
        [_facts(segment) for segment in closed],
        cleaned_offset=cleaned_until(log.cleaned),
        log_start_offset=log.log_start_offset,
        high_watermark=high_watermark,
        now_ms=now_ms,
        settings=log.settings,
    )
    return closed[: found.count], found


def prepare(
    log: ReplicaLog,
    closed: tuple[Segment, ...],
    found: Cleanable,
    *,
    now_ms: int,
    keys_max: int,
    went_on: Callable[[], None],
) -> Work:
    """Go through what is not compacted yet, and say what is to be done.

    Args:
        log: which.
        closed: its segments that may be compacted.
        found: what is known of them.
        now_ms: milliseconds since 1970.
        keys_max: so many keys are kept in memory.
        went_on: called after each batch.

    Raises:
        CorruptBatchError: a batch cannot be read, or has more records than there is memory for.
        DamagedFileError: a file is not what it was.
    """
    begin, settings, cuts = found.dirty_offset, log.settings, log.cuts
    newest = Newest(begin=begin, keys_max=min(keys_max, found.end_offset - begin), producers=log.producers.entries)
    if closed and not log.is_made_of(closed):
        raise DamagedSegmentError("segments were cut before they were read")
    note_newest(newest, closed, begin=begin, went_on=went_on)
    if newest.end <= begin:
        raise CorruptBatchError(f"the batch at offset {begin} has more records than there is memory for")
    within = [segment for segment in closed if segment.base_offset < newest.end]
    groups: list[tuple[Segment, ...]] = []
    for count in grouped([_facts(segment) for segment in within], size_bytes_max=settings.segment_bytes):
        groups.append(tuple(within[:count]))
        del within[:count]
    done = deletions_done_until(log.cleaned, now_ms=now_ms, delete_retention_ms=settings.delete_retention_ms)
    return Work(
        log=log,
        groups=tuple(groups),
        retention=Retention(newest, deletions_done=done),
        until=newest.end,
        size_bytes=sum(segment.size_bytes for group in groups for segment in group),
        cuts=cuts,
    )


def _facts(segment: Segment) -> SegmentFacts:
    return SegmentFacts(
        base_offset=segment.base_offset,
        next_offset=segment.next_offset,
        size_bytes=segment.size_bytes,
        written_ms=segment.written_ms,
        began_ms=segment.began_ms,
    )
