"""What this door refuses by itself."""

from collections.abc import Hashable, Iterable
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_service.errors import Code, RegnumError

OF_GROUPS: Final = frozenset(range(8, 15))
"""Calls of members to their coordinator, and the one that looks for it."""


def told(key: int, code: Code) -> Code:
    """The error that a client of Kafka is told of a call that failed as a whole.

    BROKER_NOT_AVAILABLE is final for these clients (an idempotent producer of Kafka's own gives up with it), and a
    member that is told anything but that its coordinator is away ends.
    """
    if code not in (errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT):
        return code
    if key in OF_GROUPS:
        return errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE
    return errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT


def no_transactions() -> RegnumError:
    """With an error that ends the attempt: clients try most others again, for ever."""
    return RegnumError(
        errors_pb2.ERROR_CODE_TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not offered at this listener"
    )


def unheard(code: Code) -> RegnumError:
    """Of a producer that waits for no answer (acks 0): its connection ends, which it notices, and looks for leaders."""
    return RegnumError(code, "its producer waits for no answer, and is told by the end of the connection")


def is_waited_for(code: Code) -> bool:
    """Whether a client is not told of it: the door waits, and makes the call again."""
    return code == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED


def check_once(named: Iterable[Hashable], what: str) -> None:
    """Raise RegnumError where the same is asked for twice: a few bytes more would be as much again of an answer."""
    seen: set[Hashable] = set()
    for one in named:
        if one in seen:
            raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, f"{what} {one!r} is in the request twice")
        seen.add(one)
