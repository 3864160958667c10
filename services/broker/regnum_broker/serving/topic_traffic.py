"""What is produced to and fetched from single topics, for the metrics: as many as there are places for.

Goals: a count costs a look into a dictionary and two additions; memory and the number of series are bounded, whatever
topics there are; a topic that is used keeps its series, or its rate would jump.

Algorithm: the first topics that have traffic get a place each. When all places are taken, further topics are counted
together, as ``other``. At most once in ``LOOK_S`` a topic that finds no place looks whether one has had no traffic for
``IDLE_S``: its place is given away, and its series ends. The sums without a topic (``BYTES_IN`` and so on) have
everything in any case.

Why not the topics with the most traffic: who is first among 100,000 changes all the time, and a series that comes and
goes has no rate. Whoever wants another choice gives more places.

Example: 2 places; topics a and b have traffic, c is counted as other; a is deleted. An hour later c gets a's place.
"""

from collections.abc import Callable, Iterable
from typing import Final

from regnum_service.clock import Clock, SystemClock
from regnum_telemetry.instruments import topics as instruments
from regnum_telemetry.instruments.definition import Instrument
from regnum_telemetry.metrics import OTHER, Labels, Metrics

IDLE_S: Final = 3_600.0
"""Time without traffic after which a topic may lose its place."""

LOOK_S: Final = 60.0
"""Shortest time between two looks for places that may be given away."""


class TopicCounts:
    """Sums of one topic, or of all that have no place. Written by the loop, read by any thread."""

    __slots__ = ("bytes_in", "bytes_out", "changed_s", "records_in", "records_out", "seen")

    def __init__(self, now_s: float) -> None:
        self.bytes_in = 0
        """Bytes of batches appended."""
        self.records_in = 0
        """Records appended."""
        self.bytes_out = 0
        """Bytes sent to consumers."""
        self.records_out = 0
        """Records sent to consumers."""
        self.changed_s = now_s
        """When there was first found to be as much traffic as now."""
        self.seen = 0
        """Traffic at that time."""

    def appended(self, records: int, size_bytes: int) -> None:
        """A producer's batch was."""
        self.records_in += records
        self.bytes_in += size_bytes

    def sent(self, records: int, size_bytes: int) -> None:
        """Records were, to a consumer."""
        self.records_out += records
        self.bytes_out += size_bytes


class TopicTraffic:
    """Belongs to the event loop; the metrics read it from any thread."""

    def __init__(self, *, topics_max: int = 0, clock: Clock | None = None, metrics: Metrics | None = None) -> None:
        """Only assigns, and lets the metrics read it.

        Args:
            topics_max: places; 0: nothing is shown by topic.
            clock: source of time; the machine's when None.
            metrics: of the process; None: nobody asks.
        """
        self._topics_max: Final = topics_max
        self._clock: Final = clock or SystemClock()
        self._rest: Final = TopicCounts(0.0)
        self._known: Final[dict[str, TopicCounts]] = {}
        self._looked_s = float("-inf")
        if metrics is not None and topics_max:
            self._show(metrics, instruments.TOPIC_BYTES_IN, lambda counts: counts.bytes_in)
            self._show(metrics, instruments.TOPIC_RECORDS_IN, lambda counts: counts.records_in)
            self._show(metrics, instruments.TOPIC_BYTES_OUT, lambda counts: counts.bytes_out)
            self._show(metrics, instruments.TOPIC_RECORDS_OUT, lambda counts: counts.records_out)

    @property
    def topics_max(self) -> int:
        """Places."""
        return self._topics_max

    def of(self, topic: str) -> TopicCounts:
        """Where the traffic of a topic is counted; not to be kept, since its place may be given away."""
        return self._known.get(topic) or self._take_place(topic)

    def __contains__(self, topic: str) -> bool:
        """Whether a topic has a place. Any thread."""
        return topic in self._known

    def _take_place(self, topic: str) -> TopicCounts:
        if len(self._known) >= self._topics_max and not self._made_room():
            return self._rest
        # A topic may be called as the rest is.
        if topic == OTHER:
            return self._rest
        counts = self._known[topic] = TopicCounts(self._clock.monotonic())
        return counts

    def _made_room(self) -> bool:
        now_s = self._clock.monotonic()
        if not self._topics_max or now_s - self._looked_s < LOOK_S:
            return False
        self._looked_s = now_s
        for topic, counts in tuple(self._known.items()):
            traffic = counts.bytes_in + counts.bytes_out
            if traffic != counts.seen:
                counts.seen, counts.changed_s = traffic, now_s
            elif now_s - counts.changed_s >= IDLE_S:
                del self._known[topic]
        return len(self._known) < self._topics_max

    def _show(self, metrics: Metrics, instrument: Instrument, value: Callable[[TopicCounts], int]) -> None:
        def read() -> Iterable[tuple[Labels, float]]:
            yield (OTHER,), value(self._rest)
            # One copy: the loop's thread adds to it.
            for topic, counts in tuple(self._known.items()):
                yield (topic,), value(counts)

        metrics.observe_all(instrument, read, most=self._topics_max + 1)
