"""Since when each order to a broker has been unacknowledged. Pure: time comes in.

Costs an entry for each order until it is acknowledged, in the order in which they were given: the oldest is at the
front, and nothing is walked through to find it. An order that is repeated because it was refused keeps its age; one
that is given anew because the state changed after it had been acknowledged is new.
"""

from collections.abc import Collection, Hashable, Iterable
from itertools import islice
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class OrderAges(Generic[K]):
    """The orders of one kind to one incarnation of one broker."""

    def __init__(self) -> None:
        self._since_s: Final[dict[K, float]] = {}

    def __len__(self) -> int:
        return len(self._since_s)

    def given(self, orders: Iterable[K], now_s: float) -> None:
        """Orders were given, or given again."""
        for order in orders:
            self._since_s.setdefault(order, now_s)

    def settled(self, orders: Iterable[K], *, except_for: Collection[K] = ()) -> None:
        """Orders were acknowledged, or are part of another now, except for those that were refused."""
        if not self._since_s:
            return
        for order in orders:
            if order not in except_for:
                self._since_s.pop(order, None)

    @property
    def oldest_s(self) -> float | None:
        """When the oldest was given; None when there is none."""
        return next(iter(self._since_s.values()), None)

    def given_before(self, moment_s: float, *, most: int) -> list[K]:
        """The orders that are older than a moment, the oldest first, at most so many."""
        return [order for order, since_s in islice(self._since_s.items(), most) if since_s <= moment_s]
