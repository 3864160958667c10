"""Going through a file of batches that may be damaged. Pure: whoever calls opens the file.

Goals: every batch of the file is shown, every damage has a position and a reason, and what lies behind a damage is
found again.

Constraints: files have gigabytes and any bytes at all, so memory is bounded by READ_BYTES and a batch is never held
whole; time is bounded too, whatever somebody wrote into the file to make every byte look like the beginning of a batch.

Algorithm: from head to head, as lengths say. A batch whose extent is believable is shown, with a *problem* if its
checksum or its place after the one before is wrong. Where no believable head stands, or a wrong checksum is followed
by none, bytes are skipped up to the next head that has the right checksum and an offset that can follow.

Example: 3 batches of 100 bytes, and the length of the second was overwritten: batch at 0, damage at 100 of 100 bytes,
batch at 200.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import google_crc32c

from regnum_records.errors import CorruptBatchError
from regnum_records.header import CODEC_MASK, CRC_START, HEADER_BYTES, MAGIC, BatchHeader, Codec, read_header

READ_BYTES: Final = 1024 * 1024
"""Bytes that one read brings at most."""
SEARCH_FACTOR: Final = 4
"""The search for batches behind damages reads this many times the file's size at most."""
SMALL_SEARCH_BYTES: Final = 64 * 1024 * 1024
"""And of a small file so much at least."""

_LOOKALIKE_BYTES: Final = 17
"""From the base offset to the magic byte."""


class Source(Protocol):
    """A file opened for reading bytes; a buffered one, because heads are read one by one."""

    def seek(self, position: int, /) -> int:
        """Go there."""

    def read(self, size_bytes: int, /) -> bytes:
        """That many bytes, fewer at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedBatch:
    """A batch whose extent is believable."""

    position: int
    """Where it begins, in bytes from the start of the file."""
    header: BatchHeader
    """Its head, as it stands there."""
    crc_ok: bool
    """The checksum is that of its bytes."""
    problem: str | None
    """What is wrong with it; None: nothing that can be seen without decoding its records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Bytes that are no batch."""

    position: int
    """Where they begin."""
    size_bytes: int
    """How many there are up to the next batch, or to the end."""
    reason: str
    """What is wrong."""


def scan(source: Source, *, size_bytes: int, base_offset: int = 0) -> Iterator[ScannedBatch | Damage]:
    """All batches and damages of a file, in order and without a gap: together they are ``size_bytes``.

    Args:
        source: the file.
        size_bytes: its size; what is appended meanwhile is left out.
        base_offset: what its first batch has at least as offset, in general from the name of the file.
    """
    return _Scan(source, size_bytes, base_offset).run()


class _Scan:
    """One way through a file."""

    def __init__(self, source: Source, size_bytes: int, base_offset: int) -> None:
        self._source: Final = source
        self._size_bytes: Final = size_bytes
        self._expected_offset = base_offset
        self._epoch = -1
        self._search_left_bytes = max(SEARCH_FACTOR * size_bytes, SMALL_SEARCH_BYTES)

    def run(self) -> Iterator[ScannedBatch | Damage]:
        position = 0
        while position < self._size_bytes:
            header, reason = self._head(position)
            crc_ok = header is not None and self._crc_is_right(position, header)
            if header is not None and not crc_ok and not self._is_followed(position + header.size_bytes):
                header, reason = None, "the checksum is wrong, and no batch follows where its length says"
            if header is None:
                end, searched = self._next_batch(position + 1)
                if not searched:
                    reason += "; what comes behind was not searched to the end, it looks too much like batches"
                yield Damage(position=position, size_bytes=end - position, reason=reason)
                position = end
                continue
            problem = self._problem(header, crc_ok=crc_ok)
            yield ScannedBatch(position=position, header=header, crc_ok=crc_ok, problem=problem)
            if crc_ok:
                self._expected_offset = max(self._expected_offset, header.next_offset)
                self._epoch = max(self._epoch, header.leader_epoch)
            position += header.size_bytes

    def _head(self, position: int) -> tuple[BatchHeader | None, str]:
        """The head at a position if its extent is believable; else why not."""
        left = self._size_bytes - position
        head = self._read(position, HEADER_BYTES)
        if len(head) < HEADER_BYTES:
            return None, f"the file ends after {left} bytes of a batch, in its head"
        try:
            header = read_header(head)
        except CorruptBatchError as error:
            zeros = head.count(0) == len(head)
            return None, "zeros where a batch should begin" if zeros else str(error)
        if header.magic != MAGIC:
            return None, f"no batch begins here: magic is {header.magic} and not {MAGIC}"
        if header.last_offset_delta < 0:
            return None, f"no batch begins here: its last offset delta is {header.last_offset_delta}"
        if header.size_bytes > left:
            return None, f"the file ends after {left} of {header.size_bytes} bytes of a batch"
        return header, ""

    def _problem(self, header: BatchHeader, *, crc_ok: bool) -> str | None:
        if not crc_ok:
            return f"the checksum 0x{header.crc:08x} is not that of the bytes"
        if header.base_offset < self._expected_offset:
            return f"offset {header.base_offset} comes after {self._expected_offset - 1}"
        if header.leader_epoch < self._epoch:
            return f"leader epoch {header.leader_epoch} comes after {self._epoch}"
        if header.attributes & CODEC_MASK > max(Codec):
            return f"codec {header.attributes & CODEC_MASK} is not known"
        # Fewer is right: compaction takes records out of the middle.
        if not 0 <= header.record_count <= header.last_offset_delta + 1:
            return f"{header.record_count} records do not fit into {header.last_offset_delta + 1} offsets"
        return None

    def _is_followed(self, position: int) -> bool:
        return position == self._size_bytes or self._head(position)[0] is not None

    def _crc_is_right(self, position: int, header: BatchHeader) -> bool:
        at, end, crc = position + CRC_START, position + header.size_bytes, 0
        while at < end:
            piece = self._read(at, min(READ_BYTES, end - at))
            if not piece:
                return False
            crc = google_crc32c.extend(crc, piece)
            at += len(piece)
        return bool(crc == header.crc)

    def _next_batch(self, start: int) -> tuple[int, bool]:
        """Where the next good batch begins, or the end of the file; and whether all up to there was looked at."""
        # Offsets go on from what was read, so the upper half of the base offset is known, and C can do the search.
        upper = (self._expected_offset >> 32).to_bytes(4, "big", signed=True)
        lookalike = re.compile(b"(?s)(?=" + re.escape(upper) + rb".{4}[\x00-\x7f].{7}" + bytes((MAGIC,)) + b")")
        while self._size_bytes - start >= HEADER_BYTES:
            window = self._read(start, READ_BYTES)
            self._search_left_bytes -= len(window)
            for match in lookalike.finditer(window):
                position = start + match.start()
                header, _ = self._head(position)
                if header is None or header.base_offset < self._expected_offset:
                    continue
                self._search_left_bytes -= header.size_bytes
                if self._search_left_bytes < 0:
                    return self._size_bytes, False
                if self._crc_is_right(position, header):
                    return position, True
            if len(window) < READ_BYTES:
                break
            start += len(window) - _LOOKALIKE_BYTES + 1
        return self._size_bytes, True

    def _read(self, position: int, size_bytes: int) -> bytes:
        self._source.seek(position)
        return self._source.read(max(0, min(size_bytes, self._size_bytes - position)))
