"""From a frame to its answer: what is offered, what is refused, what waits."""

import asyncio
import random
import struct
from typing import Any

import pytest
from regnum.types.v1 import errors_pb2
from regnum_broker.kafka.admin import offered
from regnum_broker.kafka.context import Context
from regnum_broker.kafka.door import Door
from regnum_broker.kafka.fetch_sessions import ConnectionSession, Sessions
from regnum_kafka_wire.apis import APIS
from regnum_kafka_wire.frames import Head
from regnum_kafka_wire.gen.api_versions_response import ApiVersionsResponse
from regnum_kafka_wire.gen.heartbeat_response import HeartbeatResponse
from regnum_kafka_wire.primitives import MalformedError
from regnum_model.shares import Shares
from regnum_service.errors import RegnumError
from regnum_service.limits.answers import Answers, making
from regnum_service.limits.budget import Budget
from regnum_service.limits.call import Call
from regnum_service.limits.held_bytes import HeldBytes, Purpose
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

    async def heartbeat(self, request: Any, context: Context) -> HeartbeatResponse:
        del context
        self.seen.append(request)
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
    """Nothing is measured."""

    is_on = False

    async def measured(self, call: Call, request: Any, answering: Any) -> Any:
        raise NotImplementedError


class World:
    def __init__(self) -> None:
        self.clock, self.room, self.gate = FakeClock(), Room(), Gate()
        room: Any = self.room
        self.metrics = Metrics()
        self.held = HeldBytes(Shares(total_max=TOTAL, connection_max=TOTAL))
        self.budget = Budget(self.held, self.clock)
        self.door = Door(
            data=room,
            log=room,
            groups=room,
            admin=room,
            administration={},
            gates=(self.gate,),
            answers=Answers(self.budget),
            meter=Meter(),
            clock=self.clock,
            metrics=self.metrics,
        )

    async def ask(self, frame: bytes) -> bytes:
        view = memoryview(frame)
        head = Head.read(view)
        call = Call(peer="ipv4:10.0.0.1:1", client_id=head.client_id)
        session = ConnectionSession(Sessions(), random.Random(1))
        buffers = await self.door.answer(view, Context(call, head, session, self.clock))
        assert buffers is not None
        return b"".join(buffers)


@pytest.fixture
async def world() -> World:
    return World()


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
    assert await world.ask(HEARTBEAT) == answered(7)
    (counted,) = [one for one in world.metrics.read() if one.instrument is instruments.KAFKA_REQUESTS]
    assert {labels for labels, _ in counted.histograms} == {
        ("Heartbeat", "0", "REBALANCE_IN_PROGRESS"),
        ("Heartbeat", "0", "REQUEST_TIMED_OUT"),
    }


async def test_what_overload_refuses_waits_and_is_made_again(world: World) -> None:
    busy = errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED
    world.room.outcomes = [RegnumError(busy, "x", retry_after_ms=300), RegnumError(busy, "x")]
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
