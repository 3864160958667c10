"""The account of what is held: what is let go is given to those who wait, and nothing is left over."""

import asyncio
import gc
import weakref

import pytest
from regnum.types.v1 import errors_pb2
from regnum_model.shares import Shares
from regnum_service.errors import RegnumError
from regnum_service.limits.held_bytes import RETRY_MS, HeldBytes, Holding, Purpose
from regnum_testing.clock import settle
from regnum_testing.waiting import within

A, B, C = "ipv4:10.0.0.1:1", "ipv4:10.0.0.2:1", "ipv4:10.0.0.3:1"


class Name(str):
    """A text of which a test knows whether it is kept."""

    __slots__ = ("__weakref__",)


@pytest.fixture
def held() -> HeldBytes:
    return HeldBytes(Shares(total_max=100, connection_max=60))


def waiter(held: HeldBytes, connection: str, size: int) -> asyncio.Task[None]:
    return asyncio.create_task(held.wait_for(connection, size, Purpose.FETCH))


def test_what_is_refused_is_counted_and_not_held(held):
    assert held.take(A, 50, Purpose.PRODUCE)
    assert not held.take(A, 1, Purpose.PRODUCE)
    assert (held.total, held.of(A), held.refused[Purpose.PRODUCE]) == (50, 50, 1)


async def test_nothing_is_remembered_of_a_connection_that_holds_nothing(held):
    held.take(A, 50, Purpose.PRODUCE)
    held.hold(A, 30, Purpose.REPLICATION)
    held.let_go(A, 50, Purpose.PRODUCE)
    held.let_go(A, 30, Purpose.REPLICATION)
    assert (held.total, held.connections, held.total_peak) == (0, 0, 80)
    assert [held.held_for(purpose) for purpose in Purpose] == [0] * len(Purpose)


def test_followers_are_counted_and_never_refused(held):
    held.hold(A, 500, Purpose.REPLICATION)
    assert held.is_full
    assert held.held_for(Purpose.REPLICATION) == 500
    assert not held.take(B, 1, Purpose.PRODUCE)


async def test_who_waits_gets_in_when_another_lets_go(held):
    held.hold(A, 100, Purpose.REPLICATION)
    waiting = waiter(held, B, 20)
    await settle()
    assert not waiting.done()
    held.let_go(A, 20, Purpose.REPLICATION)
    await settle()
    assert waiting.done()
    assert held.of(B) == 20


async def test_those_of_one_connection_wait_in_line_and_others_are_not_behind_them(held):
    held.hold(A, 100, Purpose.REPLICATION)
    large, small, other = waiter(held, B, 90), waiter(held, B, 5), waiter(held, C, 10)
    held.let_go(A, 20, Purpose.REPLICATION)
    await settle()
    assert (large.done(), small.done(), other.done()) == (False, False, True)
    held.let_go(A, 80, Purpose.REPLICATION)
    held.let_go(C, 10, Purpose.FETCH)
    await settle()
    assert (large.done(), small.done()) == (True, False)
    held.let_go(B, 90, Purpose.FETCH)
    await settle()
    assert small.done()
    assert (held.total, held.of(B)) == (5, 5)


async def test_one_release_lets_in_all_that_fit(held):
    held.hold(A, 100, Purpose.REPLICATION)
    waiting = [waiter(held, f"c{number}", 5) for number in range(10)]
    await settle()
    held.let_go(A, 100, Purpose.REPLICATION)
    await settle()
    assert all(task.done() for task in waiting)


async def test_who_gives_up_waiting_holds_nothing_and_blocks_nobody(held):
    held.hold(A, 100, Purpose.REPLICATION)
    first, second = waiter(held, B, 50), waiter(held, B, 5)
    await settle()
    first.cancel()
    await settle()
    held.let_go(A, 10, Purpose.REPLICATION)
    await settle()
    assert second.done()
    assert held.of(B) == 5


async def test_who_was_behind_one_that_gave_up_gets_in_although_nobody_lets_go_of_anything(held):
    held.hold(A, 60, Purpose.REPLICATION)
    large, small, third = waiter(held, B, 50), waiter(held, B, 5), waiter(held, B, 5)
    await settle()
    large.cancel()
    await settle()
    assert (small.done(), third.done()) == (True, True)
    assert (held.of(B), held.waiting) == (10, 0)


