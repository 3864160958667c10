"""Where reading begins, and where it goes on when an offset is no longer there. Pure."""

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Final, Literal

from regnum_client.allowed import Between


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a moment; the end, where no record is so young.

    >>> AtTime(1_700_000_000_000)
    AtTime(timestamp_ms=1700000000000)
    """

    timestamp_ms: int
    """Milliseconds since 1970."""


OFFSET_MAX: Final = 2**63 - 1
"""An offset is an int64."""

Offset = Annotated[int, Between(0, OFFSET_MAX)]
"""Where a record is, or may be."""

Start = Offset | Literal["earliest", "latest"] | AtTime
"""An offset, one of the two ends, or a moment."""

EARLIEST: Final = "earliest"
"""The first offset that the log still has."""

LATEST: Final = "latest"
"""The high watermark: only records that come later."""

ResetName = Literal["earliest", "latest", "fail", "none"]
"""Names of the policies; none is Kafka's for FAIL."""


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

    @classmethod
    def of(cls, told: "ResetPolicy | ResetName") -> "ResetPolicy":
        """The policy, also where it was told by its name or Kafka's.

        >>> ResetPolicy.of("none")
        <ResetPolicy.FAIL: 'fail'>
        """
        return cls.FAIL if told == "none" else cls(told)
