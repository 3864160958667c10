"""How fast a log is gone through: never more than a part of one processor, and not a moment longer than wanted.

Whoever compacts shares the interpreter with those who serve; so it works for a few milliseconds and then rests for a
multiple of that, which bounds what it takes whatever the records are like.
"""

from collections.abc import Callable
from typing import Final

from regnum_service.clock import Clock

WORK_S: Final = 0.005
"""So long it works before it rests."""
REST: Final = 3.0
"""So many times as long it rests: it takes a quarter of a processor."""


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
            if self._wait(worked_s * REST):
                raise CompactionStoppedError
            self._began_s = self._clock.monotonic()
