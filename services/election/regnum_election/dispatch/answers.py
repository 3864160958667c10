"""How the answers to a reign's calls are read, and when a call that got none is repeated. Pure."""

from collections.abc import Sequence
from typing import Final, TypeVar

from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import ControllerEpoch
from regnum_service.errors import Code, RegnumError

T = TypeVar("T")

RETRY_INTERVAL_S: Final = 0.1
"""Pause after the first call in a row that got no answer; it doubles with each."""

RETRY_INTERVAL_S_MAX: Final = 1.0
"""Longest such pause."""


def pause_after_s(failures: int) -> float:
    """Pause before a call is repeated that failed so many times in a row, 1 at least."""
    return min(RETRY_INTERVAL_S * (1 << min(failures - 1, 5)), RETRY_INTERVAL_S_MAX)


def each_answered(orders: Sequence[T], results: Sequence[control_pb2.ReplicaResult]) -> list[tuple[T, Code]]:
    """Each order with its result; what the answer leaves out has not been said to be done, so it is ordered again."""
    codes: list[Code] = [result.error_code for result in results[: len(orders)]]
    codes += [errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR] * (len(orders) - len(codes))
    return list(zip(orders, codes, strict=True))


def reporting_of(orders: Sequence[T], results: Sequence[control_pb2.ReplicaResult]) -> frozenset[T]:
    """Orders whose receiver says when it acknowledges the first records to a producer."""
    said = zip(orders, results, strict=False)
    return frozenset(order for order, result in said if result.acknowledgement_follows)


def seen_epoch(error: RegnumError) -> ControllerEpoch:
    """The highest controller epoch that a refusal names; 0 when it names none."""
    text = error.metadata.get("controller_epoch", "")
    return ControllerEpoch(int(text) if text.isascii() and text.isdigit() else 0)
