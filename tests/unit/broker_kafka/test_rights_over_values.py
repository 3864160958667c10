"""Rights at the door that makes plain values: what is refused, in which places, and what nobody hears of."""

from collections.abc import Callable
from typing import Any

import pytest
from regnum.types.v1 import errors_pb2
from regnum_broker.serving.calls.log import LogCalls
from regnum_broker.serving.calls.rights import GuardedLog, guarded
from regnum_broker.serving.fetching.requests import (
    EpochEndResult,
    EpochQuery,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchResult,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetQuery,
    OffsetResult,
    StoredBatches,
)
from regnum_model.principals import Principal
from regnum_service.access.identity import Caller, calling
from regnum_service.errors import RegnumError
from regnum_service.limits.call import OWN, Call
from regnum_testing.recorded_rights import RecordedRights, only

ALICE = Caller(principal=Principal("alice"), host="10.0.0.1")
DENIED = errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED


class Calls:
    """Answers every item, and remembers how many it got."""

    def __init__(self) -> None:
        self.got: list[int] = []
        self.before_the_answer: Callable[[], None] = lambda: None

    async def produce(self, _request: Any, _call: Call) -> Any:
        raise NotImplementedError

    async def fetch(self, request: FetchRequest, _call: Call) -> FetchResponse:
        self.got.append(len(request.partitions))
        results = []
        for item in request.partitions:
            item.content.put(b"secret")
            results.append(FetchResult(item.topic, item.partition, item.content))
        self.before_the_answer()
        return FetchResponse(results)

    async def list_offsets(self, request: ListOffsetsRequest, _call: Call) -> ListOffsetsResponse:
        self.got.append(len(request.queries))
        return ListOffsetsResponse([OffsetResult(one.topic, one.partition) for one in request.queries])

    async def ends_of_epochs(self, request: OffsetForLeaderEpochRequest, _call: Call) -> OffsetForLeaderEpochResponse:
        self.got.append(len(request.queries))
        return OffsetForLeaderEpochResponse([EpochEndResult(one.topic, one.partition) for one in request.queries])


async def next_id() -> int:
    return 7


def behind(rights: RecordedRights, calls: Calls) -> GuardedLog:
    asked: Any = calls
    of_calls: LogCalls = asked
    return guarded(of_calls, next_id, rights)


def fetching(names: str) -> FetchRequest:
    return FetchRequest([FetchPartition(name, 3) for name in names])


def contents(response: FetchResponse) -> list[tuple[str, int, bytes]]:
    found = []
    for one in response.results:
        assert isinstance(one.content, StoredBatches)
        found.append((one.topic, one.error_code, one.content.batches))
    return found


@pytest.mark.parametrize(
    ("call", "right", "request_of"),
    [
        ("fetch", "READ", fetching),
        ("list_offsets", "DESCRIBE", lambda names: ListOffsetsRequest([OffsetQuery(name, 3, -1) for name in names])),
        (
            "ends_of_epochs",
            "DESCRIBE",
            lambda names: OffsetForLeaderEpochRequest([EpochQuery(name, 3, 0) for name in names]),
        ),
    ],
)
@pytest.mark.parametrize("held", ["", "b", "ac", "abc"])
async def test_each_item_is_refused_in_its_place_and_the_log_hears_of_no_other(
    call: str, right: str, request_of: Callable[[str], Any], held: str
) -> None:
    rights, calls = RecordedRights(only(*(f"{right} TOPIC {name}" for name in held))), Calls()
    with calling(ALICE):
        response = await getattr(behind(rights, calls), call)(request_of("abc"), OWN)
    assert [(one.topic, one.partition) for one in response.results] == [(name, 3) for name in "abc"]
    assert [one.error_code for one in response.results] == [0 if name in held else DENIED for name in "abc"]
    assert all("User:alice may not" in one.error_message for one in response.results if one.error_code)
    assert calls.got == ([len(held)] if held else [])
    assert {str(asked) for asked in rights.asked} == {f"{right} TOPIC {name}" for name in "abc"}


async def test_offsets_that_are_refused_are_the_zeros_that_the_other_door_sends() -> None:
    log = behind(RecordedRights(), Calls())
    with calling(ALICE):
        offsets = await log.list_offsets(ListOffsetsRequest([OffsetQuery("a", 3, -1)]), OWN)
        ends = await log.ends_of_epochs(OffsetForLeaderEpochRequest([EpochQuery("a", 3, 0)]), OWN)
    assert [(one.offset, one.leader_epoch) for one in offsets.results] == [(0, 0)]
    assert [(one.leader_epoch, one.end_offset) for one in ends.results] == [(0, 0)]


async def test_a_right_that_is_revoked_during_a_long_poll_takes_the_records_out_of_its_answer() -> None:
    rights, calls = RecordedRights(only("READ TOPIC a", "READ TOPIC b")), Calls()

    def revoke() -> None:
        rights.held = only("READ TOPIC b")

    calls.before_the_answer = revoke
    with calling(ALICE):
        response = await behind(rights, calls).fetch(fetching("abx"), OWN)
    assert contents(response) == [("a", DENIED, b""), ("b", 0, b"secret"), ("x", DENIED, b"")]


@pytest.mark.parametrize(
    ("held", "is_given"), [("", False), ("WRITE TOPIC ?", True), ("IDEMPOTENT_WRITE CLUSTER kafka-cluster", True)]
)
async def test_a_producer_id_needs_a_right_to_write(held: str, is_given: bool) -> None:
    log = behind(RecordedRights(only(*filter(None, [held]))), Calls())
    with calling(ALICE):
        if is_given:
            assert await log.producer_id(None, OWN) == 7
            return
        with pytest.raises(RegnumError) as refused:
            await log.producer_id(None, OWN)
    assert refused.value.code == errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED
