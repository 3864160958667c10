"""Which of the logs that are due is compacted next. Pure.

Goals: the log that gains most comes first, as in Kafka: one whose records are too old to wait, then the one of which
the largest part is new. A log that takes hours holds up no log that takes a minute.

Algorithm: whoever compacts goes through two logs at a time, a segment of the one and a segment of the other in turns
(``cleaner``). For the one place any log is taken, for the other only small ones: so large logs wait for one another,
and small ones for small ones only.
"""

import heapq
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

SMALL_BYTES: Final = 1024 * 1024 * 1024
"""A log with at most so many bytes to go through is small: at a quarter of a processor, that takes some minutes."""


@dataclass(slots=True, order=True)
class _Waiting(Generic[K]):
    rank: tuple[bool, float, int]
    """Sorted by this: not overdue, the part that is not new, when it came."""
    key: K = field(compare=False)
    dirty_ratio: float = field(compare=False)


class DirtyLogs(Generic[K]):
    """Logs that wait. Belongs to one thread, but for ``dirtiest`` and the number of them, which any may read."""

    def __init__(self, *, small_bytes: int = SMALL_BYTES) -> None:
        """``small_bytes``: size up to which a log is small."""
        self._small_bytes: Final = small_bytes
        self._waiting: Final[dict[K, _Waiting[K]]] = {}
        self._any: Final[list[_Waiting[K]]] = []
        self._small: Final[list[_Waiting[K]]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, key: K, *, is_overdue: bool, dirty_ratio: float, size_bytes: int) -> None:
        """Have a log wait, or wait as what it is now.

        Args:
            key: which.
            is_overdue: whether something in it is too old to wait.
            dirty_ratio: part of it that is not compacted yet, by bytes: 0 to 1.
            size_bytes: what has to be gone through.
        """
        self._count += 1
        waiting = _Waiting((not is_overdue, -dirty_ratio, self._count), key, dirty_ratio)
        self._waiting[key] = waiting
        for heap in (self._any, self._small) if size_bytes <= self._small_bytes else (self._any,):
            heapq.heappush(heap, waiting)
            if len(heap) > 2 * len(self._waiting) + 100:
                heap[:] = [one for one in heap if self._waiting.get(one.key) is one]
                heapq.heapify(heap)

    def discard(self, key: K) -> None:
        """A log does not wait any more."""
        self._waiting.pop(key, None)

    def take(self, *, small: bool) -> K | None:
        """The next log, which waits no more; ``small``: of those that are; None: there is none."""
        heap = self._small if small else self._any
        while heap:
            first = heapq.heappop(heap)
            if self._waiting.get(first.key) is first:
                del self._waiting[first.key]
                return first.key
        return None

    @property
    def dirtiest(self) -> float:
        """Largest part that is not compacted yet of any log that waits, by bytes: 0 to 1."""
        return max((one.dirty_ratio for one in tuple(self._waiting.values())), default=0.0)
