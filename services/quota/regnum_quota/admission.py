"""Which mutations are admitted, and what that leaves in the buckets. Pure.

Goals: topic by topic, each admitted or refused whole; strict callers are refused while a bucket is in debt, permissive
ones never; one throttle time for the whole request; what has been charged under a request id is not charged again.

Constraints: a bucket whose quota stood in the store before this process became active may have been used up before
that: unless somebody knows better it starts empty, as of that moment; the bucket of a quota set afterwards starts
full (safety rule S21). A changed quota keeps the tokens; what exceeds a smaller burst is gone.

Algorithm: for each mutation, refill every bucket that counts; strict and one of them in debt: refused; else charge all
of them. The throttle time is the longest wait among the buckets in debt: for a strict caller if something was
refused, for a permissive one always.

Example: rate 5, burst 50, full. Topics of 30, 30 and 30 partitions: two are admitted (20, then -10), the third is
refused with 2,000 ms.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from regnum_model.bucket import Bucket, Limit, charge, empty, full, is_exhausted, refill, wait_ms
from regnum_model.quota_matching import BucketKey, Match, limits_on
from regnum_model.quotas import QuotaEntity

REQUESTS_REMEMBERED: Final = 20_000
"""Requests whose charges are remembered for repeats."""

BUCKETS_MAX: Final = 50_000
"""Buckets above which those that are full again are forgotten."""


class Mode(Enum):
    """What happens when a bucket is exhausted."""

    STRICT = "strict"
    """Refused."""
    PERMISSIVE = "permissive"
    """Admitted and charged; only the throttle time tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """One request of one caller."""

    request_id: str
    """Names the request; empty: it is never repeated."""
    user: str
    """On whose account."""
    client_id: str
    """By which program."""
    mode: Mode
    """What to do when a bucket is exhausted."""
    permits: tuple[int, ...]
    """Cost of each mutation, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was decided."""

    admitted: tuple[bool, ...]
    """For each mutation, in order."""
    throttle_ms: int
    """How long the caller should wait; 0 means not at all."""
    drawn_on: tuple[BucketKey, ...]
    """The buckets that counted."""


class Ledger:
    """The buckets of one active quota process. Used by one task at a time; knows no clock."""

    def __init__(
        self, limits: Mapping[QuotaEntity, Limit], *, active_since_s: float, exempt: frozenset[str] = frozenset()
    ) -> None:
        """Only assigns.

        Args:
            limits: the quotas in the store when the process became active.
            active_since_s: when that was.
            exempt: users to whom no quota applies.
        """
        self._limits = limits
        self._inherited = frozenset(limits)
        self._active_since_s = active_since_s
        self._exempt = exempt
        self._buckets: dict[BucketKey, Bucket] = {}
        self._in_force: dict[BucketKey, Limit] = {}
        self._charged: OrderedDict[str, frozenset[int]] = OrderedDict()

    def set_limits(self, limits: Mapping[QuotaEntity, Limit], now_s: float) -> None:
        """The quotas as they are now. Tokens stay; time until now counts at the old rate."""
        for key, limit in self._in_force.items():
            self._buckets[key] = refill(self._buckets[key], limit, now_s)
        # A quota that was taken away and set again is a new one.
        self._inherited &= frozenset(limits)
        self._limits = limits

    def take_over(self, key: BucketKey, bucket: Bucket) -> None:
        """A bucket as an earlier process left it; what this process has counted itself wins."""
        self._buckets.setdefault(key, bucket)

    def judge(self, request: Admission, now_s: float) -> Verdict:
        """Decide about one request and charge what is admitted."""
        matches = () if request.user in self._exempt else limits_on(self._limits, request.user, request.client_id)
        if not matches:
            return Verdict(admitted=(True,) * len(request.permits), throttle_ms=0, drawn_on=())
        before = self._charged.get(request.request_id, frozenset()) if request.request_id else frozenset()
        for match in matches:
            self._in_force[match.key] = match.limit
            self._buckets[match.key] = refill(self._current(match, now_s), match.limit, now_s)
        admitted = [
            index in before or self._admit_one(matches, request.mode, permits, now_s)
            for index, permits in enumerate(request.permits)
        ]
        if request.request_id:
            self._remember(request.request_id, before, admitted)
        self._forget_full(now_s)
        tells = request.mode is Mode.PERMISSIVE or not all(admitted)
        return Verdict(
            admitted=tuple(admitted),
            throttle_ms=max(wait_ms(self._buckets[match.key], match.limit) for match in matches) if tells else 0,
            drawn_on=tuple(match.key for match in matches),
        )

    def state(self, keys: Sequence[BucketKey]) -> tuple[tuple[BucketKey, Bucket], ...]:
        """Buckets as they were last counted; those that are not known are left out."""
        return tuple((key, self._buckets[key]) for key in dict.fromkeys(keys) if key in self._buckets)

    def describe(self, now_s: float) -> tuple[tuple[BucketKey, Bucket, Limit], ...]:
        """All buckets that have been used, as they are now."""
        return tuple((key, refill(self._buckets[key], limit, now_s), limit) for key, limit in self._in_force.items())

    def _current(self, match: Match, now_s: float) -> Bucket:
        known = self._buckets.get(match.key)
        if known is not None:
            return known
        return empty(self._active_since_s) if match.entity in self._inherited else full(match.limit, now_s)

    def _admit_one(self, matches: Sequence[Match], mode: Mode, permits: int, now_s: float) -> bool:
        if mode is Mode.STRICT and any(is_exhausted(self._buckets[match.key]) for match in matches):
            return False
        for match in matches:
            self._buckets[match.key] = charge(self._buckets[match.key], match.limit, permits, now_s)
        return True

    def _remember(self, request_id: str, before: frozenset[int], admitted: Sequence[bool]) -> None:
        self._charged[request_id] = before | {index for index, yes in enumerate(admitted) if yes}
        self._charged.move_to_end(request_id)
        while len(self._charged) > REQUESTS_REMEMBERED:
            self._charged.popitem(last=False)

    def _forget_full(self, now_s: float) -> None:
        """Bound the memory: a bucket that is full again is worth as much as one that was never used."""
        if len(self._in_force) <= BUCKETS_MAX:
            return
        for key, limit in tuple(self._in_force.items()):
            if refill(self._buckets[key], limit, now_s).tokens >= limit.burst:
                del self._in_force[key]
                del self._buckets[key]
