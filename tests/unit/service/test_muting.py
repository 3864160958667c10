"""Muted connections: who is held, for how long, and how many."""

import asyncio
import math

import pytest
from regnum.types.v1 import errors_pb2
from regnum_service.errors import RegnumError
from regnum_service.limits.call import Call
from regnum_service.muting import LOOK_S, MUTE_S_MAX, Mutes, Muting, forget_departed
from regnum_testing.clock import FakeClock, settle
from regnum_testing.waiting import within

METHOD = "/regnum.broker.v1.LogService/Produce"


def call_at(connection: str = "ipv4:10.0.0.1:1000", deadline_s: float = math.inf) -> Call:
    """What a gate sees of a call."""
    return Call(peer=connection, deadline_s=deadline_s)


class Calls:
    """Calls that go through a gate; each notes when it began."""

    def __init__(self, muting: Muting, clock: FakeClock) -> None:
        self.muting = muting
        self.clock = clock
        self.began: list[tuple[int, float]] = []
        self.refused: list[RegnumError] = []

    def start(self, number: int, *, caller: Call | None = None, lasts_s: float = 0.0, mutes_s: float = 0.0):
        return asyncio.create_task(self._call(number, caller or call_at(), lasts_s, mutes_s))

    async def _call(self, number, caller, lasts_s, mutes_s):
        try:
            turn = await self.muting.enter(METHOD, caller)
        except RegnumError as error:
            self.refused.append(error)
            return
        self.began.append((number, self.clock.monotonic() - 1_000.0))
        if lasts_s:
            await self.clock.sleep(lasts_s)
        if mutes_s:
            self.muting.mute(caller.peer, mutes_s)
        if turn is not None:
            turn.leave()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(start_s=1_000.0)


@pytest.fixture
def muting(clock) -> Muting:
    return Muting(clock)


@pytest.fixture
def calls(muting, clock) -> Calls:
    return Calls(muting, clock)


async def test_who_behaves_is_not_held(calls):
    calls.start(1)
    await settle()
    assert calls.began == [(1, 0.0)]


async def test_a_muted_connection_waits_and_others_do_not(calls, clock):
    calls.muting.mute(call_at().peer, 2.0)
    calls.start(1)
    calls.start(2, caller=call_at("ipv4:10.0.0.2:1000"))
    await clock.advance(1.9)
    assert calls.began == [(2, 0.0)]
    await clock.advance(0.2)
    assert calls.began == [(2, 0.0), (1, 2.0)]


async def test_a_shorter_mute_does_not_shorten_a_longer_one(calls, clock):
    calls.muting.mute(call_at().peer, 2.0)
    calls.muting.mute(call_at().peer, 1.0)
    calls.start(1)
    await clock.advance(5.0)
    assert calls.began == [(1, 2.0)]


async def test_held_calls_go_one_after_another_and_each_may_hold_up_the_next(calls, clock):
    calls.muting.mute(call_at().peer, 2.0)
    for number in (1, 2, 3):
        calls.start(number, mutes_s=1.0)
    await clock.advance(10.0)
    assert calls.began == [(1, 2.0), (2, 3.0), (3, 4.0)]


async def test_the_next_goes_only_when_the_one_before_has_ended(calls, clock):
    calls.muting.mute(call_at().peer, 2.0)
    calls.start(1, lasts_s=5.0, mutes_s=1.0)
    calls.start(2)
    await clock.advance(20.0)
    assert calls.began == [(1, 2.0), (2, 8.0)]


async def test_who_comes_while_others_wait_stands_in_line(calls, clock):
    calls.muting.mute(call_at().peer, 2.0)
    calls.start(1, lasts_s=5.0)
    await clock.advance(3.0)
    calls.start(2)
    await clock.advance(3.0)
    assert calls.began == [(1, 2.0)]
    await clock.advance(3.0)
    assert calls.began == [(1, 2.0), (2, 7.0)]


async def test_no_more_than_a_hundred_are_held_and_the_rest_hear_how_long(calls, clock):
    calls.muting.mute(call_at().peer, 2.0)
    await clock.advance(0.5)
    for number in range(150):
        calls.start(number)
    await settle()
    assert (calls.muting.held, calls.muting.refused, len(calls.refused)) == (100, 50, 50)
    error = calls.refused[0]
    assert error.code == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED
    assert error.retry_after_ms == 1500
    await clock.advance(1.5)
    await settle(500)
    assert [number for number, _ in calls.began] == list(range(100))
    assert calls.muting.held == 0


