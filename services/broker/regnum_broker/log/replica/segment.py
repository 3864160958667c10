"""A segment: one file of batches, named by its first offset, and its index.

Only the last segment of a replica grows. One thread changes a segment; any may read beside it: what is written
becomes visible by ``size_bytes`` and the replica's log end, which are set last.

The index is read when it is needed, and kept as long as there is memory for it (``ReadCache``). That of a segment that
grows is written first; what is appended then is noted in a *tail*, for which nothing is read. An index with some
entries less leads to the same batches by a longer walk, so readers that put file and tail together while the writer
appends need no lock.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from regnum_model.ids import NO_EPOCH
from regnum_records.header import HEADER_BYTES, LENGTH_PREFIX_BYTES, BatchHeader, read_header

from regnum_broker.log.disk.disk import DamagedFileError, GuardedDisk
from regnum_broker.log.disk.names import INDEX_SUFFIX, LOG_SUFFIX, file_name
from regnum_broker.log.disk.system_calls import WriteBuffer
from regnum_broker.log.replica.host import ReplicaHost
from regnum_broker.log.replica.index import INTERVAL_BYTES, NO_TIMESTAMP, SegmentIndex, Summary, decode_index

BATCHES_BYTES: Final = 1024 * 1024
"""Bytes that one read of whole batches brings, or one batch."""
AHEAD_BYTES_MIN: Final = 32 * 1024
AHEAD_BYTES_MAX: Final = 1024 * 1024
"""Bytes that one read of heads brings, at least and at most."""

_EXTENT: Final = struct.Struct(">qi11xi")


class DamagedSegmentError(DamagedFileError):
    """A segment's bytes are not batches one after another. The replica turns it into a CorruptLogError."""


