"""Whether a figure grows faster than its work. Pure.

Goals: one number that says how a figure grows with a size, and a verdict that a fixed cost cannot hide.

Algorithm: a straight line through log(size) and log(figure) by least squares; its slope is the power of the growth: 0
is flat, 1 is linear, 2 is quadratic. A fixed cost makes the slope of the whole too small, so the slope between the two
largest sizes counts as well: the verdict is about the steeper one.

Example: 1, 2 and 5 s for 1,000, 2,000 and 4,000 partitions: 1.16 in all, 1.32 at the end: worse than linear.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

LINEAR_MAX: Final = 1.15
"""Slope up to which growth counts as linear: what a busy machine adds to a straight line."""
FLAT_MAX: Final = 0.15
"""Slope up to which a figure counts as flat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How one figure grows with one size."""

    figure: str
    """Name of the figure."""
    size: str
    """Field of the shape that grew."""
    sizes: tuple[float, ...]
    """Its values, ascending, different, all above 0."""
    medians: tuple[float, ...]
    """Median of the figure at each, all above 0."""

    @property
    def slope(self) -> float:
        """Over all sizes."""
        return log_log_slope(self.sizes, self.medians)

    @property
    def last_slope(self) -> float:
        """Between the two largest sizes."""
        return log_log_slope(self.sizes[-2:], self.medians[-2:])

    @property
    def verdict(self) -> str:
        """``flat``, ``linear`` or ``worse than linear``."""
        steepest = max(self.slope, self.last_slope)
        if steepest <= FLAT_MAX:
            return "flat"
        return "linear" if steepest <= LINEAR_MAX else "worse than linear"

    def straight(self) -> tuple[float, ...]:
        """What each size would take if the figure grew in proportion from the smallest one."""
        return tuple(self.medians[0] * size / self.sizes[0] for size in self.sizes)

    def to_json(self) -> dict[str, Any]:
        """For the result."""
        return {
            "figure": self.figure,
            "size": self.size,
            "sizes": list(self.sizes),
            "medians": list(self.medians),
            "slope": round(self.slope, 3),
            "last_slope": round(self.last_slope, 3),
            "verdict": self.verdict,
        }


def log_log_slope(sizes: Sequence[float], figures: Sequence[float]) -> float:
    """Slope of log(figure) over log(size) by least squares. Raises ValueError without two different sizes above 0."""
    if len(sizes) != len(figures) or len(set(sizes)) < 2 or min(*sizes, *figures) <= 0:
        raise ValueError("a slope needs figures above 0 at two different sizes above 0, one for each")
    xs, ys = [math.log(size) for size in sizes], [math.log(figure) for figure in figures]
    mean_x, mean_y = math.fsum(xs) / len(xs), math.fsum(ys) / len(ys)
    covariance = math.fsum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return covariance / math.fsum((x - mean_x) ** 2 for x in xs)
