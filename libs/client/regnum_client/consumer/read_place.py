"""Where one partition is read: at its leader, or at a replica in the consumer's rack (KIP-392). Pure.

All times are monotonic seconds. The leader names the replica; the consumer goes there, and comes back to ask anew after
a while, after any error, when the replica is silent, and when there is another leader: a replica that lags cannot say
how far it is behind, and one in a nearer place may have come up. A replica that failed is left alone for a while, so
that a leader which has not noticed yet does not send the consumer to it again and again.
"""

from typing import Final

from regnum_model.ids import BrokerId

from regnum_client.cluster.view import LeaderTerm

STAY_S: Final = 60.0
"""So long at a replica until the leader is asked again where to read."""
QUIET_S: Final = 5.0
"""So long at a replica from which no record comes."""
AVOID_S: Final = 10.0
"""So long only the leader is read after a replica failed; a dead one has left the in-sync set by then."""


class ReadPlace:
    """Of one partition."""

    __slots__ = ("_avoid_until_s", "_replica", "_sent_s", "_term", "_until_s")

    def __init__(self) -> None:
        self._replica: BrokerId | None = None
        self._term: LeaderTerm | None = None
        self._sent_s = self._until_s = 0.0
        self._avoid_until_s = float("-inf")

    def broker(self, term: LeaderTerm, now_s: float) -> BrokerId:
        """Whom to ask for records."""
        if self._replica is not None and self._term == term and now_s < self._until_s:
            return self._replica
        self._replica = None
        return term.leader

    def may_be_sent(self, now_s: float) -> bool:
        """Whether the leader may name another replica."""
        return now_s >= self._avoid_until_s

    def sent_to(self, replica: BrokerId, term: LeaderTerm, now_s: float) -> None:
        """The leader named a replica."""
        self._replica, self._term = replica, term
        self._sent_s, self._until_s = now_s, now_s + QUIET_S

    def heard(self, now_s: float) -> None:
        """Records came from the replica: it may be stayed with, up to STAY_S since the leader named it."""
        self._until_s = min(now_s + QUIET_S, self._sent_s + STAY_S)

    def failed(self, now_s: float) -> None:
        """The replica answered with an error, or not."""
        self._replica = None
        self._avoid_until_s = now_s + AVOID_S
