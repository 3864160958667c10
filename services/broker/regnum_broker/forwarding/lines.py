"""Which call is passed on next. Pure.

Goals: no principal keeps another from being served, whatever number of connections it opens, and no connection another
of the same principal, however much it sends, nor do a few; what waits is bounded, in calls and in bytes; a call that
could not be delivered keeps its place before those that came later.

Algorithm: a line for each connection. A call goes under way when fewer than ``under_way_max`` are, and fewer than
``under_way_of_connection`` of its own connection; principals take turns, and of each its connections, one call each. It
stays under way until it is answered, however often it has to be sent: while there is no controller those wait that came
first. A connection that has a call already may have no more, in calls and in bytes, than is left free for others
(``shares``): one alone has half of the bytes, and n of them leave room for one more. A principal may have no
more than three times what is left free, waiting and under way: one alone has three quarters, and however many there
are, they leave room for one that has nothing yet. Who says nothing of itself is a principal at each address.

Example: two may be under way, one of each connection. A sends a1, a2, a3, then B sends b1: a1 and b1 go. a1 is
answered: a2 goes. b1 is answered: nothing goes, a2 being the one of A.
"""

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final

from regnum_model.shares import Shares

PRINCIPAL_TIMES: Final = 3
"""A principal has so many times what it leaves to others, at most."""


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

    __slots__ = ("connection", "is_under_way", "principal", "size")

    def __init__(self, principal: str, connection: str, size: int) -> None:
        self.principal: Final = principal
        self.connection: Final = connection
        self.size: Final = size
        self.is_under_way = False
        """Whether it has been admitted."""


@dataclass(slots=True)
class _Held:
    """What one principal has in the lines."""

    calls: int = 0
    bytes: int = 0
    under_way: int = 0
    ready: dict[str, None] = field(default_factory=dict)
    """Connections of which a call waits that may go, the next first."""


class Lines:
    """The calls of all connections."""

    def __init__(self, limits: LineLimits) -> None:
        """Only assigns."""
        self._limits: Final = limits
        self._waiting: Final[dict[str, deque[Ticket]]] = {}
        self._principals: Final[dict[str, _Held]] = {}
        self._ready: Final[dict[str, None]] = {}
        """Principals with a connection that is ready, the next first."""
        self._under_way: Final[Counter[str]] = Counter()
        self._calls: Final[Counter[str]] = Counter()
        self._bytes: Final[Counter[str]] = Counter()
        self.calls = 0
        """Calls that wait or are under way. Any thread."""
        self.under_way = 0
        """Calls that are under way. Any thread."""
        self.bytes = 0
        """Bytes of all of them. Any thread."""

    def enter(self, connection: str, size: int, *, principal: str) -> Ticket:
        """Take a place at the end of the connection's line. Raises LineFullError.

        Args:
            connection: of the client.
            size: bytes of the call.
            principal: whose connection it is.
        """
        self._check(connection, size, self._principals.get(principal) or _Held())
        ticket = Ticket(principal, connection, size)
        held = self._principals.setdefault(principal, _Held())
        self.calls += 1
        self.bytes += size
        held.calls += 1
        held.bytes += size
        self._calls[connection] += 1
        self._bytes[connection] += size
        self._waiting.setdefault(connection, deque()).append(ticket)
        self._look(principal, connection)
        return ticket

    def _check(self, connection: str, size: int, held: _Held) -> None:
        limits = self._limits
        if self._calls.get(connection, 0) >= limits.calls_of_connection:
            raise LineFullError(
                f"{limits.calls_of_connection} calls of this connection wait for the controller already"
            )
        own, own_bytes = self._calls.get(connection, 0), self._bytes.get(connection, 0)
        if not limits.in_calls.allow(1, own=own, total=self.calls):
            raise LineFullError(f"{self.calls} calls wait for the controller, {own} of them of this connection")
        if not _leaves_room(1, own=held.calls, total=self.calls, most=limits.calls_max):
            raise LineFullError(
                f"{self.calls} calls wait for the controller, {held.calls} of them of this principal's connections"
            )
        # (In calls and not in bytes: an empty request makes nobody the one that has nothing yet.)
        if not limits.in_bytes.allow(size, own=own_bytes or own, total=self.bytes):
            raise LineFullError(
                f"calls of {self.bytes} bytes wait for the controller, {own_bytes} of them of this connection"
            )
        if not _leaves_room(size, own=held.bytes or held.calls, total=self.bytes, most=limits.bytes_max):
            raise LineFullError(
                f"calls of {self.bytes} bytes wait for the controller, {held.bytes} of them of this principal's"
                " connections"
            )

    def admit(self) -> list[Ticket]:
        """Calls that go under way now."""
        admitted: list[Ticket] = []
        most = self._limits.under_way_max
        while (principal := self._next()) is not None and self.under_way < most:
            held = self._principals[principal]
            connection = next(iter(held.ready))
            del self._ready[principal], held.ready[connection]
            ticket = self._waiting[connection].popleft()
            if not self._waiting[connection]:
                del self._waiting[connection]
            ticket.is_under_way = True
            self.under_way += 1
            held.under_way += 1
            self._under_way[connection] += 1
            admitted.append(ticket)
            # Behind the others, if more of it may go.
            self._look(principal, connection)
        return admitted

    def leave(self, ticket: Ticket) -> None:
        """It has been answered, or nobody waits for it any more. Once for each."""
        connection, held = ticket.connection, self._principals[ticket.principal]
        self.calls -= 1
        self.bytes -= ticket.size
        held.calls -= 1
        held.bytes -= ticket.size
        self._bytes[connection] -= ticket.size
        _less(self._calls, connection)
        if connection not in self._calls:
            del self._bytes[connection]
        if ticket.is_under_way:
            self.under_way -= 1
            held.under_way -= 1
            _less(self._under_way, connection)
        else:
            line = self._waiting[connection]
            line.remove(ticket)
            if not line:
                del self._waiting[connection]
                held.ready.pop(connection, None)
        self._look(ticket.principal, connection)
        if not held.calls:
            del self._principals[ticket.principal]

    def _next(self) -> str | None:
        """The principal whose turn it is, of those that may have one more under way."""
        most = self._limits.under_way_max
        for principal in self._ready:
            own = self._principals[principal].under_way
            if _leaves_room(1, own=own, total=self.under_way, most=most):
                return principal
        return None

    def _look(self, principal: str, connection: str) -> None:
        held = self._principals[principal]
        if connection in self._waiting and self._under_way.get(connection, 0) < self._limits.under_way_of_connection:
            held.ready.setdefault(connection)
        if held.ready:
            self._ready.setdefault(principal)
        else:
            self._ready.pop(principal, None)


def _leaves_room(size: int, *, own: int, total: int, most: int) -> bool:
    """Whether a principal that has ``own`` of ``total`` may have ``size`` more."""
    return own == 0 or own + size <= PRINCIPAL_TIMES * (most - total - size)


def _less(counter: Counter[str], connection: str) -> None:
    counter[connection] -= 1
    if not counter[connection]:
        del counter[connection]
