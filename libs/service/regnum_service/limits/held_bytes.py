"""Bytes that are held for clients: requests until they are answered, answers until they are sent, what is unpacked.

Counted is what is on the wire; what Python needs besides is in the decision page, measured. Followers' answers are
counted and never refused: a replica that falls behind would cost more than it takes.

Each purpose has a part of all that it does not exceed (``PARTS``): readers that never take their answers leave room for
producers, and producers whose acknowledgements do not come leave room for readers, however many connections they have.

A connection holds no more than is left free after it (``shares``), and a principal, by all its connections, no more of
a purpose's part than PRINCIPAL_WEIGHT times what is left of it: alone three quarters, two 3/7 each, n of them 3/(3n+1).
So one that opens a thousand connections leaves room for all that hold nothing yet.
"""

import asyncio
import enum
from collections import OrderedDict
from typing import Any, Final, NamedTuple, Self

from regnum.types.v1 import errors_pb2
from regnum_model.shares import Shares

from regnum_service.errors import RegnumError
from regnum_service.limits.call import Call

RETRY_MS: Final = 200
"""When whoever was refused tries again: what is held for a client is let go within some tens of milliseconds, unless
nobody reads it."""

FULL: Final = 64
"""Messages are not read where less than this part is left: most would be thrown away, after they were carried here."""

REFUSED: Final = (
    "this process holds as much for clients, or for this one, as it has memory for; nothing of it was kept: wait, and"
    " send it again"
)


PRINCIPAL_WEIGHT: Final = 3
"""So many times what is left of a purpose's part may one principal hold of it."""


class Purpose(enum.Enum):
    """What bytes are held for."""

    PRODUCE = "produce"
    """Requests until they are answered."""
    FETCH = "fetch"
    """Answers with records until they are sent, and what is unpacked for them."""
    REPLICATION = "replication"
    """Answers to followers until they are sent."""
    UNPACKED = "unpacked"
    """What is unpacked to be looked at and goes into no answer, until that is done; in an account of its own."""
    CONTROL = "control"
    """Answers without records until they are sent."""


PARTS: Final = {
    Purpose.PRODUCE: 0.75,
    Purpose.FETCH: 0.5,
    Purpose.REPLICATION: 1.0,
    Purpose.UNPACKED: 1.0,
    Purpose.CONTROL: 0.5,
}
"""How much of all may be held for a purpose. A single thing that is larger gets in when nothing else is held for it."""


def refusal() -> RegnumError:
    """What is told to whoever has to come again."""
    return RegnumError(errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED, REFUSED, retry_after_ms=RETRY_MS)


class _Waiting(NamedTuple):
    """Somebody who waits for room."""

    size: int
    purpose: Purpose
    principal: str


