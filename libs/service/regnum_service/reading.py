"""How many messages a listener reads at once, and how much of what was read it works on.

Goals: what clients send stays with them until its turn has come; a connection that sends a thousand requests does not
keep another from sending one; what a call costs is known before it is made an answer of.

gRPC tells nobody that a message has begun to come: it takes all of it into memory, up to the largest message of the
listener. So there may be so many on their way at once, which times the largest message is what they take at most.

Algorithm: a gate (see ``gates``). A call waits for one of its connection's turns and then for one of the listener's,
and gives both back when its message is there. Those of the listener are shared by principals (``shared_turns``), so
calls whose messages never come keep out no one else's. Messages larger than ``SMALL_BYTES`` are paid for until their
calls have ended (``limits.held_bytes``); one that is too much is thrown away and its sender told to come again. (A
broker has another gate, for records: ``Intake``.)
"""

import asyncio
from collections.abc import Callable
from typing import Final

from regnum.types.v1 import errors_pb2

from regnum_service.errors import RegnumError
from regnum_service.limits.call import Call
from regnum_service.limits.held_bytes import HeldBytes, Holding, Purpose
from regnum_service.shared_turns import SharedTurns

UNREAD_BYTES_MAX: Final = 65_535
"""Of a message whose turn has not come, so much leaves its client (HTTP/2's own window): for listeners whose calls are
about the cluster."""
OF_CONNECTION: Final = 8
"""Messages of one connection that are read at once."""
IN_ALL: Final = 16
"""Messages of all connections: 128 MiB of the largest that a control listener takes."""
WAITING_OF_CONNECTION: Final = 500
"""Calls of one connection that wait for their turn; each takes 22 KiB, and a window of what it brings: 43 MiB."""
SMALL_BYTES: Final = 64 * 1024
"""A message is counted when it is larger than this."""
RETRY_MS: Final = 200
"""When a refused client tries again: large calls take some tens of milliseconds of the loop each."""


class _Connection:
    """A connection with calls that read or wait."""

    __slots__ = ("calls", "turns")

    def __init__(self, turns: int) -> None:
        self.calls = 0
        """That read, or wait for it."""
        self.turns: Final = asyncio.Semaphore(turns)


class ReadTurns:
    """The gate of one listener. Belongs to its event loop."""

    def __init__(
        self,
        *,
        of_connection: int = OF_CONNECTION,
        in_all: int = IN_ALL,
        waiting: int = WAITING_OF_CONNECTION,
        of_streams: bool = False,
        held: HeldBytes | None = None,
    ) -> None:
        """Only assigns.

        Args:
            of_connection: messages of one connection that are read at once.
            in_all: messages of all connections that are.
            waiting: calls of a connection that may wait for that; 0: a call that would have to wait is refused.
            of_streams: a request stream keeps its turn for as long as it is open: at any moment it may be receiving.
            held: pays for large messages, as they came (what they are parsed to takes as much again); None: there are
                none, for the listener takes no large ones.
        """
        self._of_connection: Final = of_connection
        self._in_all: Final = in_all
        self._waiting: Final = waiting
        self.of_streams: Final = of_streams
        self._held: Final = held
        self._turns: Final = SharedTurns(in_all)
        self._connections: Final[dict[str, _Connection]] = {}
        self.refused = 0
        """Calls that were refused so far."""

    @property
    def connections(self) -> int:
        """Connections of which anything is known."""
        return len(self._connections)

    async def enter(self, method: str, call: Call) -> "_Turn":  # noqa: ARG002 - all methods wait in one line
        """Return when the message may be read. Raises RegnumError when too many wait."""
        name, client = call.peer, call.payer
        connection = self._connections.get(name)
        if connection is None:
            connection = self._connections[name] = _Connection(self._of_connection)
        if connection.calls >= self._of_connection + self._waiting or (
            not self._waiting and not self._turns.is_free_for(client)
        ):
            self._forget(name, connection)
            raise self._refusal(f"{self._of_connection} of its calls are read at once, of all clients' {self._in_all}")
        connection.calls += 1
        turn = _Turn(self, call, connection)
        try:
            await connection.turns.acquire()
            turn.taken.append(connection.turns.release)
            await self._turns.acquire(client)
            turn.taken.append(lambda: self._turns.release(client))
        except asyncio.CancelledError:
            turn.leave()
            raise
        return turn

    async def read(self, method: str, call: Call) -> None:
        """A stream that keeps its turn reads; the messages of others are small, or their handlers' to count."""

    def take(self, call: Call, size: int) -> Holding | None:
        """Work on a large message. Raises RegnumError where that is more than its caller's share."""
        if self._held is None:
            return None
        holding = Holding.of(call, self._held, Purpose.PRODUCE)
        try:
            holding.grant(size, size)
        except RegnumError:
            # The same reason in this gate's words: how much is under way.
            raise self._refusal(f"{self._held.of(call.peer)} bytes of its large calls are under way") from None
        return holding

    def read_one(self, name: str, connection: _Connection) -> None:
        """A call reads no more."""
        connection.calls -= 1
        self._forget(name, connection)

    def _forget(self, name: str, connection: _Connection) -> None:
        if not connection.calls:
            self._connections.pop(name, None)

    def _refusal(self, why: str) -> RegnumError:
        self.refused += 1
        return RegnumError(
            errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED,
            f"this connection asks for more at once than it may: {why}; nothing was done: wait, and send it again",
            retry_after_ms=RETRY_MS,
        )


class _Turn:
    """The pass of one call."""

    __slots__ = ("_call", "_connection", "_gate", "_large", "_reading", "taken")

    def __init__(self, gate: ReadTurns, call: Call, connection: _Connection) -> None:
        self._gate: Final = gate
        self._call: Final = call
        self._connection: Final = connection
        self._reading = True
        self._large: Holding | None = None
        self.taken: Final[list[Callable[[], None]]] = []
        """What is given back once the message is read."""

    def took(self, size_bytes: int) -> None:
        """The message was read, or the call has a stream of them."""
        if self._gate.of_streams:
            return
        if size_bytes > SMALL_BYTES:
            self._large = self._gate.take(self._call, size_bytes)
        self._ended()

    def lasts(self) -> None:
        """It streams: its first message was worked on by its handler, and is not kept."""
        self._let_go()

    def leave(self) -> None:
        """The call has ended."""
        self._ended()
        self._let_go()

    def _ended(self) -> None:
        if not self._reading:
            return
        self._reading = False
        for give_back in self.taken:
            give_back()
        self._gate.read_one(self._call.peer, self._connection)

    def _let_go(self) -> None:
        if self._large is not None:
            self._large.close()
