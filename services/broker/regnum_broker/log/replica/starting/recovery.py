"""Opening a replica: what its files are, and what a kill or a loss of power left of them.

Goals: after any stop the replica is a prefix of what it was that holds everything acknowledged, or it says that it
cannot know.

Constraints: index, snapshot and checkpoint files may be missing or damaged; a start reads no more than
it must.

Algorithm: segments before the last were synced when they were closed: their index files speak for them, else
their checksums, and what is wrong there is damage. The last segment is trusted at the size that a clean stop
recorded. Otherwise it ends before the first batch that is cut off: in the same boot what was written is there, so
heads lead from one to the next, and checksums are computed of the end only; after a loss of power all are. A whole
batch with a wrong checksum is what a loss of power leaves (cut there: the log gets a new id, safety rule S10), but in
the same boot only damage does that, and then the replica stays offline. Leader epochs below the last segment come
from the journal, those in it from its batches. Where the log begins was recorded when it was moved (``log.starts``):
segments before that are on their way out and are not looked into, and a log that ends before it begins there anew.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from regnum_model.ids import LeaderEpoch, PartitionKey
from regnum_records.header import BatchHeader

from regnum_broker.log.disk.disk import DamagedFileError, GuardedDisk
from regnum_broker.log.disk.names import SWAP_SUFFIX, FileKind, FileName, file_named
from regnum_broker.log.epochs import EpochCache
from regnum_broker.log.errors import CorruptLogError, ResourceExhaustedError
from regnum_broker.log.journal.entries import JournaledReplica
from regnum_broker.log.replica.cleaned import CleanedMark, decode_marks
from regnum_broker.log.replica.index import (
    NO_TIMESTAMP,
    SUMMARY_BYTES,
    SegmentIndex,
    Summary,
    decode_index,
    decode_summary,
)
from regnum_broker.log.replica.producers.marks import ProducerMarks
from regnum_broker.log.replica.producers.rebuilding import rebuilt_producers
from regnum_broker.log.replica.producers.snapshots import remove_snapshots
from regnum_broker.log.replica.producers.states import ProducerStates
from regnum_broker.log.replica.segment import Segment
from regnum_broker.log.replica.starting.scanning import ScanEnd, fault_in_cut, follow, scan
from regnum_broker.log.replica.swapping import finish_swap

TAIL_BYTES: Final = 64 * 1024
"""After a kill in the same boot, checksums are computed of what lies so close to the end of a log, and of the last
batch: a kill in the middle of a write leaves the beginning of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanEnd:
    """How a clean stop left a replica."""

    base_offset: int
    """First offset of its last segment."""
    size_bytes: int
    """Bytes of that segment."""
    log_end_offset: int
    """Offset after its last record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What is known about the stop before this start."""

    same_boot: bool
    """Whether nothing that was written can be gone: the machine has been up since the log was last open, or a clean
    stop brought the files to the disk as they were."""
    clean_end: CleanEnd | None
    """What the clean stop recorded. None: there was none, or it did not know the replica."""
    journal_damaged: bool
    """Whether the journal may lack leader epochs."""
    now_ms: int
    """Milliseconds since 1970."""
    log_start_offset: int = 0
    """Where the log begins, as was recorded when that was moved last; 0: nothing was."""


