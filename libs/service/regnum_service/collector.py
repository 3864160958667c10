"""Garbage collections that stay short, however much a service remembers (safety rule S22).

Constraints: a full collection walks every container object and stops all threads meanwhile: some 150 ms for the
picture of 10,000 partitions. What services keep for long is made of frozen values without cycles, which reference
counts free; cycles come from calls, tasks and errors, which are young.

Algorithm: as long as full collections are short they run as ever. One that took longer than it may freezes what
survived it (``gc.freeze``): the next one looks only at what was made since. The price: a cycle among objects that
were frozen is never found. Owners of large parts therefore let go of them when they end.
"""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

FULL: Final = 2
"""Generation whose collection is a full one."""

LONG_S: Final = 0.005
"""CPU time that a full collection may take before its survivors are frozen."""

YOUNG_MAX: Final = (700, 5, 2)
"""Thresholds of the generations: some 12,000 more objects bring a full collection."""


class _Freezing:
    def __init__(self) -> None:
        self._began_s = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] != FULL:
            return
        if phase == "start":
            self._began_s = time.thread_time()
        elif time.thread_time() - self._began_s > LONG_S:
            gc.freeze()


@contextmanager
def short_collections() -> Iterator[None]:
    """Meanwhile no garbage collection is long. Belongs around the whole life of a process."""
    freezing = _Freezing()
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    # How soon the next full collection comes depends on how much survived the last.
    gc.collect()
    gc.set_threshold(*YOUNG_MAX)
    gc.callbacks.append(freezing)
    try:
        yield
    finally:
        gc.callbacks.remove(freezing)
        gc.set_threshold(*before)
        gc.unfreeze()
