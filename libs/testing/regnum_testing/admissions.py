"""Requests to a quota process, and the books that judge them, for tests."""

from collections.abc import Mapping, Sequence

from regnum_model.bucket import Limit
from regnum_model.quotas import QuotaEntity
from regnum_quota.admission import Admission, Ledger, Mode

ANN = QuotaEntity(user="ann")
"""Whose requests these are unless told otherwise."""
TEN = Limit(rate=10.0, burst=100.0)
"""Her quota, unless told otherwise."""


def request(*permits: int, id: str = "", user: str = "ann", client: str = "app", mode: Mode = Mode.STRICT) -> Admission:
    """Of one mutation for each number of permits."""
    return Admission(request_id=id, user=user, client_id=client, mode=mode, permits=permits)


def ledger(
    limits: Mapping[QuotaEntity, Limit] | None = None,
    *,
    exempt: Sequence[str] = (),
    buckets_max: int = 1_000,
    requests_remembered: int = 1_000,
) -> Ledger:
    """One whose quotas were set after it became active at 0 s, so that its buckets start full."""
    fresh = Ledger(
        {},
        active_since_s=0.0,
        exempt=frozenset(exempt),
        buckets_max=buckets_max,
        requests_remembered=requests_remembered,
    )
    fresh.set_limits({ANN: TEN} if limits is None else limits, 0.0)
    return fresh
