"""Long work gives the loop its turns at counted places."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from regnum_model.principals import Principal
from regnum_service.access.identity import Caller, calling
from regnum_service.slices import TURNS_BETWEEN, Turns, slices
from regnum_testing.waiting import DEADLINE_S


@pytest_asyncio.fixture
async def turns() -> AsyncIterator[Callable[[], int]]:
    """Turns that the loop has had."""
    had = 0

    async def count() -> None:
        nonlocal had
        while True:
            await asyncio.sleep(0)
            had += 1

    counting = asyncio.create_task(count())
    # One turn: it counts.
    await asyncio.sleep(0)
    yield lambda: had
    counting.cancel()
    await asyncio.wait([counting])


@pytest.mark.parametrize(
    ("items", "parts"),
    [([], []), ([1], [(1,)]), ([1, 2], [(1, 2)]), ([1, 2, 3], [(1, 2), (3,)]), ([1, 2, 3, 4], [(1, 2), (3, 4)])],
)
async def test_every_item_comes_once_and_the_loop_gets_a_turn_between_two_parts(
    turns: Callable[[], int], items: list[int], parts: list[tuple[int, ...]]
) -> None:
    before = turns()
    assert [part async for part in slices(iter(items), 2)] == parts
    assert turns() - before == max(0, len(parts) - 1)


async def test_turns_are_given_by_the_work_done(turns: Callable[[], int]) -> None:
    before, giver = turns(), Turns(10)
    for work in (3, 3, 3, 1, 25, 9, 1):
        await giver.took(work)
    assert turns() - before == 3


@pytest.mark.parametrize("size", [0, -1])
async def test_a_slice_of_nothing_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="at least one"):
        Turns(size)
    with pytest.raises(ValueError, match="at least one"):
        _ = [part async for part in slices([1], size)]


async def test_one_part_is_done_in_a_turn_of_the_loop_however_many_works_there_are() -> None:
    turn, done = 0, list[int]()

    async def work() -> None:
        async for _ in slices(range(4), 1):
            done.append(turn)

    works = [asyncio.create_task(work()) for _ in range(5)]
    await asyncio.sleep(0)
    done.clear()  # the first parts, which each begins with
    while not all(one.done() for one in works):
        turn += 1
        await asyncio.sleep(0)
    assert len(done) == len(set(done)) == 15


async def test_parts_take_turns_by_callers() -> None:
    done: list[str] = []

    async def work(name: str) -> None:
        with calling(Caller(principal=Principal(name))):
            async for part in slices(name * 3, 1):
                done.extend(part)

    works = [asyncio.create_task(work(name)) for name in "aaaaab"]
    await asyncio.wait(works)
    assert done.index("b", done.index("b") + 1) <= 9, "the second part of b comes after one more of a"
    assert done[-6:] == ["a"] * 6


async def test_a_work_that_is_given_up_keeps_no_other_waiting() -> None:
    async def work() -> None:
        async for _ in slices(range(3), 1):
            pass

    works = [asyncio.create_task(work()) for _ in range(4)]
    await asyncio.sleep(0)
    for one in works[:3]:
        one.cancel()
    await asyncio.wait_for(works[3], DEADLINE_S)
    assert [one.cancelled() for one in works] == [True, True, True, False]


async def test_between_two_parts_of_a_call_short_work_has_turns(turns: Callable[[], int]) -> None:
    with calling(Caller(principal=Principal("a"))):
        before = turns()
        assert [part async for part in slices(range(3), 1)] == [(0,), (1,), (2,)]
        assert turns() - before == 2 * TURNS_BETWEEN
