"""What is known of the trouble on the way to one partition's leader. Pure. All times are monotonic seconds."""

from typing import Final

from regnum_client.cluster.pace import retry_delay_ms
from regnum_client.cluster.view import ClusterView, LeaderTerm

TOLD_AFTER_S: Final = 5.0
"""A change of leader is over by then."""
_NEVER: Final = float("-inf")


class Trouble:
    """Says when the leader of a partition may be tried (again)."""

    __slots__ = ("_failed_term", "_fresh_after_s", "_not_before_s", "_since_s", "_told", "last_answer")

    def __init__(self) -> None:
        self._failed_term: LeaderTerm | None = None
        self._not_before_s = _NEVER
        self._fresh_after_s = _NEVER
        self._since_s: float | None = None
        self._told = False
        self.last_answer = ""
        """What the last failure said; empty when there was none."""

    def lasted_s(self, now_s: float) -> float:
        """How long nothing has gone well; 0 when the last try did."""
        return 0.0 if self._since_s is None else now_s - self._since_s

    def is_to_be_told(self, now_s: float) -> bool:
        """It has lasted so long that somebody should hear of it; true once for each trouble."""
        if self._told or self.lasted_s(now_s) < TOLD_AFTER_S:
            return False
        self._told = True
        return True

    def needs_metadata(self, view: ClusterView, term: LeaderTerm | None) -> bool:
        """The picture is older than the failure that called for a new one, and knows no later term either."""
        if term is not None and self._failed_term is not None and term.is_after(self._failed_term):
            return False
        return view.as_of_s <= self._fresh_after_s

    def pause_until_s(self, term: LeaderTerm) -> float:
        """When that term may be tried: the pause holds for the term that failed, not for another."""
        return self._not_before_s if term == self._failed_term else _NEVER

    def succeeded(self) -> None:
        """It went well."""
        self._failed_term = None
        self._since_s = None
        self._told = False

    def failed(
        self, term: LeaderTerm, answer: str, *, refresh: bool, now_s: float, chance: float, in_office: bool = True
    ) -> None:
        """It failed.

        Args:
            term: the leadership that was tried.
            answer: what the failure said.
            refresh: whether to ask for metadata before the next try.
            now_s: monotonic time.
            chance: in [0, 1).
            in_office: False: the leader said that it does not lead. The first time that one says so who came after
                a failure, it may not have been told yet: metadata is faster at times, and nothing newer is to be had.
        """
        if self._since_s is None:
            self._since_s = now_s
        if not in_office and self._failed_term is not None and term.is_after(self._failed_term):
            refresh = False
        self._failed_term = term
        self.last_answer = answer
        self._not_before_s = now_s + retry_delay_ms((now_s - self._since_s) * 1000, chance) / 1000
        if refresh:
            self._fresh_after_s = now_s
