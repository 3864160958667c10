"""When to look at which log again. Pure.

Goals: a look costs what is due, and not the logs of the broker: ten thousand that have nothing to expire for days cost
nothing.

Algorithm: a heap of (moment, key), and for each key the moment that counts; an entry of the heap that says another one
is passed over when its turn comes.
"""

import heapq
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

STALE_MAX: Final = 64
"""So many entries that are passed over may be in any heap; beyond, no more than there are others."""


class DueIndex(Generic[K]):
    """Moments by key, soonest first. Moments are of any clock, as long as it is one."""

    def __init__(self) -> None:
        self._moments: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._moments)

    @property
    def soonest(self) -> int | None:
        """The moment of the key that is due first; None: there is none."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def set(self, key: K, moment: int | None) -> None:
        """Have a key be due then; None: not at all."""
        if moment is None:
            self._moments.pop(key, None)
        elif self._moments.get(key) != moment:
            self._moments[key] = moment
            self._count += 1
            heapq.heappush(self._heap, (moment, self._count, key))
        if len(self._heap) > 2 * len(self._moments) + STALE_MAX:
            self._rebuild()

    def take(self, now: int, *, count_max: int) -> list[K]:
        """Keys that are due, soonest first; they are due no more until they are set again."""
        taken: list[K] = []
        while len(taken) < count_max and (soonest := self.soonest) is not None and soonest <= now:
            key = heapq.heappop(self._heap)[2]
            del self._moments[key]
            taken.append(key)
        return taken

    def _drop_stale(self) -> None:
        while self._heap and self._moments.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)

    def _rebuild(self) -> None:
        self._heap = [(moment, number, key) for number, (key, moment) in enumerate(self._moments.items())]
        self._count = len(self._heap)
        heapq.heapify(self._heap)