class _File(NamedTuple):
    """A segment file."""

    base_offset: int
    size_bytes: int
    written_ms: int
    """When it was written to last, milliseconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """A replica as found."""

    segments: tuple[Segment, ...]
    """Oldest first; none if it has no files."""
    log_start_offset: int
    """Offset of the first record, in the first segment."""
    before: tuple[str, ...]
    """Files of segments before it that are still there."""
    set_aside: tuple[str, ...]
    """Files that were being removed already."""
    epochs: EpochCache
    """Leader epochs."""
    highest_epoch: LeaderEpoch
    """Highest leader epoch ever recorded."""
    producers: ProducerStates
    """Idempotent producers."""
    marks: ProducerMarks
    """What was remembered of them further up."""
    lost: str | None
    """Why acknowledged records may be missing; None: none are, as far as its files can tell."""
    named: bool
    """Whether the folder says whose it is."""
    cleaned: tuple[CleanedMark, ...]
    """How far it was compacted, and when."""
    foreign: tuple[str, ...]
    """What else is in its folder: it is not ours, and left alone."""
    gone_through: bool
    """Whether its last segment was: nothing else says what that holds, and perhaps not all of it is on the disk."""


def recover(
    folder: str, key: PartitionKey, journaled: JournaledReplica, disk: GuardedDisk, circumstances: Circumstances
) -> Recovered:
    """The replica whose files are in ``folder``.

    Raises:
        CorruptLogError: they contradict themselves in a way that no stop explains.
        DirectoryFailedError: the disk failed.
    """
    try:
        return _Recovery(folder, key, journaled, disk, circumstances).run()
    except (DamagedFileError, OSError) as error:
        raise CorruptLogError(key, str(error)) from error


class _Recovery:
    """One run of ``recover``."""

    def __init__(
        self,
        folder: str,
        key: PartitionKey,
        journaled: JournaledReplica,
        disk: GuardedDisk,
        circumstances: Circumstances,
    ) -> None:
        self._folder = folder
        self._key = key
        self._journaled = journaled
        self._disk = disk
        self._circumstances = circumstances
        self._lost: str | None = None
        self._named = False
        self._cleaned: tuple[CleanedMark, ...] = ()
        self._marks = ProducerMarks()
        self._first_offset = 0
        self._gone_through = False
        self._before: list[str] = []
        self._set_aside: list[str] = []
        self._foreign: list[str] = []
        self._snapshots: list[int] = []
        """Offsets of the snapshots of producers, in order."""

    def run(self) -> Recovered:
        files, start = self._segment_files(), self._circumstances.log_start_offset
        if not files:
            if self._journaled.has_files:
                self._lost = "its files are gone"
                if start > 0:
                    return self._begun_anew(start)
            return self._recovered((), self._epochs_without_records(0), ProducerStates())
        first = max((at for at, file in enumerate(files) if file.base_offset <= start), default=0)
        for gone in files[:first]:
            # Never looked into: a stop in the middle of their removal may have left some of them, and any.
            segment = Segment.empty(self._folder, self._disk, gone.base_offset)
            self._before += (segment.path, segment.index_path)
        files = files[first:]
        self._first_offset = files[0].base_offset
        if self._first_offset > start:
            # Whoever moves a log's start, or begins it anew, writes down where to: what is gone was not meant to go.
            self._lost = f"its first segment begins at offset {self._first_offset}, and the log at {start}"
        closed = [self._closed_segment(this, following.base_offset) for this, following in pairwise(files)]
        recovered = self._with_last(closed, files[-1])
        end = recovered.segments[-1].next_offset
        if end >= start:
            return recovered
        if not self._circumstances.same_boot:
            self._lost = f"it ends at offset {end}, and was known to begin at {start}"
        # Else a kill came in the middle of beginning anew, for which the log was given up already.
        for segment in recovered.segments:
            segment.delete()
        return self._begun_anew(start)

    def _begun_anew(self, start: int) -> Recovered:
        """An empty log that begins where it was known to."""
        remove_snapshots(self._folder, self._disk, above=-1)
        self._disk.make_directory(self._folder)
        segment = Segment.empty(self._folder, self._disk, start)
        segment.create()
        self._marks = ProducerMarks(start)
        self._gone_through = True
        return self._recovered((segment,), self._journaled.epochs.truncate_from_end(start), ProducerStates())

    def _segment_files(self) -> list[_File]:
        """Segment files, in order."""
        segments: list[_File] = []
        swaps: list[int] = []
        # Once for each replica of a broker, most of which have no folder: no more calls than it takes.
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self._folder) as files:
            for file in files:
                named = file_named(file.name)
                if named is None:
                    self._foreign.append(file.path)
                elif not file.is_file():
                    reason = f"{file.path} is not a file: move it away, and start the broker again"
                    raise CorruptLogError(self._key, reason)
                elif named.kind is FileKind.SEGMENT:
                    status = file.stat()
                    segments.append(_File(named.offset, status.st_size, int(status.st_mtime * 1000)))
                elif named.kind is FileKind.SWAP:
                    swaps.append(named.offset)
                else:
                    self._take_beside(file, named)
        self._snapshots.sort()
        for base_offset in sorted(swaps):
            segments = self._swapped(base_offset, segments)
        return sorted(segments)

    def _take_beside(self, file: os.DirEntry[str], named: FileName) -> None:
        """A file that is beside the segments. Indexes are read with theirs."""
        match named.kind:
            case FileKind.SET_ASIDE:
                self._set_aside.append(file.path)
            case FileKind.NAME:
                self._named = file.stat().st_size > 0
            case FileKind.CLEANED:
                self._cleaned = decode_marks(self._disk.read_whole(file.path, derived=True) or b"")
            case FileKind.UNFINISHED:
                self._disk.delete(file.path)
            case FileKind.SNAPSHOT:
                self._snapshots.append(named.offset)

    def _swapped(self, base_offset: int, files: list[_File]) -> list[_File]:
        """The segment files once compaction has put one in place of several, which a kill came into."""
        segment = Segment.empty(self._folder, self._disk, base_offset)
        path = segment.path + SWAP_SUFFIX
        status = Path(path).stat()
        end = scan(self._disk, path, base_offset=base_offset, size_bytes=status.st_size, visit=lambda *_: None)
        if end.fault is not None or end.cut_off:
            raise CorruptLogError(self._key, end.fault or f"{path} is cut off")
        # A descriptor that stays open would be known by a name that goes.
        self._disk.forget(path)
        for file in files:
            if base_offset < file.base_offset < end.next_offset:
                Segment.empty(self._folder, self._disk, file.base_offset).delete()
        finish_swap(self._disk, segment, partial(self._disk.sync_directory, self._folder))
        kept = [file for file in files if not base_offset <= file.base_offset < end.next_offset]
        return [*kept, _File(base_offset, status.st_size, int(status.st_mtime * 1000))]

    def _indexed(self, segment: Segment) -> Summary | None:
        """What the index file says that a segment is; None: nothing. Of the index itself no more is read."""
        start = self._disk.read_start(segment.index_path, SUMMARY_BYTES)
        if start is None:
            return None
        summary = decode_summary(*start)
        if summary is None:
            # Of a version before, perhaps.
            decoded = decode_index(self._disk.read_whole(segment.index_path, derived=True) or b"")
            return None if decoded is None else decoded[0]
        return summary

    def _closed_segment(self, file: _File, next_base: int) -> Segment:
        """A segment before the last: as its index file says, or else as its checksums do."""
        base_offset, size_bytes, written_ms = file
        segment = Segment.empty(self._folder, self._disk, base_offset)
        summary = self._indexed(segment)
        if summary is not None and (summary.base_offset, summary.size_bytes, summary.next_offset) == (
            base_offset,
            size_bytes,
            next_base,
        ):
            return Segment(self._folder, self._disk, summary, written_ms=written_ms)
        end, segment = self._scanned(file, lambda *_: None)
        if end.fault is not None or end.cut_off or end.next_offset != next_base:
            raise CorruptLogError(
                self._key,
                end.fault or f"{segment.path} ends at offset {end.next_offset}, the next begins at {next_base}",
            )
        # A full disk has no room for what can be made again.
        with suppress(ResourceExhaustedError):
            segment.save_index()
        return segment

    def _with_last(self, closed: list[Segment], file: _File) -> Recovered:
        """The replica with its last segment."""
        base_offset, size_bytes, _ = file
        end = self._circumstances.clean_end
        if end is not None and (end.base_offset, end.size_bytes) == (base_offset, size_bytes):
            last = self._cleanly_closed(file, end.log_end_offset)
            segments = (*closed, last)
            epochs = (
                self._epochs_from_headers(segments) if self._circumstances.journal_damaged else self._journaled.epochs
            )
            epochs = EpochCache(tuple(entry for entry in epochs.entries if entry[1] <= last.next_offset))
            return self._recovered(segments, epochs, self._producers(segments, last.next_offset, last.next_offset))
        self._gone_through = True
        if end is not None:
            self._lost = f"its last segment has {size_bytes} bytes and had {end.size_bytes} after the last clean stop"
        epochs = self._epochs_from_headers(closed) if self._circumstances.journal_damaged else self._journaled.epochs
        epochs = epochs.truncate_from_end(base_offset)
        producers = self._producers(tuple(closed), base_offset, base_offset)

        def take(headers: Sequence[BatchHeader], batches: int, end_offset: int) -> None:
            nonlocal epochs
            for header in headers:
                epochs = epochs.assign(LeaderEpoch(header.leader_epoch), header.base_offset)
                producers.apply(header, seen_ms=max(self._circumstances.now_ms, file.written_ms))
            self._marks.note(batches, end_offset, producers.entries)

        scanned, last = self._scanned(file, take, checked_bytes=TAIL_BYTES if self._circumstances.same_boot else None)
        if scanned.size_bytes < size_bytes:
            if self._circumstances.same_boot:
                fault = scanned.fault or fault_in_cut(self._disk, last.path, scanned, size_bytes=size_bytes)
                if fault is not None:
                    raise CorruptLogError(self._key, fault)
            self._disk.delete(last.index_path)
            self._disk.truncate(last.path, scanned.size_bytes)
        remove_snapshots(self._folder, self._disk, above=last.next_offset, present=self._snapshots)
        newest = self._epochs_without_records(last.next_offset)
        if newest.latest > epochs.latest:
            epochs = epochs.assign(newest.latest, newest.entries[-1][1])
        return self._recovered((*closed, last), epochs, producers)

    def _cleanly_closed(self, file: _File, log_end_offset: int) -> Segment:
        """The last segment after a clean stop."""
        base_offset, size_bytes, written_ms = file
        segment = Segment.empty(self._folder, self._disk, base_offset)
        summary = self._indexed(segment)
        if summary is not None and (summary.base_offset, summary.size_bytes, summary.next_offset) == (
            base_offset,
            size_bytes,
            log_end_offset,
        ):
            return Segment(self._folder, self._disk, summary, written_ms=written_ms)
        self._gone_through = True
        end, segment = self._scanned(file, lambda *_: None)
        if end.fault is not None or end.cut_off or end.next_offset != log_end_offset:
            raise CorruptLogError(
                self._key, end.fault or f"{segment.path} ends at offset {end.next_offset}, expected {log_end_offset}"
            )
        return segment

    def _scanned(
        self, file: _File, take: Callable[[Sequence[BatchHeader], int, int], None], *, checked_bytes: int | None = None
    ) -> tuple[ScanEnd, Segment]:
        """A segment made from its verified batches.

        Args:
            file: which.
            take: as for ``scanning.follow``.
            checked_bytes: checksums are computed of so much at its end, and of the last batch; None: of all.
        """
        base_offset, size_bytes, written_ms = file
        index, timestamp = SegmentIndex(), NO_TIMESTAMP
        path = Segment.empty(self._folder, self._disk, base_offset).path
        behind: ScanEnd | None = None
        if checked_bytes is not None:
            until = size_bytes - checked_bytes
            behind = follow(self._disk, path, base_offset=base_offset, until=until, index=index, take=take)
            timestamp = behind.timestamp_ms_max

        def note(position: int, header: BatchHeader) -> None:
            nonlocal timestamp
            index.append(base_offset=header.base_offset, position=position, timestamp_ms_max_before=timestamp)
            timestamp = max(timestamp, header.max_timestamp_ms)
            take((header,), 1, header.next_offset)

        end = scan(self._disk, path, base_offset=base_offset, size_bytes=size_bytes, visit=note, behind=behind)
        summary = Summary(
            base_offset=base_offset,
            size_bytes=end.size_bytes,
            next_offset=end.next_offset,
            timestamp_ms_max=end.timestamp_ms_max,
            last_epoch=end.last_epoch,
        )
        return end, Segment(self._folder, self._disk, summary, index, written_ms=written_ms)

    def _producers(self, segments: tuple[Segment, ...], at_most: int, log_end_offset: int) -> ProducerStates:
        """Idempotent producers of the log that ends with ``segments``."""
        return rebuilt_producers(
            self._folder,
            self._disk,
            segments,
            first_offset=self._first_offset,
            at_most=min(at_most, log_end_offset),
            now_ms=self._circumstances.now_ms,
            marks=self._marks,
            snapshots=self._snapshots,
        )

    def _epochs_from_headers(self, segments: tuple[Segment, ...] | list[Segment]) -> EpochCache:
        epochs = EpochCache()
        for segment in segments:
            for _, header in segment.headers():
                epochs = epochs.assign(LeaderEpoch(header.leader_epoch), header.base_offset)
        return epochs

    def _epochs_without_records(self, log_end_offset: int) -> EpochCache:
        """The newest journaled epoch, if it began where the log ends: a leader that had not appended yet."""
        entries = self._journaled.epochs.entries
        return EpochCache(entries[-1:] if entries and entries[-1][1] == log_end_offset else ())

    def _recovered(self, segments: tuple[Segment, ...], epochs: EpochCache, producers: ProducerStates) -> Recovered:
        start = max(self._circumstances.log_start_offset, segments[0].base_offset) if segments else 0
        epochs = epochs.truncate_from_start(start)
        return Recovered(
            segments=segments,
            log_start_offset=start,
            before=tuple(self._before),
            set_aside=tuple(self._set_aside),
            epochs=epochs,
            highest_epoch=max(self._journaled.highest_epoch, epochs.latest),
            producers=producers,
            marks=self._marks,
            lost=self._lost,
            named=self._named,
            cleaned=self._cleaned,
            foreign=tuple(self._foreign),
            gone_through=self._gone_through,
        )
