"""What is drawn from the buckets, over sliding windows as Kafka measures it. Pure.

Goals: for each bucket in use: permits a second that were charged, and how long its callers were told to wait; what
nobody has used for an hour is dropped (Kafka's time for a sensor), and so is the least recently used of too many.

Constraints: callers invent client ids, so the number of buckets is bounded, and with it the memory. The loop's thread
records; the thread that somebody asks for metrics reads, so that a sample is replaced and never changed in a way that
could be seen half done.

Algorithm (Kafka's SampledStat and Rate): events are summed up in windows of ``size_s``, of which ``num`` are kept. The
first one begins with the first event, and the next begins with the first event after its end. A sample counts as long
as it is younger than all windows together. The rate is their sum divided by the time since the oldest of them began,
but by all windows less one at least, so that one event after quiet is no peak.

Example: 11 windows of 1 s. 30 permits at one moment after quiet are 3 a second: 30 / 10 s. After 11 s they are none.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, NamedTuple

from regnum_model.bucket import Bucket, Limit, Windows
from regnum_model.quota_matching import BucketKey

SAMPLES_MAX: Final = 25
"""Samples of one bucket: more windows than that are measured over so many longer ones."""

IDLE_S: Final = 3_600.0
"""A bucket that was not used for so long is shown no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What was drawn from one bucket lately."""

    rate: float
    """Permits charged, a second."""
    refused_rate: float
    """Permits refused, a second."""
    throttle_ms: float
    """Average of the throttle times that its callers were told within the windows; 0: none."""
    idle_s: float
    """Time since it was last used, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """A bucket and its usage."""

    key: BucketKey
    """Which."""
    usage: Usage
    """What was drawn from it lately."""
    bucket: Bucket
    """What it holds."""
    limit: Limit
    """What fills it."""


class _Sample(NamedTuple):
    since_s: float
    charged: float = 0.0
    refused: float = 0.0
    throttled_ms: float = 0.0
    throttles: int = 0


class _Recorded(NamedTuple):
    samples: tuple[_Sample, ...]
    """Oldest first; never empty."""
    at_s: float
    """When it was last used."""


class UsageBook:
    """The usage of all buckets of one term."""

    def __init__(self, *, entries_max: int, windows: Windows) -> None:
        """Only assigns.

        Args:
            entries_max: buckets that are kept; above that, the least recently used goes.
            windows: over which it is measured.
        """
        self._entries_max: Final = entries_max
        self.measure_over(windows)
        self._recorded: OrderedDict[BucketKey, _Recorded] = OrderedDict()
        """Least recently used first."""

    def __len__(self) -> int:
        return len(self._recorded)

    def measure_over(self, windows: Windows) -> None:
        """Other windows from now on; what was recorded is counted in those."""
        self._samples = min(windows.num, SAMPLES_MAX)
        self._span_s = windows.span_s
        self._sample_s = self._span_s / self._samples

    def record(self, key: BucketKey, *, charged: int, refused: int, throttle_ms: int, now_s: float) -> None:
        """A request drew on a bucket, or would have.

        Args:
            key: which bucket.
            charged: permits that were charged.
            refused: permits of what was refused.
            throttle_ms: how long the caller is to wait for this bucket, in milliseconds.
            now_s: when that was.
        """
        before = self._recorded.get(key)
        samples = () if before is None else self._kept(before.samples, now_s)
        if not samples or now_s - samples[-1].since_s >= self._sample_s:
            samples = (*samples[-self._samples + 1 :], _Sample(now_s)) if self._samples > 1 else (_Sample(now_s),)
        last = samples[-1]
        sample = _Sample(
            last.since_s,
            last.charged + charged,
            last.refused + refused,
            last.throttled_ms + throttle_ms,
            last.throttles + (throttle_ms > 0),
        )
        self._recorded[key] = _Recorded((*samples[:-1], sample), now_s)
        self._recorded.move_to_end(key)
        self._drop(now_s)

    def of(self, key: BucketKey, now_s: float) -> Usage | None:
        """The usage of a bucket; None when it is idle or was never used. Any thread."""
        recorded = self._recorded.get(key)
        if recorded is None or now_s - recorded.at_s > IDLE_S:
            return None
        samples = self._kept(recorded.samples, now_s)
        throttles = sum(sample.throttles for sample in samples)
        seconds = self._seconds(samples, now_s)
        return Usage(
            rate=sum(sample.charged for sample in samples) / seconds,
            refused_rate=sum(sample.refused for sample in samples) / seconds,
            throttle_ms=sum(sample.throttled_ms for sample in samples) / throttles if throttles else 0.0,
            idle_s=max(0.0, now_s - recorded.at_s),
        )

    def in_use(self, now_s: float) -> tuple[BucketKey, ...]:
        """Buckets that are not idle, most recently used first. Any thread."""
        # One copy: the loop's thread changes it while another one reads. Of keys, which are there: nothing is made
        # meanwhile that a collection, and with it another thread, could come in between for.
        keys = list(self._recorded)
        found = ((key, self._recorded.get(key)) for key in reversed(keys))
        return tuple(key for key, recorded in found if recorded is not None and now_s - recorded.at_s <= IDLE_S)

    def _kept(self, samples: tuple[_Sample, ...], now_s: float) -> tuple[_Sample, ...]:
        """Those that still count: never more than there are windows, nor older than all of them."""
        first = len(samples) - min(len(samples), self._samples)
        while first < len(samples) and now_s - samples[first].since_s >= self._span_s:
            first += 1
        return samples[first:]

    def _seconds(self, samples: tuple[_Sample, ...], now_s: float) -> float:
        """What the sum of the samples is divided by; Kafka's Rate.windowSize."""
        elapsed_s = max(0.0, now_s - samples[0].since_s) if samples else 0.0
        missing = self._samples - 1 - int(elapsed_s / self._sample_s)
        return max(elapsed_s + max(0, missing) * self._sample_s, self._sample_s)

    def _drop(self, now_s: float) -> None:
        while self._recorded:
            oldest = next(iter(self._recorded.values()))
            if len(self._recorded) <= self._entries_max and now_s - oldest.at_s <= IDLE_S:
                return
            self._recorded.popitem(last=False)
