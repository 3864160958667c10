"""Long work gives the loop its turns at counted places."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from regnum_service.slices import Turns, slices


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
