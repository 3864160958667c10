"""Which objects of a listing are read, and into which files. Pure.

Goals: however many objects there are, bounded memory and a bounded number of files; what is left out is the oldest, and
is counted.

Constraints: a listing comes in order of keys, not of time, and does not end soon. A collector writes an object for each
batch, so that a month has some hundred thousand of a few kilobytes: Spark takes longer to open each than to read it.

Algorithm: a heap of what is kept, oldest first; one more goes in, and the oldest go out while there are too many or too
many bytes. Afterwards runs of objects of one folder make a file, newest folder first.

Example: with room for two, of objects from 01:00, 03:00 and 02:00 the last two are kept and one is older.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

SUFFIXES: Final = (".jsonl", ".json", ".jsonl.gz", ".json.gz")
"""Ends of keys of OTLP JSON: a request in each line, or one in the object, as the collector's awss3 exporter has it."""
PART_OBJECTS_MAX: Final = 500
"""Objects in a file: so many are fetched one after another."""
PART_BYTES_MAX: Final = 32 * 2**20
"""Bytes of objects in a file, as far as objects are smaller."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Found:
    """An object of a listing; the order is that of time."""

    modified_s: float
    """When it was written, in seconds since 1970."""
    key: str
    """Its key, from the beginning of the bucket."""
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What of a listing is read."""

    kept: Sequence[Found]
    """Newest first."""
    older_n: int
    """Objects of traces that are left out, because they are too old or because there are too many."""
    others_n: int
    """Objects that are something else by their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A file for Spark, and whose bytes are in it."""

    name: str
    """Its name: a number, and the end of the folder of the keys."""
    keys: Sequence[str]
    """Objects, newest first."""


def select(listing: Iterable[Found], *, since_s: float, objects_max: int, bytes_max: int) -> Selection:
    """The newest objects of traces since then, as many as there is room for; at least one, however large."""
    kept: list[Found] = []
    kept_bytes = older = others = 0
    for found in listing:
        if not found.key.endswith(SUFFIXES):
            others += 1
            continue
        if found.modified_s < since_s:
            older += 1
            continue
        heapq.heappush(kept, found)
        kept_bytes += found.size
        while len(kept) > objects_max or (kept_bytes > bytes_max and len(kept) > 1):
            kept_bytes -= heapq.heappop(kept).size
            older += 1
    return Selection(kept=sorted(kept, reverse=True), older_n=older, others_n=others)


def parts(kept: Sequence[Found]) -> list[Part]:
    """Files of what is kept, those of the newest objects first."""
    result: list[Part] = []
    newest: dict[str, float] = {}
    for found in kept:
        newest.setdefault(_folder(found.key), found.modified_s)
    ordered = sorted(kept, key=lambda found: (-newest[_folder(found.key)], _folder(found.key), -found.modified_s))
    for folder, group in groupby(ordered, key=lambda found: _folder(found.key)):
        for keys in _runs(group):
            result.append(Part(name=f"{len(result):06d}{_safe(folder)}.jsonl", keys=keys))
    return result


def _runs(group: Iterable[Found]) -> Iterable[tuple[str, ...]]:
    keys: list[str] = []
    size = 0
    for found in group:
        if keys and (len(keys) == PART_OBJECTS_MAX or size + found.size > PART_BYTES_MAX):
            yield tuple(keys)
            keys, size = [], 0
        keys.append(found.key)
        size += found.size
    yield tuple(keys)


def _folder(key: str) -> str:
    return key.rpartition("/")[0]


def _safe(folder: str) -> str:
    """The end of a folder's name as part of a file's: what people recognise, and nothing that a pattern reads."""
    plain = "".join(one if one.isascii() and (one.isalnum() or one in "=-") else "_" for one in folder[-100:])
    return f"-{plain}" if plain else ""