class Segment:
    """One segment. Most replicas of a large cluster hold little: what can be made when it is needed is made then."""

    __slots__ = (
        "_disk",
        "_folder",
        "_held",
        "base_offset",
        "began_ms",
        "last_epoch",
        "next_offset",
        "size_bytes",
        "timestamp_ms_max",
        "written_ms",
    )

    def __init__(
        self,
        folder: str,
        disk: GuardedDisk,
        summary: Summary,
        index: SegmentIndex | None = None,
        *,
        written_ms: int = NO_TIMESTAMP,
    ) -> None:
        self.base_offset: Final = summary.base_offset
        self.size_bytes = summary.size_bytes
        self.next_offset = summary.next_offset
        self.timestamp_ms_max = summary.timestamp_ms_max
        self.last_epoch = summary.last_epoch
        self.began_ms: int | None = None
        """When this run of the broker first wrote to it, milliseconds since 1970; None: not yet."""
        self.written_ms = written_ms
        """When it was written to last, milliseconds since 1970; of one found at a start, as its file says."""
        self._folder = folder
        self._disk = disk
        self._held: _Held | None = None
        """What is known of its index; None: nothing was needed yet."""
        if index is not None:
            self._holding().unwritten = True
            self._keep(index)

    def _holding(self) -> "_Held":
        if self._held is None:
            self._held = _Held()
        return self._held

    def _keep(self, index: SegmentIndex) -> None:
        self._holding().index = index
        if index.size_bytes:
            self._disk.cache.keep(self, index.size_bytes)

    def drop_cached(self) -> bool:
        """Keep the index no longer, unless it has to be written first."""
        held = self._holding()
        if held.unwritten:
            return False
        held.index = None
        return True

    def write_cached(self) -> None:
        """Write the index of a segment that grows, and keep it no longer. For the writer thread.

        Raises:
            ResourceExhaustedError: no room; it is kept.
            DirectoryFailedError: the disk failed.
        """
        held = self._holding()
        if held.is_gone or not held.unwritten or self._disk.read_start(self.path, 0) is None:
            return
        self.save_index()
        held.index = held.tail = None
        self._disk.cache.forget(self)

    def retire(self) -> None:
        """Its files go, or become another's: nothing is written for it any more. For the writer thread."""
        if self._held is not None:
            self._held.is_gone = True
            self._disk.cache.forget(self)

    @classmethod
    def empty(cls, folder: str, disk: GuardedDisk, base_offset: int) -> "Segment":
        """A segment without batches; its file comes with the first write."""
        summary = Summary(
            base_offset=base_offset,
            size_bytes=0,
            next_offset=base_offset,
            timestamp_ms_max=NO_TIMESTAMP,
            last_epoch=NO_EPOCH,
        )
        return cls(folder, disk, summary)

    @property
    def path(self) -> str:
        """The file with its batches."""
        return f"{self._folder}/{file_name(self.base_offset)}{LOG_SUFFIX}"

    @property
    def index_path(self) -> str:
        """The file with its index."""
        return f"{self._folder}/{file_name(self.base_offset)}{INDEX_SUFFIX}"

    @property
    def index(self) -> SegmentIndex:
        """Where its batches stand; read, if it has to be."""
        return self.loaded_index()

    @property
    def summary(self) -> Summary:
        """What it is now."""
        return Summary(
            base_offset=self.base_offset,
            size_bytes=self.size_bytes,
            next_offset=self.next_offset,
            timestamp_ms_max=self.timestamp_ms_max,
            last_epoch=self.last_epoch,
        )

    def append(
        self,
        buffers: Sequence[WriteBuffer],
        headers: Sequence[BatchHeader],
        *,
        now_ms: int,
        index_interval_bytes: int,
    ) -> None:
        """Write batches, whose assigned heads are given, in one write."""
        self._disk.write(self.path, buffers, self.size_bytes)
        if self.began_ms is None:
            self.began_ms = now_ms
        self.written_ms = now_ms
        position, timestamp = self.size_bytes, self.timestamp_ms_max
        index = self._growing_index()
        before = index.size_bytes
        self._holding().unwritten = True
        for header in headers:
            index.append(
                base_offset=header.base_offset,
                position=position,
                timestamp_ms_max_before=timestamp,
                interval_bytes=index_interval_bytes,
            )
            timestamp = max(timestamp, header.max_timestamp_ms)
            position += header.size_bytes
        self.timestamp_ms_max = timestamp
        self.last_epoch = headers[-1].leader_epoch
        self.next_offset = headers[-1].next_offset
        self.size_bytes = position
        if index.size_bytes > before:
            self._disk.cache.keep(self, index.size_bytes)

    def _growing_index(self) -> SegmentIndex:
        """What notes the next batch: the index, if it is there, else its tail. For the writer thread."""
        held = self._holding()
        index = held.index
        if index is not None:
            return index
        if self.size_bytes == 0:
            index = held.index = SegmentIndex()
            return index
        tail = held.tail
        if tail is None:
            tail = held.tail = SegmentIndex()
        return tail

    def read(self, offset: int, *, end_offset: int, bytes_max: int) -> bytes:
        """Whole batches below ``end_offset`` from the one that contains ``offset`` on, at least one if there is one."""
        size = self.size_bytes
        position = self._index_for(offset).position_for_offset(offset)
        want = max(bytes_max, 0) + INTERVAL_BYTES
        while position < size:
            chunk = self._read_exactly(position, min(want, size - position))
            part = _whole_batches(chunk, offset, end_offset, bytes_max)
            if part.missing_bytes == 0:
                return chunk if part.start == 0 and part.end == len(chunk) else chunk[part.start : part.end]
            position += part.start
            if position < size < position + part.missing_bytes:
                raise DamagedSegmentError(f"the batch at byte {position} goes beyond the end of {self.path}")
            want = max(part.missing_bytes, bytes_max)
        return b""

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Position and head of each batch from ``position`` on, without reading large records.

        Heads that lie close together come in one read, of more the longer that goes on.
        """
        size = self.size_bytes
        chunk, chunk_start, ahead = b"", position, AHEAD_BYTES_MIN // 2
        while position < size:
            if position - chunk_start + HEADER_BYTES > len(chunk):
                close = position - chunk_start <= len(chunk)
                ahead = min(ahead * 2, AHEAD_BYTES_MAX) if close else AHEAD_BYTES_MIN
                chunk, chunk_start = self._read_exactly(position, min(ahead, size - position)), position
            header = self._header_in(chunk, position, chunk_start, size)
            yield position, header
            position += header.size_bytes

    def batches(self) -> Iterator[tuple[BatchHeader, bytes]]:
        """Head and bytes of each batch."""
        size, position = self.size_bytes, 0
        chunk, chunk_start = b"", 0
        while position < size:
            if position - chunk_start + HEADER_BYTES > len(chunk):
                chunk, chunk_start = self._read_exactly(position, min(BATCHES_BYTES, size - position)), position
            header = self._header_in(chunk, position, chunk_start, size)
            if position - chunk_start + header.size_bytes > len(chunk):
                want = min(max(BATCHES_BYTES, header.size_bytes), size - position)
                chunk, chunk_start = self._read_exactly(position, want), position
            at = position - chunk_start
            yield header, chunk[at : at + header.size_bytes]
            position += header.size_bytes

    def find_offset(self, offset: int) -> tuple[int, BatchHeader | None]:
        """Position and head of the batch that contains ``offset``; the end of the segment and None if none does."""
        for position, header in self.headers(self._index_for(offset).position_for_offset(offset)):
            if header.next_offset > offset:
                return position, header
        return self.size_bytes, None

    def batches_since(self, timestamp_ms: int, *, start_offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
        """Batches that say to have a timestamp at or after ``timestamp_ms``, and have records from an offset on."""
        if self.timestamp_ms_max < timestamp_ms or self.next_offset <= start_offset:
            return
        index = self.loaded_index()
        position = max(index.position_for_timestamp(timestamp_ms), index.position_for_offset(start_offset))
        for at, header in self.headers(position):
            if header.max_timestamp_ms >= timestamp_ms and header.next_offset > start_offset:
                yield header, self._read_exactly(at, header.size_bytes)

    def cut(self, position: int, next_offset: int) -> "Segment":
        """The segment without the batches from ``position`` on. This one must not be written to any more."""
        # Read while there is one: a closed segment has thousands of batches.
        kept = self.loaded_index().until(position)
        self.retire()
        self._disk.delete(self.index_path)
        self._disk.truncate(self.path, position)
        self.size_bytes = position
        index, timestamp, epoch = self._walked(kept)
        summary = Summary(
            base_offset=self.base_offset,
            size_bytes=position,
            next_offset=next_offset,
            timestamp_ms_max=timestamp,
            last_epoch=epoch,
        )
        return Segment(self._folder, self._disk, summary, index, written_ms=self.written_ms)

    def _walked(self, index: SegmentIndex) -> tuple[SegmentIndex, int, int]:
        """``index`` with the batches that it lacks, their largest timestamp, and the last one's leader epoch."""
        position, timestamp = index.resume_point()
        epoch = int(NO_EPOCH)
        for at, header in self.headers(position):
            index.append(base_offset=header.base_offset, position=at, timestamp_ms_max_before=timestamp)
            timestamp, epoch = max(timestamp, header.max_timestamp_ms), header.leader_epoch
        return index, timestamp, epoch

    def save_index(self) -> None:
        """Write the index file. Not synced: it proves itself, and one that does not is made anew."""
        self._disk.replace(self.index_path, self.loaded_index().encode(self.summary), sync=False)
        held = self._holding()
        held.unwritten, held.tail = False, None

    def sync(self) -> None:
        """Bring the batches to the disk."""
        self._disk.sync(self.path)

    def create(self) -> None:
        """Create its file, empty, also where a creation that went wrong has left one."""
        self._disk.write(self.path, [], 0)

    def set_aside(self, host: ReplicaHost) -> None:
        """Free the names of its files, which are then removed in the background."""
        self.retire()
        host.set_aside(self.path)
        host.set_aside(self.index_path)

    def delete(self) -> None:
        """Remove its files."""
        self.retire()
        self._disk.delete(self.index_path)
        self._disk.delete(self.path)

    def _index_for(self, offset: int) -> SegmentIndex:
        """An index that leads to ``offset``: the tail, if it lies there, as it does for those that keep up."""
        held = self._held
        tail = None if held is None or held.index is not None else held.tail
        if tail is not None and (begins := tail.begins) is not None and begins[0] <= offset:
            return tail
        return self.loaded_index()

    def loaded_index(self) -> SegmentIndex:
        """The index; read when it is needed. Threads that both read it read the same.

        An empty one's is made by the first append: one that a reader finds before that is of no use to anybody.
        """
        size, held = self.size_bytes, self._holding()
        tail, index = held.tail, held.index
        if index is not None:
            self._disk.cache.used(self)
            return index
        if size == 0:
            return SegmentIndex()
        decoded = decode_index(self._disk.read_whole(self.index_path, derived=True) or b"")
        if decoded is None or not self._began_so(decoded[0], size):
            index = self._walked(SegmentIndex())[0]
        elif decoded[0].size_bytes == size:
            index = decoded[1]
        elif tail is not None and tail.begins == (decoded[0].next_offset, decoded[0].size_bytes):
            index = decoded[1].followed_by(tail)
        else:
            index = self._walked(decoded[1])[0]
        held.tail = None
        self._keep(index)
        return index

    def _began_so(self, earlier: Summary, size: int) -> bool:
        """Whether it was that once: a batch begins there that continues what there was."""
        if earlier.base_offset != self.base_offset or earlier.size_bytes > size:
            return False
        if earlier.size_bytes == size:
            return earlier.next_offset == self.next_offset
        try:
            _, header = next(self.headers(earlier.size_bytes))
        except DamagedSegmentError:
            # If it is the segment that is damaged, whoever goes through it finds that.
            return False
        return header.base_offset == earlier.next_offset

    def _header_in(self, chunk: bytes, position: int, chunk_start: int, size: int) -> BatchHeader:
        try:
            header = read_header(chunk, position - chunk_start)
        except ValueError as error:
            raise DamagedSegmentError(f"byte {position} of {self.path}: {error}") from None
        if position + header.size_bytes > size or header.last_offset_delta < 0:
            raise DamagedSegmentError(f"the batch at byte {position} of {self.path} has an impossible extent")
        return header

    def _read_exactly(self, position: int, size: int) -> bytes:
        try:
            data = self._disk.read(self.path, position, size)
        except FileNotFoundError:
            raise DamagedSegmentError(f"{self.path} is missing") from None
        if len(data) < size:
            raise DamagedSegmentError(f"{self.path} ends at byte {position + len(data)}, expected {self.size_bytes}")
        return data


