"""When to ask about topics of which a partition has no leader. Pure. All times are monotonic seconds.

Goals: a partition that comes back is written to and read from soon after; one that stays away costs little, for hours,
however many topics are in use beside it.

Algorithm: each such topic is asked about by itself, at once and then at intervals that grow with the time that it has
been without a leader, as tries do (``pace``). When its time has come somebody says whether it still has one of these
partitions; if not it is forgotten.

Example: a partition is without a leader for a minute. Some 180 questions name its topic and nothing else; that a
question about all topics in use went out each 20 ms would be 3,000.
"""

import heapq
from collections.abc import Callable
from typing import Final

from regnum_client.cluster.pace import retry_delay_ms


class Leaderless:
    """Of one producer or consumer."""

    def __init__(self) -> None:
        self._since_s: Final[dict[str, float]] = {}
        self._due: Final[list[tuple[float, str]]] = []
        """A heap; each topic of ``_since_s`` is in it once."""

    @property
    def next_s(self) -> float:
        """When the next topic is due; infinity when there is none."""
        return self._due[0][0] if self._due else float("inf")

    def lacks(self, topic: str, now_s: float) -> None:
        """A partition of that topic has no leader; may be said again at any time."""
        if topic not in self._since_s:
            self._since_s[topic] = now_s
            heapq.heappush(self._due, (now_s, topic))

    def take(self, now_s: float, *, still: Callable[[str], bool], chance: float) -> list[str]:
        """The topics to ask about now.

        Args:
            now_s: the moment.
            still: whether a topic has such a partition even now.
            chance: in [0, 1), spreads the questions of many clients.
        """
        due: list[str] = []
        while self.next_s <= now_s:
            topic = self._due[0][1]
            if still(topic):
                pause_s = retry_delay_ms((now_s - self._since_s[topic]) * 1000, chance) / 1000
                heapq.heapreplace(self._due, (now_s + pause_s, topic))
                due.append(topic)
            else:
                heapq.heappop(self._due)
                del self._since_s[topic]
        return due
