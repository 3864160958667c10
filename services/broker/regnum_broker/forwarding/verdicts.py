"""What becomes of a call that was passed on and not answered. Pure.

What went wrong between broker and controller (the broker has not the right, or they cannot read one another's messages)
is nothing that the client could put right, and tells more of the cluster than it need know: it hears
UNKNOWN_SERVER_ERROR (KIP-590), and the broker's log has the reason.
"""

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum.types.v1.errors_pb2 import ErrorCode


class Verdict(enum.Enum):
    """What to do."""

    AGAIN = enum.auto()
    """Send it again, after a look where the controller is."""
    TELL = enum.auto()
    """Tell the client as it is."""
    HIDE = enum.auto()
    """Tell the client nothing but that it failed, and the operator all."""


_OF_ENVELOPES: Final[Mapping[ErrorCode.ValueType, Verdict]] = MappingProxyType(
    {
        errors_pb2.ERROR_CODE_NOT_CONTROLLER: Verdict.AGAIN,
        errors_pb2.ERROR_CODE_REBOOTSTRAP_REQUIRED: Verdict.AGAIN,
        # Its listener was full: it did not read the call.
        errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED: Verdict.AGAIN,
        errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT: Verdict.TELL,
        # These two are of the client's own request.
        errors_pb2.ERROR_CODE_UNSUPPORTED_VERSION: Verdict.TELL,
        errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE: Verdict.TELL,
    }
)


def of_envelope(code: ErrorCode.ValueType, *, repeatable: bool) -> Verdict:
    """The envelope itself failed. ``repeatable``: a second one would not be carried out again (safety rule S20)."""
    if code == errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE:
        return Verdict.AGAIN if repeatable else Verdict.TELL
    return _OF_ENVELOPES.get(code, Verdict.HIDE)


def of_call(code: ErrorCode.ValueType) -> Verdict:
    """The call within it was refused."""
    return Verdict.AGAIN if code == errors_pb2.ERROR_CODE_NOT_CONTROLLER else Verdict.TELL
