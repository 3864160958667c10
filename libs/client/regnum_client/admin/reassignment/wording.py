"""Numbers and partitions in sentences. Pure."""

from collections.abc import Sequence
from typing import Final

NAMED_MAX: Final = 5
"""Partitions that are named."""


def counted(count: int, noun: str) -> str:
    """``1 partition``, ``2 partitions``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def named(places: Sequence[tuple[str, int]], *, shown_max: int = NAMED_MAX) -> str:
    """The first of some partitions, and how many more there are: ``a/0, a/1 and 7 more``."""
    shown = ", ".join(f"{topic}/{number}" for topic, number in places[:shown_max])
    return shown if len(places) <= shown_max else f"{shown} and {len(places) - shown_max} more"