class _Held:
    """What is in memory of an index. Most segments of a large cluster are those of logs without a record."""

    __slots__ = ("index", "is_gone", "tail", "unwritten")

    def __init__(self) -> None:
        self.index: SegmentIndex | None = None
        """All of it; None: it has to be read."""
        self.tail: SegmentIndex | None = None
        """What was appended since it was written and dropped."""
        self.unwritten = False
        """Whether the index file lacks some of it. Set by the writer."""
        self.is_gone = False
        """Whether the segment's files are, or are another's."""


class _Part(NamedTuple):
    """A part of a chunk that was read."""

    start: int
    """Where the batch begins that contains the offset, or where to look for it."""
    end: int
    """Where the last whole batch ends."""
    missing_bytes: int
    """Bytes needed from ``start`` on to have one whole batch; 0: there is one, or nothing is to be returned."""


def _whole_batches(chunk: bytes, offset: int, end_offset: int, bytes_max: int) -> _Part:
    """Which whole batches of ``chunk``, which begins with a batch, to return."""
    start, at, length = 0, 0, len(chunk)
    while length - at >= HEADER_BYTES:
        base, batch_length, delta = _EXTENT.unpack_from(chunk, at)
        size = LENGTH_PREFIX_BYTES + batch_length
        if size < HEADER_BYTES or delta < 0:
            raise DamagedSegmentError(f"the batch at offset {base} has an impossible extent")
        following = base + delta + 1
        if following > end_offset:
            return _Part(start, at, 0)
        if following <= offset:
            at += size
            start = at
        elif at > start and at + size - start > bytes_max:
            return _Part(start, at, 0)
        elif at + size > length:
            return _Part(start, at, 0 if at > start else size)
        else:
            at += size
    return _Part(start, at, 0 if at > start else HEADER_BYTES)


def segment_of(segments: Sequence[Segment], offset: int) -> Segment:
    """The segment that holds ``offset``, which is not before the first."""
    return segments[bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1]


def timestamp_ms_max_within(segment: Segment, start_offset: int, end_offset: int) -> int:
    """Largest timestamp of the batches that begin below an offset and have records from another one on.

    NO_TIMESTAMP for none. Reads heads only where the segment is not inside as a whole.
    """
    if segment.next_offset <= start_offset or segment.base_offset >= end_offset:
        return NO_TIMESTAMP
    if start_offset <= segment.base_offset and segment.next_offset <= end_offset:
        return segment.timestamp_ms_max
    index = segment.loaded_index()
    if start_offset <= segment.base_offset:
        position, largest_ms = index.known_before(end_offset)
    else:
        position, largest_ms = index.position_for_offset(start_offset), NO_TIMESTAMP
        if segment.next_offset <= end_offset and index.position_for_timestamp(segment.timestamp_ms_max) > position:
            # The first batch that has it lies behind the start.
            return segment.timestamp_ms_max
    for _, header in segment.headers(position):
        if header.base_offset >= end_offset:
            break
        if header.next_offset > start_offset:
            largest_ms = max(largest_ms, header.max_timestamp_ms)
    return largest_ms
