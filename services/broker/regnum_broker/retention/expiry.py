"""Which segments of a log have expired. Pure.

Goals: Kafka's meaning of ``retention.ms`` and ``retention.bytes``; nothing that is not committed is deleted; nothing is
kept for ever because a producer's clock was wrong.

Constraints: only whole segments go, the oldest first; the last one goes only when all of its records have expired (the
log then begins a new one). The leader alone decides, for its high watermark is the one that counts.

Algorithm: by age, a segment has expired when its largest timestamp is ``retention.ms`` old. Producers choose their
timestamps, so a segment is never taken for younger than its last append here: a timestamp from the year 3000 expires
when the records are that long in this log, and so do records without timestamps. (Kafka keeps what has a timestamp in
the future until that moment has come and gone.) By size, the oldest segment goes as long as the rest still has
``retention.bytes``: a look leaves less than a segment above the limit.

Example: segments of 40 bytes end at 10, 20, 30, the high watermark is 25 and 50 bytes are kept: the log begins at 10,
since 80 bytes are enough without the first and 40 without the first two are not. With ``retention.bytes`` 40 it would
begin at 20; with 0 still at 20, because the third is not committed as a whole.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from regnum_model.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

KEPT_WHOLE: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
"""Topics of which the newest record of each key counts, however old it is: a limit of the cluster is none of theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """What of a segment decides. One that has no records never does."""

    next_offset: int
    """Offset after its last record."""
    size_bytes: int
    """Bytes of its batches."""
    timestamp_ms_max: int
    """Largest timestamp of its records, milliseconds since 1970; negative: they have none."""
    written_ms: int
    """When it was written to last, by this broker's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much is kept."""

    size_bytes: int | None
    """Bytes; None: any number."""
    age_ms: int | None
    """Milliseconds; None: for ever."""


def aged_since(segment: SegmentFacts) -> int:
    """The moment from which the age of a segment counts, milliseconds since 1970."""
    if segment.timestamp_ms_max < 0:
        return segment.written_ms
    return min(segment.timestamp_ms_max, segment.written_ms)


def log_start(
    segments: Sequence[SegmentFacts], *, present: int, high_watermark: int, now_ms: int, limits: Limits
) -> int:
    """Where the log should begin now.

    Args:
        segments: all of them, oldest first.
        present: where it begins.
        high_watermark: everything below is committed; nothing at or above it is deleted.
        now_ms: milliseconds since 1970.
        limits: what is kept.
    """
    return max(
        present,
        _by_age(segments, high_watermark=high_watermark, now_ms=now_ms, age_ms=limits.age_ms),
        _by_size(segments, high_watermark=high_watermark, size_bytes=limits.size_bytes),
    )


def due_ms(segments: Iterable[SegmentFacts], limits: Limits) -> int | None:
    """When the oldest records expire by their age, milliseconds since 1970; None: never."""
    if limits.age_ms is None:
        return None
    oldest = next((segment for segment in segments if segment.size_bytes > 0), None)
    return None if oldest is None else aged_since(oldest) + limits.age_ms


def _by_age(segments: Sequence[SegmentFacts], *, high_watermark: int, now_ms: int, age_ms: int | None) -> int:
    start = 0
    if age_ms is None:
        return start
    for segment in segments:
        if segment.size_bytes == 0:
            continue
        if segment.next_offset > high_watermark or now_ms - aged_since(segment) < age_ms:
            break
        start = segment.next_offset
    return start


def _by_size(segments: Sequence[SegmentFacts], *, high_watermark: int, size_bytes: int | None) -> int:
    start = 0
    if size_bytes is None:
        return start
    excess = sum(segment.size_bytes for segment in segments) - size_bytes
    for segment in segments:
        if segment.size_bytes == 0:
            continue
        if segment.size_bytes > excess or segment.next_offset > high_watermark:
            break
        excess -= segment.size_bytes
        start = segment.next_offset
    return start
