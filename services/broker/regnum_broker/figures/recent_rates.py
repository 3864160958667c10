"""What a broker did lately: sums that its metrics keep anyway, looked at every few seconds. For `regnum status`.

Prometheus makes rates of the same sums over any time; who has no Prometheus gets those of the last 10 to 15 seconds.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from regnum_service.clock import Clock
from regnum_telemetry.instruments import broker as instruments
from regnum_telemetry.instruments.definition import Instrument
from regnum_telemetry.metrics import Metrics

PERIOD_S: Final = 5.0
"""Time between two looks."""

LOOKS: Final = 3
"""Looks that are kept: the oldest is two to three periods old."""

SUMS: Final[tuple[Instrument, ...]] = (
    instruments.BYTES_IN,
    instruments.RECORDS_IN,
    instruments.BYTES_OUT,
    instruments.RECORDS_OUT,
    instruments.REPLICATION_BYTES_IN,
    instruments.REPLICATION_BYTES_OUT,
    instruments.BATCHES_REFUSED,
)
"""What rates are made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The sums at a moment."""

    at_s: float
    """Monotonic seconds."""
    sums: tuple[float, ...]
    """In the order of SUMS."""
    produce_counts: tuple[int, ...]
    """Produce calls by how long they took, in the buckets of their histogram."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What was done between two looks."""

    over_s: float
    """Time between them."""
    each: tuple[float, ...]
    """Of each of SUMS, by the second."""
    produce_p99_s: float | None
    """Time below which 99 of 100 produce calls took; None: there were none."""

    def of(self, instrument: Instrument) -> float:
        """The rate of one of SUMS."""
        return self.each[SUMS.index(instrument)]


class RecentRates:
    """``run`` and ``rates`` on the event loop."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        """Takes the first look."""
        self._clock: Final = clock
        self._counters: Final = tuple(metrics.counter(instrument) for instrument in SUMS)
        self._produce: Final = metrics.histogram(instruments.PRODUCE_DURATION)
        self._looks: Final[deque[Look]] = deque([self._look()], maxlen=LOOKS)

    async def run(self) -> None:
        """Look for ever; a task of the supervisor."""
        while True:
            await self._clock.sleep(PERIOD_S)
            self._looks.append(self._look())

    def rates(self) -> Rates:
        """Since the oldest look that is kept."""
        return between(self._looks[0], self._look(), self._produce.bounds)

    def _look(self) -> Look:
        return Look(
            at_s=self._clock.monotonic(),
            sums=tuple(counter.value for counter in self._counters),
            produce_counts=tuple(self._produce.counts),
        )


def between(before: Look, after: Look, bounds: tuple[float, ...]) -> Rates:
    """What was done between two looks; nothing when no time is between them."""
    over_s = after.at_s - before.at_s
    done = tuple(now - then for then, now in zip(before.sums, after.sums, strict=True))
    counts = tuple(now - then for then, now in zip(before.produce_counts, after.produce_counts, strict=True))
    return Rates(
        over_s=over_s,
        each=tuple(amount / over_s if over_s > 0 else 0.0 for amount in done),
        produce_p99_s=quantile(0.99, counts, bounds),
    )


def quantile(share: float, counts: tuple[int, ...], bounds: tuple[float, ...]) -> float | None:
    """The value below which that share of the values lies, as Prometheus estimates it: evenly spread in each bucket.

    None: there are no values. What lies beyond the last bound counts as being on it.
    """
    wanted = share * sum(counts)
    if not wanted:
        return None
    below, lower = 0, 0.0
    for count, upper in zip(counts, bounds, strict=False):
        if count and below + count >= wanted:
            return lower + (upper - lower) * (wanted - below) / count
        below, lower = below + count, upper
    return bounds[-1]
