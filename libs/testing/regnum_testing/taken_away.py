"""How much of the processors was taken away while a test failed.

Virtual machines share a host. When the others there take four fifths of our processors for ten seconds, sessions of the
store expire and beats stay out as they would with dead processes. The summary names each failure with its share, for
the one who reads it; what runs once more is decided without it (see ``suite``).
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

SPAN_S: Final = 5.0
"""Over which the share is taken: about what a session of the tests' stores lives without a sign of life."""
EVERY_S: Final = 0.5
REMEMBERED: Final = 2400
"""Samples: twenty minutes, longer than any test."""

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Sample:
    """What the processors had had at a moment; all in seconds."""

    at_s: float
    """Of the monotonic clock."""
    ours_s: float
    """Of all processors together: busy for us, or idle because we wanted nothing."""


def sample(proc: Path = Path("/proc")) -> Sample:
    """The state now, from the kernel's own books (proc(5), stat). Raises OSError where there are none."""
    line = (proc / "stat").read_text(encoding="ascii").split("\n", 1)[0]
    ticks = [int(word) for word in line.split()[1:9]]
    # The last of these is steal: what a processor wanted and another guest had.
    return Sample(time.monotonic(), sum(ticks[:7]) / _TICKS_PER_S)


def worst_ratio(samples: Iterable[Sample], processors: int, *, since_s: float, span_s: float = SPAN_S) -> float:
    """The largest share, 0 to 1, of the processors' time that was not ours in any span since a moment.

    What is neither ours nor booked as stolen was a stop of the whole machine: it counts too. 0.0 when less than a span
    has been seen.
    """
    window: deque[Sample] = deque()
    worst = 0.0
    for one in samples:
        if one.at_s < since_s - span_s:
            continue
        window.append(one)
        while len(window) > 2 and one.at_s - window[1].at_s >= span_s:
            window.popleft()
        passed_s = one.at_s - window[0].at_s
        if passed_s >= span_s:
            worst = max(worst, 1.0 - (one.ours_s - window[0].ours_s) / (passed_s * processors))
    return worst


@dataclass(slots=True)
class Watch:
    """Looks at the processors all the time, on a thread of its own."""

    look: Callable[[], Sample] = sample
    processors: int = field(default_factory=lambda: os.cpu_count() or 1)
    _samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _ended: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Begin to look."""
        threading.Thread(target=self._run, name="processors", daemon=True).start()

    def _run(self) -> None:
        while not self._ended.wait(EVERY_S):
            self._samples.append(self.look())

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()

    def taken(self, since_s: float) -> float:
        """The worst share since a moment of the monotonic clock, that moment's own span included."""
        return worst_ratio([*self._samples, self.look()], self.processors, since_s=since_s)


class TakenAway:
    """The plugin: notes for each failure what had been taken away since its module began."""

    def __init__(self, watch: Watch) -> None:
        """Only assigns."""
        self._watch: Final = watch
        self._module: Path | None = None
        self._since_s = 0.0
        self._failed: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """What a module's tests share may have been hurt before the one that fails."""
        if item.path != self._module:
            self._module, self._since_s = item.path, time.monotonic()
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure of any phase."""
        if report.failed:
            self._failed.setdefault(report.nodeid, self._watch.taken(self._since_s))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say of each failure how much had been taken away."""
        for test, taken in self._failed.items():
            terminalreporter.write_line(f"{taken:.0%} of the processors taken away: {test}")


def pytest_configure(config: pytest.Config) -> None:
    """Watch, where the kernel keeps books."""
    try:
        sample()
    except (OSError, ValueError):
        return
    watch = Watch()
    watch.start()
    config.add_cleanup(watch.stop)
    config.pluginmanager.register(TakenAway(watch), "taken-away")
