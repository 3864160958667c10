"""When which group is looked at next. Belongs to the event loop."""

import heapq
from typing import Final

SPARE: Final = 64
"""Entries that count no more and may stay, whatever the number of groups."""


class Deadlines:
    """A heap of (moment, group); one entry counts for each group, and the heap is never much larger than they are.

    Moments are seconds of ``GroupTime``.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._moments: Final[dict[str, float]] = {}

    def __len__(self) -> int:
        """Entries in memory, those that count no more included."""
        return len(self._heap)

    def bring_forward(self, group_id: str, moment_s: float) -> None:
        """Look at a group then, unless it is looked at earlier anyway."""
        present_s = self._moments.get(group_id)
        if present_s is not None and present_s <= moment_s:
            return
        self._moments[group_id] = moment_s
        heapq.heappush(self._heap, (moment_s, group_id))
        self._tidy()

    def forget(self, group_id: str) -> None:
        """The group is gone."""
        self._moments.pop(group_id, None)
        self._tidy()

    def take_due(self, now_s: float) -> list[str]:
        """Groups whose moment has come; they have no entry any more."""
        due: list[str] = []
        while self._heap and self._heap[0][0] <= now_s:
            moment_s, group_id = heapq.heappop(self._heap)
            if self._moments.get(group_id) == moment_s:
                del self._moments[group_id]
                due.append(group_id)
        return due

    def _tidy(self) -> None:
        # As many are left out as were put in since the last time: each entry is paid for once.
        if len(self._heap) > 2 * len(self._moments) + SPARE:
            self._heap = [(moment_s, group_id) for group_id, moment_s in self._moments.items()]
            heapq.heapify(self._heap)
