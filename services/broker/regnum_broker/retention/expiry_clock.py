"""The time of day, as far as anything may be deleted or forgotten by it: what all who do that ask."""

from dataclasses import dataclass
from typing import Final

import structlog
from regnum_service.clock import Clock
from regnum_telemetry.instruments import broker as instruments
from regnum_telemetry.metrics import Metrics

from regnum_broker.retention.clocks import ControllerClock, Known, Unknown, heard, may_expire


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockDifference:
    """How far this broker's wall clock is from the controller's."""

    ahead_ms: int
    """Milliseconds; negative: it is behind."""
    held_back: bool
    """Whether nothing expires for that."""


class ExpiryClock:
    """One for each broker. The lifeline's thread says what it hears; any thread asks."""

    def __init__(self, clock: Clock, *, difference_s_max: float, metrics: Metrics | None = None) -> None:
        """Only assigns, and lets the metrics read it.

        Args:
            clock: of this process.
            difference_s_max: by so much its wall clock may differ from the controller's.
            metrics: where the difference is shown; None: nobody asks.
        """
        self._clock: Final = clock
        self._difference_ms_max: Final = round(difference_s_max * 1000)
        self._known: Known = Unknown.NOT_HEARD
        self._is_new = True
        self._held_back = False
        self._log: Final = structlog.get_logger("expiry")
        if metrics is not None:
            metrics.observe(instruments.CLOCK_DIFFERENCE, self._ahead_s)

    def begin_stream(self) -> None:
        """What is heard next may be of another controller. Until then the last one's clock counts."""
        self._is_new = True

    def hear(self, told_ms: int | None) -> None:
        """A message of the controller came, and says that (see ``clocks.heard``)."""
        before = Unknown.NOT_HEARD if self._is_new else self._known
        self._is_new = False
        self._known = heard(before, told_ms, now_s=self._clock.monotonic())
        self._tell(self.difference)

    def now_ms(self) -> int | None:
        """Milliseconds since 1970; None: nothing may expire now, however old it seems."""
        # In this order: whoever is held up between the two seems to be ahead, and expires nothing.
        now_s, wall_ms = self._clock.monotonic(), self._clock.wall_ms()
        limit_ms = self._difference_ms_max
        return wall_ms if may_expire(self._known, wall_ms=wall_ms, now_s=now_s, difference_ms_max=limit_ms) else None

    @property
    def difference(self) -> ClockDifference | None:
        """As of now; None: it is not known."""
        known, now_s, wall_ms = self._known, self._clock.monotonic(), self._clock.wall_ms()
        if not isinstance(known, ControllerClock):
            return None
        may = may_expire(known, wall_ms=wall_ms, now_s=now_s, difference_ms_max=self._difference_ms_max)
        return ClockDifference(ahead_ms=known.ahead_ms(wall_ms=wall_ms, now_s=now_s), held_back=not may)

    def _ahead_s(self) -> float | None:
        difference = self.difference
        return None if difference is None else difference.ahead_ms / 1000

    def _tell(self, difference: ClockDifference | None) -> None:
        held_back = difference is not None and difference.held_back
        if held_back == self._held_back:
            return
        self._held_back = held_back
        if difference is not None and held_back:
            self._log.error(
                "nothing is deleted or forgotten by time",
                reason="the wall clocks of this broker and of the controller differ: set the wrong one right (NTP)",
                ahead_s=difference.ahead_ms / 1000,
                clock_difference_max_s=self._difference_ms_max / 1000,
            )
        else:
            self._log.info("records, producers and offsets expire by time again")
