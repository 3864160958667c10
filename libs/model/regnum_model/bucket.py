"""Token bucket of KIP-599: what flows in, what is taken out, how long a debtor waits.

Goals: the long-run rate is held exactly; a burst is possible after quiet; a request larger than the burst is possible
too and is paid for afterwards.

Constraints: a bucket is judged before it is charged, so it may go into debt by one request and no more; exactly 0
tokens is not yet exhausted, nor is what rounding leaves of it. A clock that starts near 0 must not make an empty
bucket out of a new one: new buckets are made full (or empty) explicitly.

Algorithm: K = min(K + elapsed * R, B); admitted while K >= 0; then K = K - N; a debtor waits -K / R.

Example: R = 5, B = 500; a burst of 560 leaves -60, so the next request waits 12 s.
"""

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

DEFAULT_BURST_S: Final = 11.0
"""Seconds of the rate that make the burst where neither it nor the windows are set: Kafka's eleven of one second."""

DEBT_MIN: Final = 1e-6
"""Permits from which a debt is one; less is rounding, for permits are whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Rate and burst of a bucket."""

    rate: float
    """Permits that flow in a second; positive."""
    burst: float
    """Most tokens that it holds; positive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The windows over which mutations are measured; together they make the burst of a quota that names none."""

    num: int = 11
    """How many: ``controller.quota.window.num``."""
    size_s: int = 1
    """Length of each in seconds: ``controller.quota.window.size.seconds``."""

    @property
    def span_s(self) -> float:
        """All of them together, in seconds."""
        return float(self.num * self.size_s)


class Bucket(NamedTuple):
    """Tokens at a moment."""

    tokens: float
    """Permits that may be taken; negative means debt."""
    as_of_s: float
    """When that was, in seconds of a monotonic clock."""


def full(limit: Limit, now_s: float) -> Bucket:
    """A bucket that has never been used."""
    return Bucket(limit.burst, now_s)


def empty(now_s: float) -> Bucket:
    """A bucket whose past is not known (safety rule S21)."""
    return Bucket(0.0, now_s)


def refill(bucket: Bucket, limit: Limit, now_s: float) -> Bucket:
    """The bucket as it is now. A clock that seems to go back adds nothing."""
    elapsed_s = now_s - bucket.as_of_s
    if elapsed_s <= 0.0:
        return bucket if bucket.tokens <= limit.burst else Bucket(limit.burst, bucket.as_of_s)
    return Bucket(min(limit.burst, bucket.tokens + elapsed_s * limit.rate), now_s)


def charge(bucket: Bucket, limit: Limit, permits: float, now_s: float) -> Bucket:
    """Take permits out, whether they are there or not. Negative permits give back, up to the burst."""
    tokens, as_of_s = refill(bucket, limit, now_s)
    return Bucket(min(limit.burst, tokens - permits), as_of_s)


def is_exhausted(bucket: Bucket) -> bool:
    """Whether nothing more may be taken now; the bucket must have been refilled."""
    return bucket.tokens < -DEBT_MIN


def wait_ms(bucket: Bucket, limit: Limit) -> int:
    """Milliseconds until a debtor may take again, rounded up, so that whoever waits so long is not refused again."""
    if not is_exhausted(bucket):
        return 0
    return max(1, math.ceil((-bucket.tokens - DEBT_MIN / 2) / limit.rate * 1000))
