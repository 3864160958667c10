"""Rights of callers at a door that makes plain values: the rules of gRPC's table, over what the log takes and gives.

Goals: what a caller may do is the same at both doors, and is written down once.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from regnum_service.access.authorization import Authorizer
from regnum_service.access.guards.guard import Guard
from regnum_service.access.guards.items import Each
from regnum_service.access.guards.rules import RULES
from regnum_service.errors import RegnumError
from regnum_service.limits.call import Call

from regnum_broker.serving.calls.log import LogCalls
from regnum_broker.serving.fetching.requests import (
    EpochEndResult,
    FetchRequest,
    FetchResponse,
    FetchResult,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetResult,
)
from regnum_broker.serving.produce_requests import ProduceRequest, ProduceResponse

LOG: Final = "regnum.broker.v1.LogService"
PRODUCERS: Final = "regnum.broker.v1.ProducerService"

_VALUES: Final[Mapping[str, tuple[Any, Any]]] = {
    "Fetch": (FetchResponse, FetchResult),
    "ListOffsets": (ListOffsetsResponse, partial(OffsetResult, offset=0, leader_epoch=0)),
    "OffsetForLeaderEpoch": (OffsetForLeaderEpochResponse, partial(EpochEndResult, leader_epoch=0, end_offset=0)),
}
"""Answers, and what stands in them of an item that is refused: the zeros of gRPC's messages, at both doors."""


def _over_values(method: str, response: Any, refused: Any) -> Each:
    """The rule of a method over plain values."""
    rule = RULES[f"{LOG}/{method}"]
    assert isinstance(rule, Each)  # noqa: S101 - a test reads the table

    def refuse(item: Any, error: RegnumError) -> Any:
        return refused(item.topic, item.partition, error_code=error.code, error_message=error.message)

    return replace(rule, response=response, refuse=refuse)


_RULES: Final = MappingProxyType(
    {**RULES, **{f"{LOG}/{method}": _over_values(method, *values) for method, values in _VALUES.items()}}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedLog:
    """Calls of clients about the log behind the rights that they need; each raises RegnumError where it has none."""

    produce: Callable[[ProduceRequest, Call], Awaitable[ProduceResponse]]
    fetch: Callable[[FetchRequest, Call], Awaitable[FetchResponse]]
    list_offsets: Callable[[ListOffsetsRequest, Call], Awaitable[ListOffsetsResponse]]
    ends_of_epochs: Callable[[OffsetForLeaderEpochRequest, Call], Awaitable[OffsetForLeaderEpochResponse]]
    producer_id: Callable[[None, Call], Awaitable[int]]


def guarded(calls: LogCalls, next_id: Callable[[], Awaitable[int]], authorizer: Authorizer) -> GuardedLog:
    """Put rights before calls.

    Args:
        calls: what they are about.
        next_id: a producer id that nobody else has.
        authorizer: says what callers may do.
    """
    guard = Guard(authorizer, rules=_RULES)
    return GuardedLog(
        produce=guard.method(LOG, "Produce", calls.produce),
        fetch=guard.method(LOG, "Fetch", calls.fetch),
        list_offsets=guard.method(LOG, "ListOffsets", calls.list_offsets),
        ends_of_epochs=guard.method(LOG, "OffsetForLeaderEpoch", calls.ends_of_epochs),
        producer_id=guard.method(PRODUCERS, "InitProducerId", lambda _nothing, _call: next_id()),
    )
