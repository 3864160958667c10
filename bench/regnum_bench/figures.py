"""Figures and their spread. Every value is kept: median, least and most are worked out from them. Pure."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

UNITS: Final[Mapping[str, str]] = {
    "_per_s": "1/s",
    "_mb_s": "MB/s",
    "_us": "us",
    "_ms": "ms",
    "_s": "s",
    "_bytes": "B",
    "_ratio": "",
    "_count": "",
}
"""Endings of names, and the unit they stand for. A name that has none of them is a plain number."""
HIGHER_IS_BETTER: Final = ("_per_s", "_mb_s", "_of_hop_ratio")
"""Endings of names of which more is better; of all others less is."""
Round = Mapping[str, float]
"""The figures of one repetition, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """One figure over all repetitions."""

    values: tuple[float, ...]
    """In the order in which they were measured; at least one."""

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.values)

    @property
    def least(self) -> float:
        """The smallest."""
        return min(self.values)

    @property
    def most(self) -> float:
        """The largest."""
        return max(self.values)

    def to_json(self) -> dict[str, Any]:
        """For the result."""
        return {
            "median": rounded(self.median),
            "min": rounded(self.least),
            "max": rounded(self.most),
            "values": [rounded(value) for value in self.values],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """From a result; raises KeyError, TypeError or ValueError."""
        return cls(values=tuple(float(item) for item in value["values"]))


def rounded(value: float) -> float:
    """Six digits: more than any clock here can tell."""
    return float(f"{value:.6g}")


def median_between(values: Sequence[float], *, confidence: float = 0.95) -> tuple[float, float] | None:
    """Between which two of the values the true median lies with that confidence, whatever they are distributed like.

    Algorithm: as many values lie below the true median as heads in so many throws of a coin. Of six values 0.95 is
    reached by the least and the most; None: they are too few for it (fewer than six).
    """
    count, ordered = len(values), sorted(values)
    below, cut = 0.0, 0
    for number in range(count // 2):
        below += math.comb(count, number) / 2**count
        if 2 * below > 1 - confidence:
            break
        cut = number + 1
    return None if not cut else (ordered[cut - 1], ordered[count - cut])


def unit(name: str) -> str:
    """The unit of a figure, by its name."""
    return next((unit for ending, unit in UNITS.items() if name.endswith(ending)), "")


def spreads(rounds: Iterable[Round]) -> dict[str, Spread]:
    """Figures by name, in the order in which they first come; a round that lacks one leaves it out."""
    values: dict[str, list[float]] = {}
    for one in rounds:
        for name, value in one.items():
            values.setdefault(name, []).append(float(value))
    return {name: Spread(values=tuple(found)) for name, found in values.items()}


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least so large a share of all does not exceed (nearest rank); share above 0, to 1."""
    if not values or not 0 < share <= 1:
        raise ValueError("a quantile needs values and a share above 0 and at most 1")
    ordered = sorted(values)
    # Of 100 values the 99 % one is the 99th: whole numbers only, since 0.99 * 100 is not quite 99.
    rank = -(-round(share * 1_000_000) * len(ordered) // 1_000_000)
    return ordered[max(rank, 1) - 1]


def ratios(ours: Mapping[str, Spread], theirs: Mapping[str, Spread], pairs: Mapping[str, str]) -> dict[str, float]:
    """Median of ours to median of theirs, for figures of the same name and for ``pairs`` (ours -> theirs).

    A median of 0 on their side has no ratio and is left out.
    """
    matched = {name: name for name in ours if name in theirs} | dict(pairs)
    return {
        name: rounded(ours[name].median / theirs[other].median)
        for name, other in matched.items()
        if name in ours and other in theirs and theirs[other].median
    }
