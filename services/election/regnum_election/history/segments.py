"""The event log on disk: segments of records, the oldest of which goes when there is too much.

Goals: bounded in bytes and in events; a kill at any moment costs at most the record that was being written; an older
release's files are read by a newer one.

Form: a segment begins with MAGIC, whose last character is the version of the form, and holds records: a head (length
of the payload, CRC-32 of the rest of the head and the payload, controller epoch, number and count of the events) and
the payload, an EventEntry. It is named after its first event, so names order segments. Nothing is flushed: a kill of
the process loses nothing that was written, a loss of power may lose the last seconds, and they are history.

Example: a record is torn by ENOSPC. The segment is read up to the record before; what comes next begins another one.
"""

import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Final

from regnum_model.ids import ControllerEpoch, ElectionId

from regnum_election.history.events import BEGINNING, Position

MAGIC: Final = b"RGNEVNT1"
"""How a segment begins."""

SUFFIX: Final = ".events"
"""How the names of segments end."""

_HEAD: Final = struct.Struct("<II")
_PLACE: Final = struct.Struct("<QQI")
_NAME: Final = re.compile(rf"[0-9]{{10,}}-[0-9]{{15,}}{re.escape(SUFFIX)}", re.ASCII)
"""Of segments: what has another name is not Regnum's."""
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
HEAD_BYTES: Final = _HEAD.size + _PLACE.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much is kept, and how often it is tried."""

    bytes: int = 32 * 2**20
    """On disk, in bytes; a segment more while the oldest goes."""
    events: int = 500_000
    """Events on disk; likewise."""
    segment_bytes: int = 2**20
    """Size of a segment, about."""
    memory_bytes: int = 4 * 2**20
    """The newest entries that are kept in memory for those who follow, in bytes."""
    queued_events: int = 200_000
    """Events that may wait to be written; further ones are dropped."""
    retry_s: float = 5.0
    """Pause between two attempts at a directory that cannot be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An entry as it stands on disk."""

    first: Position
    """Place of its first event."""
    events: int
    """Number of its events."""
    payload: bytes
    """The EventEntry."""

    @property
    def last(self) -> Position:
        """Place of its last event."""
        return Position(self.first.epoch, self.first.number + self.events - 1)

    def encoded(self) -> bytes:
        """Head and payload."""
        place = _PLACE.pack(self.first.epoch, self.first.number, self.events)
        crc = zlib.crc32(self.payload, zlib.crc32(place))
        return _HEAD.pack(len(self.payload), crc) + place + self.payload


@dataclass(slots=True, kw_only=True)
class _Segment:
    path: Path
    first: Position
    last: Position = BEGINNING
    events: int = 0
    bytes: int = len(MAGIC)
    """Readable ones."""
    is_whole: bool = field(default=True)
    """Whether something may be appended. A tail that a kill left torn is cut off then."""


class Segments:
    """Of one folder. Everything blocks. One thread opens and appends; others may read meanwhile."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        """Only assigns."""
        self._folder: Final = folder
        self._limits: Final = limits
        self._lock: Final = Lock()
        self._segments: list[_Segment] = []
        self._file: BinaryIO | None = None

    @property
    def last(self) -> Position:
        """Place of the last event; BEGINNING when there is none."""
        with self._lock:
            return self._segments[-1].last if self._segments else BEGINNING

    @property
    def bytes(self) -> int:
        """Readable bytes."""
        with self._lock:
            return sum(one.bytes for one in self._segments)

    def open(self) -> None:
        """Find what is there. Raises OSError."""
        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        found: list[_Segment] = []
        for path in sorted(path for path in self._folder.iterdir() if _NAME.fullmatch(path.name) and path.is_file()):
            segment = _scanned(path)
            # What is of this name and not of this form, or out of its place, is left alone; what is empty may go.
            if segment is not None and (not found or segment.first > found[-1].last):
                found.append(segment)
        with self._lock:
            self._segments = found

    def append(self, records: Sequence[Record]) -> None:
        """Append records whose places follow. Raises OSError; then those of them count that ``last`` shows."""
        for record in records:
            data = record.encoded()
            file, segment = self._segment_for(record)
            try:
                file.write(data)
                file.flush()
            except OSError:
                self._give_up(segment)
                raise
            with self._lock:
                segment.last = record.last
                segment.events += record.events
                segment.bytes += len(data)
        self._shorten()

    def begin_anew(self) -> None:
        """Drop everything: the cluster was set back, and its places begin again. Raises OSError."""
        self.close()
        with self._lock:
            dropped, self._segments = self._segments, []
        for segment in dropped:
            segment.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file that is written to."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                # What could not be written before cannot be now.
                file.close()

    def forwards(self, after: Position) -> Iterator[Record]:
        """Records with events behind a place, oldest first. Raises OSError."""
        for segment in self._snapshot():
            if segment.last > after:
                yield from (record for record in _read(segment) if record.last > after)

    def backwards(self, before: Position | None) -> Iterator[Record]:
        """Records with events before a place (None: the end), newest first. Raises OSError."""
        for segment in reversed(self._snapshot()):
            if before is None or segment.first < before:
                for record in reversed(list(_read(segment))):
                    if before is None or record.first < before:
                        yield record

    def newest(self, bytes_max: int) -> Position:
        """A place behind which about so many bytes stand."""
        left = bytes_max
        for segment in reversed(self._snapshot()):
            left -= segment.bytes
            if left < 0:
                return segment.last
        return BEGINNING

    def _snapshot(self) -> list[_Segment]:
        with self._lock:
            return [
                _Segment(path=one.path, first=one.first, last=one.last, events=one.events, bytes=one.bytes)
                for one in self._segments
            ]

    def _segment_for(self, record: Record) -> tuple[BinaryIO, _Segment]:
        last = self._segments[-1] if self._segments else None
        if last is not None and last.is_whole and last.bytes < self._limits.segment_bytes:
            if self._file is None:
                self._file = last.path.open("r+b")
                # What a kill left half written stands behind what can be read.
                self._file.truncate(last.bytes)
                self._file.seek(last.bytes)
            return self._file, last
        self.close()
        path = self._folder / f"{record.first.epoch:010d}-{record.first.number:015d}{SUFFIX}"
        self._file = path.open("wb")
        self._file.write(MAGIC)
        segment = _Segment(path=path, first=record.first)
        with self._lock:
            self._segments.append(segment)
        return self._file, segment

    def _give_up(self, segment: _Segment) -> None:
        """What follows begins another segment: this one may end in half a record."""
        segment.is_whole = False
        self.close()
        with self._lock:
            if not segment.events:
                self._segments.remove(segment)

    def _shorten(self) -> None:
        with self._lock:
            size = sum(one.bytes for one in self._segments)
            events = sum(one.events for one in self._segments)
            gone: list[_Segment] = []
            while len(self._segments) > 1 and (size > self._limits.bytes or events > self._limits.events):
                oldest = self._segments.pop(0)
                size, events = size - oldest.bytes, events - oldest.events
                gone.append(oldest)
        for segment in gone:
            segment.path.unlink(missing_ok=True)


def _scanned(path: Path) -> _Segment | None:
    """What can be read of a segment; None: nothing."""
    segment: _Segment | None = None
    for record in _records(path.read_bytes()):
        if segment is None:
            segment = _Segment(path=path, first=record.first)
        elif record.first <= segment.last:
            break
        segment.last = record.last
        segment.events += record.events
        segment.bytes += HEAD_BYTES + len(record.payload)
    return segment


def _read(segment: _Segment) -> Iterator[Record]:
    try:
        with segment.path.open("rb") as file:
            data = file.read(segment.bytes)
    except FileNotFoundError:
        # It was the oldest, and has just gone.
        return
    yield from _records(data)


def _records(data: bytes) -> Iterator[Record]:
    """Records up to the first that cannot be read."""
    if not data.startswith(MAGIC):
        return
    place = len(MAGIC)
    while place + HEAD_BYTES <= len(data):
        length, crc = _HEAD.unpack_from(data, place)
        start = place + HEAD_BYTES
        payload = data[start : start + length]
        if len(payload) < length or zlib.crc32(payload, zlib.crc32(data[place + _HEAD.size : start])) != crc:
            return
        epoch, number, events = _PLACE.unpack_from(data, place + _HEAD.size)
        yield Record(first=Position(ControllerEpoch(epoch), number), events=events, payload=payload)
        place = start + length


def folder_of(run_dir: Path, id: ElectionId, cluster_id: str) -> Path:
    """Where an election process keeps the events of a cluster: another store has another history."""
    safe = cluster_id if _FILE_NAME.fullmatch(cluster_id) else sha256(cluster_id.encode()).hexdigest()
    return run_dir / f"election-{id}-events" / safe
