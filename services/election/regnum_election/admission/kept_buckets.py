"""Buckets as the quota process reported them last, for the time when it is gone (safety rule S21). Pure."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final

from regnum_model.bucket import Bucket, Limit, refill
from regnum_model.quota_matching import BucketKey, limit_of
from regnum_model.quotas import QuotaEntity

BUCKETS_MAX: Final = 5_000
"""Buckets that are kept; those that were not used for longest are forgotten, and count as empty then."""


class KeptBuckets:
    """The last word on each bucket: what a quota process answered, less what was admitted without one."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[BucketKey, Bucket] = OrderedDict()
        self._charged: set[BucketKey] = set()

    def __len__(self) -> int:
        return len(self._buckets)

    @property
    def has_charges(self) -> bool:
        """Whether something was charged here that no quota process has heard of."""
        return bool(self._charged)

    def get(self, key: BucketKey) -> Bucket | None:
        """A bucket as it was last; None when nothing is known of it."""
        return self._buckets.get(key)

    def reported(self, key: BucketKey, bucket: Bucket) -> None:
        """A quota process said so."""
        self._put(key, bucket)

    def charged(self, key: BucketKey, bucket: Bucket) -> None:
        """It was charged here."""
        self._put(key, bucket)
        self._charged.add(key)

    def handed_over(self, buckets: Iterable[tuple[BucketKey, Bucket]]) -> None:
        """A quota process has taken these up; what was charged since then it has not."""
        self._charged.difference_update(key for key, bucket in buckets if self._buckets.get(key) == bucket)

    def limits_changed(
        self, former: Mapping[QuotaEntity, Limit], limits: Mapping[QuotaEntity, Limit], now_s: float
    ) -> None:
        """Quotas are others from now on: the time before counts at the old rate, as in the quota process."""
        if limits == former:
            return
        for key, bucket in self.all():
            limit, before = limit_of(limits, key), limit_of(former, key)
            if limit is None:
                # A quota that was taken away leaves no bucket.
                del self._buckets[key]
                self._charged.discard(key)
            elif before is not None and limit != before:
                self._buckets[key] = refill(refill(bucket, before, now_s), limit, now_s)

    def all(self) -> tuple[tuple[BucketKey, Bucket], ...]:
        """Everything that is known."""
        return tuple(self._buckets.items())

    def _put(self, key: BucketKey, bucket: Bucket) -> None:
        self._buckets[key] = bucket
        self._buckets.move_to_end(key)
        while len(self._buckets) > BUCKETS_MAX:
            forgotten, _ = self._buckets.popitem(last=False)
            self._charged.discard(forgotten)