async def test_who_comes_in_the_moment_in_which_the_one_before_it_gives_up_gets_in(held):
    held.hold(A, 60, Purpose.REPLICATION)
    large = waiter(held, B, 50)
    await settle()
    small = waiter(held, B, 5)
    large.cancel()
    await settle()
    assert (small.done(), held.of(B), held.waiting) == (True, 5, 0)


async def test_who_was_behind_one_that_gave_up_in_the_moment_it_got_in_gets_in(held):
    held.hold(A, 100, Purpose.REPLICATION)
    large, small = waiter(held, B, 50), waiter(held, B, 40)
    await settle()
    held.let_go(A, 60, Purpose.REPLICATION)
    asyncio.get_running_loop().call_soon(large.cancel)
    await settle()
    assert (large.cancelled(), small.done()) == (True, True)
    assert (held.of(B), held.waiting) == (40, 0)


async def test_nothing_is_kept_of_those_who_give_up_behind_one_that_waits_on(held):
    held.hold(A, 100, Purpose.REPLICATION)
    head = waiter(held, B, 5)
    await settle()
    names = [Name(f"caller {number}") for number in range(1_000)]
    kept = weakref.WeakSet(names)
    gave_up = [asyncio.create_task(held.wait_for(B, 5, Purpose.FETCH, principal=name)) for name in names]
    names.clear()
    await settle()
    behind = waiter(held, B, 7)
    await settle()
    while gave_up:
        gave_up.pop().cancel()
    await settle()
    gc.collect()
    assert (len(kept), held.waiting) == (0, 1)
    held.let_go(A, 100, Purpose.REPLICATION)
    await settle()
    assert (head.done(), behind.done(), held.of(B), held.waiting) == (True, True, 12, 0)


async def test_who_gives_up_in_the_moment_it_gets_in_holds_nothing(held):
    held.hold(A, 100, Purpose.REPLICATION)
    waiting = waiter(held, B, 50)
    await settle()
    held.let_go(A, 100, Purpose.REPLICATION)
    asyncio.get_running_loop().call_soon(waiting.cancel)
    await settle()
    assert (held.total, held.connections) == (0, 0)


async def test_an_answer_becomes_smaller_where_there_is_less_memory(held):
    holding = Holding(held, A, Purpose.FETCH)
    assert holding.grant(80, 10) == 50
    holding.become(30)
    assert held.of(A) == 30
    second = Holding(held, B, Purpose.FETCH)
    assert second.grant(60, 10) == 12
    third = Holding(held, C, Purpose.FETCH)
    assert third.grant(40, 8) == 8
    assert held.refused[Purpose.FETCH] == 0


async def test_with_less_than_the_least_it_is_not_begun(held):
    held.hold(A, 95, Purpose.PRODUCE)
    holding = Holding(held, B, Purpose.FETCH)
    with pytest.raises(RegnumError) as caught:
        holding.grant(80, 10)
    assert caught.value.code == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED
    assert caught.value.retry_after_ms == RETRY_MS
    assert (held.of(B), held.refused[Purpose.FETCH]) == (0, 1)


async def test_what_turned_out_larger_is_counted_and_closing_lets_go_of_it(held):
    holding = Holding(held, A, Purpose.FETCH)
    await holding.wait_for(10)
    holding.become(500)
    assert held.total == 500
    holding.close()
    holding.close()
    assert (held.total, held.connections) == (0, 0)


async def test_readers_that_take_nothing_leave_room_for_producers(held):
    silent = [waiter(held, f"reader {number}", 8) for number in range(20)]
    await settle()
    assert held.held_for(Purpose.FETCH) == 48
    assert (held.waiting, held.is_full) == (14, False)
    assert all(held.take(f"producer {number}", 10, Purpose.PRODUCE) for number in range(5))
    for task in silent:
        task.cancel()


async def test_producers_whose_acknowledgements_do_not_come_leave_room_for_readers(held):
    while held.take(f"producer {held.total}", 5, Purpose.PRODUCE):
        pass
    assert (held.held_for(Purpose.PRODUCE), held.is_full) == (75, True)
    await within(held.wait_for(A, 20, Purpose.FETCH))
    assert held.total == 95


async def test_what_is_larger_than_the_part_of_its_purpose_gets_in_alone(held):
    assert held.take(A, 90, Purpose.PRODUCE)
    held.let_go(A, 90, Purpose.PRODUCE)
    assert held.take(A, 5, Purpose.PRODUCE)
    assert not held.take(B, 90, Purpose.PRODUCE)
