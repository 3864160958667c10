"""The gate for what clients send: so much at once of one connection, so much of all, and nothing while it is full."""

import asyncio

import pytest
from regnum.types.v1 import errors_pb2
from regnum_broker.limits.incoming import Incoming, incoming
from regnum_broker.limits.intake import (
    DEFAULT,
    READ_OF_CONNECTION,
    SMALL_BYTES,
    STREAMS_OF_CONNECTION,
    WAITING_MAX,
    WAITING_OF_CONNECTION,
    Intake,
)
from regnum_model.principals import NOBODY, Principal
from regnum_model.shares import Shares
from regnum_service.errors import RegnumError
from regnum_service.limits.call import Call
from regnum_service.limits.held_bytes import RETRY_MS, HeldBytes, Purpose
from regnum_testing.clock import settle
from regnum_testing.waiting import within

PRODUCE = "/regnum.broker.v1.LogService/Produce"
PRODUCE_STREAM = "/regnum.broker.v1.LogService/ProduceStream"
METADATA = "/regnum.metadata.v1.MetadataService/GetMetadata"
MIB = 1024 * 1024
AT_ONCE = Incoming(streams=1_000, produce_calls=64, other_calls=64)


def peer_of(name: str, principal: Principal = NOBODY) -> Call:
    """What the gate sees of a call."""
    return Call(peer=name, principal=principal)


A, B = peer_of("a"), peer_of("b")


@pytest.fixture
def held() -> HeldBytes:
    return HeldBytes(Shares(total_max=100 * MIB, connection_max=20 * MIB))


@pytest.fixture
def intake(held) -> Intake:
    return Intake(held, AT_ONCE)


def entering(intake: Intake, peer: Call, count: int, method: str = PRODUCE) -> list[asyncio.Task]:
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
    calls = [task for number in range(1_000) for task in entering(intake, peer_of(f"c{number}"), 1)]
    await settle(200)
    assert sum(task.done() for task in calls) == AT_ONCE.produce_calls
    # What carries no records does not stand behind them.
    assert (await intake.enter(METADATA, B)) is not None


async def test_of_very_many_connections_not_all_may_wait(intake):
    calls = [task for number in range(3_000) for task in entering(intake, peer_of(f"c{number}"), 1)]
    await settle(200)
    assert sum(map(refused, calls)) == 3_000 - WAITING_MAX


async def test_who_gives_up_leaves_the_line_and_nothing_is_left(intake):
    calls = [task for number in range(20) for task in entering(intake, peer_of(f"c{number % 3}"), 10)]
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
    fresh = [task for number in range(4) for task in entering(intake, peer_of(f"d{number}"), 8)]
    await settle(100)
    assert all(task.done() for task in fresh)


async def test_a_principal_whose_messages_never_come_keeps_no_other_one_out(held):
    intake = Intake(held, Incoming(streams=2, produce_calls=6, other_calls=6))
    for method in (PRODUCE, METADATA):
        peers = [peer_of(f"c{number}", Principal("guest")) for number in range(20)]
        silent = [task for peer in peers for task in entering(intake, peer, 8, method)]
        await settle(200)
        assert sum(task.done() for task in silent) == 3, "of six turns, as many as are left"
        for _ in range(5):
            (await within(intake.enter(method, peer_of("b", Principal("app"))))).leave()
        for task in silent:
            task.cancel()
        await settle(200)
        for task in silent:
            if not task.cancelled():
                task.result().leave()
    assert (intake.calls, intake.connections) == (0, 0)


async def streaming(intake: Intake, peer: Call):
    """An open stream."""
    stream = await intake.enter(PRODUCE_STREAM, peer)
    stream.took(0)
    stream.lasts()
    return stream


async def streams_until_refused(intake: Intake, peer: Call) -> tuple[list, RegnumError]:
    streams = []
    while True:
        try:
            streams.append(await streaming(intake, peer))
        except RegnumError as error:
            return streams, error


async def test_a_connection_has_a_hundred_streams_of_requests_and_another_its_own(held):
    intake = Intake(held, AT_ONCE)
    streams, refusal = await streams_until_refused(intake, A)
    assert len(streams) == STREAMS_OF_CONNECTION
    assert refusal.code == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED
    assert "100 streams" in str(refusal)
    (await intake.enter(PRODUCE_STREAM, B)).leave()
    (await intake.enter(PRODUCE, A)).leave()
    streams.pop().leave()
    again = await intake.enter(PRODUCE_STREAM, A)
    for stream in (again, *streams):
        stream.leave()
        stream.leave()
    assert (intake.calls, intake.streams, intake.connections) == (0, 0, 0)


async def test_all_connections_have_so_many_streams_together_and_who_has_none_gets_one(held):
    intake = Intake(held, Incoming(streams=60, produce_calls=64, other_calls=64))
    first, refusal = await streams_until_refused(intake, A)
    assert len(first) == 30
    assert (refusal.code, refusal.retry_after_ms) == (errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED, RETRY_MS)
    others = [await streaming(intake, peer_of(f"c{number}")) for number in range(30)]
    with pytest.raises(RegnumError):
        await intake.enter(PRODUCE_STREAM, B)
    assert (intake.streams, intake.connections) == (60, 31)
    # What does not get a stream goes by calls.
    (await intake.enter(PRODUCE, B)).leave()
    others.pop().leave()
    (await intake.enter(PRODUCE_STREAM, B)).leave()
    for stream in (*first, *others):
        stream.leave()
    assert (intake.streams, intake.connections) == (0, 0)


async def test_calls_without_records_are_read_so_many_at_once_and_apart_from_those_with_them(held):
    intake = Intake(held, Incoming(streams=2, produce_calls=3, other_calls=5))
    others = [task for number in range(20) for task in entering(intake, peer_of(f"c{number}"), 1, METADATA)]
    await settle(100)
    assert sum(task.done() for task in others) == 5
    stream = await streaming(intake, A)
    calls = [task for number in range(20) for task in entering(intake, peer_of(f"d{number}"), 1, PRODUCE)]
    await settle(100)
    assert sum(task.done() for task in calls) == 3
    next(task for task in others if task.done()).result().took(10)
    await settle(10)
    assert sum(task.done() for task in others) == 6
    stream.leave()
    for task in (*others, *calls):
        task.cancel()
    await settle(100)


def test_as_many_messages_may_come_as_there_is_memory_for_the_largest():
    assert incoming(64 * MIB, 4 * MIB) == Incoming(streams=8, produce_calls=4, other_calls=4)
    assert incoming(64 * MIB, 4 * MIB).messages * 4 * MIB == 64 * MIB
    assert incoming(1024 * MIB, MIB) == Incoming(streams=512, produce_calls=64, other_calls=64)
    assert Incoming(streams=60, produce_calls=30, other_calls=30) == DEFAULT
    with pytest.raises(ValueError, match="less than 4 messages"):
        incoming(15 * MIB, 4 * MIB)


async def test_nothing_is_remembered_of_a_connection_whose_call_was_refused(intake):
    calls = [task for number in range(20) for task in entering(intake, peer_of(f"p{number}"), 100)]
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
