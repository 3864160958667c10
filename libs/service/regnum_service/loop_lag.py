"""How late an event loop runs: a metric, a guard of fencing (safety rule S9) and a promise (S22)."""

from collections import deque
from typing import Final

import structlog
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Metrics

from regnum_service.clock import Clock

PERIOD_S: Final = 0.020
"""Time between two measurements, unless told otherwise."""
LIMIT_S: Final = 0.050
"""Lag that is worth a log line (safety rule S22)."""
LOG_PERIOD_S: Final = 5.0
"""Shortest time between two such lines."""
SAMPLES_MAX: Final = 3_000
"""Measurements kept: one minute on a loop that is not late, with the usual period."""


class LoopLag:
    """Measures the loop that ``run`` runs on. The properties may be read from other threads."""

    def __init__(
        self,
        clock: Clock,
        *,
        loop_name: str = "main",
        period_s: float = PERIOD_S,
        metrics: Metrics | None = None,
    ) -> None:
        """Only assigns.

        Args:
            clock: source of time.
            loop_name: for the log and the metric.
            period_s: time between two measurements; what holds the loop for longer than that is never missed.
            metrics: where the lags are counted, and the current one is shown.
        """
        self._clock = clock
        metrics = metrics or Metrics()
        self._lags = metrics.histogram(instruments.LOOP_LAG, loop_name)
        metrics.observe_also(instruments.LOOP_LAG_CURRENT, lambda: (((loop_name,), self.current_s),))
        self._period_s = period_s
        self._log = structlog.get_logger("loop_lag").bind(loop=loop_name)
        self._samples: deque[tuple[float, float]] = deque(maxlen=SAMPLES_MAX)
        self._due: float | None = None
        self._last_s = 0.0
        self._worst_unlogged_s = 0.0
        self._logged_at: float | None = None

    @property
    def current_s(self) -> float:
        """The last measured lag, or what the measurement under way is late by now, whichever is more."""
        due = self._due
        overdue_s = 0.0 if due is None else self._clock.monotonic() - due
        return max(self._last_s, overdue_s, 0.0)

    def worst_s(self, window_s: float) -> float:
        """The largest lag of the last seconds, a block under way included."""
        since = self._clock.monotonic() - window_s
        # One copy: the loop's thread appends while another one reads.
        return max([self.current_s, *(lag_s for at, lag_s in tuple(self._samples) if at >= since)])

    async def run(self) -> None:
        """Measure for ever; a task of the supervisor."""
        try:
            while True:
                self._due = self._clock.monotonic() + self._period_s
                await self._clock.sleep(self._period_s)
                now = self._clock.monotonic()
                self._record(now, max(0.0, now - self._due))
        finally:
            self._due = None

    def _record(self, now: float, lag_s: float) -> None:
        self._last_s = lag_s
        self._lags.record(lag_s)
        self._samples.append((now, lag_s))
        self._worst_unlogged_s = max(self._worst_unlogged_s, lag_s)
        logged_recently = self._logged_at is not None and now - self._logged_at < LOG_PERIOD_S
        if self._worst_unlogged_s > LIMIT_S and not logged_recently:
            self._log.warning("loop late", lag_ms=round(self._worst_unlogged_s * 1000))
            self._logged_at = now
            self._worst_unlogged_s = 0.0
