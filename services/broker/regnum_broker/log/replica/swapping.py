"""Putting compacted segments in place of what they were made of.

Goals: after a kill at any moment the log is what it was before, or what it is after; who reads meanwhile goes on; a
truncation and a compaction never mix.

Algorithm: the cleaner writes a segment beside the log (``.cleaned``), from segments that are closed, and brings it to
the disk. The rest is one job of the writer thread, as a truncation is one: so either comes first. If the segments are
not those any more that the cleaner has read, its work is thrown away. Else:

* one segment for one: its index, which speaks for the old file, goes; then the new file takes the old one's name;
* one for several: the new file is called ``.swap``, and with that on the disk the matter is decided; the others lose
  their names, and the new file takes that of the first. A start that finds a ``.swap`` does the rest of it
  (``finish_swap``).

Readers see either all of the old segments or the new one: those that come in the middle wait, those that were under way
read again (``ShownLog.swapping``).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from regnum_broker.log.disk.disk import DamagedFileError, GuardedDisk
from regnum_broker.log.disk.names import CLEANED_FILE, CLEANED_SUFFIX, SWAP_SUFFIX
from regnum_broker.log.errors import ResourceExhaustedError
from regnum_broker.log.replica.cleaned import CleanedMark, encode_marks, valid_marks, with_mark
from regnum_broker.log.replica.index import SegmentIndex, Summary
from regnum_broker.log.replica.segment import Segment
from regnum_broker.log.replica.tail import Tail


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedSegment:
    """A compacted segment that waits beside the log."""

    summary: Summary
    """What it is."""
    index: SegmentIndex
    """Its index."""
    written_ms: int
    """When the newest of what it was made of was written to last, milliseconds since 1970."""


class Swapping(Tail):
    """What of a replica belongs to compaction. For the writer thread; ``cleaned`` may be read by any."""

    __slots__ = ()

    @property
    def cuts(self) -> int:
        """How many truncations have taken away records of closed segments in this run. For any thread."""
        return 0 if self._aside is None else self._aside.cuts

    @property
    def cleaned(self) -> tuple[CleanedMark, ...]:
        """How far it is compacted, and since when, as far as that is known."""
        shown, aside = self._shown, self._aside
        return valid_marks(
            () if aside is None else aside.marks,
            epochs=self._epochs.cache,
            log_start_offset=shown.log_start_offset,
            log_end_offset=shown.log_end_offset,
        )

    @property
    def disk(self) -> GuardedDisk:
        """Where its files are: for what is written beside it."""
        return self._disk

    def is_made_of(self, segments: Sequence[Segment]) -> bool:
        """Whether these follow one another in the log, closed, as they were; not if it was deleted. Any thread."""
        shown = self._shown.segments
        at = next((number for number, segment in enumerate(shown) if segment is segments[0]), len(shown))
        present = shown[at : at + len(segments)]
        return (
            not self._shown.is_deleted
            and at + len(segments) < len(shown)
            and len(present) == len(segments)
            and all(one is other for one, other in zip(present, segments, strict=True))
        )

    def swap(self, replaced: Sequence[Segment], by: CleanedSegment, *, cuts: int) -> bool:
        """Put a compacted segment in place of those that it was made of; False: the log is not what it was.

        Args:
            replaced: the segments.
            by: what was made of them.
            cuts: what ``cuts`` was before anything was read. A record goes because a later one has its key, which may
                be in another segment: once that may have been cut, nothing goes for its sake.

        Raises:
            CorruptLogError: it cannot be used any more.
            UnknownReplicaError: it was deleted.
            ResourceExhaustedError: no room for a name; the log is as it was.
            DirectoryFailedError: the disk failed.
        """
        shown, disk = self._shown, self._disk
        shown.refuse_if_unusable()
        if self.cuts != cuts or not self.is_made_of(replaced):
            return False
        self._host.before_change()
        self._kept_aside()
        segment = Segment(self._folder.path, disk, by.summary, by.index, written_ms=by.written_ms)
        at = shown.segments.index(replaced[0])
        segments = (*shown.segments[:at], segment, *shown.segments[at + len(replaced) :])
        if len(replaced) == 1:
            found = self._swap_one(replaced[0], segment, segments)
        else:
            found = shown.undamaged(lambda: self._swap_several(replaced, segment, segments))
        if not found:
            return False
        self._names_changed()
        with suppress(ResourceExhaustedError):
            segment.save_index()
        return True

    def _swap_one(self, old: Segment, new: Segment, segments: tuple[Segment, ...]) -> bool:
        disk = self._disk
        disk.delete(old.index_path)
        if old.size_bytes == new.size_bytes:
            # After a loss of power the old index would be believed of the new file.
            disk.sync_directory(self._folder.path)
        with self._shown.swapping():
            found = disk.rename(new.path + CLEANED_SUFFIX, new.path)
            if found:
                disk.forget(new.path)
                self._shown.segments = segments
        disk.forget(new.path + CLEANED_SUFFIX)
        return found

    def _swap_several(self, replaced: Sequence[Segment], new: Segment, segments: tuple[Segment, ...]) -> bool:
        disk, shown = self._disk, self._shown
        # Opened first: once a file is called so there is no way back, since a start would finish it.
        with disk.folder_open(self._folder.path) as sync_names:
            if not disk.rename(new.path + CLEANED_SUFFIX, new.path + SWAP_SUFFIX):
                return False
            disk.forget(new.path + CLEANED_SUFFIX)
            sync_names()
            with shown.swapping():
                try:
                    for other in replaced[1:]:
                        other.set_aside(self._host)
                    finish_swap(disk, new, sync_names)
                except (ResourceExhaustedError, DamagedFileError) as error:
                    raise shown.damaged(error) from error
                for other in replaced:
                    disk.forget(other.path)
                shown.segments = segments
        return True

    def sync_swapped(self) -> None:
        """Bring the names of swapped segments to the disk, so that ``note_cleaned`` need not. Any thread.

        Raises:
            ResourceExhaustedError: no descriptor for it now.
            DirectoryFailedError: the disk failed.
        """
        # What is gone is for the writer to find.
        with suppress(DamagedFileError):
            if self._aside is not None:
                self._sync_names(self._aside)

    def note_cleaned(self, until: int, *, now_ms: int, cuts: int) -> None:
        """Remember that every record below an offset is the newest of its key among them, unless some were cut since.

        Args:
            until: the offset.
            now_ms: milliseconds since 1970.
            cuts: as for ``swap``.

        Raises:
            CorruptLogError: it cannot be used any more.
            UnknownReplicaError: it was deleted.
            ResourceExhaustedError: no descriptor for it now; nothing was noted.
            DirectoryFailedError: the disk failed.
        """
        shown = self._shown
        shown.refuse_if_unusable()
        if self.cuts != cuts:
            return
        mark = CleanedMark(until, now_ms, self._epochs.cache.epoch_at(until - 1))
        aside = self._kept_aside()
        # Else a loss of power might leave a mark beside the records that it says are gone: deletions would go first.
        shown.undamaged(lambda: self._sync_names(aside))
        aside.marks = with_mark(self.cleaned, mark)
        with suppress(ResourceExhaustedError):
            self._disk.replace(f"{self._folder.path}/{CLEANED_FILE}", encode_marks(aside.marks), sync=False)

    def _forget_cleaned(self) -> None:
        """Before records are cut that may be compacted, or all of them: what follows there was not."""
        aside = self._kept_aside()
        aside.cuts += 1
        if aside.marks:
            aside.marks = ()
            self._disk.delete(f"{self._folder.path}/{CLEANED_FILE}")
            self._disk.sync_directory(self._folder.path)


def finish_swap(disk: GuardedDisk, segment: Segment, sync_names: Callable[[], None]) -> None:
    """Give a segment that is called ``.swap`` the name of the first of those that it replaces; the others have none.

    Args:
        disk: its files.
        segment: as it is to be called.
        sync_names: brings the names in its folder to the disk.

    Raises:
        DamagedFileError: it is gone.
        ResourceExhaustedError: no room for a name.
        DirectoryFailedError: the disk failed.
    """
    disk.delete(segment.index_path)
    # The old index must not be there beside the new file, nor the other segments, whatever the power does.
    sync_names()
    if not disk.rename(segment.path + SWAP_SUFFIX, segment.path):
        raise DamagedFileError(f"{segment.path}{SWAP_SUFFIX} was removed while it was in use")