class HeldBytes:
    """The account of one process. Belongs to its event loop; numbers may be read by any thread."""

    def __init__(self, shares: Shares) -> None:
        """Only assigns."""
        self._shares = shares
        self._own: Final[dict[str, int]] = {}
        """By connection; those that hold nothing are not in it."""
        self._by_purpose: Final = dict.fromkeys(Purpose, 0)
        self._by_principal: Final[dict[tuple[str, Purpose], int]] = {}
        """Of those that are named; what is 0 is not in it."""
        self._waiting: Final[dict[str, OrderedDict[asyncio.Future[None], _Waiting]]] = {}
        """By connection, its line in the order of coming: each by what is set when its turn has come."""
        self._looking = False
        self._refused_lately: Final[set[str]] = set()
        """Two of those that were refused since they were asked for: whether it is anybody else is all that counts."""
        self.total = 0
        """Bytes held."""
        self.total_peak = 0
        """The most that was held at any time."""
        self.refused: Final = dict.fromkeys(Purpose, 0)
        """Requests that were refused so far."""

    @property
    def total_max(self) -> int:
        """Bytes that may be held."""
        return self._shares.total_max

    def share(self, shares: Shares) -> None:
        """Other bounds from now on; what is held stays, and who waits is looked at."""
        self._shares = shares
        self._look_soon()

    @property
    def connections(self) -> int:
        """Connections that hold anything."""
        return len(self._own)

    @property
    def is_full(self) -> bool:
        """Whether there is so little room for requests that it is not worth while to read any: a 64th of all."""
        room = min(self._shares.total_max - self.total, self._room(Purpose.PRODUCE))
        return room < self._shares.total_max // FULL

    @property
    def waiting(self) -> int:
        """Connections that wait for room."""
        return len(self._waiting)

    def of(self, connection: str) -> int:
        """Bytes that a connection holds."""
        return self._own.get(connection, 0)

    def held_for(self, purpose: Purpose) -> int:
        """Bytes that are held for a purpose."""
        return self._by_purpose[purpose]

    def of_principal(self, principal: str, purpose: Purpose) -> int:
        """Bytes that a principal holds for it, by whatever connections."""
        return self._by_principal.get((principal, purpose), 0)

    def part_of(self, purpose: Purpose) -> int:
        """Bytes that may be held for a purpose."""
        return int(self._shares.total_max * PARTS[purpose])

    def _room(self, purpose: Purpose) -> int:
        return self.part_of(purpose) - self._by_purpose[purpose]

    def _allow(self, connection: str, size: int, purpose: Purpose, principal: str) -> bool:
        room = self._room(purpose)
        if size > room and self._by_purpose[purpose]:
            return False
        # (The first of a principal gets in: what is larger than its share would never.)
        own = self.of_principal(principal, purpose)
        if own and own + size > PRINCIPAL_WEIGHT * (room - size):
            return False
        return self._shares.allow(size, own=self.of(connection), total=self.total)

    def take(self, connection: str, size: int, purpose: Purpose, *, principal: str = "") -> bool:
        """Hold so many bytes more; False, and nothing is, where that is more than its share.

        ``principal`` pays besides its connection; empty: all callers are the same one, and only connections pay.
        """
        if not self._allow(connection, size, purpose, principal):
            self.refuse(connection, purpose)
            return False
        self.hold(connection, size, purpose, principal=principal)
        return True

    def refuse(self, connection: str, purpose: Purpose) -> None:
        """Count a refusal."""
        self.refused[purpose] += 1
        if len(self._refused_lately) < 2:
            self._refused_lately.add(connection)

    def short_of_room(self) -> frozenset[str]:
        """Connections that wait, and two at most of those that were refused since this was asked for the last time."""
        found = frozenset(self._waiting) | self._refused_lately
        self._refused_lately.clear()
        return found

    def hold(self, connection: str, size: int, purpose: Purpose, *, principal: str = "") -> None:
        """The same, whatever its share is."""
        if not size:
            return
        self._own[connection] = self.of(connection) + size
        if principal:
            self._by_principal[principal, purpose] = self.of_principal(principal, purpose) + size
        self._by_purpose[purpose] += size
        self.total += size
        self.total_peak = max(self.total_peak, self.total)

    def let_go(self, connection: str, size: int, purpose: Purpose, *, principal: str = "") -> None:
        """Hold so many bytes less."""
        if not size:
            return
        left = self.of(connection) - size
        if left:
            self._own[connection] = left
        else:
            del self._own[connection]
        if principal:
            left = self.of_principal(principal, purpose) - size
            if left:
                self._by_principal[principal, purpose] = left
            else:
                del self._by_principal[principal, purpose]
        self._by_purpose[purpose] -= size
        self.total -= size
        self._look_soon()

    async def wait_for(self, connection: str, size: int, purpose: Purpose, *, principal: str = "") -> None:
        """Hold so many bytes more as soon as its share allows it; those of one connection wait in line."""
        line = self._waiting.get(connection)
        if not line and self._allow(connection, size, purpose, principal):
            self.hold(connection, size, purpose, principal=principal)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(connection, OrderedDict())[turn] = _Waiting(size, purpose, principal)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._leave(connection, turn)
                # Those behind it may be smaller, or ask for another purpose: there may be room for them already.
                self._look_soon()
            else:
                self.let_go(connection, size, purpose, principal=principal)
            raise

    def _leave(self, connection: str, turn: asyncio.Future[None]) -> None:
        """Somebody waits no more."""
        line = self._waiting[connection]
        del line[turn]
        if not line:
            del self._waiting[connection]

    def _look_soon(self) -> None:
        if self._waiting and not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """Let in who may: one of each connection at a time, and first those who were not let in before others."""
        self._looking = False
        for connection in tuple(self._waiting):
            turn, (size, purpose, principal) = next(iter(self._waiting[connection].items()))
            # (Whoever gives up in this very turn of the loop has it looked again as it leaves.)
            if turn.done() or not self._allow(connection, size, purpose, principal):
                continue
            self.hold(connection, size, purpose, principal=principal)
            turn.set_result(None)
            self._leave(connection, turn)
            if (rest := self._waiting.pop(connection, None)) is not None:
                # Behind the others, and looked at again: there may be room for more.
                self._waiting[connection] = rest
                self._look_soon()


