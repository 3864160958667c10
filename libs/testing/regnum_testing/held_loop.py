"""How long an event loop is held, in CPU time of its own thread (safety rule S22).

Goals: the figure says something about the code and nothing about the machine: time in which other processes, or other
threads of this one, had the processor does not count. A garbage collection counts, whichever thread it runs on, for
it stops them all.

Algorithm: one turn of a loop lasts from the return of its selector's ``select`` to the next call of it; a selector
that notes the CPU time of the thread at both moments sees every turn and costs next to nothing. Only what happens
inside ``measuring`` counts, so that a scenario can prepare itself. CPU time is not quite the code's alone either:
where others on the host use the same cores and caches, the same work took up to twice as much of it, from one second to
the next. So a piece of work that is always the same is timed before and after, and the limit grows as that has; and
what was held too long is done again, some times: code that holds its loop does so each time, a neighbour does not.

    held = run_measured(scenario)        # scenario: async def scenario(held: HeldLoop) -> None
    held.assert_free()
"""

import asyncio
import gc
import math
import selectors
import statistics
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from regnum_service.collector import short_collections

LIMIT_S: Final = 0.050
"""Longest turn of a loop (safety rule S22)."""

REFERENCE_S: Final = 0.011
"""What ``slowness`` takes where nobody else uses the host, CPU seconds."""

ATTEMPTS_MAX: Final = 4
"""How often a scenario that holds its loop for too long is run, before it counts."""


@dataclass(frozen=True, slots=True)
class _Piece:
    number: int
    pair: tuple[int, int]
    name: str


def slowness() -> float:
    """How much longer work takes now than where nobody else uses the host; 1.0 at least."""
    spent_s: list[float] = []
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(9):
            since_s = time.thread_time()
            pieces = {number: _Piece(number, (number, number + 1), "x") for number in range(4_000)}
            sum(replace(piece, number=piece.number + 1).number for piece in pieces.values())
            spent_s.append(time.thread_time() - since_s)
    finally:
        if collecting:
            gc.enable()
    return max(1.0, statistics.median(spent_s) / REFERENCE_S)


class HeldLoop:
    """The longest turns of one loop in one attempt, by the name of what was measured."""

    def __init__(self) -> None:
        self.worst_s: dict[str, float] = {}
        """Longest turn, or longest collection on another thread, in each measured part."""
        self.slowness = 1.0
        """How slow the machine was meanwhile."""
        self._name: str | None = None
        self._since_s = 0.0
        self._thread = threading.get_ident()
        self._collecting_since_s = 0.0

    @contextmanager
    def measuring(self, name: str) -> Iterator[None]:
        """Measure what happens meanwhile; on the loop's thread."""
        # Twice: the first leaves nothing of the preparation to the turns that follow, see regnum_service.collector.
        gc.collect()
        gc.collect()
        gc.callbacks.append(self._collection)
        self._name, self._since_s = name, time.thread_time()
        self.worst_s.setdefault(name, 0.0)
        try:
            yield
        finally:
            self.turn_ends()
            self._name = None
            gc.callbacks.remove(self._collection)

    def turn_begins(self) -> None:
        """The selector returned."""
        self._since_s = time.thread_time()

    def turn_ends(self) -> None:
        """The selector is called."""
        if self._name is not None:
            self._note(time.thread_time() - self._since_s)

    def too_long(self, limit_s: float) -> set[str]:
        """What held the loop for longer than it may here and now."""
        return {name for name, worst_s in self.worst_s.items() if worst_s > limit_s * self.slowness}

    def _note(self, seconds: float) -> None:
        name = self._name
        if name is not None:
            self.worst_s[name] = max(self.worst_s[name], seconds)

    def _collection(self, phase: str, _info: dict[str, int]) -> None:
        if threading.get_ident() == self._thread:
            # A part of the turn it falls into.
            return
        if phase == "start":
            self._collecting_since_s = time.thread_time()
        else:
            self._note(time.thread_time() - self._collecting_since_s)


class _NotingSelector(selectors.DefaultSelector):
    def __init__(self, held: HeldLoop) -> None:
        super().__init__()
        self._held: Final = held

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._held.turn_ends()
        ready = super().select(timeout)
        self._held.turn_begins()
        return ready


def noting_loop(held: HeldLoop) -> asyncio.SelectorEventLoop:
    """A loop whose turns are measured, on the thread on which ``held`` was made."""
    return asyncio.SelectorEventLoop(_NotingSelector(held))


@dataclass(frozen=True, slots=True)
class Measured:
    """All attempts at one scenario, in their order; one at least."""

    attempts: tuple[HeldLoop, ...]

    @property
    def worst_s(self) -> dict[str, float]:
        """The longest turn of each measured part, in the attempt where it was shortest."""
        return {
            name: min(attempt.worst_s.get(name, math.inf) for attempt in self.attempts)
            for name in self.attempts[-1].worst_s
        }

    def too_long(self, limit_s: float = LIMIT_S) -> set[str]:
        """What held the loop for too long in every attempt."""
        return set.intersection(*(attempt.too_long(limit_s) for attempt in self.attempts))

    def assert_free(self, limit_s: float = LIMIT_S) -> None:
        """AssertionError when a turn took longer each time."""
        told = "; ".join(
            f"{name}: "
            + ", ".join(
                f"{attempt.worst_s[name] * 1000:.0f} of {limit_s * attempt.slowness * 1000:.0f} ms "
                f"({attempt.slowness:.1f} times as slow as it may be)"
                for attempt in self.attempts
            )
            for name in sorted(self.too_long(limit_s))
        )
        assert not told, f"the loop was held for too much CPU time, in {len(self.attempts)} attempts of as many: {told}"


def run_measured(
    scenario: Callable[[HeldLoop], Coroutine[Any, Any, None]], *, how_slow: Callable[[], float] = slowness
) -> Measured:
    """Run a scenario on an event loop of its own, whose turns are measured. Call it where no loop runs.

    Garbage is collected as in a service. A scenario that holds its loop for longer than ``LIMIT_S`` runs again, up to
    ``ATTEMPTS_MAX`` times: it prepares everything itself.
    """
    attempts: list[HeldLoop] = []
    while not attempts or (len(attempts) < ATTEMPTS_MAX and Measured(tuple(attempts)).too_long()):
        attempts.append(_run_once(scenario, how_slow))
    return Measured(tuple(attempts))


def _run_once(scenario: Callable[[HeldLoop], Coroutine[Any, Any, None]], how_slow: Callable[[], float]) -> HeldLoop:
    held = HeldLoop()
    before = how_slow()
    with (
        short_collections(),
        asyncio.Runner(loop_factory=lambda: noting_loop(held)) as runner,
    ):
        runner.run(scenario(held))
    held.slowness = max(before, how_slow())
    return held
