"""Percentiles, and the difference of two samples with an interval. Pure."""

import random
from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

BOOTSTRAPS: Final = 1000
"""Resamplings behind an interval."""
_SEED: Final = 20_260


class Difference(NamedTuple):
    """How much larger the medians of one sample are than those of another."""

    value: float
    """Difference of the medians, second minus first."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of it."""

    @property
    def is_clear(self) -> bool:
        """Whether zero lies outside."""
        return not self.low <= 0 <= self.high


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which a share of sorted values lies: the nearest rank. Raises IndexError without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 10_000) * len(ordered) // 10_000) - 1))]


def difference(first: Sequence[float], second: Sequence[float], *, confidence: float = 0.99) -> Difference:
    """Difference of medians with a bootstrap interval; the same samples always give the same interval.

    Raises statistics.StatisticsError without values.
    """
    chance = random.Random(_SEED)
    found = sorted(
        median(chance.choices(second, k=len(second))) - median(chance.choices(first, k=len(first)))
        for _ in range(BOOTSTRAPS)
    )
    aside = round((1 - confidence) / 2 * BOOTSTRAPS)
    return Difference(median(second) - median(first), found[aside], found[-1 - aside])
