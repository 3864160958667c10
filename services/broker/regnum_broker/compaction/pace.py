"""How fast a log is gone through: never more than a part of one processor, and not a moment longer than wanted.

Whoever compacts shares the interpreter with those who serve; so it works for a few milliseconds and then rests for a
multiple of that, which bounds what it takes whatever the records are like.
"""

from collections.abc import Callable
from typing import Final

from regnum_service.clock import Clock

WORK_S: Final = 0.005
"""So long it works before it rests."""
PERCENTAGE: Final = 25
"""Of a processor that it takes, unless somebody says another one."""


class CompactionStoppedError(Exception):
    """The broker stops: what was begun is left."""


class Pace:
    """Of one thread."""

    def __init__(self, clock: Clock, wait: Callable[[float], bool]) -> None:
        """Only assigns.

        Args:
            clock: source of time.
            wait: waits for so many seconds; returns whether it is to stop.
        """
        self._clock: Final = clock
        self._wait: Final = wait
        self._began_s = 0.0
        self._rest = 0.0
        self.set(PERCENTAGE)

    def set(self, percentage: int) -> None:
        """Take so much of a processor from the next batch on: 1 to 100. Any thread."""
        self._rest = 100 / percentage - 1

    def begin(self) -> None:
        """A job begins."""
        self._began_s = self._clock.monotonic()

    def went_on(self) -> None:
        """A batch was done: rest, if it is time.

        Raises:
            CompactionStoppedError: nobody wants the rest of it.
        """
        worked_s = self._clock.monotonic() - self._began_s
        if worked_s >= WORK_S:
            if self._wait(worked_s * self._rest):
                raise CompactionStoppedError
            self._began_s = self._clock.monotonic()
