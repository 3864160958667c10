"""Who uses quotas: as the quota process that decides says, or, while none answers, as far as the controller knows."""

from dataclasses import dataclass
from typing import Final

from regnum.quota.v1 import quota_pb2
from regnum_model.bucket import Bucket, Limit, refill, wait_ms
from regnum_model.quota_matching import BucketKey, limit_of
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from regnum_service.slices import slices

from regnum_election.admission.kept_buckets import KeptBuckets
from regnum_election.admission.quota_book import QuotaBook
from regnum_election.admission.quota_process import ActiveQuotaProcess

NOBODY: Final = -1
"""In place of a quota process: the controller decides itself."""

ANSWER_S: Final = 2.0
"""How long a quota process may take to answer: people look at this while things go wrong."""

BUCKETS_PER_TURN: Final = 1_000
"""Buckets described between two turns of the event loop (safety rule S22)."""

NOT_KNOWN: Final = -1
"""Time since a bucket was used, where nobody has counted that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport:
    """Buckets and their use."""

    quota_id: int
    """Process that decides; NOBODY: the controller itself."""
    buckets: tuple[quota_pb2.BucketDescription, ...]
    """Those used last first."""
    in_use: int
    """How many there are, also those that are left out."""


class QuotaUsages:
    """Of one reign."""

    def __init__(self, *, book: QuotaBook, process: ActiveQuotaProcess, kept: KeptBuckets, clock: Clock) -> None:
        """Only assigns."""
        self._book: Final = book
        self._process: Final = process
        self._kept: Final = kept
        self._clock: Final = clock

    async def look(self, *, most: int, wait_s: float) -> UsageReport:
        """The buckets that were used last, so many of them at most."""
        channel, id = self._process.channel, self._process.id
        if channel is not None and id is not None:
            request = quota_pb2.DescribeBucketsRequest(used_last_max=most)
            try:
                found = await channel.describe(request, timeout_s=min(wait_s, ANSWER_S))
            except RegnumError:
                # It decides nothing at present either, or will say so when it is asked to.
                return await self._known_here(most)
            return UsageReport(quota_id=id, buckets=tuple(found.buckets), in_use=found.in_use)
        return await self._known_here(most)

    async def _known_here(self, most: int) -> UsageReport:
        """What the last answers left, less what was admitted since; at most 5,000 are kept."""
        limits, now_s = self._book.table.limits, self._clock.monotonic()
        buckets: list[quota_pb2.BucketDescription] = []
        in_use = 0
        # What is gone through is a copy: others admit between two parts.
        async for some in slices(reversed(self._kept.all()), BUCKETS_PER_TURN):
            for key, bucket in some:
                limit = limit_of(limits, key)
                if limit is None:
                    continue
                in_use += 1
                if in_use <= most:
                    buckets.append(_described(key, refill(bucket, limit, now_s), limit))
        return UsageReport(quota_id=NOBODY, buckets=tuple(buckets), in_use=in_use)


def _described(key: BucketKey, bucket: Bucket, limit: Limit) -> quota_pb2.BucketDescription:
    return quota_pb2.BucketDescription(
        state=quota_pb2.BucketState(
            key=quota_pb2.BucketKey(user=key.user, client_id=key.client_id), tokens=bucket.tokens
        ),
        rate=limit.rate,
        burst=limit.burst,
        throttle_time_ms=min(wait_ms(bucket, limit), 2**31 - 1),
        idle_ms=NOT_KNOWN,
    )
