"""Which part of which file is read by which task. Pure.

Goals: as many tasks as there is work for, however the bytes lie: in a file of gigabytes or in a hundred thousand of a
few kilobytes, as a collector leaves them in a bucket.

Algorithm: small files are put together in the order they come in; large ones are cut at multiples of a size, and
whatever reads a piece begins with the first line that begins in it (``pieces``).
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from regnum_insight.spans.growth import Piece

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


def parts_of(
    files: Iterable[TraceFile], *, part_bytes: int = PART_BYTES, files_max: int = PART_FILES_MAX
) -> list[tuple[Piece, ...]]:
    """The pieces of each part; every byte of every file is in one of them."""
    # The last piece of a file has no end: it grows while others are read.
    wholes = ((Piece(file.name), file.size) for file in files)
    return [*_runs(wholes, part_bytes, files_max)]


def parts_between(
    pieces: Iterable[Piece], *, part_bytes: int = PART_BYTES, files_max: int = PART_FILES_MAX
) -> list[tuple[Piece, ...]]:
    """The same of what has come to files; pieces without an end are files of which nothing was read before."""
    sizes = ((piece, 0 if piece.end is None else piece.end - piece.begin) for piece in pieces)
    return [*_runs(sizes, part_bytes, files_max)]


def _runs(pieces: Iterable[tuple[Piece, int]], part_bytes: int, files_max: int) -> Iterator[tuple[Piece, ...]]:
    run: list[Piece] = []
    room = part_bytes
    for piece, size in pieces:
        if size > part_bytes:
            cuts = [*range(piece.begin, piece.begin + size, part_bytes), piece.end]
            yield from ((Piece(piece.file, begin or 0, end),) for begin, end in pairwise(cuts))
            continue
        if run and (len(run) == files_max or size > room):
            yield tuple(run)
            run, room = [], part_bytes
        run.append(piece)
        room -= size
    if run:
        yield tuple(run)
