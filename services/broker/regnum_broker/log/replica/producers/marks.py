"""What a log remembered of its producers at earlier ends. Pure.

Goals: a truncation costs what it cuts. The state at the new end can be made again from the newest snapshot on disk and
the batches that follow it, but these are as many as fit into eight megabytes: sixty thousand when records are small and
sent one by one, which is seconds of the writer thread in the middle of a failover.

Algorithm: marks, each the (persistent) state after a number of batches. Among the youngest, one for each sixteen
batches; with their age they become fewer: a mark goes once its neighbours are no further apart than the younger of them
is old. So what follows the newest mark below a cut is no longer than what is cut, or a few batches, and a log of any
length has twenty marks at most. What is older than all of them is for the snapshots.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from immutables import Map

from regnum_broker.log.replica.producers.states import NOBODY, ProducerEntry, without

EVERY: Final = 16
"""Batches between two of the youngest marks, at least."""
MARKS_MAX: Final = 20
"""They reach back over eight thousand batches at least."""
FORGOTTEN_MAX: Final = 500
"""Producers that are taken out of every mark when they expire. If there are more, marks begin anew: to walk through
all of them would hold the writer thread for seconds, and whoever cuts so soon after has the snapshots."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of the log."""

    batches: int
    """Batches that had been noted by then."""
    end_offset: int
    """Log end."""
    entries: Map[int, ProducerEntry]
    """What was remembered."""


class ProducerMarks:
    """Marks of one log, oldest first. Belongs to the writer thread."""

    __slots__ = ("_batches", "_end_offset", "_marks")

    def __init__(self, start_offset: int = 0) -> None:
        """Of an empty log that begins there."""
        self.begin(start_offset, NOBODY)

    def begin(self, end_offset: int, entries: Map[int, ProducerEntry]) -> None:
        """Nothing is known of the log but what it remembers at its end."""
        self._batches = 0
        self._end_offset = end_offset
        # Most logs of a broker have no producer and need no mark.
        self._marks: tuple[Mark, ...] = (Mark(0, end_offset, entries),) if entries else ()

    def note(self, batches: int, end_offset: int, entries: Map[int, ProducerEntry]) -> None:
        """The log grew by so many batches, ends there, and remembers that. No cut between them will find a mark."""
        marks = self._marks
        if not marks and entries:
            # The first producer of all: up to here there was nobody.
            marks = (Mark(self._batches, self._end_offset, NOBODY),)
        self._batches += batches
        self._end_offset = end_offset
        if marks and self._batches >= marks[-1].batches + EVERY:
            marks = self._thinned([*marks, Mark(self._batches, end_offset, entries)])
        self._marks = marks

    def _thinned(self, marks: list[Mark]) -> tuple[Mark, ...]:
        for at in range(len(marks) - 2, 0, -1):
            younger = marks[at + 1].batches
            if younger - marks[at - 1].batches <= self._batches - younger:
                del marks[at]
        return tuple(marks[-MARKS_MAX:])

    def newest(self, *, at_most: int) -> Mark | None:
        """The newest mark of a log that ended at or below that offset; None: only a snapshot can tell."""
        return next((mark for mark in reversed(self._marks) if mark.end_offset <= at_most), None)

    def cut(self, log_end_offset: int, entries: Map[int, ProducerEntry]) -> None:
        """The log ends there again, and remembers that."""
        kept = tuple(mark for mark in self._marks if mark.end_offset <= log_end_offset)
        if not kept:
            self.begin(log_end_offset, entries)
            return
        self._marks, self._batches, self._end_offset = kept, kept[-1].batches, log_end_offset

    def forget(self, ids: Sequence[int], entries: Map[int, ProducerEntry]) -> None:
        """These producers have expired; that is remembered now."""
        if len(ids) > FORGOTTEN_MAX:
            self.begin(self._end_offset, entries)
            return
        self._marks = tuple(Mark(mark.batches, mark.end_offset, without(mark.entries, ids)) for mark in self._marks)
