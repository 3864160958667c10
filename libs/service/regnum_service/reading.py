"""How many messages a listener reads at once, and how much of what was read it works on.

Goals: what clients send stays with them until its turn has come; a connection that sends a thousand requests does not
keep another from sending one; what a call costs is known before it is made an answer of.

gRPC tells nobody that a message has begun to come: it takes all of it into memory, up to the largest message of the
listener. So there may be so many on their way at once, which times the largest message is what they take at most.

Algorithm: a gate (see ``gates``). A call waits for one of its connection's turns and then for one of the listener's,
and gives both back when its message is there. Those of the listener are shared by principals (``shared_turns``), so
calls whose messages never come keep out no one else's. Of messages that are larger than ``SMALL_BYTES`` a connection
may have no more under way than are left for others (``shares``); one that is too much is thrown away and its sender
told to come again. (A broker, which keeps records until they are acknowledged, has an account of its own for them:
``Intake``.)
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from regnum.types.v1 import errors_pb2
from regnum_model.shares import Shares

from regnum_service.errors import RegnumError
from regnum_service.shared_turns import SharedTurns, payer

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
LARGE: Final = Shares(total_max=64 * 1024 * 1024, connection_max=16 * 1024 * 1024)
"""Bytes of larger ones, as they came, whose calls are under way; what they are parsed to takes as much again."""
RETRY_MS: Final = 200
"""When a refused client tries again: large calls take some tens of milliseconds of the loop each."""

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


class _Connection:
    """A connection with calls that read or wait, or with large messages under way."""

    __slots__ = ("calls", "large_bytes", "turns")

    def __init__(self, turns: int) -> None:
        self.calls = 0
        """That read, or wait for it."""
        self.large_bytes = 0
        """Of messages that are counted."""
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
        large: Shares = LARGE,
    ) -> None:
        """Only assigns.

        Args:
            of_connection: messages of one connection that are read at once.
            in_all: messages of all connections that are.
            waiting: calls of a connection that may wait for that; 0: a call that would have to wait is refused.
            of_streams: a request stream keeps its turn for as long as it is open: at any moment it may be receiving.
            large: bytes of large messages under way.
        """
        self._of_connection: Final = of_connection
        self._in_all: Final = in_all
        self._waiting: Final = waiting
        self.of_streams: Final = of_streams
        self._large: Final = large
        self._turns: Final = SharedTurns(in_all)
        self._connections: Final[dict[str, _Connection]] = {}
        self.large_bytes = 0
        """Of large messages under way."""
        self.refused = 0
        """Calls that were refused so far."""

    @property
    def connections(self) -> int:
        """Connections of which anything is known."""
        return len(self._connections)

    async def enter(self, method: str, context: Context) -> "_Turn":  # noqa: ARG002 - all methods wait in one line
        """Return when the message may be read. Raises RegnumError when too many wait."""
        name = context.peer()
        client = payer(name)
        connection = self._connections.get(name)
        if connection is None:
            connection = self._connections[name] = _Connection(self._of_connection)
        if connection.calls >= self._of_connection + self._waiting or (
            not self._waiting and not self._turns.is_free_for(client)
        ):
            self._forget(name, connection)
            raise self._refusal(f"{self._of_connection} of its calls are read at once, of all clients' {self._in_all}")
        connection.calls += 1
        turn = _Turn(self, name, connection)
        try:
            await connection.turns.acquire()
            turn.taken.append(connection.turns.release)
            await self._turns.acquire(client)
            turn.taken.append(lambda: self._turns.release(client))
        except asyncio.CancelledError:
            turn.leave()
            raise
        return turn

    async def read(self, method: str, context: Context) -> None:
        """A stream that keeps its turn reads; the messages of others are small, or their handlers' to count."""

    def take(self, connection: _Connection, size: int) -> None:
        """Work on a large message. Raises RegnumError where that is more than the connection's share."""
        if not self._large.allow(size, own=connection.large_bytes, total=self.large_bytes):
            raise self._refusal(f"{connection.large_bytes} bytes of its large calls are under way")
        connection.large_bytes += size
        self.large_bytes += size

    def let_go(self, name: str, connection: _Connection, size: int) -> None:
        """The call has ended, or goes on without its message."""
        connection.large_bytes -= size
        self.large_bytes -= size
        self._forget(name, connection)

    def read_one(self, name: str, connection: _Connection) -> None:
        """A call reads no more."""
        connection.calls -= 1
        self._forget(name, connection)

    def _forget(self, name: str, connection: _Connection) -> None:
        if not connection.calls and not connection.large_bytes:
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

    __slots__ = ("_connection", "_gate", "_large", "_name", "_reading", "taken")

    def __init__(self, gate: ReadTurns, name: str, connection: _Connection) -> None:
        self._gate: Final = gate
        self._name: Final = name
        self._connection: Final = connection
        self._reading = True
        self._large = 0
        self.taken: Final[list[Callable[[], None]]] = []
        """What is given back once the message is read."""

    def took(self, size_bytes: int) -> None:
        """The message was read, or the call has a stream of them."""
        if self._gate.of_streams:
            return
        if size_bytes > SMALL_BYTES:
            self._gate.take(self._connection, size_bytes)
            self._large = size_bytes
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
        self._gate.read_one(self._name, self._connection)

    def _let_go(self) -> None:
        size, self._large = self._large, 0
        if size:
            self._gate.let_go(self._name, self._connection, size)
