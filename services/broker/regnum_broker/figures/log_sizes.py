"""What the logs of a broker take, for its metrics."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from regnum_service.clock import Clock
from regnum_telemetry.instruments import broker as instruments
from regnum_telemetry.instruments import topics
from regnum_telemetry.metrics import OTHER, Metrics

from regnum_broker.serving.topic_traffic import TopicTraffic
from regnum_broker.storage import Storage

FRESH_S: Final = 0.5
"""For so long the sizes of all logs are what they are: several metrics ask for them at once."""

AT_ONCE: Final = 500
"""Logs that are looked at before other threads may go on, some 0.3 ms: the interpreter lets them after 5 (safety rule
S22)."""


LET_OTHERS_RUN: Final = partial(time.sleep, 0)
"""Gives the interpreter to whichever thread waits for it, and takes no time when none does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSizes:
    """What the logs of a broker take."""

    size_bytes: int
    """All together."""
    segments: int
    """Of all logs."""
    by_topic: tuple[tuple[str, int], ...]
    """Bytes of topics with places, after those of all others together."""


class LogSizing:
    """Adds the sizes of all logs up: for the thread that reads metrics, which other threads interrupt in the middle."""

    def __init__(
        self,
        storage: Storage,
        traffic: TopicTraffic,
        clock: Clock,
        *,
        let_others_run: Callable[[], None] = LET_OTHERS_RUN,
    ) -> None:
        """Only assigns.

        Args:
            storage: the logs.
            traffic: which topics are shown by name.
            clock: source of time.
            let_others_run: called between two parts of a walk through all logs.
        """
        self._let_others_run: Final = let_others_run
        self._storage: Final = storage
        self._traffic: Final = traffic
        self._clock: Final = clock
        self._kept: tuple[float, LogSizes] | None = None
        self.walks = 0
        """How often all logs were looked at."""

    def show(self, metrics: Metrics) -> None:
        """Let the metrics read it."""
        metrics.observe(instruments.LOG_SIZE, lambda: self.sizes().size_bytes)
        metrics.observe(instruments.LOG_SEGMENTS, lambda: self.sizes().segments)
        if self._traffic.topics_max:
            metrics.observe_all(
                topics.TOPIC_LOG_SIZE,
                lambda: [((topic,), size) for topic, size in self.sizes().by_topic],
                most=self._traffic.topics_max + 1,
            )

    def sizes(self) -> LogSizes:
        """As of now, or of a moment ago."""
        now_s, kept = self._clock.monotonic(), self._kept
        if kept is not None and now_s - kept[0] < FRESH_S:
            return kept[1]
        segments, by_topic = 0, Counter[str]()
        traffic = self._traffic
        # A mapping that nobody changes: what comes and goes makes another.
        for number, log in enumerate(self._storage.directory.replicas.values()):
            if number % AT_ONCE == AT_ONCE - 1:
                self._let_others_run()
            shown = log.segments
            segments += len(shown)
            by_topic[log.topic if log.topic in traffic else OTHER] += sum(segment.size_bytes for segment in shown)
        self.walks += 1
        rest = by_topic.pop(OTHER, 0)
        found = LogSizes(
            size_bytes=rest + sum(by_topic.values()), segments=segments, by_topic=((OTHER, rest), *by_topic.items())
        )
        self._kept = (now_s, found)
        return found
