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
