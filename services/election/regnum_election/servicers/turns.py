"""Requests that know no refusal, one after another on each connection, as a Kafka broker takes all requests.

A request of an old version is admitted however deep in debt its bucket is; what stops its client is that the connection
is muted once it has been answered. gRPC carries many calls of one connection at a time: those that came in before that
answer would all be admitted. So each waits until the one before it is answered, and for the time that it was told.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_service.errors import RegnumError
from regnum_service.muting import HELD_MAX, Muting


class _Line:
    __slots__ = ("inside", "turn", "waiting")

    def __init__(self) -> None:
        self.inside = 0
        """Calls that wait, and the one that goes on."""
        self.waiting = 0
        """Calls that wait."""
        self.turn: Final = asyncio.Lock()


class ConnectionTurns:
    """The turns of all connections of one listener. Belongs to one event loop."""

    def __init__(self, muting: Muting) -> None:
        """Only assigns. ``muting``: tells for how long a connection has to wait."""
        self._muting: Final = muting
        self._lines: Final[dict[str, _Line]] = {}

    @property
    def waiting(self) -> int:
        """Calls that wait now. Any thread: one copy, for the loop's thread changes it meanwhile."""
        return sum(line.waiting for line in tuple(self._lines.values()))

    @asynccontextmanager
    async def of(self, connection: str) -> AsyncIterator[None]:
        """The turn of a call. Raises RegnumError THROTTLING_QUOTA_EXCEEDED when 100 calls wait for theirs."""
        line = self._lines.setdefault(connection, _Line())
        if line.inside > HELD_MAX:
            raise RegnumError(
                errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED,
                f"{HELD_MAX} changes of this connection wait already, one for another; nothing was done: send it again"
                " when they are answered",
                retry_after_ms=max(1, round(self._muting.left_s(connection) * 1000)),
            )
        line.inside += 1
        try:
            async with AsyncExitStack() as turn:
                line.waiting += 1
                try:
                    await turn.enter_async_context(line.turn)
                    await self._muting.until_over(connection)
                finally:
                    line.waiting -= 1
                yield
        finally:
            line.inside -= 1
            if not line.inside:
                del self._lines[connection]
