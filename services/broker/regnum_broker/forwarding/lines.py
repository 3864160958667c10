"""Which call is passed on next. Pure.

Goals: no connection keeps another from being served, however much it sends, nor do a few; what waits is bounded, in
calls and in bytes; a call that could not be delivered keeps its place before those that came later.

Algorithm: a line for each connection. A call goes under way when fewer than ``under_way_max`` are, and fewer than
``under_way_of_connection`` of its own connection; connections take turns, one call each. It stays under way until it is
answered, however often it has to be sent: while there is no controller those wait that came first. A connection that
has a call already may have no more, in calls and in bytes, than is left free for others (``limits.shares``): one alone
has half of the bytes, and n of them leave room for one more.

Example: two may be under way, one of each connection. A sends a1, a2, a3, then B sends b1: a1 and b1 go. a1 is
answered: a2 goes. b1 is answered: nothing goes, a2 being the one of A.
"""

from collections import Counter, deque
from dataclasses import dataclass
from typing import Final

from regnum_broker.limits.shares import Shares


@dataclass(frozen=True, slots=True, kw_only=True)
class LineLimits:
    """How much may wait."""

    calls_max: int = 1_000
    """Calls, waiting or under way."""
    bytes_max: int = 32 * 1024 * 1024
    """Bytes of their requests."""
    calls_of_connection: int = 100
    """Calls of one connection, waiting or under way."""
    under_way_max: int = 128
    """Calls that are with the controller at a time."""
    under_way_of_connection: int = 16
    """Those of one connection."""

    @property
    def in_calls(self) -> Shares:
        """Who may have how many calls."""
        return Shares(total_max=self.calls_max, connection_max=self.calls_of_connection)

    @property
    def in_bytes(self) -> Shares:
        """Who may have how many bytes."""
        return Shares(total_max=self.bytes_max, connection_max=self.bytes_max)


class LineFullError(Exception):
    """No call is taken on now; the message says what there is too much of."""


class Ticket:
    """The place of one call."""

    __slots__ = ("connection", "is_under_way", "size")

    def __init__(self, connection: str, size: int) -> None:
        self.connection: Final = connection
        self.size: Final = size
        self.is_under_way = False
        """Whether it has been admitted."""


class Lines:
    """The calls of all connections."""

    def __init__(self, limits: LineLimits) -> None:
        """Only assigns."""
        self._limits: Final = limits
        self._waiting: Final[dict[str, deque[Ticket]]] = {}
        self._ready: Final[dict[str, None]] = {}
        """Connections of which a call waits that may go, the next first."""
        self._under_way: Final[Counter[str]] = Counter()
        self._calls: Final[Counter[str]] = Counter()
        self._bytes: Final[Counter[str]] = Counter()
        self.calls = 0
        """Calls that wait or are under way. Any thread."""
        self.under_way = 0
        """Calls that are under way. Any thread."""
        self.bytes = 0
        """Bytes of all of them. Any thread."""

    def enter(self, connection: str, size: int) -> Ticket:
        """Take a place at the end of the connection's line. Raises LineFullError."""
        limits = self._limits
        if self._calls.get(connection, 0) >= limits.calls_of_connection:
            raise LineFullError(
                f"{limits.calls_of_connection} calls of this connection wait for the controller already"
            )
        own, own_bytes = self._calls.get(connection, 0), self._bytes.get(connection, 0)
        if not limits.in_calls.allow(1, own=own, total=self.calls):
            raise LineFullError(f"{self.calls} calls wait for the controller, {own} of them of this connection")
        # (In calls and not in bytes: an empty request makes nobody the one that has nothing yet.)
        if not limits.in_bytes.allow(size, own=own_bytes or own, total=self.bytes):
            raise LineFullError(
                f"calls of {self.bytes} bytes wait for the controller, {own_bytes} of them of this connection"
            )
        ticket = Ticket(connection, size)
        self.calls += 1
        self.bytes += size
        self._calls[connection] += 1
        self._bytes[connection] += size
        self._waiting.setdefault(connection, deque()).append(ticket)
        self._look(connection)
        return ticket

    def admit(self) -> list[Ticket]:
        """Calls that go under way now."""
        admitted: list[Ticket] = []
        while self._ready and self.under_way < self._limits.under_way_max:
            connection = next(iter(self._ready))
            del self._ready[connection]
            ticket = self._waiting[connection].popleft()
            if not self._waiting[connection]:
                del self._waiting[connection]
            ticket.is_under_way = True
            self.under_way += 1
            self._under_way[connection] += 1
            admitted.append(ticket)
            # Behind the others, if more of it may go.
            self._look(connection)
        return admitted

    def leave(self, ticket: Ticket) -> None:
        """It has been answered, or nobody waits for it any more. Once for each."""
        connection = ticket.connection
        self.calls -= 1
        self.bytes -= ticket.size
        self._bytes[connection] -= ticket.size
        _less(self._calls, connection)
        if connection not in self._calls:
            del self._bytes[connection]
        if ticket.is_under_way:
            self.under_way -= 1
            _less(self._under_way, connection)
        else:
            line = self._waiting[connection]
            line.remove(ticket)
            if not line:
                del self._waiting[connection]
                self._ready.pop(connection, None)
        self._look(connection)

    def _look(self, connection: str) -> None:
        if connection in self._waiting and self._under_way.get(connection, 0) < self._limits.under_way_of_connection:
            self._ready.setdefault(connection)


def _less(counter: Counter[str], connection: str) -> None:
    counter[connection] -= 1
    if not counter[connection]:
        del counter[connection]
