"""Who pays for the time that threads work for a call (``request_percentage``, KIP-124), and whose turn it takes.

Kafka counts the time of its network and request handler threads. Here a call's time is that of the event loop
(``loop_time``), charged when the call ends, and that of the threads that check, append and read for it, charged when
each piece of work ends: a caller that has left pays for what was done for it all the same.
"""

from contextvars import ContextVar
from typing import Final, Protocol


class TimeQuota(Protocol):
    """Where time is charged (``limits.throttling.Throttling``)."""

    @property
    def is_on(self) -> bool:
        """Whether there is any quota of time: else nothing has to be measured."""

    def worked(self, payer: "Payer", spent_s: float) -> None:
        """A thread has worked so long for that caller."""


class Payer:
    """The caller of one call, or of one request of a stream. Belongs to the event loop."""

    __slots__ = ("_quota", "client_id", "connection", "turn", "user")

    def __init__(self, quota: TimeQuota, *, user: str, connection: str, client_id: str, turn: str) -> None:
        """Only assigns.

        Args:
            quota: where its time is charged.
            user: its principal's name.
            connection: by which it came.
            client_id: what it calls itself.
            turn: whose turn its work takes (``turns_of_callers.turn_of``).
        """
        self._quota: Final = quota
        self.user: Final = user
        self.connection: Final = connection
        self.client_id: Final = client_id
        self.turn: Final = turn

    def named(self, client_id: str) -> "Payer":
        """The same caller under another client id: each request of a stream may have one."""
        if client_id == self.client_id:
            return self
        return Payer(self._quota, user=self.user, connection=self.connection, client_id=client_id, turn=self.turn)

    def worked(self, spent_s: float) -> None:
        """A thread has worked so long for it."""
        if spent_s > 0.0 and self._quota.is_on:
            self._quota.worked(self, spent_s)


PAYER: Final[ContextVar[Payer | None]] = ContextVar("payer", default=None)
"""Who pays for what is done in the present call; None: the broker itself."""