class Holding:
    """What one call holds. Closed when it has ended; what a thread works with is held until that has ended too."""

    __slots__ = ("_closed", "_connection", "_held", "_principal", "_purpose", "_threads", "call", "sent", "size")

    def __init__(self, held: HeldBytes, connection: str, purpose: Purpose, *, call: Call | None = None) -> None:
        """Only assigns; ``call`` is whose it is (None: one of that connection, by a caller who is not named)."""
        self.call: Final = call or Call(peer=connection)
        """Whose it is."""
        self._held: Final = held
        self._connection: Final = connection
        self._principal: Final = self.call.entity
        self._purpose: Final = purpose
        self._threads = 0
        self._closed = False
        self.size = 0
        """Bytes held."""
        self.sent = 0
        """Bytes of the answer that they are held for, on the wire."""

    @classmethod
    def of(cls, call: Call, held: HeldBytes, purpose: Purpose) -> Self:
        """What a call holds."""
        return cls(held, call.peer, purpose, call=call)

    def grant(self, wanted: int, least: int) -> int:
        """Hold as many bytes as there are, between these two; returns how many.

        Raises:
            RegnumError: there are not even the least.
        """
        # (Alone it might have more than the part of its purpose, for it may be that it could not be made smaller.)
        size = max(least, min(wanted, self._held.part_of(self._purpose)))
        while not self._held.take(self._connection, size, self._purpose, principal=self._principal):
            if size <= least:
                raise refusal()
            # (A try that is made smaller is no refusal.)
            self._held.refused[self._purpose] -= 1
            size = max(least, size // 2)
        self.size += size
        return size

    async def wait_for(self, size: int) -> None:
        """Hold so many more bytes, as soon as they are to be had."""
        await self._held.wait_for(self._connection, size, self._purpose, principal=self._principal)
        self.size += size

    def become(self, size: int, *, sent: int | None = None) -> None:
        """Hold that much instead of what is held: it has turned out to be so large; ``sent``: on the wire, if less."""
        self.sent = size if sent is None else sent
        more = size - self.size
        self._held.hold(self._connection, max(0, more), self._purpose, principal=self._principal)
        self._held.let_go(self._connection, max(0, -more), self._purpose, principal=self._principal)
        self.size = size

    def used_by(self, thread: asyncio.Future[Any]) -> None:
        """A thread works with what is held, until that future is done: so long it stays held, whatever is said."""
        self._threads += 1
        thread.add_done_callback(self._thread_ended)

    def _thread_ended(self, _thread: asyncio.Future[Any]) -> None:
        self._threads -= 1
        if self._closed:
            self.close()

    def close(self) -> None:
        """Let go of everything, at once or when the last thread has ended."""
        self._closed = True
        if not self._threads:
            self.become(0)
