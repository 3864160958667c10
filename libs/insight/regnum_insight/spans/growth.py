"""What has come to files since they were looked at last.

Offsets are bytes, by the identity of a file: a process sets its file aside under another name, and its bytes stay the
same. The inode alone is none: of a file that was removed it comes again, often for the next file of the same process.
The checksum of the first line goes with it, which has the ids of spans; of what is packed that of its first bytes,
which differ with what comes behind them. Offsets that were kept before, by the inode alone, are read on.

What is written as text grows line by line, and counts up to the end of its last line; anything else (packed, or an
object of a bucket) is there at once, and is read once.
"""

import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from regnum_insight.spans.intake import files_below

TAIL_BYTES: Final = 2**16
"""Read at a time, from the end of a file, in search of the end of a line."""
FIRST_LINE_BYTES: Final = 2**16
"""So much of the first line tells a file from others of its inode."""
PACKED_BYTES: Final = 256
"""So much does it of one that is packed: they hold the tables of its first block, by all that this has."""


class Piece(NamedTuple):
    """A file, or what lies between two places of it."""

    file: str
    """Its name."""
    begin: int = 0
    """First byte."""
    end: int | None = None
    """Behind the last byte; None: the file is read whole, also what was appended meanwhile."""

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the file."""
        return self.begin == 0 and self.end is None


class Grown(NamedTuple):
    """A file as a look at its place finds it."""

    name: str
    """Path, or key."""
    size: int
    """Bytes up to which it may be read."""
    by_line: bool
    """Whether more may be appended; otherwise it is read whole, when it is seen first."""
    inode: str = ""
    """Device and inode; empty for an object of a bucket."""


def pieces_since(start: Mapping[str, int], end: Mapping[str, int], files: Mapping[str, Grown]) -> list[Piece]:
    """What lies between two looks, of the files that are still there, by their identities."""
    found = []
    known = {**{file.inode: file for file in files.values()}, **files}
    for key in sorted(end):
        file = known.get(key)
        if file is None:
            continue
        seen = key in start or file.inode in start
        begin = start.get(key, start.get(file.inode, 0))
        if end[key] == begin:
            continue
        if not file.by_line:
            # However its size may have changed: what is packed cannot be read on.
            found += [] if seen else [Piece(file.name)]
        else:
            # A file that is shorter than what was read of it was begun anew.
            found.append(Piece(file.name, begin if begin < end[key] else 0, end[key]))
    return found


def look_at_folder(folder: Path, before: Mapping[str, int]) -> dict[str, Grown]:
    """Files of a folder by identity; ``before``: how far they were read, where nothing is looked at again."""
    found: dict[str, Grown] = {}
    for path in files_below(folder):
        try:
            with path.open("rb") as file:
                stat = os.fstat(file.fileno())
                inode = f"{stat.st_dev}:{stat.st_ino}"
                size, head = stat.st_size, file.read(PACKED_BYTES)
                by_line = head[:1] in (b"{", b"[", b" ", b"\n", b"\r", b"\t", b"\xef")
                if by_line:
                    file.seek(0)
                    head = file.readline(FIRST_LINE_BYTES)
                key = f"{inode}:{zlib.crc32(head)}"
                if by_line:
                    size = _end_of_lines(file.fileno(), before.get(key, before.get(inode, 0)), size)
        except OSError:
            # It went away since it was listed, or may not be read: the next look will tell.
            continue
        if size:
            found[key] = Grown(str(path.absolute()), size, by_line, inode)
    return found


def _end_of_lines(descriptor: int, begin: int, size: int) -> int:
    """Behind the last end of a line; ``begin`` where there is none behind it."""
    if size < begin:
        # It was begun anew.
        begin = 0
    at = size
    while at > begin:
        from_ = max(begin, at - TAIL_BYTES)
        found = os.pread(descriptor, at - from_, from_).rfind(b"\n")
        if found >= 0:
            return from_ + found + 1
        at = from_
    return begin


Look = Callable[[Mapping[str, int]], Mapping[str, Grown]]
"""Looks at a place; it is told how far each file was read."""
