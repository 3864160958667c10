"""What a quota process shows. Pure."""

from typing import Final

from regnum_telemetry.instruments.definition import QUOTA, Definitions

DEFINED: Final = Definitions(QUOTA)
"""In the order of this file."""

QUOTA_ACTIVE: Final = DEFINED.gauge(
    "regnum.quota.active",
    "{processes}",
    "1 in the process that decides, 0 in its standbys",
)

QUOTA_ADMISSIONS: Final = DEFINED.counter(
    "regnum.quota.admissions",
    "{mutations}",
    "Mutations judged: admitted or throttled",
    labels=("decision",),
)

QUOTA_BUCKETS: Final = DEFINED.gauge(
    "regnum.quota.buckets",
    "{buckets}",
    "Token buckets that are kept",
)

QUOTA_TOKENS_LEAST: Final = DEFINED.gauge(
    "regnum.quota.tokens.least",
    "{tokens}",
    "Tokens of the bucket that had the fewest when it was drawn on last; below 0: it is in debt",
    kafka="kafka.server:type=ControllerMutation,attribute tokens",
)

WHOSE: Final = ("user", "client_id")
"""Labels of a bucket, as Kafka has them: empty where it is for no particular one; both empty for the whole cluster's.

As many of those used last as a setting says; what has no room is put together under ``other``.
"""

QUOTA_RATE: Final = DEFINED.gauge(
    "regnum.quota.mutation.rate",
    "{partitions}/s",
    "Partitions a second that were created and deleted at the expense of a bucket, over the windows of quotas",
    labels=WHOSE,
    kafka="kafka.server:type=ControllerMutation,attribute mutation-rate",
)

QUOTA_TOKENS: Final = DEFINED.gauge(
    "regnum.quota.tokens",
    "{tokens}",
    "Tokens of a bucket; below 0: it is in debt. Of the others, the fewest",
    labels=WHOSE,
    kafka="kafka.server:type=ControllerMutation,attribute tokens",
)

QUOTA_THROTTLE_TIME: Final = DEFINED.gauge(
    "regnum.quota.throttle.time",
    "s",
    "Time that callers were told to wait for a bucket: average over the windows of quotas. Of the others, the longest",
    labels=WHOSE,
    kafka="kafka.server:type=ControllerMutation,attribute throttle-time",
)
