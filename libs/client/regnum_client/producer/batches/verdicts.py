"""What an answer to a produce call means for the batch that was sent. Pure.

The table of ``regnum_service.errors`` says which errors pass and which leave the outcome open; here stands only what
a *sequence* adds to it.
"""

from dataclasses import dataclass
from enum import Enum

from regnum.types.v1 import errors_pb2
from regnum_service.errors import Code, traits_of


class Fate(Enum):
    """What becomes of a batch."""

    ACKNOWLEDGED = "acknowledged"
    """It is in the log."""
    RETRY = "retry"
    """Send the same bytes again."""
    REFUSED = "refused"
    """No repeat can help."""
    SEQUENCE_BROKEN = "sequence broken"
    """The broker does not have what this producer believes to be in the log: this identity is at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Fate of a batch after one try."""

    fate: Fate
    """What becomes of it."""
    maybe_written: bool
    """This try may have written it, though it was not acknowledged."""
    refresh_metadata: bool
    """Ask for metadata before the next try."""


def judge(code: Code, *, idempotent: bool, went_alone: bool) -> Verdict:
    """The verdict on a batch that was answered with ``code``.

    A batch that was sent behind another one under way may arrive before it, or after its refusal: OUT_OF_ORDER then
    only means "not yet". Sent alone (``went_alone``: everything before it had been acknowledged), it means that
    acknowledged records are gone.
    """
    traits = traits_of(code)
    if code == errors_pb2.ERROR_CODE_NONE or (code == errors_pb2.ERROR_CODE_DUPLICATE_SEQUENCE_NUMBER and idempotent):
        fate = Fate.ACKNOWLEDGED
    elif code == errors_pb2.ERROR_CODE_OUT_OF_ORDER_SEQUENCE_NUMBER:
        fate = Fate.SEQUENCE_BROKEN if went_alone else Fate.RETRY
    elif code == errors_pb2.ERROR_CODE_INVALID_PRODUCER_EPOCH:
        fate = Fate.SEQUENCE_BROKEN
    elif traits.retriable:
        fate = Fate.RETRY
    else:
        fate = Fate.REFUSED
    return Verdict(fate=fate, maybe_written=not traits.outcome_known, refresh_metadata=traits.refresh_metadata)
