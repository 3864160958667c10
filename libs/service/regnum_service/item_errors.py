"""What one item of a request failed with, as google.rpc says it: for clients that know no codes of ours.

A success has no status, so it costs no byte. What is the same for every failure with a code (ErrorInfo without facts,
RetryInfo) is made once: an answer may refuse ten thousand items.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from google.rpc import status_pb2
from regnum.types.v1 import errors_pb2

from regnum_service.errors import Code, RegnumError
from regnum_service.status import to_status

KEPT: Final = 256
"""Statuses that are kept encoded: one for each code, and those of the last throttle times."""


def item_status(
    code: Code, message: str, *, facts: Mapping[str, str] | None = None, retry_after_ms: int | None = None
) -> status_pb2.Status | None:
    """The status of one item; None where it has not failed.

    Args:
        code: its outcome.
        message: what is wrong and what to do next.
        facts: metadata of ErrorInfo.
        retry_after_ms: when to try again; None: soon, if the error is one for which that helps.
    """
    if code == errors_pb2.ERROR_CODE_NONE:
        return None
    if facts:
        return to_status(RegnumError(code, message, metadata=facts, retry_after_ms=retry_after_ms))
    status = status_pb2.Status()
    status.CopyFrom(_without_message(code, retry_after_ms))
    status.message = message
    return status


@lru_cache(maxsize=KEPT)
def _without_message(code: Code, retry_after_ms: int | None) -> status_pb2.Status:
    return to_status(RegnumError(code, "", retry_after_ms=retry_after_ms))
