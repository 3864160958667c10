"""Metrics that count how often something is recorded in them: what recording costs is a number of calls, not a time."""

from dataclasses import dataclass
from typing import Final

from regnum_broker.serving.topic_traffic import TopicCounts, TopicTraffic
from regnum_telemetry.instruments import Instrument
from regnum_telemetry.metrics import SERIES_MAX, Counter, Histogram, Metrics


@dataclass(slots=True)
class Recordings:
    """How often, by kind."""

    additions: int = 0
    """To counters."""
    values: int = 0
    """Into histograms."""
    topics: int = 0
    """Into the counts of topics: a look into a dictionary and two additions."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.additions + self.values + self.topics


class CountedMetrics(Metrics):
    """Metrics, and how often they are recorded in. For one thread."""

    def __init__(self) -> None:
        super().__init__()
        self.recordings: Final = Recordings()

    def counter(self, instrument: Instrument, *labels: str) -> Counter:
        """See Metrics."""
        kept = super().counter(instrument, *labels)
        recordings = self.recordings

        class Counted(Counter):
            __slots__ = ()

            def add(self, amount: float = 1) -> None:
                recordings.additions += 1
                kept.add(amount)

        return Counted()

    def histogram(self, instrument: Instrument, *labels: str, most: int = SERIES_MAX) -> Histogram:
        """See Metrics."""
        kept = super().histogram(instrument, *labels, most=most)
        recordings = self.recordings

        class Counted(Histogram):
            __slots__ = ()

            def record(self, value: float) -> None:
                recordings.values += 1
                kept.record(value)

        return Counted(kept.bounds)


class CountedTraffic(TopicTraffic):
    """Traffic of topics, and how often it is recorded."""

    def __init__(self, metrics: CountedMetrics, *, topics_max: int) -> None:
        super().__init__(topics_max=topics_max, metrics=metrics)
        self._recordings: Final = metrics.recordings

    def of(self, topic: str) -> TopicCounts:
        """See TopicTraffic."""
        self._recordings.topics += 1
        return super().of(topic)
