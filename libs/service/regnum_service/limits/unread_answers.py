"""Answers that nobody takes: which connections are cut off so that others get in.

Goals: memory that a silent reader holds comes back when others need it; a reader that is only slow keeps its line.

Algorithm: an answer that is being sent has a time, longer for one that is larger. When it is over, and since the last
look another connection had to wait or was refused for want of memory, the connection is cut off. The whole connection,
because the blocked message stands before any status in its call, and gRPC for Python resets no call from a handler.

Example: twelve connections open a Consume stream and read nothing. Four hold all that there is for answers, eight wait.
After 30 s the four are cut off, and four of the eight get in.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from regnum_service.clock import Clock
from regnum_service.limits.held_bytes import HeldBytes

TAKEN_S_MAX: Final = 30.0
"""For so long an answer, and so long again for each further PART_BYTES of it, is there to be taken: 35 kB/s."""
PART_BYTES: Final = 1024 * 1024
LOOK_S: Final = 5.0
"""How often is looked."""


class Sending:
    """One answer that is on its way."""

    __slots__ = ("_answers", "connection", "until_s")

    def __init__(self, answers: "set[Sending]", connection: str, until_s: float) -> None:
        """Only assigns."""
        self._answers: Final = answers
        self.connection: Final = connection
        self.until_s: Final = until_s
        """Monotonic time from which on it is overdue."""

    def close(self) -> None:
        """It was taken, or its call has ended."""
        self._answers.discard(self)


class UnreadAnswers:
    """The answers that are on their way. Belongs to the event loop."""

    def __init__(self, clock: Clock) -> None:
        """Only assigns."""
        self._clock: Final = clock
        self._answers: Final[set[Sending]] = set()

    def begin(self, connection: str, size_bytes: int) -> Sending:
        """An answer of so many bytes is handed to gRPC now; its sender closes what is returned."""
        parts = max(1, -(-size_bytes // PART_BYTES))
        sending = Sending(self._answers, connection, self._clock.monotonic() + TAKEN_S_MAX * parts)
        self._answers.add(sending)
        return sending

    @contextmanager
    def sending(self, connection: str, size_bytes: int) -> Iterator[None]:
        """The same for as long as the context lasts."""
        sending = self.begin(connection, size_bytes)
        try:
            yield
        finally:
            sending.close()

    def overdue(self) -> frozenset[str]:
        """Connections with an answer that was not taken in its time."""
        now_s = self._clock.monotonic()
        return frozenset(one.connection for one in self._answers if one.until_s <= now_s)


class SilentReaders:
    """Cuts off whom others wait for. Belongs to the event loop."""

    def __init__(self, unread: UnreadAnswers, held: HeldBytes, clock: Clock) -> None:
        """Only assigns."""
        self._unread: Final = unread
        self._held: Final = held
        self._clock: Final = clock
        self._log: Final = structlog.get_logger("silent readers")
        self.cut_off = 0
        """Connections that were cut off so far."""

    async def run(self, cut_off: Callable[[Collection[str]], int]) -> None:
        """Look from time to time, for ever.

        Args:
            cut_off: ends those connections and returns how many of them it found; called on a thread.
        """
        while True:
            await self._clock.sleep(LOOK_S)
            await self.look(cut_off)

    async def look(self, cut_off: Callable[[Collection[str]], int]) -> None:
        """Look once."""
        short_of_room = self._held.short_of_room()
        overdue = [one for one in self._unread.overdue() if short_of_room - {one}]
        if overdue:
            count = await asyncio.to_thread(cut_off, frozenset(overdue))
            self.cut_off += count
            self._log.warning(
                "connections cut off: they did not take their answers while others had no room",
                connections=sorted(overdue)[:10],
                overdue=len(overdue),
                cut_off=count,
            )