async def test_a_call_that_is_dropped_leaves_the_line_in_order(calls, clock):
    calls.muting.mute(call_at().peer, 2.0)
    first, second = calls.start(1), calls.start(2)
    calls.start(3)
    await settle()
    first.cancel()
    second.cancel()
    await settle()
    assert calls.muting.held == 1
    await clock.advance(2.0)
    assert calls.began == [(3, 2.0)]


async def test_a_call_whose_deadline_has_passed_is_not_carried_out(calls, clock):
    until_s = clock.monotonic() + 1.0
    calls.muting.mute(call_at().peer, 2.0)
    calls.start(1, caller=call_at(deadline_s=until_s))
    calls.start(2)
    await clock.advance(2.0)
    assert calls.began == [(2, 2.0)]
    assert len(calls.refused) == 1


async def test_methods_that_it_does_not_apply_to_pass(clock):
    calls = Calls(Muting(clock, applies=lambda method: method != METHOD), clock)
    calls.muting.mute(call_at().peer, 2.0)
    calls.start(1)
    await settle()
    assert calls.began == [(1, 0.0)]


async def test_nothing_is_remembered_of_a_connection_once_its_time_is_over(calls, clock):
    calls.muting.mute(call_at().peer, 2.0)
    calls.start(1)
    await clock.advance(2.0)
    assert (calls.muting.connections, calls.muting.held) == (0, 0)
    calls.muting.mute(call_at().peer, 2.0)
    await clock.advance(2.0)
    calls.start(2)
    await settle()
    assert (calls.muting.connections, len(calls.began)) == (0, 2)


@pytest.mark.parametrize("for_s", [0.0, -1.0, math.nan, -math.inf])
def test_a_time_that_is_none_mutes_nobody(for_s):
    mutes = Mutes()
    mutes.mute("c", for_s, 10.0)
    assert mutes.left_s("c", 10.0) == 0.0
    assert not len(mutes)


@pytest.mark.parametrize("for_s", [1e18, math.inf])
def test_nobody_is_muted_for_ever(for_s):
    mutes = Mutes()
    mutes.mute("c", for_s, 10.0)
    assert mutes.left_s("c", 10.0) == MUTE_S_MAX


def test_of_too_many_connections_those_are_forgotten_whose_time_is_over_first():
    mutes = Mutes(connections_max=100)
    for number in range(100_000):
        mutes.mute(f"c{number}", 1.0 + number, 0.0)
        assert len(mutes) <= 100
    assert mutes.left_s("c99999", 0.0) == MUTE_S_MAX


def test_those_whose_time_is_over_make_room_first():
    mutes = Mutes(connections_max=100)
    mutes.mute("long", 50.0, 0.0)
    for number in range(99):
        mutes.mute(f"c{number}", 1.0, 0.0)
    mutes.mute("late", 1.0, 10.0)
    assert len(mutes) == 2
    assert mutes.left_s("long", 10.0) == 40.0


async def test_who_gets_the_port_of_a_muted_connection_is_not_held_for_its_debt(calls, clock, muting):
    """The newcomer has the same peer and another socket. Held for one look at most, and not for 100 s."""
    name, sockets = call_at().peer, {call_at().peer: 7}
    muting.mute(name, 100.0)
    muting.mute("ipv4:10.0.0.2:1", 100.0)
    watching = asyncio.create_task(forget_departed((muting,), lambda names: dict(sockets), clock))

    async def looked() -> None:
        await clock.advance(LOOK_S)
        await until_threads_are_done()

    async def until_threads_are_done() -> None:
        for _ in range(50):
            await asyncio.to_thread(int)
            await settle()

    await looked()
    assert muting.left_s(name) > 0.0, "it is there, as the socket that it was"
    assert muting.left_s("ipv4:10.0.0.2:1") == 0.0, "it is gone"
    sockets[name] = 8
    calls.start(1)
    await looked()
    assert muting.left_s(name) == 0.0
    await looked()
    assert [number for number, _ in calls.began] == [1]
    watching.cancel()


async def test_where_nobody_knows_which_connections_are_open_nobody_is_forgotten(clock, muting):
    muting.mute("a", 100.0)
    looked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def look(names):
        loop.call_soon_threadsafe(looked.set)

    watching = asyncio.create_task(forget_departed((muting,), look, clock))
    await clock.advance(LOOK_S)
    await within(looked.wait())
    await settle()
    assert muting.left_s("a") > 0.0
    watching.cancel()
