"""Turns that last as long as those who have them like: whoever takes all that there are still leaves some to others.

A call has its turn of reading until its message is there, which its client decides: one that sends the head of a call
and not the message keeps it for as long as it is let. So a turn that becomes free is not enough (``TurnsOfCallers`` of
a broker's threads, whose work ends by itself); there has to be one.

Goals: a client that has none gets one as long as others than it have not each taken theirs; those of one client go in
the order in which they came, and clients take turns.

Algorithm: by client (``Call.payer``), a client that has some gets no more than stay free after it
(``regnum_model.shares``).

Example: 16 turns. A client that never gives one back gets 8 and no more, a second one of the kind 4. Anybody else still
finds 4, and has one of them at a time for sure.
"""

import asyncio
from collections import deque
from typing import Final

from regnum_model.shares import Shares


class SharedTurns:
    """So many turns. Belongs to one event loop."""

    def __init__(self, total: int) -> None:
        """``total``: how many there are."""
        self._shares: Final = Shares(total_max=total, connection_max=total)
        self._total: Final = total
        self._taken = 0
        self._own: Final[dict[str, int]] = {}
        """By client; those that have none are not in it."""
        self._waiting: Final[dict[str, deque[asyncio.Future[None]]]] = {}
        """By client, in the order of their turns."""

    @property
    def clients(self) -> int:
        """Those that have turns or wait for one."""
        return len(self._own.keys() | self._waiting.keys())

    def is_free_for(self, client: str) -> bool:
        """Whether it would get one at once."""
        return client not in self._waiting and self._allow(client)

    async def acquire(self, client: str) -> None:
        """Return when it has one more."""
        if self.is_free_for(client):
            self._take(client)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                # It had been given one already.
                self.release(client)
            else:
                self._forget(client, turn)
            raise

    def release(self, client: str) -> None:
        """Give one back."""
        self._taken -= 1
        left = self._own.pop(client) - 1
        if left:
            self._own[client] = left
        for waiting in tuple(self._waiting):
            if self._taken == self._total:
                return
            line = self._waiting[waiting]
            while line and line[0].done():
                # Given up, and its task has not come to say so.
                line.popleft()
            if line and not self._allow(waiting):
                continue
            del self._waiting[waiting]
            if line:
                line.popleft().set_result(None)
                self._take(waiting)
            if line:
                # Behind the others.
                self._waiting[waiting] = line

    def _allow(self, client: str) -> bool:
        return self._shares.allow(1, own=self._own.get(client, 0), total=self._taken)

    def _take(self, client: str) -> None:
        self._taken += 1
        self._own[client] = self._own.get(client, 0) + 1

    def _forget(self, client: str, turn: asyncio.Future[None]) -> None:
        line = self._waiting.get(client)
        if line is not None and turn in line:
            line.remove(turn)
            if not line:
                del self._waiting[client]
