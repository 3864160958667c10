"""How many records were acknowledged, and how long that took. Pure.

Goals: constant memory at any rate; a record that was sent late because the brokers were slow counts from when it was
due, for its sender would have waited as well (coordinated omission).

Algorithm: latencies are counted in buckets, each a tenth larger than the one before, from 0.1 ms on; a quantile is the
upper bound of its bucket, so at most a tenth too large.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

FIRST_S: Final = 0.0001
"""Upper bound of the first bucket."""
GROWTH: Final = 1.1
"""Of one upper bound over the one before."""
COLUMNS: Final = ("second", "records_s", "bytes_s", "p50_ms", "p99_ms", "max_ms", "in_flight", "failed")


def due(elapsed_s: float, rate: float) -> int:
    """Records that should have been sent by then, at so many a second.

    >>> due(1.5, 10.0)
    16
    """
    return math.floor(elapsed_s * rate) + 1


class Latencies:
    """Counts of latencies."""

    def __init__(self) -> None:
        self._counts: Final = dict[int, int]()
        self.count = 0
        """How many there were."""
        self.max_s = 0.0
        """The longest, exactly."""

    def add(self, latency_s: float) -> None:
        """One more."""
        bucket = max(0, math.ceil(math.log(max(latency_s, FIRST_S) / FIRST_S, GROWTH)))
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self.count += 1
        self.max_s = max(self.max_s, latency_s)

    def quantile_s(self, share: float) -> float | None:
        """The latency that a share of them does not exceed, about; None: there were none."""
        left = math.ceil(share * self.count)
        for bucket in sorted(self._counts):
            left -= self._counts[bucket]
            if left <= 0:
                return min(self.max_s, FIRST_S * GROWTH**bucket)
        return None


class Tally:
    """What became of the records, in the present interval and in all."""

    def __init__(self, *, record_bytes: int) -> None:
        """Only assigns; ``record_bytes``: of a key and a value together."""
        self._record_bytes: Final = record_bytes
        self._interval = Latencies()
        self._all: Final = Latencies()
        self._failed_before = 0
        self.sent = 0
        """Records that were handed to the producer."""
        self.failed = 0
        """Those that ended with an error."""

    @property
    def in_flight(self) -> int:
        """Records that have not ended."""
        return self.sent - self._all.count - self.failed

    def acknowledged(self, latency_s: float) -> None:
        """One more is."""
        self._interval.add(latency_s)
        self._all.add(latency_s)

    def interval(self, second: float, over_s: float) -> dict[str, Any]:
        """The row of an interval that ends; the next one begins."""
        row = self._row(round(second), self._interval, over_s, self.failed - self._failed_before)
        self._interval, self._failed_before = Latencies(), self.failed
        return row

    def total(self, over_s: float) -> dict[str, Any]:
        """The row of everything."""
        return self._row("total", self._all, over_s, self.failed)

    def _row(self, second: int | str, latencies: Latencies, over_s: float, failed: int) -> dict[str, Any]:
        records_s = latencies.count / over_s if over_s > 0 else 0.0
        return {
            "second": second,
            "records": latencies.count,
            "records_s": round(records_s, 1),
            "bytes_s": round(records_s * self._record_bytes),
            "p50_ms": _ms(latencies.quantile_s(0.5)),
            "p99_ms": _ms(latencies.quantile_s(0.99)),
            "max_ms": _ms(latencies.max_s if latencies.count else None),
            "in_flight": self.in_flight,
            "failed": failed,
        }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 2)


def for_people(row: Mapping[str, Any]) -> dict[str, Any]:
    """The same with whole records a second."""
    return {**row, "records_s": round(row["records_s"])}
