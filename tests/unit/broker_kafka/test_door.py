"""From a frame to its answer: what is offered, what is refused, what waits."""

import asyncio
import random
import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from regnum.types.v1 import errors_pb2
from regnum_broker.kafka.admin import Admin, offered
from regnum_broker.kafka.administration import rooms as kafka_room
from regnum_broker.kafka.context import Context
from regnum_broker.kafka.door import CARRIED_OUT, Door
from regnum_broker.kafka.fetch_sessions import ConnectionSession, Sessions
from regnum_broker.kafka.refusals import AGAIN_S, WAITED_S
from regnum_broker.limits.client_quotas import ClientQuotas
from regnum_broker.limits.throttling import TIME_WAIT_S_MAX, Throttling
from regnum_kafka_wire.apis import APIS
from regnum_kafka_wire.frames import Head
from regnum_kafka_wire.gen.api_versions_response import ApiVersionsResponse
from regnum_kafka_wire.gen.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from regnum_kafka_wire.gen.heartbeat_response import HeartbeatResponse
from regnum_kafka_wire.gen.init_producer_id_response import InitProducerIdResponse
from regnum_kafka_wire.gen.list_groups_response import ListedGroup, ListGroupsResponse
from regnum_kafka_wire.primitives import MalformedError
from regnum_model.quotas import REQUEST_PERCENTAGE, QuotaEntity, QuotaTable
from regnum_model.shares import Shares
from regnum_service.errors import RegnumError
from regnum_service.limits.answers import Answers, making
from regnum_service.limits.budget import Budget
from regnum_service.limits.call import Call
from regnum_service.limits.held_bytes import HeldBytes, Purpose
from regnum_service.request_sizes import LIST_MAX
from regnum_telemetry.instruments import broker as instruments
from regnum_telemetry.metrics import Metrics
from regnum_testing.clock import FakeClock
from regnum_testing.waiting import within

TOTAL = 1 << 20
"""Bytes that may be held."""
HEARTBEAT = struct.pack(">hhih", 12, 0, 7, 1) + b"c" + b"\0\1g" + struct.pack(">i", 3) + b"\0\1m"


class Room:
    """Stands for all rooms: heartbeats end as a test says, and versions are told."""

    def __init__(self) -> None:
        self.outcomes: list[Exception | None] = []
        self.seen: list[Any] = []
        self.makes = 0
        self.works: Callable[[], None] = lambda: None

    async def heartbeat(self, request: Any, context: Context) -> HeartbeatResponse:
        del context
        self.seen.append(request)
        self.works()
        making(self.makes)
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if outcome is not None:
            raise outcome
        return HeartbeatResponse()

    def no_heartbeat(self, request: Any, context: Context, code: int) -> HeartbeatResponse:
        del request, context
        return HeartbeatResponse(error_code=code)

    def no_versions(self, request: Any, context: Context, code: int) -> ApiVersionsResponse:
        del request, context
        return ApiVersionsResponse(error_code=code, api_keys=offered())

    def no_delete(self, request: Any, context: Context, code: int) -> DeleteTopicsResponse:
        del context
        return DeleteTopicsResponse(
            responses=[DeletableTopicResult(name=name, error_code=code) for name in request.topic_names]
        )

    async def producer_id(self, request: Any, context: Context) -> Any:
        return await self.heartbeat(request, context)

    def no_producer_id(self, request: Any, context: Context, code: int) -> InitProducerIdResponse:
        del request, context
        return InitProducerIdResponse(error_code=code)

    async def delete(self, request: Any, context: Context) -> DeleteTopicsResponse:
        self.seen.append(request)
        return self.no_delete(request, context, 0)

    def __getattr__(self, _name: str) -> Any:
        return self.heartbeat


