"""How long garbage collections hold all threads: a metric. How many there are, Prometheus's library counts."""

import gc
import time
from collections.abc import Callable
from typing import Final

from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Metrics

GENERATIONS: Final = 3
"""Generations that CPython has; 2 is collected in a full collection."""


class CollectionPauses:
    """One for each process. The interpreter calls it, on whatever thread a collection happens to run."""

    def __init__(self, metrics: Metrics, now_s: Callable[[], float] = time.perf_counter) -> None:
        """Only assigns.

        Args:
            metrics: of the process.
            now_s: seconds that only grow; the thread's own time would miss what another process took meanwhile.
        """
        self._pauses: Final = tuple(
            metrics.histogram(instruments.COLLECTION_PAUSES, str(generation)) for generation in range(GENERATIONS)
        )
        self._now_s: Final = now_s
        self._began_s = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """A collection begins or ends; there is one at a time."""
        if phase == "start":
            self._began_s = self._now_s()
        else:
            self._pauses[info["generation"]].record(self._now_s() - self._began_s)

    def start(self) -> None:
        """Measure from now on."""
        gc.callbacks.append(self)

    def stop(self) -> None:
        """Measure no more."""
        gc.callbacks.remove(self)
