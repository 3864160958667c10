"""Which objects of a listing are read. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

SUFFIXES: Final = tuple(f"{form}{packed}" for form in (".jsonl", ".json", ".binpb") for packed in ("", ".gz", ".zst"))
"""Ends of keys of OTLP: a request in each line, or one in the object, as the collector's awss3 exporter has it."""


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
    """In the order of keys, so that neighbours are read together."""
    older_n: int
    """Objects of traces that are left out, because they are too old."""
    others_n: int
    """Objects that are something else by their names."""


def select(listing: Iterable[Found], *, since_s: float) -> Selection:
    """The objects of traces since then."""
    kept: list[Found] = []
    older = others = 0
    for found in listing:
        if not found.key.endswith(SUFFIXES):
            others += 1
        elif found.modified_s < since_s:
            older += 1
        else:
            kept.append(found)
    return Selection(kept=sorted(kept, key=lambda found: found.key), older_n=older, others_n=others)
