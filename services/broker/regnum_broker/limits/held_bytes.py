"""Bytes that are held for clients: requests that wait for their acknowledgements, answers that wait to be sent.

Counted is what is on the wire; what Python needs besides is in the decision page, measured. Followers' answers are
counted and never refused: a replica that falls behind would cost more than it takes.

Each purpose has a part of all that it does not exceed (``PARTS``): readers that never take their answers leave room for
producers, and producers whose acknowledgements do not come leave room for readers, however many connections they have.
"""

import asyncio
import enum
from collections import deque
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_model.shares import Shares
from regnum_service.errors import RegnumError

RETRY_MS: Final = 200
"""When whoever was refused tries again: what is held for a client is let go within some tens of milliseconds, unless
nobody reads it."""

FULL: Final = 64
"""Messages are not read where less than this part is left: most would be thrown away, after they were carried here."""

REFUSED: Final = (
    "this broker holds as much for clients, or for this one, as it has memory for; nothing of it was kept: wait, and"
    " send it again"
)


class Purpose(enum.Enum):
    """What bytes are held for."""

    PRODUCE = "produce"
    """Requests until they are answered."""
    FETCH = "fetch"
    """Answers until they are sent."""
    REPLICATION = "replication"
    """Answers to followers until they are sent."""


PARTS: Final = {Purpose.PRODUCE: 0.75, Purpose.FETCH: 0.5, Purpose.REPLICATION: 1.0}
"""How much of all may be held for a purpose. A single thing that is larger gets in when nothing else is held for it."""


def refusal() -> RegnumError:
    """What is told to whoever has to come again."""
    return RegnumError(errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED, REFUSED, retry_after_ms=RETRY_MS)


class HeldBytes:
    """The account of one process. Belongs to its event loop; numbers may be read by any thread."""

    def __init__(self, shares: Shares) -> None:
        """Only assigns."""
        self._shares = shares
        self._own: Final[dict[str, int]] = {}
        """By connection; those that hold nothing are not in it."""
        self._by_purpose: Final = dict.fromkeys(Purpose, 0)
        self._waiting: Final[dict[str, deque[tuple[int, Purpose, asyncio.Future[None]]]]] = {}
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
        if self._waiting and not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_soon(self._look)

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

    def part_of(self, purpose: Purpose) -> int:
        """Bytes that may be held for a purpose."""
        return int(self._shares.total_max * PARTS[purpose])

    def _room(self, purpose: Purpose) -> int:
        return self.part_of(purpose) - self._by_purpose[purpose]

    def _allow(self, connection: str, size: int, purpose: Purpose) -> bool:
        if size > self._room(purpose) and self._by_purpose[purpose]:
            return False
        return self._shares.allow(size, own=self.of(connection), total=self.total)

    def take(self, connection: str, size: int, purpose: Purpose) -> bool:
        """Hold so many bytes more; False, and nothing is, where that is more than its share."""
        if not self._allow(connection, size, purpose):
            self.refuse(connection, purpose)
            return False
        self.hold(connection, size, purpose)
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

    def hold(self, connection: str, size: int, purpose: Purpose) -> None:
        """The same, whatever its share is."""
        if not size:
            return
        self._own[connection] = self.of(connection) + size
        self._by_purpose[purpose] += size
        self.total += size
        self.total_peak = max(self.total_peak, self.total)

    def let_go(self, connection: str, size: int, purpose: Purpose) -> None:
        """Hold so many bytes less."""
        if not size:
            return
        left = self.of(connection) - size
        if left:
            self._own[connection] = left
        else:
            del self._own[connection]
        self._by_purpose[purpose] -= size
        self.total -= size
        if self._waiting and not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_soon(self._look)

    async def wait_for(self, connection: str, size: int, purpose: Purpose) -> None:
        """Hold so many bytes more as soon as its share allows it; those of one connection wait in line."""
        line = self._waiting.get(connection)
        if not line and self._allow(connection, size, purpose):
            self.hold(connection, size, purpose)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(connection, deque()).append((size, purpose, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(connection)
            else:
                self.let_go(connection, size, purpose)
            raise

    def _forget(self, connection: str) -> None:
        """Drop those at the head of a line who wait no more."""
        line = self._waiting.get(connection)
        while line and line[0][2].done():
            line.popleft()
        if line is not None and not line:
            del self._waiting[connection]

    def _look(self) -> None:
        """Let in who may: one of each connection at a time, and first those who were not let in before others."""
        self._looking = False
        for connection in tuple(self._waiting):
            self._forget(connection)
            line = self._waiting.get(connection)
            if line is None:
                continue
            size, purpose, turn = line[0]
            if not self._allow(connection, size, purpose):
                continue
            self.hold(connection, size, purpose)
            turn.set_result(None)
            self._forget(connection)
            if (rest := self._waiting.pop(connection, None)) is not None:
                # Behind the others, and looked at again: there may be room for more.
                self._waiting[connection] = rest
                if not self._looking:
                    self._looking = True
                    asyncio.get_running_loop().call_soon(self._look)


class Holding:
    """What one call holds. Closed when it has ended."""

    __slots__ = ("_connection", "_held", "_purpose", "sent", "size")

    def __init__(self, held: HeldBytes, connection: str, purpose: Purpose) -> None:
        """Only assigns."""
        self._held: Final = held
        self._connection: Final = connection
        self._purpose: Final = purpose
        self.size = 0
        """Bytes held."""
        self.sent = 0
        """Bytes of the answer that they are held for, on the wire."""

    @property
    def connection(self) -> str:
        """Whose it is."""
        return self._connection

    def grant(self, wanted: int, least: int) -> int:
        """Hold as many bytes as there are, between these two; returns how many.

        Raises:
            RegnumError: there are not even the least.
        """
        # (Alone it might have more than the part of its purpose, for it may be that it could not be made smaller.)
        size = max(least, min(wanted, self._held.part_of(self._purpose)))
        while not self._held.take(self._connection, size, self._purpose):
            if size <= least:
                raise refusal()
            # (A try that is made smaller is no refusal.)
            self._held.refused[self._purpose] -= 1
            size = max(least, size // 2)
        self.size += size
        return size

    async def wait_for(self, size: int) -> None:
        """Hold so many more bytes, as soon as they are to be had."""
        await self._held.wait_for(self._connection, size, self._purpose)
        self.size += size

    def become(self, size: int, *, sent: int | None = None) -> None:
        """Hold that much instead of what is held: it has turned out to be so large; ``sent``: on the wire, if less."""
        self.sent = size if sent is None else sent
        if size > self.size:
            self._held.hold(self._connection, size - self.size, self._purpose)
        else:
            self._held.let_go(self._connection, self.size - size, self._purpose)
        self.size = size

    def close(self) -> None:
        """Let go of everything."""
        self.become(0)
