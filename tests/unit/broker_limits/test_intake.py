"""The gate for what clients send: so much at once of one connection, so much of all, and nothing while it is full."""

import asyncio

import pytest
from regnum.types.v1 import errors_pb2
from regnum_broker.limits.held_bytes import HeldBytes, Purpose
from regnum_broker.limits.intake import (
    READ_AT_ONCE,
    READ_OF_CONNECTION,
    SMALL_BYTES,
    STREAMS_OF_CONNECTION,
    WAITING_MAX,
    WAITING_OF_CONNECTION,
    Intake,
)
from regnum_broker.limits.shares import Shares
from regnum_service.errors import RegnumError
from regnum_testing.clock import settle

PRODUCE = "/regnum.broker.v1.LogService/Produce"
PRODUCE_STREAM = "/regnum.broker.v1.LogService/ProduceStream"
METADATA = "/regnum.metadata.v1.MetadataService/GetMetadata"
MIB = 1024 * 1024


class Peer:
    """What the gate sees of a call."""

    def __init__(self, name: str) -> None:
        self.name = name

    def peer(self) -> str:
        return self.name


A, B = Peer("a"), Peer("b")


@pytest.fixture
def held() -> HeldBytes:
    return HeldBytes(Shares(total_max=100 * MIB, connection_max=20 * MIB))


@pytest.fixture
def intake(held) -> Intake:
    return Intake(held)


def entering(intake: Intake, peer: Peer, count: int, method: str = PRODUCE) -> list[asyncio.Task]:
    return [asyncio.create_task(intake.enter(method, peer)) for _ in range(count)]


def refused(task: asyncio.Task) -> bool:
    return task.done() and isinstance(task.exception(), RegnumError)


async def test_what_is_read_is_held_until_its_call_ends(held, intake):
    call = await intake.enter(PRODUCE, A)
    assert held.total == 0
    call.took(MIB)
    assert (held.of("a"), held.held_for(Purpose.PRODUCE)) == (MIB, MIB)
    call.leave()
    assert (held.total, intake.calls) == (0, 0)


async def test_what_is_over_its_share_is_thrown_away_and_nothing_of_it_is_held(held, intake):
    held.hold("a", 20 * MIB, Purpose.PRODUCE)
    call = await intake.enter(PRODUCE, A)
    with pytest.raises(RegnumError) as caught:
        call.took(MIB)
    assert caught.value.code == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED
    call.leave()
    assert (held.total, held.refused[Purpose.PRODUCE], intake.calls) == (20 * MIB, 1, 0)
    other = await intake.enter(PRODUCE, B)
    other.took(MIB)


async def test_nothing_is_read_while_it_is_full(held, intake):
    held.hold("c", 100 * MIB, Purpose.FETCH)
    with pytest.raises(RegnumError):
        await intake.enter(PRODUCE, A)
    small = await intake.enter(METADATA, A)
    small.took(100)
    small.leave()
    assert (held.of("a"), intake.calls) == (0, 0)


async def test_a_large_message_of_any_call_is_counted(held, intake):
    call = await intake.enter(METADATA, A)
    call.took(SMALL_BYTES + 1)
    assert held.of("a") == SMALL_BYTES + 1
    call.leave()
    assert held.total == 0


async def test_one_connection_reads_so_many_at_once_and_does_not_hold_another_up(intake):
    mine = entering(intake, A, 50)
    await settle(100)
    assert sum(task.done() for task in mine) == READ_OF_CONNECTION
    assert (await intake.enter(PRODUCE, B)) is not None
    mine[0].result().took(10)
    await settle()
    assert sum(task.done() for task in mine) == READ_OF_CONNECTION + 1


async def test_too_many_in_line_are_refused(held, intake):
    mine = entering(intake, A, 1_000)
    await settle(100)
    assert sum(map(refused, mine)) == 1_000 - READ_OF_CONNECTION - WAITING_OF_CONNECTION
    assert intake.calls == READ_OF_CONNECTION + WAITING_OF_CONNECTION


async def test_of_all_connections_so_many_messages_are_read_at_once(intake):
    calls = [task for number in range(1_000) for task in entering(intake, Peer(f"c{number}"), 1)]
    await settle(200)
    assert sum(task.done() for task in calls) == READ_AT_ONCE
    # What carries no records does not stand behind them.
    assert (await intake.enter(METADATA, B)) is not None


async def test_of_very_many_connections_not_all_may_wait(intake):
    calls = [task for number in range(3_000) for task in entering(intake, Peer(f"c{number}"), 1)]
    await settle(200)
    assert sum(map(refused, calls)) == 3_000 - WAITING_MAX


async def test_who_gives_up_leaves_the_line_and_nothing_is_left(intake):
    calls = [task for number in range(20) for task in entering(intake, Peer(f"c{number % 3}"), 10)]
    await settle(100)
    for task in calls:
        if task.done():
            task.result().leave()
        else:
            task.cancel()
    await settle(100)
    for task in calls:
        if not task.cancelled() and task.exception() is None:
            task.result().leave()
    assert intake.calls == 0
    fresh = [task for number in range(8) for task in entering(intake, Peer(f"d{number}"), 8)]
    await settle(100)
    assert all(task.done() for task in fresh)


async def test_a_connection_has_a_hundred_streams_of_requests_and_another_its_own(held, intake):
    streams = []
    for _ in range(STREAMS_OF_CONNECTION):
        stream = await intake.enter(PRODUCE_STREAM, A)
        stream.took(0)
        stream.lasts()
        streams.append(stream)
    with pytest.raises(RegnumError) as caught:
        await intake.enter(PRODUCE_STREAM, A)
    assert caught.value.code == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED
    assert "100 streams" in str(caught.value)
    (await intake.enter(PRODUCE_STREAM, B)).leave()
    (await intake.enter(PRODUCE, A)).leave()
    streams.pop().leave()
    again = await intake.enter(PRODUCE_STREAM, A)
    for stream in (again, *streams):
        stream.leave()
        stream.leave()
    assert (intake.calls, intake.connections) == (0, 0)


async def test_nothing_is_remembered_of_a_connection_whose_call_was_refused(intake):
    calls = [task for number in range(20) for task in entering(intake, Peer(f"p{number}"), 100)]
    await settle()
    assert intake.calls == WAITING_MAX
    with pytest.raises(RegnumError):
        await intake.enter(PRODUCE, B)
    for call in calls:
        call.cancel()
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if not isinstance(outcome, BaseException):
            outcome.leave()
    assert (intake.calls, intake.connections) == (0, 0)
