"""Contenders measured in turns, so that a busy moment of the machine hits them alike. Pure."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """What one contender needed, round by round."""

    contender: str
    """Its name."""
    seconds: tuple[float, ...]
    """One figure for each round."""

    @property
    def median_s(self) -> float:
        """The middle one, seconds."""
        return statistics.median(self.seconds)

    @property
    def worst_s(self) -> float:
        """The longest, seconds."""
        return max(self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Ours beside a yardstick that did the same work in the same rounds."""

    store: str
    """Which store both worked on."""
    writes: int
    """Conditional writes of a round."""
    ours: Series
    """The product's way."""
    yardsticks: tuple[Series, ...]
    """By hand; the first is the one that the limit is about."""
    limit: float
    """How many times the first yardstick's median ours may take."""
    conflicts: int
    """Outcomes that were not a write in a further batch with one conflict in it; must be 1."""

    @property
    def ratio(self) -> float:
        """Median of ours to the median of the first yardstick."""
        return self.ours.median_s / self.yardsticks[0].median_s

    @property
    def holds(self) -> bool:
        """Whether the limit is kept and the conflict stayed alone."""
        return self.ratio <= self.limit and self.conflicts == 1


def as_json(comparison: Comparison) -> dict[str, object]:
    """For machines; seconds."""

    def series(one: Series) -> dict[str, object]:
        return {
            "contender": one.contender,
            "median_s": round(one.median_s, 4),
            "worst_s": round(one.worst_s, 4),
            "rounds_s": [round(figure, 4) for figure in one.seconds],
        }

    return {
        "store": comparison.store,
        "writes": comparison.writes,
        "ours": series(comparison.ours),
        "yardsticks": [series(one) for one in comparison.yardsticks],
        "ratio": round(comparison.ratio, 3),
        "limit": comparison.limit,
        "conflicts": comparison.conflicts,
        "holds": comparison.holds,
    }


def rows(comparison: Comparison) -> Sequence[tuple[str, ...]]:
    """For people: contender, median, worst, writes a second, times the first yardstick."""
    first = comparison.yardsticks[0].median_s
    return [
        (
            one.contender,
            f"{one.median_s:.3f}",
            f"{one.worst_s:.3f}",
            f"{comparison.writes / one.median_s:,.0f}",
            f"{one.median_s / first:.2f}",
        )
        for one in (comparison.ours, *comparison.yardsticks)
    ]
