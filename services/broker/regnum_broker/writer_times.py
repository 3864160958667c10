"""How long jobs wait for the log writer and how long it works on them: measured, and said when it is long."""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import structlog
from regnum_service.clock import Clock
from regnum_telemetry.instruments import broker as instruments
from regnum_telemetry.metrics import Metrics

T = TypeVar("T")

LONG_S: Final = 0.1
"""Work on one job that is worth a line in the log: all appends of the broker wait for it."""


class WriterTimes:
    """One for the writer of a log directory; the jobs that it times all run on that one thread."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        """Only assigns."""
        self._clock: Final = clock
        self._waits: Final = metrics.histogram(instruments.WRITER_WAIT)
        self._runs: Final = metrics.histogram(instruments.WRITER_RUN)
        self._log: Final = structlog.get_logger("storage")

    def now_s(self) -> float:
        """When a job is brought, for ``timed``."""
        return self._clock.monotonic()

    def timed(self, job: Callable[[], T], brought_s: float) -> Callable[[], T]:
        """The same job, timed; it was brought at that moment."""

        def run() -> T:
            began_s = self._clock.monotonic()
            try:
                return job()
            finally:
                self._took(job, began_s - brought_s, self._clock.monotonic() - began_s)

        return run

    def _took(self, job: Callable[[], object], waited_s: float, ran_s: float) -> None:
        self._waits.record(waited_s)
        self._runs.record(ran_s)
        if ran_s > LONG_S:
            self._log.warning(
                "log writer held up",
                job=name_of(job),
                ran_ms=round(ran_s * 1000),
                waited_ms=round(waited_s * 1000),
            )


def name_of(job: Callable[[], object]) -> str:
    """Where in the code a job comes from: ``ProduceHandler._hand_in.<locals>.append``."""
    function = job.func if isinstance(job, partial) else job
    return str(getattr(function, "__qualname__", type(function).__qualname__))
