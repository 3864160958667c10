"""Time as the members of a partition's groups live through it. Belongs to the event loop."""

from typing import Final

from regnum_service.clock import Clock


class GroupTime:
    """The monotonic clock, less what passed while nothing could be written for these groups.

    A member that joins again while too few replicas are in sync is refused, and one whose answer waits behind a slow
    append does not send heartbeats: neither is to be removed for it. So sessions and rebalances stand still with the
    log, and go on with it.
    """

    def __init__(self, clock: Clock) -> None:
        """Only assigns."""
        self._clock: Final = clock
        self._stood_s = 0.0
        self._since_s: float | None = None

    @property
    def now_s(self) -> float:
        """Seconds; what they count from has no meaning."""
        return (self._clock.monotonic() if self._since_s is None else self._since_s) - self._stood_s

    def stand_still(self) -> None:
        """Nothing can be written from now on."""
        if self._since_s is None:
            self._since_s = self._clock.monotonic()

    def go_on(self) -> None:
        """It can again."""
        if self._since_s is not None:
            self._stood_s += self._clock.monotonic() - self._since_s
            self._since_s = None
