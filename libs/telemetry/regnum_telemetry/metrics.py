"""Metrics as the rest of the project makes them. Imports nothing of OpenTelemetry: a count is an addition.

Goals: what is measured on the way of every record costs a fraction of a microsecond; nobody waits for whoever reads;
reading costs nothing but on the reader's own thread; the number of series is bounded, whatever labels come.

Constraints: counters and histograms are written by one thread each (the writer's, or the loop's); they are read from
the thread that serves them. Gauges are functions that the reading thread calls: they read numbers that are there, never
what another thread changes while it is walked through.

A ``Metrics`` comes in through constructors, like a clock. One that nobody reads costs the same and is the default of
what tests build.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from types import MappingProxyType
from typing import Final

from regnum_telemetry.instruments.definition import Instrument, Kind

SERIES_MAX: Final = 100
"""Different labels that one instrument has at most; what comes beyond is counted under ``OTHER``."""

OTHER: Final = "other"
"""Label of what has no room for labels of its own."""

_NO_TRACES: Final[Mapping[int, "Exemplar"]] = MappingProxyType({})

Labels = tuple[str, ...]
"""Values of an instrument's labels, in its order."""

Read = Callable[[], Iterable[tuple[Labels, float]]]
"""What there is now, with its labels."""


class Counter:
    """A sum. One thread adds to it."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: int | float = 0
        """The sum so far."""

    def add(self, amount: float = 1) -> None:
        """Add; never less than 0."""
        self.value += amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Exemplar:
    """A value that came, and the trace that it was measured in."""

    trace_id: str
    """32 hex digits."""
    value: float
    """It."""
    unix_s: float
    """When it came, in seconds since 1970."""


class Histogram:
    """How often which values came. One thread records into it."""

    __slots__ = ("bounds", "counts", "exemplars", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds: Final = bounds
        """Upper bounds of all buckets but the last."""
        self.counts: Final = [0] * (len(bounds) + 1)
        """Values in each bucket; a value on a bound counts below it."""
        self.total: float = 0.0
        """Sum of the values."""
        self.exemplars: Mapping[int, Exemplar] = _NO_TRACES
        """The newest value with a trace of each bucket that had one, by the number of the bucket."""

    def record(self, value: float) -> None:
        """A value came."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def record_traced(self, value: float, trace_id: str, unix_s: float) -> None:
        """A value came that was measured in a trace; for what is rare. ``trace_id``: empty: nothing is traced."""
        self.record(value)
        if trace_id:
            exemplar = Exemplar(trace_id=trace_id, value=value, unix_s=unix_s)
            # Another mapping, because a thread may be reading this one.
            self.exemplars = {**self.exemplars, bisect_left(self.bounds, value): exemplar}


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramReading:
    """A histogram as it was read."""

    counts: tuple[int, ...]
    """Values in each bucket, the last without bound."""
    total: float
    """Sum of the values."""
    exemplars: Mapping[int, Exemplar]
    """See ``Histogram``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All series of one instrument as they were read."""

    instrument: Instrument
    """Which."""
    numbers: tuple[tuple[Labels, float], ...] = ()
    """Values with their labels; none of a histogram."""
    histograms: tuple[tuple[Labels, HistogramReading], ...] = ()
    """With their labels; none of another kind."""


class Metrics:
    """The metrics of one process. ``counter`` and ``histogram`` give the same object for the same labels."""

    def __init__(self) -> None:
        self._counters: Final[dict[Instrument, dict[Labels, Counter]]] = {}
        self._histograms: Final[dict[Instrument, dict[Labels, Histogram]]] = {}
        self._reads: Final[dict[Instrument, tuple[tuple[Read, int], ...]]] = {}

    def counter(self, instrument: Instrument, *labels: str) -> Counter:
        """The counter with these labels; made when there is none. Raises ValueError for another kind or number."""
        _check(instrument, labels, Kind.COUNTER)
        series = self._counters.setdefault(instrument, {})
        key = _within(series, labels, SERIES_MAX)
        found = series.get(key)
        if found is None:
            found = series[key] = Counter()
        return found

    def histogram(self, instrument: Instrument, *labels: str, most: int = SERIES_MAX) -> Histogram:
        """The histogram with these labels; made when there is none. Raises ValueError for another kind or number.

        ``most``: different labels that there are; what comes beyond is counted under ``OTHER``.
        """
        _check(instrument, labels, Kind.HISTOGRAM)
        series = self._histograms.setdefault(instrument, {})
        key = _within(series, labels, most)
        found = series.get(key)
        if found is None:
            found = series[key] = Histogram(instrument.bounds)
        return found

    def observe(self, instrument: Instrument, read: Callable[[], float | None]) -> None:
        """A gauge, or a sum kept elsewhere, without labels: read when somebody asks; None: not shown at present."""
        _check(instrument, (), instrument.kind)

        def readings() -> Iterable[tuple[Labels, float]]:
            value = read()
            return () if value is None else (((), value),)

        self._reads[instrument] = ((readings, 1),)

    def observe_all(self, instrument: Instrument, read: Read, *, most: int = SERIES_MAX) -> None:
        """The same with labels; of more than ``most`` the first are shown."""
        self._reads[instrument] = ((read, most),)

    def observe_also(self, instrument: Instrument, read: Read) -> None:
        """The same, besides what is observed there already: of several parts of a process that show other labels."""
        self._reads[instrument] = (*self._reads.get(instrument, ()), (read, SERIES_MAX))

    def read(self) -> list[Reading]:
        """Everything as of now, in no order. Any thread; raises what a gauge raises."""
        readings = [
            Reading(
                instrument=instrument,
                numbers=tuple((labels, counter.value) for labels, counter in tuple(series.items())),
            )
            for instrument, series in tuple(self._counters.items())
        ]
        for instrument, histograms in tuple(self._histograms.items()):
            read = tuple(
                (labels, HistogramReading(counts=tuple(one.counts), total=one.total, exemplars=one.exemplars))
                for labels, one in tuple(histograms.items())
            )
            readings.append(Reading(instrument=instrument, histograms=read))
        readings.extend(
            Reading(
                instrument=instrument,
                numbers=tuple(chain.from_iterable(islice(look(), most) for look, most in looks)),
            )
            for instrument, looks in tuple(self._reads.items())
        )
        return readings


def _check(instrument: Instrument, labels: Labels, kind: Kind) -> None:
    if instrument.kind is not kind or len(labels) != len(instrument.labels):
        raise ValueError(f"{instrument.name} is a {instrument.kind.value} with labels {instrument.labels}")


def _within(series: dict[Labels, Counter] | dict[Labels, Histogram], labels: Labels, most: int) -> Labels:
    """The labels, or those of the rest when there are too many."""
    return labels if labels in series or len(series) < most else (OTHER,) * len(labels)
