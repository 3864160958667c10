"""Where reading begins, and where it goes on when an offset is no longer there. Pure."""

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first batch with a record at or after a moment; the end, where no record is so young.

    >>> AtTime(1_700_000_000_000)
    AtTime(timestamp_ms=1700000000000)
    """

    timestamp_ms: int
    """Milliseconds since 1970."""


Start = int | Literal["earliest", "latest"] | AtTime
"""An offset, one of the two ends, or a moment."""

EARLIEST: Final = "earliest"
"""The first offset that the log still has."""

LATEST: Final = "latest"
"""The high watermark: only records that come later."""

OFFSET_MAX: Final = 2**63 - 1
"""An offset is an int64."""


class ResetPolicy(Enum):
    """What a consumer does when its offset is below the log start or above the log end (Kafka: auto.offset.reset).

    Retention moves the log start, so a consumer that is slower than its topic's retention falls off it. The two that
    go on log a warning (logger ``regnum_client``) with the offsets that they left out.

    >>> ConsumerSettings(reset=ResetPolicy.LATEST).reset.value
    'latest'
    """

    FAIL = "fail"
    """Kafka's none. Raise OffsetOutOfRangeError: nothing is skipped or repeated without the application knowing."""
    EARLIEST = "earliest"
    """Go on at the first offset that is there."""
    LATEST = "latest"
    """Go on at the high watermark."""
