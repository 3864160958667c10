"""Where batches stand in a segment: a sparse index by offset and by timestamp. Pure.

One entry for every 4 KiB of batches (``index.interval.bytes``; an index that is made anew has one for every 4 KiB
again): the base offset of a batch, its position, and the largest timestamp of all batches before it in the segment.
All three only rise, so both searches are bisections, and what lies between two entries is walked from batch to batch.
A closed segment's index rests in a file together with what the segment is (``Summary``); a file that is missing or
damaged is made anew from the batches.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import google_crc32c

INTERVAL_BYTES: Final = 4096
NO_TIMESTAMP: Final = -(2**63)
"""Largest timestamp of no batches at all."""

_HEAD: Final = struct.Struct("<4sHqqqqiI")
_MAGIC: Final = b"RGIX"
_CHECKSUM_BYTES: Final = 4
_VERSION: Final = 2
"""Since 2 the head has a checksum of its own, so that a start need not read the rest: a segment of a quarter of a
gigabyte has a megabyte and a half of it."""
_VERSION_WITHOUT: Final = 1
SUMMARY_BYTES: Final = _HEAD.size + _CHECKSUM_BYTES
"""So much of the beginning of an index file says what its segment is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a whole segment is."""

    base_offset: int
    """First offset it may hold; names its file."""
    size_bytes: int
    """Bytes of its batches."""
    next_offset: int
    """Offset after its last record."""
    timestamp_ms_max: int
    """Largest timestamp of its batches."""
    last_epoch: int
    """Leader epoch of its last batch; -1 if it is empty."""


class SegmentIndex:
    """The index of one segment. One thread appends; any may search beside it, because the searched arrays grow last."""

    __slots__ = ("_offsets", "_positions", "_timestamps")

    def __init__(
        self,
        offsets: "array[int] | None" = None,
        positions: "array[int] | None" = None,
        timestamps: "array[int] | None" = None,
    ) -> None:
        self._offsets = array("q") if offsets is None else offsets
        self._positions = array("q") if positions is None else positions
        self._timestamps = array("q") if timestamps is None else timestamps

    def __len__(self) -> int:
        return len(self._offsets)

    def append(
        self, *, base_offset: int, position: int, timestamp_ms_max_before: int, interval_bytes: int = INTERVAL_BYTES
    ) -> None:
        """Take note of a batch, if the last one noted lies so far back."""
        if self._positions and position - self._positions[-1] < interval_bytes:
            return
        self._positions.append(position)
        self._timestamps.append(timestamp_ms_max_before)
        self._offsets.append(base_offset)

    @property
    def size_bytes(self) -> int:
        """Memory that its entries take."""
        return 3 * 8 * len(self._offsets)

    def entries(self) -> Iterator[tuple[int, int, int]]:
        """Base offset, position, and largest timestamp before, of each batch that was noted."""
        return zip(self._offsets, self._positions, self._timestamps, strict=True)

    def position_for_offset(self, offset: int) -> int:
        """Position of a batch at or before the one that contains ``offset``."""
        above = bisect_right(self._offsets, offset)
        return self._positions[above - 1] if above else 0

    def known_before(self, offset: int) -> tuple[int, int]:
        """Position of a batch at or before the one that contains ``offset``, and the largest timestamp before it."""
        above = bisect_right(self._offsets, offset)
        return (self._positions[above - 1], self._timestamps[above - 1]) if above else (0, NO_TIMESTAMP)

    def position_for_timestamp(self, timestamp_ms: int) -> int:
        """Position of a batch at or before the first one with a timestamp at or after ``timestamp_ms``."""
        above = bisect_left(self._timestamps, timestamp_ms)
        return self._positions[above - 1] if above else 0

    def resume_point(self) -> tuple[int, int]:
        """Position of the last batch noted, and the largest timestamp before it: where noting goes on."""
        return (self._positions[-1], self._timestamps[-1]) if self._positions else (0, NO_TIMESTAMP)

    def followed_by(self, tail: "SegmentIndex") -> "SegmentIndex":
        """With what another one has noted behind it. That one may grow meanwhile: what it notes then is left out."""
        offsets, positions, timestamps = tail.columns
        return SegmentIndex(self._offsets + offsets, self._positions + positions, self._timestamps + timestamps)

    @property
    def columns(self) -> "tuple[array[int], array[int], array[int]]":
        """Copies of what was noted by now: offsets, positions, timestamps."""
        # Offsets grow last.
        count = len(self._offsets)
        return self._offsets[:count], self._positions[:count], self._timestamps[:count]

    @property
    def begins(self) -> tuple[int, int] | None:
        """Base offset and position of the first batch that was noted; None: none was."""
        return (self._offsets[0], self._positions[0]) if self._offsets else None

    def until(self, position: int) -> "SegmentIndex":
        """The index of the batches before ``position``."""
        kept = bisect_left(self._positions, position)
        return SegmentIndex(self._offsets[:kept], self._positions[:kept], self._timestamps[:kept])

    def encode(self, summary: Summary) -> bytes:
        """The content of an index file."""
        head = _HEAD.pack(
            _MAGIC,
            _VERSION,
            summary.base_offset,
            summary.size_bytes,
            summary.next_offset,
            summary.timestamp_ms_max,
            summary.last_epoch,
            len(self._offsets),
        )
        body = b"".join(
            (head, _checksum(head), self._offsets.tobytes(), self._positions.tobytes(), self._timestamps.tobytes())
        )
        return body + _checksum(body)


def _checksum(data: bytes) -> bytes:
    value: int = google_crc32c.value(data)
    return value.to_bytes(_CHECKSUM_BYTES, "little")


def decode_summary(start: bytes, size_bytes: int) -> Summary | None:
    """What an index file of that size says of its segment, by its first bytes; None if it does not say it so.

    Whether the rest is right is seen when it is read.
    """
    head = start[: _HEAD.size]
    if len(start) < SUMMARY_BYTES or _checksum(head) != start[_HEAD.size : SUMMARY_BYTES]:
        return None
    magic, version, base, size, following, timestamp, epoch, count = _HEAD.unpack(head)
    if magic != _MAGIC or version != _VERSION or size_bytes != SUMMARY_BYTES + _CHECKSUM_BYTES + 24 * count:
        return None
    return Summary(
        base_offset=base, size_bytes=size, next_offset=following, timestamp_ms_max=timestamp, last_epoch=epoch
    )


def decode_index(data: bytes) -> tuple[Summary, SegmentIndex] | None:
    """What an index file says; None if it is not what was written."""
    if len(data) < _HEAD.size + _CHECKSUM_BYTES or _checksum(data[:-_CHECKSUM_BYTES]) != data[-_CHECKSUM_BYTES:]:
        return None
    magic, version, base, size, following, timestamp, epoch, count = _HEAD.unpack_from(data)
    columns_at = {_VERSION: SUMMARY_BYTES, _VERSION_WITHOUT: _HEAD.size}.get(version)
    if magic != _MAGIC or columns_at is None or len(data) != columns_at + 24 * count + _CHECKSUM_BYTES:
        return None
    columns = (array("q"), array("q"), array("q"))
    for number, column in enumerate(columns):
        start = columns_at + 8 * count * number
        column.frombytes(data[start : start + 8 * count])
    summary = Summary(
        base_offset=base, size_bytes=size, next_offset=following, timestamp_ms_max=timestamp, last_epoch=epoch
    )
    return summary, SegmentIndex(*columns)
