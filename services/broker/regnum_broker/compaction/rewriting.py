"""Going through the segments of a log, on the cleaner's thread: what is newest, and what is written in their place.

Only closed segments are read, and what is written lies beside the log (``.cleaned``) until the writer thread puts it in
their place (``log.replica.swapping``).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Final

from regnum_model.ids import NO_EPOCH
from regnum_records.header import BatchHeader, read_header

from regnum_broker.compaction.retained import Newest, Retention, keyed_records
from regnum_broker.log.disk.disk import GuardedDisk
from regnum_broker.log.disk.names import CLEANED_SUFFIX
from regnum_broker.log.replica.index import NO_TIMESTAMP, SegmentIndex, Summary
from regnum_broker.log.replica.segment import DamagedSegmentError, Segment
from regnum_broker.log.replica.swapping import CleanedSegment

WRITE_BYTES: Final = 1024 * 1024
"""Bytes of batches in one write, or one batch."""


def note_newest(newest: Newest, segment: Segment, *, begin: int, went_on: Callable[[], None]) -> bool:
    """Note what is in a segment from an offset on; returns whether there was room for all of it.

    Raises:
        CorruptBatchError: a batch is damaged.
        DamagedFileError: a file is not what it was.
    """
    for header, batch in segment.batches():
        if header.next_offset > begin and not newest.note(header, keyed_records(batch, header)):
            return False
        went_on()
    return True


def rewrite(
    segments: Sequence[Segment],
    retention: Retention,
    disk: GuardedDisk,
    *,
    index_interval_bytes: int,
    went_on: Callable[[], None],
) -> CleanedSegment | None:
    """Write what stands in place of segments, and bring it to the disk; None: they may stay as they are.

    Raises:
        CorruptBatchError: a batch is damaged.
        DamagedFileError: a file is not what it was.
        ResourceExhaustedError: no room for it.
        DirectoryFailedError: the disk failed.
    """
    target = _Target(segments, disk, index_interval_bytes=index_interval_bytes)
    # Left by one that was given up. First: it may be what fills the disk.
    target.remove()
    disk.refuse_if_full()
    retention.changed = False
    with ExitStack() as undo:
        # What it takes of a full disk is needed.
        undo.callback(target.remove)
        for header, batch in _following(segments):
            for written in retention.take(header, batch):
                target.add(written)
            went_on()
        for written in retention.rest():
            target.add(written)
        if len(segments) == 1 and not retention.changed:
            return None
        made = target.finished()
        undo.pop_all()
    return made


def _following(segments: Sequence[Segment]) -> Iterator[tuple[BatchHeader, bytes]]:
    """The batches of segments, each of which begins where the one before ends."""
    offset = segments[0].base_offset
    for segment in segments:
        for header, batch in segment.batches():
            if header.base_offset != offset:
                raise DamagedSegmentError(
                    f"a batch at offset {header.base_offset} of {segment.path} came where {offset} is next"
                )
            yield header, batch
            offset = header.next_offset


class _Target:
    """The file that is written."""

    def __init__(self, segments: Sequence[Segment], disk: GuardedDisk, *, index_interval_bytes: int) -> None:
        self._segments: Final = segments
        self._disk: Final = disk
        self._path: Final = segments[0].path + CLEANED_SUFFIX
        self._interval_bytes: Final = index_interval_bytes
        self._index: Final = SegmentIndex()
        self._buffers: list[bytes] = []
        self._buffered_bytes = 0
        self._written_bytes = 0
        self._next_offset = segments[0].base_offset
        self._timestamp_ms_max = NO_TIMESTAMP
        self._epoch = int(NO_EPOCH)

    def remove(self) -> None:
        self._disk.delete(self._path)

    def add(self, batch: bytes) -> None:
        header = read_header(batch)
        self._index.append(
            base_offset=header.base_offset,
            position=self._written_bytes + self._buffered_bytes,
            timestamp_ms_max_before=self._timestamp_ms_max,
            interval_bytes=self._interval_bytes,
        )
        self._timestamp_ms_max = max(self._timestamp_ms_max, header.max_timestamp_ms)
        self._next_offset, self._epoch = header.next_offset, header.leader_epoch
        self._buffers.append(batch)
        self._buffered_bytes += len(batch)
        if self._buffered_bytes >= WRITE_BYTES:
            self._write()

    def finished(self) -> CleanedSegment:
        last = self._segments[-1]
        if self._next_offset != last.next_offset:
            raise DamagedSegmentError(f"{last.path} ends at offset {self._next_offset}, expected {last.next_offset}")
        self._write()
        written_ms = max(segment.written_ms for segment in self._segments)
        self._disk.set_written(self._path, written_ms)
        self._disk.sync(self._path)
        return CleanedSegment(
            summary=Summary(
                base_offset=self._segments[0].base_offset,
                size_bytes=self._written_bytes,
                next_offset=self._next_offset,
                timestamp_ms_max=self._timestamp_ms_max,
                last_epoch=self._epoch,
            ),
            index=self._index,
            written_ms=written_ms,
        )

    def _write(self) -> None:
        if self._buffers:
            self._disk.write(self._path, self._buffers, self._written_bytes)
            self._written_bytes += self._buffered_bytes
            self._buffers, self._buffered_bytes = [], 0
