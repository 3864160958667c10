"""Idempotent producers of a log, made again from what is nearest on the disk and the batches that follow it."""

from collections.abc import Sequence

from regnum_broker.log.disk.disk import GuardedDisk
from regnum_broker.log.replica.producers.marks import ProducerMarks
from regnum_broker.log.replica.producers.snapshots import newest_snapshot, remove_snapshots, snapshots_in
from regnum_broker.log.replica.producers.states import ProducerStates
from regnum_broker.log.replica.segment import Segment


def rebuilt_producers(
    folder: str,
    disk: GuardedDisk,
    segments: tuple[Segment, ...],
    *,
    first_offset: int,
    at_most: int,
    now_ms: int,
    marks: ProducerMarks,
    snapshots: Sequence[int] | None = None,
) -> ProducerStates:
    """Idempotent producers at the end of ``segments``, which ``marks`` then know too.

    What is nearest is gone from: the newest mark up to ``at_most``, else the newest snapshot; then what follows it. Not
    from one before ``first_offset``, where the first segment begins: the batches between them are gone, and with them
    the sequences that their producers had reached. They are forgotten then, as if they had expired. ``snapshots`` are
    the offsets of those on the disk, in order; None: that is looked up. What is gone through counts as appended at
    ``now_ms``, or when its file was written to last if that is later: the clock may be far behind, as some machines'
    are when they start, and what is remembered now must not be forgotten as soon as it is set right.
    """
    mark = marks.newest(at_most=at_most)
    if mark is not None and mark.end_offset >= first_offset:
        marks.cut(mark.end_offset, mark.entries)
        offset, states = mark.end_offset, ProducerStates(mark.entries)
    else:
        present = snapshots_in(folder) if snapshots is None else snapshots
        offset, states = newest_snapshot(folder, disk, at_most=at_most, present=present)
        if offset < first_offset:
            offset, states = first_offset, ProducerStates()
        marks.begin(offset, states.entries)
    for segment in segments:
        if segment.next_offset <= offset:
            continue
        position = segment.find_offset(offset)[0] if segment.base_offset < offset else 0
        for _, header in segment.headers(position):
            states.apply(header, seen_ms=max(now_ms, segment.written_ms))
            marks.note(1, header.next_offset, states.entries)
    return states


def cut_producers(
    producers: ProducerStates,
    marks: ProducerMarks,
    folder: str,
    disk: GuardedDisk,
    segments: tuple[Segment, ...],
    *,
    now_ms: int,
) -> ProducerStates:
    """What is remembered of a log that was cut and ends with ``segments`` now."""
    end = segments[-1].next_offset
    remove_snapshots(folder, disk, above=end)
    if producers.reaches(end):
        producers = rebuilt_producers(
            folder, disk, segments, first_offset=segments[0].base_offset, at_most=end, now_ms=now_ms, marks=marks
        )
    marks.cut(end, producers.entries)
    return producers
