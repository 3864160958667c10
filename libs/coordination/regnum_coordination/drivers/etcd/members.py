"""Which of several members to ask. Pure: the time comes in.

Goals: as long as a majority is well, a session finds a well member before its lease ends, and few calls are lost.

Constraints: a member that is stopped in its tracks takes connections and answers nothing, so that a call on it costs
its whole time-out; gRPC does not notice, because etcd allows no pings without a call. Members that look for a leader
refuse at once, and all of them do at the same time.

Algorithm: stay with one member until it fails, then take the one whose last failure is the longest ago. One that was
silent is passed over for some seconds as long as another is not.

Example: 0 leads and is stopped; calls time out, 1 refuses, 2 refuses, 1 again, and it has a leader by now.
"""

import math
from typing import Final

SILENT_FOR_S: Final = 5.0
"""Seconds for which a member that did not answer is passed over: longer than an election takes."""


class MemberChoice:
    """The failures of the members, by number."""

    def __init__(self, count: int) -> None:
        self._failed_at_s = [-math.inf] * count
        self._silent_until_s = [-math.inf] * count

    def best(self, now_s: float) -> int:
        """The member to ask now."""
        return min(
            range(len(self._failed_at_s)),
            key=lambda member: (self._silent_until_s[member] > now_s, self._failed_at_s[member]),
        )

    def failed(self, member: int, now_s: float, *, silent: bool) -> None:
        """Something went wrong with a member; ``silent``: it gave no answer at all in time."""
        self._failed_at_s[member] = now_s
        self._silent_until_s[member] = now_s + SILENT_FOR_S if silent else -math.inf
