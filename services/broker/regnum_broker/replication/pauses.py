"""Partitions that are not asked for until a moment: after a refusal of their leader, or an error of this disk."""

import heapq
import math
from itertools import count
from typing import Final

from regnum_model.ids import PartitionKey


class Pauses:
    """Ordered by when they end, so that whoever looks pays for what has ended and not for what still waits.

    A partition that pauses anew has two entries. Both come up; whose time it is not, the caller knows.
    """

    def __init__(self) -> None:
        """Nothing pauses."""
        self._entries: Final[list[tuple[float, int, PartitionKey]]] = []
        self._order: Final = count()

    @property
    def soonest_s(self) -> float:
        """When the next one ends, monotonic seconds; infinity: nothing pauses."""
        return self._entries[0][0] if self._entries else math.inf

    def add(self, key: PartitionKey, until_s: float) -> None:
        """Let a partition come up again at that moment."""
        heapq.heappush(self._entries, (until_s, next(self._order), key))

    def ended(self, now_s: float) -> PartitionKey | None:
        """One whose pause has ended, which is forgotten here; None: there is no more."""
        return heapq.heappop(self._entries)[2] if self.soonest_s <= now_s else None
