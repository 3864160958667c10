"""Names that rules may give somebody, for lists that are not gone through for what is not in them. Pure.

Goal: to list the few of 200,000 resources that somebody may see costs what these rules name, and not what there is.

Constraints: the names are in order, and are to come out in order; rules may name what is not there, and prefixes lie in
one another; a name that a rule gives may be denied by another, which is for the caller to ask.

Algorithm: what lies below another prefix is left out. What is left are single names and ranges that do not touch, in
the order of their beginnings; so a list is the names there are of each, one after the other, begun at any name.

Example: READ on ``bill-*``, ``bill-2024-*`` and ``orders`` is the range of ``bill-`` and the name ``orders``.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Reach:
    """Outside of it nothing is allowed; within it, something may be."""

    starts: tuple[str, ...]
    """Names and prefixes in order; none lies within the range of another."""
    prefixes: frozenset[str]
    """Those of them that are prefixes."""

    @classmethod
    def of(cls, names: Iterable[str], prefixes: Iterable[str]) -> Self:
        """What these give together."""
        ranges = frozenset(prefixes)
        starts: list[str] = []
        for start in sorted({*names, *ranges}):
            # A range's prefix comes before all that lies in it, and nothing else lies between.
            if starts and starts[-1] in ranges and start.startswith(starts[-1]):
                continue
            starts.append(start)
        return cls(tuple(starts), ranges.intersection(starts))

    def among(self, since: Callable[[str], Iterator[str]], there: Container[str], first: str) -> Iterator[str]:
        """Names that there are, in order, from ``first`` on.

        Args:
            since: that name and all behind it, of those there are, in order.
            there: the names there are.
            first: where to begin.
        """
        begin = bisect_left(self.starts, first)
        before = bisect_right(self.starts, first) - 1
        if before >= 0 and self.starts[before] in self.prefixes and first.startswith(self.starts[before]):
            begin = before
        for index in range(begin, len(self.starts)):
            start = self.starts[index]
            if start not in self.prefixes:
                if start in there:
                    yield start
                continue
            for name in since(max(start, first)):
                if not name.startswith(start):
                    break
                yield name
