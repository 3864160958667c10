"""Rates over sliding windows, and how long whoever exceeds one is to wait. Pure: times are seconds that callers bring.

Goals: what came in a burst is spread over the windows, as Kafka does it (``Rate`` and ``SampledStat``), so that people
who know one know the other.

Algorithm: values are added up in samples, one for each window of ``size_s``; samples older than ``num`` windows are
dropped. The rate is the sum over the time since the oldest sample began, and that time is never taken for less than
``num - 1`` windows. Whoever is above the bound waits until the same sum, over a longer time, is the bound:
``(rate - bound) / bound * time``.

Example, a bound of 500 B/s, 11 windows of 1 s: 400 bytes in each of ten seconds, then 2,300 half a second into the
next: 6,300 bytes in 10.5 s are 600 B/s, and the wait is 100 / 500 * 10.5 s = 2.1 s.

Known limit, Kafka's as well: a burst into empty windows is taken for the work of ``num - 1`` of them, so that a client
whose bursts are as large as ``2 num - 1`` windows and come when the windows have just forgotten does almost twice its
bound.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from regnum_model.bucket import Windows

WAIT_S_MAX: Final = 3_600.0
"""Nobody is told to wait for longer, however small the bound is."""


@dataclass(slots=True)
class _Sample:
    began_s: float
    total: float = 0.0


class SampledRate:
    """What one client does in a time. Never holds more than ``num`` samples."""

    __slots__ = ("_samples", "used_s")

    def __init__(self, now_s: float) -> None:
        self._samples: Final[deque[_Sample]] = deque((_Sample(now_s),))
        self.used_s = now_s
        """When something was recorded last."""

    def record(self, value: float, now_s: float, windows: Windows) -> None:
        """It did that much; less than nothing takes back."""
        self.used_s = now_s
        newest = self._samples[-1]
        if now_s - newest.began_s >= windows.size_s:
            newest = _Sample(now_s)
            self._samples.append(newest)
            while len(self._samples) > windows.num:
                self._samples.popleft()
        newest.total += value

    def measure(self, now_s: float, windows: Windows) -> float:
        """The rate at that moment, a second."""
        self._forget(now_s, windows)
        return sum(sample.total for sample in self._samples) / self.span_s(now_s, windows)

    def span_s(self, now_s: float, windows: Windows) -> float:
        """The time over which it is measured."""
        elapsed_s = now_s - self._samples[0].began_s
        missing = windows.num - 1 - int(elapsed_s // windows.size_s)
        # (With a single window that has just begun, no time has passed yet.)
        return max(elapsed_s + max(0, missing) * windows.size_s, min(1.0, windows.size_s))

    def wait_s(self, bound: float, now_s: float, windows: Windows) -> float:
        """How long it has to do nothing so that it is at the bound again; 0: it is not above it."""
        rate = self.measure(now_s, windows)
        if rate <= bound:
            return 0.0
        return min((rate - bound) / bound * self.span_s(now_s, windows), WAIT_S_MAX)

    def _forget(self, now_s: float, windows: Windows) -> None:
        while self._samples and now_s - self._samples[0].began_s >= windows.span_s:
            self._samples.popleft()
        if not self._samples:
            self._samples.append(_Sample(now_s))