class Gate:
    """Lets calls in when it is open."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.entered: list[str] = []

    async def enter(self, method: str, call: Call) -> None:
        assert call.client_id == "c"
        self.entered.append(method)
        await self.open.wait()

    async def read(self, method: str, call: Call) -> None:
        raise NotImplementedError


class Meter:
    """Measures when it is on, and finds that 9 ms are to be waited."""

    def __init__(self) -> None:
        self.is_on = False
        self.charged = 0
        """Attempts."""
        self.owed_s = 0.0

    async def measured(self, call: Call, request: Any, answering: Any) -> Any:
        assert call.client_id == "c"
        answer = await answering
        self.charged += 1
        if hasattr(answer, "throttle_time_ms"):
            answer.throttle_time_ms = 9
        return answer

    def time_owed_s(self, call: Call) -> float:
        assert call.client_id == "c"
        return self.owed_s


class World:
    def __init__(
        self,
        administration: Mapping[int, kafka_room.Room] = MappingProxyType({}),
        quotas: ClientQuotas | None = None,
        **refusing: kafka_room.Refusing,
    ) -> None:
        self.clock, self.room, self.gate, self.meter = FakeClock(), Room(), Gate(), Meter()
        self.throttling = Throttling(quotas or ClientQuotas(), clock=self.clock)
        room: Any = self.room
        vars(room).update(refusing)
        self.metrics = Metrics()
        self.held = HeldBytes(Shares(total_max=TOTAL, connection_max=TOTAL))
        self.budget = Budget(self.held, self.clock)
        self.door = Door(
            data=room,
            log=room,
            groups=room,
            admin=room,
            administration=administration,
            gates=(self.gate,),
            answers=Answers(self.budget),
            meter=self.meter if quotas is None else self.throttling,
            clock=self.clock,
            metrics=self.metrics,
        )

    async def ask(self, frame: bytes, call: Call | None = None) -> bytes:
        view = memoryview(frame)
        head = Head.read(view)
        call = call or Call(peer="ipv4:10.0.0.1:1", client_id=head.client_id)
        session = ConnectionSession(Sessions(), random.Random(1))
        buffers = await self.door.answer(view, Context(call, head, session, self.clock))
        assert buffers is not None
        return b"".join(buffers)


@pytest.fixture
async def world() -> World:
    return World()


def busy(retry_after_ms: int | None = None) -> RegnumError:
    return RegnumError(errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED, "x", retry_after_ms=retry_after_ms)


def answered(code: int) -> bytes:
    return struct.pack(">iih", 6, 7, code)


async def test_a_call_is_parsed_when_its_gates_have_let_it_in(world: World) -> None:
    world.gate.open.clear()
    asking = asyncio.create_task(world.ask(HEARTBEAT[:-1]))
    await asyncio.sleep(0)
    assert (world.gate.entered, asking.done()) == (["/kafka/Heartbeat"], False)
    world.gate.open.set()
    with pytest.raises(MalformedError):
        await within(asking)


async def test_an_answer_has_the_number_of_its_request(world: World) -> None:
    assert await world.ask(HEARTBEAT) == answered(0)
    (request,) = world.room.seen
    assert (request.group_id, request.generation_id, request.member_id) == ("g", 3, "m")


async def test_a_refusal_is_an_error_of_the_answer(world: World) -> None:
    world.room.outcomes = [RegnumError(errors_pb2.ERROR_CODE_REBALANCE_IN_PROGRESS, "x"), TimeoutError()]
    assert await world.ask(HEARTBEAT) == answered(27)
    assert await world.ask(HEARTBEAT) == answered(errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE)
    (counted,) = [one for one in world.metrics.read() if one.instrument is instruments.KAFKA_REQUESTS]
    assert {labels for labels, _ in counted.histograms} == {
        ("Heartbeat", "0", "REBALANCE_IN_PROGRESS"),
        ("Heartbeat", "0", "REQUEST_TIMED_OUT"),
    }


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "the rules are not read yet"), 15),
        (RegnumError(errors_pb2.ERROR_CODE_UNKNOWN_MEMBER_ID, "nobody"), 25),
    ],
)
async def test_a_member_is_told_that_its_coordinator_is_away_and_nothing_that_ends_it(
    world: World, error: Exception, code: int
) -> None:
    world.room.outcomes = [error]
    assert await world.ask(HEARTBEAT) == answered(code)


async def test_a_producer_that_asks_a_broker_without_a_controller_comes_again(world: World) -> None:
    world.room.outcomes = [RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "there is no controller")]
    answer = await world.ask(struct.pack(">hhih", 22, 0, 7, 1) + b"c" + struct.pack(">hi", -1, 60_000))
    assert struct.unpack_from(">iiih", answer)[1:] == (7, 0, errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT)


async def test_what_overload_refuses_waits_and_is_made_again(world: World) -> None:
    world.room.outcomes = [busy(retry_after_ms=300), busy()]
    asking = asyncio.create_task(world.ask(HEARTBEAT))
    await world.clock.advance(0.29)
    assert len(world.room.seen) == 1
    await world.clock.advance(0.01)
    assert len(world.room.seen) == 2
    await world.clock.advance(1.0)
    assert await within(asking) == answered(0)


async def test_what_there_is_no_memory_for_waits_until_there_is(world: World) -> None:
    world.room.makes = TOTAL // 2
    other = world.budget.holding(Call(peer="ipv4:10.0.0.2:1"), Purpose.CONTROL)
    other.grant(TOTAL - 1_000, TOTAL - 1_000)
    asking = asyncio.create_task(world.ask(HEARTBEAT))
    await world.clock.advance(0.1)
    assert not asking.done()
    assert world.held.total == TOTAL - 1_000, "what waits holds nothing"
    other.close()
    await world.clock.advance(1.0)
    assert await within(asking) == answered(0)


async def test_what_finds_no_room_is_made_ever_more_rarely_and_refused_after_half_a_minute(world: World) -> None:
    world.room.outcomes = [busy()] * 1_000
    asking = asyncio.create_task(world.ask(HEARTBEAT))
    await world.clock.advance(WAITED_S - 0.1)
    assert not asking.done()
    seen = len(world.room.seen)
    assert 10 < seen < 20
    await world.clock.advance(0.2)
    assert await within(asking) == answered(errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE)
    assert len(world.room.seen) == seen + 1, "one more attempt is the last"
    (counted,) = [one for one in world.metrics.read() if one.instrument is instruments.KAFKA_REQUESTS]
    assert [labels for labels, _ in counted.histograms] == [("Heartbeat", "0", "THROTTLING_QUOTA_EXCEEDED")]


async def test_what_a_quota_asks_for_is_waited_for_however_long_it_is(world: World) -> None:
    world.room.outcomes = [busy(retry_after_ms=round(2_000 * WAITED_S))]
    asking = asyncio.create_task(world.ask(HEARTBEAT))
    await world.clock.advance(2 * WAITED_S - 0.1)
    assert not asking.done()
    await world.clock.advance(0.2)
    assert await within(asking) == answered(0)


async def test_an_answer_that_lacks_room_is_not_begun_before_there_is_as_much(world: World) -> None:
    world.room.makes = TOTAL // 2
    other = world.budget.holding(Call(peer="ipv4:10.0.0.2:1"), Purpose.CONTROL)
    other.grant(TOTAL - 1_000, TOTAL - 1_000)
    asking = asyncio.create_task(world.ask(HEARTBEAT))
    await world.clock.advance(WAITED_S - 1.0)
    assert (len(world.room.seen), asking.done()) == (1, False)
    other.close()
    await world.clock.advance(AGAIN_S)
    assert await within(asking) == answered(0)
    assert len(world.room.seen) == 2


async def test_each_attempt_is_charged_as_it_ends_and_what_is_owed_for_it_waited_for(world: World) -> None:
    world.room.outcomes = [busy(), busy()]
    world.meter.is_on, world.meter.owed_s = True, 1.0
    asking = asyncio.create_task(world.ask(struct.pack(">hhih", 12, 1, 7, 1) + HEARTBEAT[10:]))
    for attempts in (1, 2):
        await world.clock.advance(0.9)
        assert (world.meter.charged, len(world.room.seen)) == (attempts, attempts)
        await world.clock.advance(0.1)
    assert await within(asking) == struct.pack(">iiih", 10, 7, 9, 0)
    assert world.meter.charged == 3


async def test_a_quota_of_time_holds_attempts_that_find_no_room() -> None:
    quotas = ClientQuotas()
    quotas.take_up(QuotaTable(client_rates={REQUEST_PERCENTAGE: {QuotaEntity(client_id="c"): 1.0}}))
    world = World(quotas=quotas)
    world.room.outcomes = [busy()] * 1_000
    world.room.works = lambda: world.clock.skip(0.5)
    call = Call(peer="ipv4:10.0.0.1:1", client_id="c")
    asking = asyncio.create_task(world.ask(HEARTBEAT, call))
    await world.clock.advance(0.5)
    assert (asking.done(), quotas.throttled[REQUEST_PERCENTAGE]) == (False, 1)
    assert world.throttling.time_owed_s(call) == TIME_WAIT_S_MAX
    await world.clock.advance(TIME_WAIT_S_MAX - 0.1)
    assert len(world.room.seen) == 1
    await world.clock.advance(2 * WAITED_S)
    assert await within(asking) == answered(errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE)
    assert quotas.throttled[REQUEST_PERCENTAGE] == len(world.room.seen)


@pytest.mark.parametrize("version", [12, 13])
async def test_metadata_of_all_topics_that_finds_no_room_never_reads_like_an_empty_cluster(version: int) -> None:
    nothing: Any = None
    admin = Admin(
        cache=nothing, leaders=nothing, addresses=nothing, authorizer=nothing, controller=nothing, creation=nothing
    )
    world = World(no_metadata=admin.no_metadata)
    world.room.outcomes = [busy()] * 1_000
    head = struct.pack(">hhih", 3, version, 7, 1) + b"c\0"
    asking = asyncio.create_task(world.ask(head + struct.pack(">bbbb", 0, 0, 0, 0)))
    await world.clock.advance(WAITED_S + 1.0)
    if version >= 13:
        assert (await within(asking)).endswith(struct.pack(">hb", errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, 0))
        return
    with pytest.raises(RegnumError, match="can tell no error"):
        await within(asking)


async def test_an_answer_is_held_until_it_has_left_whatever_call_it_answers() -> None:
    async def list_groups(_request: Any, _context: Context) -> ListGroupsResponse:
        return ListGroupsResponse(groups=[ListedGroup("g" * 100, "consumer", "Stable", "classic")] * 1_000)

    world = World({16: (list_groups, lambda *_: ListGroupsResponse())})
    call = Call(peer="ipv4:10.0.0.1:1", client_id="c")
    answer = await world.ask(struct.pack(">hhih", 16, 0, 7, 1) + b"c", call)
    assert world.held.held_for(Purpose.CONTROL) == len(answer) > 100_000
    await world.clock.advance(31.0)
    assert world.budget.unread.overdue() == {call.peer}, "one that is not taken costs its connection where others wait"
    call.leave()
    assert (world.held.total, world.budget.unread.overdue()) == (0, frozenset())


async def test_a_large_request_is_not_carried_out_while_there_is_no_memory_for_its_answer() -> None:
    seen: list[Any] = []

    async def list_groups(request: Any, _context: Context) -> ListGroupsResponse:
        seen.append(request)
        return ListGroupsResponse()

    world = World({16: (list_groups, lambda *_: ListGroupsResponse())})
    other = world.budget.holding(Call(peer="ipv4:10.0.0.2:1"), Purpose.CONTROL)
    other.grant(TOTAL - 1_000, TOTAL - 1_000)
    asking = asyncio.create_task(world.ask(struct.pack(">hhih", 16, 0, 7, 1) + b"c" + bytes(4_096)))
    await world.clock.advance(0.1)
    assert (asking.done(), seen) == (False, [])
    assert await world.ask(HEARTBEAT + bytes(4_096)) == answered(0), "a member is kept"
    other.close()
    await world.clock.advance(1.0)
    await within(asking)
    assert len(seen) == 1


async def test_versions_that_nobody_knows_are_answered_in_the_oldest_form(world: World) -> None:
    answer = await world.ask(struct.pack(">hhih", 18, 99, 7, 1) + b"c" + b"\0\0\0")
    size, number, code, count = struct.unpack_from(">iihi", answer)
    assert (size, number, code, count) == (len(answer) - 4, 7, 35, len(APIS))
    rows = [struct.unpack_from(">hhh", answer, 14 + 6 * place) for place in range(count)]
    assert (0, 0, 13) in rows, "librdkafka looks for Produce 0"
    assert (1, 4, 17) in rows


@pytest.mark.parametrize(("key", "version"), [(12, 5), (12, -1), (0, 2), (1, 18), (7, 0), (24, 0), (999, 0), (-1, 0)])
async def test_what_is_not_offered_ends_the_connection(world: World, key: int, version: int) -> None:
    with pytest.raises(MalformedError, match="not offered"):
        await world.ask(struct.pack(">hhih", key, version, 7, 1) + b"c")


@pytest.mark.parametrize(("count", "code"), [(LIST_MAX, 0), (LIST_MAX + 1, errors_pb2.ERROR_CODE_INVALID_REQUEST)])
async def test_a_list_as_long_as_one_may_be_is_answered_and_a_longer_one_refused(
    world: World, count: int, code: int
) -> None:
    names = b"".join(struct.pack(">h5s", 5, b"%05d" % number) for number in range(count))
    answer = await world.ask(struct.pack(">hhihsi", 20, 1, 7, 1, b"c", count) + names + bytes(4))
    size, number, _, topics, length, name, told = struct.unpack_from(">iiiih5sh", answer)
    assert (size, number, topics, length, name, told) == (len(answer) - 4, 7, count, 5, b"00000", code)
    assert [len(request.topic_names) for request in world.room.seen] == ([] if code else [count])


async def test_time_that_a_call_takes_is_measured_and_told(world: World) -> None:
    heartbeat = struct.pack(">hhih", 12, 1, 7, 1) + HEARTBEAT[10:]
    assert await world.ask(heartbeat) == struct.pack(">iiih", 10, 7, 0, 0)
    world.meter.is_on = True
    assert await world.ask(heartbeat) == struct.pack(">iiih", 10, 7, 9, 0)


def test_what_changes_something_is_carried_out_though_its_client_has_hung_up() -> None:
    changes = ("Produce", "OffsetCommit", "OffsetDelete", "LeaveGroup", "ElectLeaders")
    verbs = ("Create", "Delete", "Alter", "IncrementalAlter")
    expected = {key for key, api in APIS.items() if api.name in changes or api.name.startswith(verbs)}
    assert expected == CARRIED_OUT
    door = World().door
    assert {
        key
        for key in APIS
        if not door.ends_with_its_client(Head(key=key, version=0, correlation_id=1, client_id="c", end=8))
    } == CARRIED_OUT
