"""Which part of which file is read by which task. Pure.

Goals: as many tasks as there is work for, however the bytes lie: in a file of gigabytes or in a hundred thousand of a
few kilobytes, as a collector leaves them in a bucket.

Algorithm: small files are put together in the order they come in; large ones are cut at multiples of a size, and
whatever reads a piece begins with the first line that begins in it (``pieces``).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

PART_BYTES: Final = 32 * 2**20
"""Bytes of a part: some seconds of work."""
PART_FILES_MAX: Final = 500
"""Files of a part: an object of a bucket takes longer to ask for than to read."""


class TraceFile(NamedTuple):
    """A file as it was found."""

    name: str
    """Path, or key from the beginning of the bucket."""
    size: int
    """Bytes."""


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


def parts_of(
    files: Iterable[TraceFile], *, part_bytes: int = PART_BYTES, files_max: int = PART_FILES_MAX
) -> list[tuple[Piece, ...]]:
    """The pieces of each part; every byte of every file is in one of them."""
    return [*_runs(list(files), part_bytes, files_max)]


def _runs(files: Sequence[TraceFile], part_bytes: int, files_max: int) -> Iterator[tuple[Piece, ...]]:
    run: list[Piece] = []
    size = 0
    for file in files:
        if file.size > part_bytes:
            cuts = [*range(0, file.size, part_bytes), None]
            # The last piece has no end: a file grows while others are read.
            yield from ((Piece(file.name, begin or 0, end),) for begin, end in pairwise(cuts))
            continue
        if run and (len(run) == files_max or size + file.size > part_bytes):
            yield tuple(run)
            run, size = [], 0
        run.append(Piece(file.name))
        size += file.size
    if run:
        yield tuple(run)
