"""What an overload refuses is told to no client of Kafka: the door waits, and makes the call again."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest
from regnum.broker.v1 import group_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.kafka.context import Context
from regnum_broker.kafka.data import Data
from regnum_broker.kafka.fetch_sessions import ConnectionSession, Sessions
from regnum_broker.kafka.groups import Groups
from regnum_broker.kafka.produce_together import Together
from regnum_broker.kafka.refusals import WAITED_S
from regnum_broker.serving.produce_requests import ProduceResponse, ProduceResult
from regnum_kafka_wire.apis import APIS
from regnum_kafka_wire.frames import Head
from regnum_kafka_wire.gen.fetch_request import FetchPartition, FetchRequest, FetchTopic
from regnum_kafka_wire.gen.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from regnum_kafka_wire.gen.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from regnum_service.errors import RegnumError
from regnum_service.limits.call import Call
from regnum_testing.clock import FakeClock
from regnum_testing.waiting import within

BUSY = errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED
DENIED = errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED


def context(key: int) -> Context:
    head = Head(key=key, version=APIS[key].oldest if key else 9, correlation_id=1, client_id="c", end=0)
    session = ConnectionSession(Sessions(), random.Random(1))
    return Context(Call(peer="ipv4:10.0.0.1:1", client_id="c"), head, session, FakeClock())


class Log:
    """Answers Produce with these codes, in their order."""

    def __init__(self, *codes: "errors_pb2.ErrorCode.ValueType") -> None:
        self.codes = codes

    async def produce(self, _request: Any, _call: Call) -> ProduceResponse:
        return ProduceResponse([ProduceResult("t", number, code) for number, code in enumerate(self.codes)])


def data_over(log: Any) -> Data:
    addresses: Any = SimpleNamespace(named=lambda _: [])
    return Data(log=log, addresses=addresses, follows=lambda *_: False)


def produced(partitions: int, acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(index=number, records=memoryview(b"x")) for number in range(partitions)]
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[TopicProduceData(name="t", partition_data=data)])


@pytest.mark.parametrize("codes", [(BUSY,), (BUSY, BUSY)])
async def test_a_call_of_which_nothing_was_appended_for_want_of_room_is_waited_for(codes: Any) -> None:
    data = data_over(Log(*codes))
    with pytest.raises(RegnumError) as refused:
        await data.produce(produced(len(codes)), context(0))
    assert refused.value.code == BUSY


@pytest.mark.parametrize("codes", [(0, DENIED), (0, BUSY), (DENIED, BUSY)])
async def test_what_may_have_been_appended_is_not_sent_again(codes: Any) -> None:
    data = data_over(Log(*codes))
    answer = await data.produce(produced(2), context(0))
    assert answer is not None
    told = [one.error_code for one in answer.responses[0].partition_responses]
    behind = errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR
    assert told == [behind if code == BUSY else code for code in codes]


@pytest.mark.parametrize(
    ("codes", "told"), [((0, DENIED), DENIED), ((0, BUSY), errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR)]
)
async def test_a_producer_that_waits_for_no_answer_is_refused_by_what_ends_its_connection(
    codes: Any, told: Any
) -> None:
    data = data_over(Log(*codes))
    with pytest.raises(RegnumError, match="end of the connection") as refused:
        await data.produce(produced(2, acks=0), context(0))
    assert refused.value.code == told
    with pytest.raises(RegnumError, match="end of the connection"):
        data.no_produce(produced(1, acks=0), context(0), DENIED)


class FullLog:
    """Has room for nothing."""

    def __init__(self) -> None:
        self.asked = 0

    async def take(self, requests: Any, told: Any, *, call: Call) -> Any:
        del requests, told, call
        self.asked += 1
        raise RegnumError(BUSY, "no room")


async def test_requests_that_came_together_and_find_no_room_are_refused_after_half_a_minute() -> None:
    rendered: list[tuple[Any, str]] = []

    def render(_context: Context, response: Any, error: str) -> Any:
        told = response and response.responses[0].partition_responses[0].error_code
        rendered.append((told, error))
        return None if response is None else [b"x"]

    clock, log = FakeClock(), FullLog()
    data = data_over(None)
    together = Together(data=data, render=render)
    for acks in (-1, 0):
        await together.add(produced(1, acks=acks), context(0))
    taking = asyncio.create_task(together.take(log, clock))
    await clock.advance(WAITED_S - 0.1)
    assert not any(answer.done() for answer in together.answers)
    assert 10 < log.asked < 20
    await clock.advance(0.2)
    await within(taking)
    timed_out = errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT
    assert [answer.result() for answer in together.answers] == [[b"x"], timed_out]
    assert rendered == [(timed_out, "THROTTLING_QUOTA_EXCEEDED"), (None, "REQUEST_TIMED_OUT")]
    together.close()


class Offsets:
    """Knows group ``a``, has no memory for the offsets of ``b``, and refuses those of ``c``."""

    async def OffsetFetch(self, request: Any, _context: Any) -> group_pb2.OffsetFetchResponse:  # noqa: N802 - gRPC's name
        if request.group_id == "b":
            raise RegnumError(BUSY, "no room")
        if request.group_id == "c":
            raise RegnumError(errors_pb2.ERROR_CODE_GROUP_AUTHORIZATION_FAILED, "no")
        return group_pb2.OffsetFetchResponse()


async def test_offsets_of_groups_are_told_each_on_its_own_but_for_what_is_to_be_waited_for() -> None:
    groups = Groups(groups=Offsets(), addresses=SimpleNamespace())  # type: ignore[arg-type]
    head = Head(key=9, version=8, correlation_id=1, client_id="c", end=0)
    asking = context(9)
    asking = Context(asking.call, head, asking.session, FakeClock())

    def asked(*names: str) -> OffsetFetchRequest:
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in names])

    answer = await groups.committed(asked("a", "c"), asking)
    assert [one.error_code for one in answer.groups] == [0, errors_pb2.ERROR_CODE_GROUP_AUTHORIZATION_FAILED]
    with pytest.raises(RegnumError) as refused:
        await groups.committed(asked("a", "b"), asking)
    assert refused.value.code == BUSY


async def test_a_session_keeps_no_name_that_no_topic_has() -> None:
    data = data_over(None)
    asking = context(1)
    asked = FetchRequest(session_epoch=0, topics=[FetchTopic(topic="x" * 30_000, partitions=[FetchPartition()])])
    with pytest.raises(RegnumError) as refused:
        await data.fetch(asked, asking)
    assert (refused.value.code, asking.session.id) == (errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION, 0)
