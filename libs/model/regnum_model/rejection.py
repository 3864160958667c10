"""Why a change that somebody asked for is not made. Pure."""

from dataclasses import dataclass

from regnum.types.v1.errors_pb2 import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """What was asked for cannot be done; nothing was changed."""

    code: ErrorCode.ValueType
    """Why."""
    message: str
    """What to do next."""
