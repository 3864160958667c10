"""How far compaction has come in a log, and when it had come there. Pure.

A mark says: at that moment, every record below this offset was the newest of its key among those below it. So a
deletion (a record without a value) below a mark that is ``delete.retention.ms`` old has done its work: what it deleted
is gone for so long, and whoever has read it since has had so long to read on to the deletion.

Marks are this replica's own, in a small file of its folder that proves itself. None of them is needed: without one the
log is compacted from its start, and deletions stay for longer. So that a mark is never taken for one of other records,
it carries the leader epoch of the last record below it: after a truncation, the log has another there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from regnum_broker.log.disk.lines import decode_line, encode_line
from regnum_broker.log.epochs import EpochCache

MARKS_MAX: Final = 16
"""Of more, one between two others goes: what lies below it is then judged by the later one."""


@dataclass(frozen=True, slots=True)
class CleanedMark:
    """How far compaction had come at one moment."""

    offset: int
    """Every record below is the newest of its key among those below."""
    at_ms: int
    """When that was so first, milliseconds since 1970."""
    epoch: int
    """Leader epoch of the last record below."""


def encode_marks(marks: Sequence[CleanedMark]) -> bytes:
    """The content of the file."""
    return encode_line([[mark.offset, mark.at_ms, mark.epoch] for mark in marks])


def decode_marks(data: bytes) -> tuple[CleanedMark, ...]:
    """What the file says; nothing if it is not what was written."""
    value: Any = decode_line(data.rstrip(b"\n"))
    if not isinstance(value, list):
        return ()
    try:
        return tuple([CleanedMark(int(offset), int(at_ms), int(epoch)) for offset, at_ms, epoch in value])
    except (TypeError, ValueError):
        return ()


def valid_marks(
    marks: Sequence[CleanedMark], *, epochs: EpochCache, log_start_offset: int, log_end_offset: int
) -> tuple[CleanedMark, ...]:
    """Those that are about the records which the log has."""
    return tuple(
        [
            mark
            for mark in marks
            if log_start_offset < mark.offset <= log_end_offset and epochs.epoch_at(mark.offset - 1) == mark.epoch
        ]
    )


def with_mark(marks: Sequence[CleanedMark], mark: CleanedMark) -> tuple[CleanedMark, ...]:
    """The marks with a newer one; older ones that say no more than it are of use only for their age."""
    kept = [other for other in marks if other.offset < mark.offset or other.at_ms < mark.at_ms]
    if kept and kept[-1].offset >= mark.offset:
        return tuple(kept)
    if len(kept) >= MARKS_MAX:
        # The two that are closest in time say nearly the same.
        closest = min(range(1, len(kept)), key=lambda at: kept[at].at_ms - kept[at - 1].at_ms)
        del kept[closest - 1]
    return (*kept, mark)


def cleaned_until(marks: Sequence[CleanedMark]) -> int:
    """Up to where the log is compacted; 0: not at all."""
    return max((mark.offset for mark in marks), default=0)


def deletions_done_until(marks: Sequence[CleanedMark], *, now_ms: int, delete_retention_ms: int) -> int:
    """Below which offset deletions have done their work; 0: none has."""
    return max((mark.offset for mark in marks if mark.at_ms + delete_retention_ms <= now_ms), default=0)
