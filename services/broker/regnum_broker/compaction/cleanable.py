"""Which segments of a log are compacted, and when. Pure.

Goals: Kafka's meaning of ``min.cleanable.dirty.ratio``, ``min.compaction.lag.ms`` and ``max.compaction.lag.ms``;
nothing that is not committed is touched, nor the segment that grows; going through a log pays, because enough of it is
new; nothing is done because of an age while this broker's clock is not to be believed.

Algorithm: what can be compacted are closed segments from the log start up to the first one that is not committed as a
whole, or was written to less than ``min.compaction.lag.ms`` ago, by this broker's clock. (Kafka goes by timestamps,
which producers choose.) *Dirty* is what of that lies beyond the offset up to which the log is compacted. It is
compacted when the dirty bytes are more than the ratio of all of these, or when the oldest of them is
``max.compaction.lag.ms`` old. Then all of them are gone through: small ones that follow one another become one segment.

Example: segments of 10 bytes end at 10, 20, 30 and 40, the last one grows, the log is compacted up to 10 and 35 is
committed. Then 10 to 30 is dirty: 20 of 30 bytes, which is more than one half.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from regnum_broker.log.replica.rolling import OFFSETS_IN_SEGMENT_MAX, LogSettings

AGAIN_MS: Final = 15_000
"""A log with segments that are not committed yet is looked at again after this time (Kafka's
log.cleaner.backoff.ms)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """What of a segment decides."""

    base_offset: int
    """Its first offset."""
    next_offset: int
    """Offset after its last record."""
    size_bytes: int
    """Bytes of its batches."""
    written_ms: int
    """When it was written to last, by this broker's clock."""
    began_ms: int | None = None
    """When this run of the broker wrote to it first; None: it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """What may be compacted."""

    count: int
    """So many of the segments, from the first on."""
    dirty_offset: int
    """Up to here the log is compacted already."""
    end_offset: int
    """Up to here it may be."""
    dirty_ratio: float
    """Part of it that is dirty, by bytes: 0 to 1."""
    size_bytes: int
    """Bytes of all of it."""
    is_due: bool
    """Whether it is to be compacted now."""
    is_overdue: bool
    """Whether that is because something in it is ``max.compaction.lag.ms`` old."""
    again_ms: int | None
    """When to look again, milliseconds since 1970, if nothing is written until then; None: not then."""


def cleanable(
    closed: Sequence[SegmentFacts],
    *,
    cleaned_offset: int,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
    by_age: bool,
    settings: LogSettings,
) -> Cleanable:
    """What of a log may be compacted, and whether it is time.

    Args:
        closed: all of its segments but the last, oldest first.
        cleaned_offset: up to where it is compacted; 0: nowhere.
        log_start_offset: where it begins.
        high_watermark: everything below is committed.
        now_ms: milliseconds since 1970.
        by_age: False: no segment counts as old enough, whatever ``now_ms`` says.
        settings: how it is kept.
    """
    count, again_ms = 0, None
    for segment in closed:
        if segment.next_offset > high_watermark:
            again_ms = now_ms + AGAIN_MS
            break
        if settings.min_compaction_lag_ms > 0:
            young_until_ms = segment.written_ms + settings.min_compaction_lag_ms
            if young_until_ms > now_ms:
                again_ms = young_until_ms
            if young_until_ms > now_ms or not by_age:
                break
        count += 1
    within = closed[:count]
    dirty_offset = max(cleaned_offset, log_start_offset)
    dirty_bytes = sum(segment.size_bytes for segment in within if segment.next_offset > dirty_offset)
    all_bytes = sum(segment.size_bytes for segment in within)
    by_ratio = dirty_bytes * 1000 > all_bytes * settings.min_cleanable_dirty_ratio
    oldest_ms = _oldest_dirty_ms(closed, dirty_offset) if settings.max_compaction_lag_ms is not None else None
    due_ms = None if oldest_ms is None else oldest_ms + (settings.max_compaction_lag_ms or 0)
    is_overdue = by_age and dirty_bytes > 0 and due_ms is not None and due_ms <= now_ms
    if due_ms is not None and due_ms > now_ms:
        again_ms = due_ms if again_ms is None else min(again_ms, due_ms)
    return Cleanable(
        count=count,
        dirty_offset=dirty_offset,
        end_offset=within[-1].next_offset if within else 0,
        dirty_ratio=dirty_bytes / all_bytes if all_bytes else 0.0,
        size_bytes=all_bytes,
        is_due=by_ratio or is_overdue,
        is_overdue=is_overdue,
        again_ms=again_ms,
    )


def _oldest_dirty_ms(closed: Sequence[SegmentFacts], dirty_offset: int) -> int | None:
    """When the oldest dirty record was written, milliseconds since 1970; None: there is none.

    Rather too early than too late: it came after what the segment before it has. Only in a log's first segment, and
    after a start of the broker, it may be older than this.
    """
    before_ms: int | None = None
    for segment in closed:
        if segment.next_offset > dirty_offset:
            if before_ms is not None:
                return before_ms
            return segment.written_ms if segment.began_ms is None else segment.began_ms
        before_ms = segment.written_ms
    return None


def grouped(segments: Sequence[SegmentFacts], *, size_bytes_max: int) -> Iterator[int]:
    """How many segments become one, from the first on: as many as fit into a segment, as they are.

    Args:
        segments: those that are compacted, oldest first.
        size_bytes_max: size of a segment.
    """
    count = size = base = 0
    for segment in segments:
        full = size + segment.size_bytes > size_bytes_max
        if count and (full or segment.next_offset - 1 - base > OFFSETS_IN_SEGMENT_MAX):
            yield count
            count = 0
        if count == 0:
            size, base = 0, segment.base_offset
        count += 1
        size += segment.size_bytes
    if count:
        yield count
