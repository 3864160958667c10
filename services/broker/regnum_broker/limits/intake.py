"""How many messages are read at once, and how much of what was read is kept.

Goals: what clients send stays with them until there is memory for it; a connection that sends a thousand requests does
not keep another from sending one.

Algorithm: a call passes before its message is read (see ``regnum_service.gates``): so many messages of one connection
are read at once, and so many in all (``incoming``), those with records apart from the others, shared by principals
(``shared_turns``): calls whose messages never come keep out no one else's. The rest waits in line, and too many in line
are refused. Nothing is read while not even a byte could be kept. What was read is kept if its
connection's share allows it, until its call ends; else it is thrown away and its sender told when to come again.

A produce stream may be receiving a message for as long as it is open, so there may be so many of them and no more. A
connection has no more than are left for others (``shares``): one alone may have half. Who is refused one sends by
calls.

Requests that carry no records and are small are not counted: they are what clients need to get out of trouble.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_model.shares import Shares
from regnum_service.errors import RegnumError
from regnum_service.limits.call import Call
from regnum_service.limits.held_bytes import RETRY_MS, HeldBytes, Purpose, refusal
from regnum_service.shared_turns import SharedTurns

from regnum_broker.limits.incoming import INCOMING_BYTES_MAX, MESSAGE_BYTES_MAX, Incoming, incoming

BULKY: Final = frozenset({"/regnum.broker.v1.LogService/Produce"})
"""Calls that carry records and have one message. (ProduceStream keeps its own account.)"""
STREAMS: Final = frozenset({"/regnum.broker.v1.LogService/ProduceStream"})
"""Calls each of which may be receiving a message that nobody could count yet."""
STREAMS_OF_CONNECTION: Final = 100
"""Such calls of one connection, however few there are. A producer of the SDK has one."""
DEFAULT: Final = incoming(INCOMING_BYTES_MAX, MESSAGE_BYTES_MAX)
"""Messages that may be coming at once, unless told otherwise."""
READ_OF_CONNECTION: Final = 8
"""Messages of one connection that are read at once."""
WAITING_OF_CONNECTION: Final = 100
"""Calls of one connection that wait for their messages to be read."""
WAITING_MAX: Final = 2_000
"""Calls of all connections that do. Each may take 22 KiB, and a window of what it brings."""
SMALL_BYTES: Final = 64 * 1024
"""A message of any other call is counted when it is larger than this."""


class _Connection:
    """A connection of which messages are being read."""

    __slots__ = ("calls", "reading", "streams")

    def __init__(self) -> None:
        self.calls = 0
        """Calls that read or wait for it."""
        self.streams = 0
        """Request streams that are open."""
        self.reading: Final = asyncio.Semaphore(READ_OF_CONNECTION)


class Intake:
    """A gate (see ``regnum_service.gates``) for what clients send. Belongs to the event loop."""

    def __init__(self, held: HeldBytes, at_once: Incoming = DEFAULT) -> None:
        """Only assigns."""
        self._held: Final = held
        self._reading_produce: Final = SharedTurns(at_once.produce_calls)
        self._reading_others: Final = SharedTurns(at_once.other_calls)
        self._shares: Final = Shares(total_max=at_once.streams, connection_max=STREAMS_OF_CONNECTION)
        self._connections: Final[dict[str, _Connection]] = {}
        self._calls = 0
        self._streams = 0

    @property
    def calls(self) -> int:
        """Calls whose messages are read, or wait for that."""
        return self._calls

    @property
    def streams(self) -> int:
        """Request streams that are open."""
        return self._streams

    @property
    def connections(self) -> int:
        """Connections of which anything is known."""
        return len(self._connections)

    async def enter(self, method: str, call: Call) -> "_Reading":
        """Return when the message may be read. Raises RegnumError when too many wait, or nothing could be kept."""
        name, bulky = call.peer, method in BULKY
        if bulky and self._held.is_full:
            self._held.refuse(name, Purpose.PRODUCE)
            raise refusal()
        connection = self._connections.get(name)
        if connection is None:
            connection = self._connections[name] = _Connection()
        if connection.calls >= READ_OF_CONNECTION + WAITING_OF_CONNECTION or (bulky and self._calls >= WAITING_MAX):
            self._forget(name, connection)
            self._held.refuse(name, Purpose.PRODUCE)
            raise refusal()
        streams = method in STREAMS
        if streams and not self._shares.allow(1, own=connection.streams, total=self._streams):
            own = connection.streams
            self._forget(name, connection)
            self._held.refuse(name, Purpose.PRODUCE)
            raise _too_many_streams(own, self._streams)
        reading = _Reading(self, call, bulky=bulky, streams=streams)
        connection.streams += streams
        self._streams += streams
        self._calls += 1
        connection.calls += 1
        try:
            await connection.reading.acquire()
            reading.turns.append(connection.reading.release)
            # (A stream is one of those that may be open, and has nothing to read yet.)
            if not streams:
                turns = self._reading_produce if bulky else self._reading_others
                await turns.acquire(call.payer)
                reading.turns.append(lambda: turns.release(call.payer))
        except asyncio.CancelledError:
            reading.leave()
            raise
        return reading

    async def read(self, method: str, call: Call) -> None:
        """The messages of streams are the handlers' to count: only they know which answer belongs to which.

        A stream takes a turn to begin, and none while it goes on.
        """

    def take(self, call: Call, size: int, *, bulky: bool) -> int:
        """Keep a message; returns how many bytes are counted. Raises RegnumError where that is more than its share."""
        if not bulky and size <= SMALL_BYTES:
            return 0
        if not self._held.take(call.peer, size, Purpose.PRODUCE, principal=call.entity):
            raise refusal()
        return size

    def let_go(self, call: Call, size: int) -> None:
        """Its call has ended."""
        self._held.let_go(call.peer, size, Purpose.PRODUCE, principal=call.entity)

    def read_one(self, name: str) -> None:
        """A message is read no more: it was, or never will be."""
        self._calls -= 1
        connection = self._connections[name]
        connection.calls -= 1
        self._forget(name, connection)

    def stream_ended(self, name: str) -> None:
        """A request stream is open no more."""
        connection = self._connections[name]
        connection.streams -= 1
        self._streams -= 1
        self._forget(name, connection)

    def _forget(self, name: str, connection: _Connection) -> None:
        if not connection.calls and not connection.streams:
            del self._connections[name]


class _Reading:
    """The pass of one call."""

    __slots__ = ("_bulky", "_call", "_ended", "_intake", "_size", "_streams", "turns")

    def __init__(self, intake: Intake, call: Call, *, bulky: bool, streams: bool) -> None:
        self._intake: Final = intake
        self._call: Final = call
        self._bulky: Final = bulky
        self._streams = streams
        self._size = 0
        self._ended = False
        self.turns: Final[list[Callable[[], None]]] = []
        """What is given back once the message is read."""

    def took(self, size_bytes: int) -> None:
        """The message was read."""
        self.ended()
        self._size = self._intake.take(self._call, size_bytes, bulky=self._bulky)

    def lasts(self) -> None:
        """It streams answers; what it brought is counted until it ends."""

    def leave(self) -> None:
        """The call has ended."""
        self.ended()
        self._intake.let_go(self._call, self._size)
        self._size = 0
        if self._streams:
            self._streams = False
            self._intake.stream_ended(self._call.peer)

    def ended(self) -> None:
        """Nothing is read any more."""
        if self._ended:
            return
        self._ended = True
        for give_back in self.turns:
            give_back()
        self._intake.read_one(self._call.peer)


def _too_many_streams(own: int, of_all: int) -> RegnumError:
    return RegnumError(
        errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED,
        f"this connection has {own} streams of produce requests and the broker {of_all} of all connections, which is as"
        " many as there may be; send by Produce calls, or by the streams that you have",
        retry_after_ms=RETRY_MS,
    )
