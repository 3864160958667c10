"""The documents in a piece of a file, wherever it lies.

A file is cut only where it has a document on each line, which its first lines say: every reader of a piece looks at
those. (The first one alone may be torn, or empty: a disk was full.) Of any other (packed, framed, over many lines) the
first piece is all of it, and there is nothing in the rest.
"""

import io
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from regnum_insight.spans.documents import DOCUMENT_BYTES_MAX, documents_in, documents_on, is_document
from regnum_insight.spans.growth import Piece

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

FIRST_LINES: Final = 4
"""Lines of a file that are looked at."""

Opened = Callable[[str, int], IO[bytes]]
"""Opens a file for reading from a byte on, buffered. Raises OSError."""


def documents_of_piece(piece: Piece, opened: Opened) -> Iterator[object]:
    """What ``documents_of`` gives for the whole file, as far as it begins in the piece. Raises OSError."""
    if not piece.is_whole:
        with opened(piece.file, 0) as file:
            in_lines = _is_in_lines(file)
        if in_lines:
            with opened(piece.file, max(0, piece.begin - 1)) as file:
                yield from documents_on(_lines_between(file, piece.begin, piece.end))
            return
        if piece.begin:
            return
    with opened(piece.file, 0) as file:
        yield from documents_in(file)


def _is_in_lines(file: IO[bytes]) -> bool:
    """Whether a file that is open at its begin has a document on each line."""
    first, *others = (file.readline(DOCUMENT_BYTES_MAX) for _ in range(FIRST_LINES))
    return is_document(first) or any(line.startswith(b"{") and is_document(line) for line in others)


def _lines_between(file: IO[bytes], begin: int, end: int | None) -> Iterator[bytes]:
    """Lines that begin in between; ``file`` is open at the byte before, whose line is another's."""
    at = max(0, begin - 1)
    while begin and (rest := file.readline(DOCUMENT_BYTES_MAX)):
        at += len(rest)
        if rest.endswith(b"\n"):
            break
    while (end is None or at < end) and (line := file.readline(DOCUMENT_BYTES_MAX)):
        at += len(line)
        yield line


def of_path(path: str, begin: int) -> IO[bytes]:
    """A file of a folder, from a byte on. Raises OSError."""
    file = open(path, "rb", buffering=2**20)  # noqa: PTH123, SIM115 - the caller closes it
    file.seek(begin)
    return file


def of_identity(keys: Mapping[str, str]) -> Opened:
    """Opens files of folders that may have been set aside under another name since they were listed.

    Args:
        keys: device and inode of each path, as ``growth`` spells them.
    """

    def names(path: str, key: str) -> Iterator[str]:
        yield path
        # Only of a file that is set aside: to look through a folder for each of its files takes its square.
        with os.scandir(Path(path).parent) as entries:
            others = [entry.path for entry in entries if key.endswith(f":{entry.inode()}")]
        yield from others

    def opened(path: str, begin: int) -> IO[bytes]:
        key = keys[path]
        for name in names(path, key):
            try:
                file = of_path(name, begin)
            except FileNotFoundError:
                continue
            stat = os.fstat(file.fileno())
            if f"{stat.st_dev}:{stat.st_ino}" == key:
                return file
            file.close()
        raise FileNotFoundError(0, "it was removed before it was read")

    return opened


class _Raw(io.RawIOBase):
    """Pieces of an object as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        # As much as there is room for: whatever looks ahead (``peek``) gets what one call brings.
        into = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(into):
            if not self._rest:
                piece = next(self._pieces, None)
                if piece is None:
                    break
                self._rest = memoryview(piece)
            size = min(len(into) - filled, len(self._rest))
            into[filled : filled + size] = self._rest[:size]
            self._rest = self._rest[size:]
            filled += size
        return filled


def of_pieces(pieces: Iterator[bytes]) -> IO[bytes]:
    """An object that comes in pieces, as a file."""
    return io.BufferedReader(_Raw(pieces), buffer_size=2**20)
