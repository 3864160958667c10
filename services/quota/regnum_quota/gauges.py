"""What a quota process shows of itself: numbers that are there, read by the thread that somebody asks."""

from regnum_telemetry.instruments import quota as instruments
from regnum_telemetry.metrics import Metrics

from regnum_quota.office import Office


def show_quotas(metrics: Metrics, office: Office) -> None:
    """Let the metrics read whatever term there is; nothing is shown of buckets while this process does not decide.

    Whose bucket it is, is not shown: users and client ids come from outside, in any number. `regnum quotas describe`
    tells that.
    """

    def buckets() -> float | None:
        term = office.active
        return None if term is None else term.bucket_count

    def tokens_least() -> float | None:
        term = office.active
        return None if term is None else term.tokens_least

    metrics.observe(instruments.QUOTA_ACTIVE, lambda: 0 if office.active is None else 1)
    metrics.observe(instruments.QUOTA_BUCKETS, buckets)
    metrics.observe(instruments.QUOTA_TOKENS_LEAST, tokens_least)
