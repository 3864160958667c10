"""Work that takes a thread, in turn by who asks for it: one caller with a thousand calls is one caller.

Goals: whoever asks for little waits for one piece of the others' work at most, however much of it they have brought.

Algorithm: as many pieces are under way as there are places. A place that becomes free goes to the caller that has
waited for the longest time since its last turn; those of one caller go in the order in which they came.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from regnum_model.principals import NOBODY
from regnum_service.access.identity import caller


def turn_of(connection: str) -> str:
    """Whose turn a call takes: its principal's, and its connection's where all callers are the same."""
    principal = caller().principal
    return connection if principal.name == NOBODY.name else str(principal)


class TurnsOfCallers:
    """The places. Belongs to one event loop."""

    def __init__(self, places: int) -> None:
        """As many as there are threads for the work."""
        self._free = places
        self._waiting: Final[dict[str, deque[asyncio.Future[None]]]] = {}
        """Callers in the order of their turns."""

    @property
    def waiting(self) -> int:
        """Callers that wait."""
        return len(self._waiting)

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        """A place, when it is the caller's turn."""
        await self._enter(caller)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, caller: str) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._waiting.setdefault(caller, deque())
        line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                # It had been given the place already.
                self._leave()
            elif turn in line:
                line.remove(turn)
                if not line and self._waiting.get(caller) is line:
                    del self._waiting[caller]
            raise

    def _leave(self) -> None:
        while self._waiting:
            caller, line = next(iter(self._waiting.items()))
            del self._waiting[caller]
            turn = line.popleft()
            if line:
                self._waiting[caller] = line
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
