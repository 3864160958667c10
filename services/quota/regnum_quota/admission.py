"""Which mutations are admitted, and what that leaves in the buckets. Pure.

Goals: topic by topic, each admitted or refused whole; strict callers are refused while a bucket is in debt, permissive
ones never; one throttle time for the whole request; what has been charged under a request id is not charged again.

Constraints: a bucket whose quota stood in the store before this process became active may have been used up before
that: unless somebody knows better it starts empty, as of that moment; the bucket of a quota set afterwards starts
full (safety rule S21). A changed quota keeps the tokens: the time before counts at the old rate, what exceeds a
smaller burst is gone. A quota that was taken away leaves no bucket. Client ids are the callers' own invention, so the
number of buckets is bounded.

Algorithm: for each mutation, refill every bucket that counts; strict and one of them in debt: refused; else charge all
of them. The throttle time is the longest wait among the buckets in debt: for a strict caller if something was
refused, for a permissive one always.

Example: rate 5, burst 50, full. Topics of 30, 30 and 30 partitions: two are admitted (20, then -10), the third is
refused with 2,000 ms.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from regnum_model.bucket import Bucket, Limit, Windows, charge, empty, full, is_exhausted, refill, wait_ms
from regnum_model.quota_matching import BucketKey, Match, limit_of, limits_on
from regnum_model.quotas import DEFAULT_WINDOWS, QuotaEntity

from regnum_quota.usage import UsageBook, Used

REQUESTS_REMEMBERED: Final = 50_000
"""Requests whose charges are remembered for repeats."""

BUCKETS_MAX: Final = 5_000
"""Buckets that are kept; above that, the one that has not been drawn on for longest is forgotten."""

DEBTORS_SPARED: Final = 10
"""Buckets in debt that are passed over at most before one is forgotten: a forgotten debt would be a gift."""


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


class _Held(NamedTuple):
    bucket: Bucket
    limit: Limit
    """What it has been filled at since ``bucket.as_of_s``."""


class Conversion(NamedTuple):
    """What other quotas make of a bucket."""

    before: _Held
    """What was held when it was worked out."""
    after: _Held | None
    """What is held from then on; None: no quota fills it any more."""


def _under(limits: Mapping[QuotaEntity, Limit], key: BucketKey, held: _Held, now_s: float) -> _Held | None:
    """A bucket under other quotas: until now it was filled at the rate of its time."""
    limit = limit_of(limits, key)
    if limit is None or limit == held.limit:
        return None if limit is None else held
    until_now = refill(held.bucket, held.limit, now_s)
    return _Held(refill(until_now, limit, now_s), limit)


class Ledger:
    """The buckets of one active quota process. Used by one task at a time; knows no clock."""

    def __init__(
        self,
        limits: Mapping[QuotaEntity, Limit],
        *,
        active_since_s: float,
        exempt: frozenset[str] = frozenset(),
        windows: Windows = DEFAULT_WINDOWS,
        buckets_max: int = BUCKETS_MAX,
        requests_remembered: int = REQUESTS_REMEMBERED,
    ) -> None:
        """Only assigns.

        Args:
            limits: the quotas in the store when the process became active.
            active_since_s: when that was.
            exempt: users to whom no quota applies.
            windows: over which usage is measured.
            buckets_max: buckets that are kept.
            requests_remembered: requests whose charges are remembered.
        """
        self._limits = limits
        self._inherited = frozenset(limits)
        self._active_since_s = active_since_s
        self._exempt = exempt
        self._buckets_max = buckets_max
        self._requests_remembered = requests_remembered
        self._held: OrderedDict[BucketKey, _Held] = OrderedDict()
        """Least recently drawn on first."""
        self._usage = UsageBook(entries_max=buckets_max, windows=windows)
        self._charged: OrderedDict[str, int] = OrderedDict()
        """Which mutations were charged, as bits: sets of numbers would fill gigabytes."""

    @property
    def bucket_count(self) -> int:
        """Buckets that are kept."""
        return len(self._held)

    @property
    def tokens_least(self) -> float | None:
        """Fewest tokens of any bucket, as of when it was drawn on last; None without buckets."""
        # One copy: the loop's thread changes it while another one reads.
        return min((held.bucket.tokens for held in tuple(self._held.values())), default=None)

    @property
    def keys(self) -> tuple[BucketKey, ...]:
        """Buckets that are known."""
        return tuple(self._held)

    def converted(
        self, limits: Mapping[QuotaEntity, Limit], keys: Iterable[BucketKey], now_s: float
    ) -> dict[BucketKey, Conversion]:
        """What other quotas make of some buckets; for ``set_limits``, so that not all is done in one go."""
        found = ((key, self._held.get(key)) for key in keys)
        return {key: Conversion(held, _under(limits, key, held, now_s)) for key, held in found if held is not None}

    def set_limits(
        self,
        limits: Mapping[QuotaEntity, Limit],
        now_s: float,
        converted: Mapping[BucketKey, Conversion] = MappingProxyType({}),
        *,
        windows: Windows | None = None,
    ) -> None:
        """The quotas as they are now.

        Args:
            limits: all of them.
            now_s: when that is.
            converted: buckets for which it was worked out a moment ago; what was drawn on since is done again.
            windows: over which usage is measured from now on; None: as before.
        """
        if windows is not None:
            self._usage.measure_over(windows)
        for key, held in tuple(self._held.items()):
            known = converted.get(key)
            after = known.after if known is not None and known.before is held else _under(limits, key, held, now_s)
            if after is None:
                del self._held[key]
            elif after is not held:
                self._held[key] = after
        # A quota that was taken away and set again is a new one.
        self._inherited &= frozenset(limits)
        self._limits = limits

    def take_over(self, key: BucketKey, bucket: Bucket, now_s: float) -> None:
        """A bucket as the controller knows it: of an earlier process, less what it admitted alone (safety rule S21).

        Where this process has counted itself the lower of the two holds: an answer of its own that comes back has
        grown since at most as its own count has, and what is lower was drawn somewhere else.
        """
        limit = limit_of(self._limits, key)
        if limit is None:
            return
        held = self._held.get(key)
        theirs = refill(bucket, limit, now_s)
        if held is None or theirs.tokens < refill(held.bucket, held.limit, now_s).tokens:
            self._held[key] = _Held(theirs, limit)
            self._forget(now_s)

    def judge(self, request: Admission, now_s: float) -> Verdict:
        """Decide about one request and charge what is admitted."""
        matches = () if request.user in self._exempt else limits_on(self._limits, request.user, request.client_id)
        if not matches:
            return Verdict(admitted=(True,) * len(request.permits), throttle_ms=0, drawn_on=())
        charged = self._charged.get(request.request_id, 0) if request.request_id else 0
        buckets = [refill(self._current(match, now_s), match.limit, now_s) for match in matches]
        strict = request.mode is Mode.STRICT
        admitted: list[bool] = []
        taken = refused = 0
        for index, permits in enumerate(request.permits):
            repeated = bool(charged >> index & 1)
            yes = repeated or not (strict and any(is_exhausted(bucket) for bucket in buckets))
            if yes and not repeated:
                buckets = [
                    charge(bucket, match.limit, permits, now_s) for bucket, match in zip(buckets, matches, strict=True)
                ]
                taken += permits
            elif not yes:
                refused += permits
            admitted.append(yes)
        self._keep(matches, buckets, now_s, drawn=any(admitted))
        self._remember(request.request_id, charged, admitted)
        tells = not strict or not all(admitted)
        waits = [wait_ms(bucket, match.limit) if tells else 0 for bucket, match in zip(buckets, matches, strict=True)]
        for match, wait in zip(matches, waits, strict=True):
            self._usage.record(match.key, charged=taken, refused=refused, throttle_ms=wait, now_s=now_s)
        return Verdict(
            admitted=tuple(admitted),
            throttle_ms=max(waits),
            drawn_on=tuple(match.key for match in matches),
        )

    def state(self, keys: Iterable[BucketKey], now_s: float) -> tuple[tuple[BucketKey, Bucket], ...]:
        """Some buckets as they are now, each once; those that are not known are left out."""
        return tuple(
            (key, refill(held.bucket, held.limit, now_s))
            for key in dict.fromkeys(keys)
            if (held := self._held.get(key)) is not None
        )

    def in_use(self, now_s: float) -> tuple[BucketKey, ...]:
        """Buckets that somebody drew on, or was refused by, within the last hour, latest first. Any thread."""
        return self._usage.in_use(now_s)

    def usage(self, key: BucketKey, now_s: float) -> Used | None:
        """How much a bucket is used, and what it holds now; None when it is idle or not kept. Any thread."""
        usage, held = self._usage.of(key, now_s), self._held.get(key)
        if usage is None or held is None:
            return None
        return Used(key=key, usage=usage, bucket=refill(held.bucket, held.limit, now_s), limit=held.limit)

    def describe(self, now_s: float) -> tuple[tuple[BucketKey, Bucket, Limit], ...]:
        """All buckets that are known, as they are now, with what fills them."""
        return tuple((key, refill(held.bucket, held.limit, now_s), held.limit) for key, held in self._held.items())

    def _current(self, match: Match, now_s: float) -> Bucket:
        held = self._held.get(match.key)
        if held is not None:
            return held.bucket
        return empty(self._active_since_s) if match.entity in self._inherited else full(match.limit, now_s)

    def _keep(self, matches: Sequence[Match], buckets: Sequence[Bucket], now_s: float, *, drawn: bool) -> None:
        for match, bucket in zip(matches, buckets, strict=True):
            # A bucket that nobody has drawn on yet is as it was made, and may still be taken over.
            if drawn or match.key in self._held:
                self._held[match.key] = _Held(bucket, match.limit)
                self._held.move_to_end(match.key)
        self._forget(now_s)

    def _remember(self, request_id: str, charged: int, admitted: Sequence[bool]) -> None:
        if not request_id or not any(admitted):
            return
        self._charged[request_id] = charged | int("".join("01"[yes] for yes in reversed(admitted)), base=2)
        self._charged.move_to_end(request_id)
        while len(self._charged) > self._requests_remembered:
            self._charged.popitem(last=False)

    def _forget(self, now_s: float) -> None:
        while len(self._held) > self._buckets_max:
            for _ in range(DEBTORS_SPARED):
                key, held = next(iter(self._held.items()))
                if not is_exhausted(refill(held.bucket, held.limit, now_s)):
                    break
                self._held.move_to_end(key)
            self._held.popitem(last=False)
