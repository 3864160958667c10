"""Waiting with a deadline that names what was waited for, and why a measurement may end without figures."""

from collections.abc import Awaitable, Callable

from regnum_service.clock import Clock


class NotInTimeError(Exception):
    """Something did not come about in its time. The message says what, and how far it came."""


class MeasureError(Exception):
    """The measurement is worth nothing. The message says why."""


class Deadline:
    """One deadline for everything that belongs to one step."""

    def __init__(self, clock: Clock, within_s: float, what: str) -> None:
        self._clock = clock
        self._within_s = within_s
        self._what = what
        self._ends_s = clock.monotonic() + within_s

    @property
    def left_s(self) -> float:
        """Seconds left; never below 0."""
        return max(0.0, self._ends_s - self._clock.monotonic())

    def check(self, so_far: str) -> None:
        """Raise NotInTimeError when it has passed; ``so_far`` says how far it came."""
        if self._clock.monotonic() > self._ends_s:
            raise NotInTimeError(f"{self._what}: not within {self._within_s:g} s ({so_far})")

    async def wait(self, holds: Callable[[], Awaitable[bool]], *, every_s: float, so_far: Callable[[], str]) -> None:
        """Wait for a condition; raises NotInTimeError."""
        while not await holds():
            self.check(so_far())
            await self._clock.sleep(every_s)
