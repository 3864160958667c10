"""The clock of a stream of spans.

A watermark moves with rows only, and a quiet cluster has none: after news the clock goes on for a while, and a row with
its moment goes with each step, so that the last change does not wait for the next one. Then it rests.
"""

from collections.abc import Callable
from typing import Final

_STEPS: Final = 60
"""The clock goes on in so many steps at most: each costs as much as one with news."""


class Ticks:
    """Says when there is a step. Belongs to a reader at the driver."""

    def __init__(self, tick_s: float, now_s: Callable[[], float]) -> None:
        self._tick_s = tick_s
        self._now_s = now_s
        self._news_s: float | None = None

    def next(self, clock_s: int, *, has_news: bool) -> int | None:
        """The moment of the next step, in seconds since 1970; None: there is none. ``clock_s``: that of the last."""
        now_s = int(self._now_s())
        if has_news or self._news_s is None:
            self._news_s = now_s
        elif now_s - clock_s < max(1, self._tick_s / _STEPS) or now_s - self._news_s > self._tick_s:
            return None
        return max(now_s, clock_s)
