"""Admission while no quota process answers (safety rule S21). Pure.

Goals: mutations go on, and no faster than the cluster as a whole may change; nobody gains by the absence of the quota
process; what is admitted meanwhile is known to the next one.

Constraints: nothing but what earlier answers said is known of the buckets. Callers to whom no quota applies, among them
exempt users, are not held up.

Algorithm: one bucket for everybody, whose rate and burst are settings, or else the largest of any quota; it begins
with the fewest tokens that any known bucket has, which is none when one is in debt or nothing is known. Besides, a
caller is judged by the last known state of his own buckets, and all of them are charged. The bucket of a quota that
stood already when the absence began, and of which nothing is known, begins empty; that of a later one begins full.

Example: a quota of 5/s, burst 50, of which 20 tokens were left 2 s ago. The common bucket begins with 30 tokens, and so
does the caller's own: topics of 20, 20 and 20 partitions: two are admitted (10, then -10), the third waits 2 s.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace

from regnum_model.bucket import Bucket, Limit, charge, empty, full, is_exhausted, refill, wait_ms
from regnum_model.quota_matching import Match, limit_of, limits_on
from regnum_model.quotas import QuotaEntity

from regnum_election.admission.kept_buckets import KeptBuckets


def _nobody(seconds: float) -> None:
    """There is no connection to hold up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """On whose account a request is, and what it understands."""

    user: str
    """Name of the user."""
    client_id: str
    """How the program calls itself; may be empty."""
    strict: bool
    """Whether it may be refused; otherwise it is admitted, charged, and told how long to wait."""
    hold_up: Callable[[float], None] = field(default=_nobody, compare=False, repr=False)
    """Holds the caller's connection up for so many seconds; called as soon as a quota wants it to wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was decided about the mutations of one request."""

    admitted: tuple[bool, ...]
    """For each mutation, in order."""
    throttle_ms: int
    """How long the caller should wait; 0 means not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsenceReport:
    """What happened during one absence."""

    absent_s: float
    """How long it lasted."""
    admitted: int
    """Mutations that were admitted without a quota process."""
    refused: int
    """Mutations that were refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Absence:
    since_s: float
    inherited: frozenset[QuotaEntity]
    admitted: int = 0
    refused: int = 0


class QuotaStandIn:
    """Judges while nobody else does. Knows no clock; used by one task at a time."""

    def __init__(self, kept: KeptBuckets, *, limit: Limit | None = None, exempt: Container[str] = ()) -> None:
        """Only assigns.

        Args:
            kept: buckets as the quota process reported them last.
            limit: rate and burst of the common bucket; None takes the largest of any quota.
            exempt: users to whom no quota applies.
        """
        self._exempt = exempt
        self._kept = kept
        self._fixed = limit
        self._common: Bucket | None = None
        self._absence: _Absence | None = None
        self._largest: tuple[Mapping[QuotaEntity, Limit], Limit] | None = None

    @property
    def is_acting(self) -> bool:
        """Whether it decides now."""
        return self._absence is not None

    def begin(self, limits: Mapping[QuotaEntity, Limit], now_s: float) -> None:
        """No quota process answers."""
        self._absence = _Absence(since_s=now_s, inherited=frozenset(limits))
        common = self._limit(limits)
        # A debtor is held up by his own bucket, not everybody with him.
        tokens = [max(bucket.tokens, 0.0) for bucket in self._known_now(limits, now_s)]
        if self._common is not None:
            tokens.append(refill(self._common, common, now_s).tokens)
        self._common = refill(Bucket(min(tokens, default=0.0), now_s), common, now_s)

    def end(self, now_s: float) -> AbsenceReport:
        """A quota process answers."""
        absence = self._begun()
        self._absence = None
        return AbsenceReport(absent_s=now_s - absence.since_s, admitted=absence.admitted, refused=absence.refused)

    def judge(
        self, limits: Mapping[QuotaEntity, Limit], account: Account, permits: Sequence[int], now_s: float
    ) -> Verdict:
        """Decide about mutations and charge what is admitted."""
        matches = () if account.user in self._exempt else limits_on(limits, account.user, account.client_id)
        if not matches:
            return Verdict(admitted=(True,) * len(permits), throttle_ms=0)
        absence = self._begun()
        common_limit = self._limit(limits)
        common = refill(self._common or empty(absence.since_s), common_limit, now_s)
        own = [refill(self._own(match, now_s), match.limit, now_s) for match in matches]
        admitted: list[bool] = []
        for cost in permits:
            exhausted = is_exhausted(common) or any(is_exhausted(bucket) for bucket in own)
            admitted.append(not (account.strict and exhausted))
            if admitted[-1]:
                common = charge(common, common_limit, cost, now_s)
                own = [charge(bucket, match.limit, cost, now_s) for bucket, match in zip(own, matches, strict=True)]
        self._common = common
        if any(admitted):
            for match, bucket in zip(matches, own, strict=True):
                self._kept.charged(match.key, bucket)
        yes = sum(admitted)
        self._absence = replace(absence, admitted=absence.admitted + yes, refused=absence.refused + len(permits) - yes)
        waits = (wait_ms(bucket, match.limit) for bucket, match in zip(own, matches, strict=True))
        tells = not account.strict or yes < len(permits)
        return Verdict(admitted=tuple(admitted), throttle_ms=max(wait_ms(common, common_limit), *waits) if tells else 0)

    def _own(self, match: Match, now_s: float) -> Bucket:
        known = self._kept.get(match.key)
        if known is not None:
            return known
        absence = self._begun()
        return empty(absence.since_s) if match.entity in absence.inherited else full(match.limit, now_s)

    def _known_now(self, limits: Mapping[QuotaEntity, Limit], now_s: float) -> list[Bucket]:
        return [
            refill(bucket, limit, now_s)
            for key, bucket in self._kept.all()
            if (limit := limit_of(limits, key)) is not None
        ]

    def _limit(self, limits: Mapping[QuotaEntity, Limit]) -> Limit:
        if self._fixed is not None:
            return self._fixed
        if self._largest is None or self._largest[0] is not limits:
            rate = max((limit.rate for limit in limits.values()), default=1.0)
            burst = max((limit.burst for limit in limits.values()), default=1.0)
            self._largest = limits, Limit(rate=rate, burst=burst)
        return self._largest[1]

    def _begun(self) -> _Absence:
        if self._absence is None:
            raise AssertionError("a stand-in judges only between begin and end")
        return self._absence
