"""Which children changed: every one that did, and no other."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from regnum_coordination.errors import SessionExpired
from regnum_coordination.port import Create, Delete, Store
from regnum_coordination.recipes.changed_children import changed_children
from regnum_service.clock import SystemClock
from regnum_testing.coordination_worlds import World
from regnum_testing.waiting import within


async def _begin(store: Store) -> AsyncGenerator[frozenset[str] | None, None]:
    answers = changed_children(store, "/d", SystemClock())
    assert await within(anext(answers)) is None
    return answers


async def _named(answers: AsyncGenerator[frozenset[str] | None, None], count: int = 1) -> set[str]:
    """What is named until it is so many names."""
    seen: set[str] = set()
    while len(seen) < count:
        answer = await within(anext(answers))
        assert answer is not None
        seen |= answer
    return seen


async def test_a_child_that_comes_changes_or_goes_is_named_and_no_other(world: World, store: Store) -> None:
    await store.create("/d", b"")
    await store.write_batch([(Create(f"/d/{number}", b""),) for number in range(50)])
    other = await world.open()
    async with aclosing(await _begin(store)) as answers:
        await other.set("/d/7", b"rewritten", version=0)
        assert await _named(answers) == {"7"}
        await other.delete("/d/8", version=0)
        assert await _named(answers) == {"8"}
        await other.create("/d/new", b"", ephemeral=True)
        assert await _named(answers) == {"new"}
        await other.close()
        assert await _named(answers) == {"new"}


async def test_a_child_that_went_and_came_back_is_named_beside_others_that_changed(world: World, store: Store) -> None:
    """Safety rule S10: the names alone show "b" as it was."""
    await store.create("/d/a", b"", make_parents=True)
    await store.create("/d/b", b"")
    other = await world.open()
    async with aclosing(await _begin(store)) as answers:
        await other.multi([Delete("/d/a", 0), Create("/d/c", b"")])
        await other.delete("/d/b", version=0)
        await other.create("/d/b", b"")
        assert await _named(answers, 3) == {"a", "b", "c"}


async def test_what_happens_while_nobody_asks_is_named_afterwards(world: World, store: Store) -> None:
    await store.create("/d", b"")
    other = await world.open()
    async with aclosing(await _begin(store)) as answers:
        await other.create("/d/a", b"")
        assert await _named(answers) == {"a"}
        for version in range(3):
            await other.set("/d/a", b"x", version=version)
            await other.create(f"/d/b{version}", b"")
        assert await _named(answers, 4) == {"a", "b0", "b1", "b2"}


async def test_a_folder_that_comes_later_is_followed(world: World, store: Store) -> None:
    other = await world.open()
    async with aclosing(await _begin(store)) as answers:
        await other.create("/d/a", b"", make_parents=True)
        assert await _named(answers) == {"a"}


async def test_what_lies_deeper_or_beside_is_not_named(world: World, store: Store) -> None:
    await store.create("/d/a", b"", make_parents=True)
    other = await world.open()
    async with aclosing(await _begin(store)) as answers:
        await other.create("/d/a/deep", b"")
        await other.create("/d-neighbour", b"")
        await other.set("/d", b"itself", version=0)
        await other.create("/d/b", b"")
        assert await _named(answers) == {"b"}


async def test_changes_while_the_connection_was_away_are_named(world: World, store: Store) -> None:
    await store.create("/d/a", b"", make_parents=True)
    await store.create("/d/b", b"")
    other = await world.open()
    async with aclosing(await _begin(store)) as answers:
        await world.interrupt(store)
        await other.delete("/d/a", version=0)
        await other.create("/d/a", b"")
        await world.restore(store)
        assert await _named(answers) == {"a"}


async def test_it_ends_with_the_session_and_leaves_no_task_behind(world: World, store: Store) -> None:
    await store.create("/d/a", b"", make_parents=True)
    before = asyncio.all_tasks()
    async with aclosing(await _begin(store)) as answers:
        pass
    assert {task for task in asyncio.all_tasks() - before if "/d" in task.get_name()} == set()
    async with aclosing(await _begin(store)) as answers:
        await world.expire(store)
        with pytest.raises(SessionExpired):
            await store.create("/b", b"")
        with pytest.raises(SessionExpired):
            await within(anext(answers))
