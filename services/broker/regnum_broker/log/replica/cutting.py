"""Taking records away from a replica: from its end, from its beginning, or all of them.

Goals: whatever moment a kill comes at, the next start finds a log that was there before or one that is there after, and
never one whose first segment lies beyond the start that is recorded: that would be taken for a loss.

Constraints: readers go on meanwhile; nothing that a truncation took away is shown, or brought to the disk, after it
(``Tail``); what is compacted is forgotten before records are cut that it was made for (``Swapping``).
"""

from contextlib import suppress

from regnum_broker.log.errors import ResourceExhaustedError
from regnum_broker.log.replica.segment import Segment, segment_of
from regnum_broker.log.replica.swapping import Swapping


class Cutting(Swapping):
    """What of a replica belongs to truncation and to a later beginning. For the writer thread."""

    __slots__ = ("_high_watermark",)

    _high_watermark: int
    """As ``ReplicaLog.high_watermark`` tells it; a log that begins anew has none before its beginning."""

    def truncate(self, offset: int) -> int:
        """Remove records from ``offset`` on (from the batch on that contains it); returns the new log end.

        Epochs that begin at ``offset`` or later go too, also where no record does. Before the log start: removes
        everything.

        Raises:
            ResourceExhaustedError: no room to write down which epochs go; nothing was removed.
            CorruptLogError: the files contradict themselves, or cannot be read.
            DirectoryFailedError: the disk failed.
        """
        shown = self._shown
        shown.refuse_if_unusable()
        start, end = shown.log_start_offset, self.written_end_offset
        if offset < start:
            self.truncate_fully_and_start_at(max(offset, 0))
            return shown.log_end_offset
        if offset >= end:
            self._epochs.cut(offset)
            return end
        segment = segment_of(shown.segments, offset)
        kept = [other for other in shown.segments if other.base_offset < segment.base_offset]
        position, header = shown.undamaged(lambda: segment.find_offset(offset))
        new_end = segment.next_offset if header is None else header.base_offset
        if new_end < start:
            # The log began within that batch, and still begins there.
            self._epochs.write(sync=False)
            self._start_anew(start, epochs_until=start)
            return start
        self._host.before_change()
        if segment is not shown.segments[-1]:
            self._forget_cleaned()
        self._host.lower_start(self._folder.key, start=start, end=new_end)
        # The one step that takes room: on a full disk it is refused while nothing is cut, and the replica stays usable.
        self._epochs.journal_cut(new_end)
        with self._moving_back(), shown.cutting():
            self._ends_at(new_end, shown_until=min(shown.log_end_offset, new_end))
            self._epochs.cut_journaled(new_end)
            for later in reversed(shown.segments[len(kept) + 1 :]):
                later.set_aside(self._host)
            shown.segments = (*kept, shown.undamaged(lambda: segment.cut(position, new_end)))
            shown.undamaged(lambda: self._producers.cut(shown.segments, now_ms=self._wall_ms()))
        self._changed = self._unsynced = True
        return new_end

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything; the log is then empty and begins at ``offset``."""
        self._start_anew(offset)

    def _start_anew(self, offset: int, *, begins: int | None = None, epochs_until: int = 0) -> None:
        """Remove everything but the epochs that began before ``epochs_until``.

        Args:
            offset: where the first batch will begin.
            begins: where the log begins, if that is within this batch.
            epochs_until: an offset.
        """
        shown = self._shown
        shown.refuse_if_unusable()
        begins = offset if begins is None else begins
        # A kill must find no log whose first segment lies beyond the start that is recorded: that would be a loss.
        goes_back = begins < shown.log_start_offset
        self._host.before_change()
        if not goes_back:
            self._host.record_start(self._folder.key, begins)
        self._folder.make()
        self._forget_cleaned()
        with self._moving_back(), shown.cutting():
            shown.log_start_offset = offset
            self._ends_at(offset, shown_until=offset)
            self._epochs.cut(epochs_until)
            self._producers.forget_all(offset)
            for segment in reversed(shown.segments):
                # A rename each: to remove gigabytes takes the file system longer than appends may wait.
                segment.set_aside(self._host)
            first = Segment.empty(self._folder.path, self._disk, offset)
            first.create()
            shown.segments = (first,)
            self._folder.note_files()
        if goes_back:
            self._host.record_start(self._folder.key, begins)
        self._high_watermark = offset
        self._changed = self._unsynced = True
        self._names_changed()

    def begin_at(self, offset: int) -> bool:
        """Begin later: remove what lies before ``offset``, as far as whole segments do. By ``LogStarts`` only.

        A log that begins at its end, where nothing is left, gets a new segment, so that the last one goes, too. Returns
        whether it begins later now; an offset that is not in the log changes nothing.

        Raises:
            CorruptLogError: it cannot be used any more.
            UnknownReplicaError: it was deleted.
            ResourceExhaustedError: no room for a new segment; nothing was removed.
            DirectoryFailedError: the disk failed.
        """
        shown = self._shown
        shown.refuse_if_unusable()
        if not shown.log_start_offset < offset <= shown.log_end_offset:
            return False
        if offset == self.written_end_offset and shown.segments[-1].size_bytes > 0:
            shown.undamaged(self._begin_after_all)
        first = segment_of(shown.segments, offset)
        removed = [segment for segment in shown.segments if segment.base_offset < first.base_offset]
        if removed and not self._producers.outlives(first.base_offset, shown.segments[-1].base_offset):
            # What is removed may be all the room that there will be.
            with suppress(ResourceExhaustedError):
                shown.undamaged(self._save_producers)
        shown.begin_at(offset, shown.segments[len(removed) :])
        self._epochs.begin_at(offset)
        for segment in removed:
            segment.set_aside(self._host)
        return True
