"""Watches: the present state first, changes after it, and always the last one."""

from contextlib import aclosing

import pytest
from regnum_coordination.errors import SessionExpired
from regnum_coordination.port import Create, Delete, Store
from regnum_testing.coordination_worlds import World
from regnum_testing.waiting import within


async def test_a_node_watch_begins_with_the_present_state(store: Store) -> None:
    await store.create("/a", b"here")
    async with aclosing(store.watch_node("/a")) as states:
        node = await within(anext(states))
        assert node is not None
        assert (node.data, node.stat.version) == (b"here", 0)
    async with aclosing(store.watch_node("/none")) as states:
        assert await within(anext(states)) is None


async def test_a_node_watch_shows_creation_change_and_end(world: World, store: Store) -> None:
    other = await world.open()
    async with aclosing(store.watch_node("/a")) as states:
        assert await within(anext(states)) is None
        created = await other.create("/a", b"1", ephemeral=True)
        node = await within(anext(states))
        assert node is not None
        assert (node.data, node.stat.version, node.stat.ephemeral_owner) == (b"1", 0, other.session_id)
        assert node.stat.creation_id == created.stat.creation_id
        await other.set("/a", b"2", version=0)
        node = await within(anext(states))
        assert node is not None
        assert (node.data, node.stat.version) == (b"2", 1)
        await other.close()
        assert await within(anext(states)) is None


async def test_changes_may_merge_but_the_last_state_arrives(world: World, store: Store) -> None:
    await store.create("/a", b"0")
    other = await world.open()
    async with aclosing(store.watch_node("/a")) as states:
        await within(anext(states))
        for number in range(50):
            await other.set("/a", str(number + 1).encode(), version=number)
        versions = [0]
        while versions[-1] < 50:
            node = await within(anext(states))
            assert node is not None
            assert node.data == str(node.stat.version).encode()
            versions.append(node.stat.version)
        assert versions == sorted(set(versions))


async def test_a_bounced_node_has_another_creation_id(world: World, store: Store) -> None:
    """A watch may merge the end and the new beginning; it must not look like "still there"."""
    first = (await store.create("/a", b"same")).stat
    other = await world.open()
    async with aclosing(store.watch_node("/a")) as states:
        await within(anext(states))
        await other.delete("/a", version=0)
        await other.create("/a", b"same")
        node = await within(anext(states))
        if node is None:
            node = await within(anext(states))
        assert node is not None
        assert node.stat.creation_id > first.creation_id


async def test_a_children_watch_begins_with_the_present_set(store: Store) -> None:
    await store.create("/d/x", b"", make_parents=True)
    async with aclosing(store.watch_children("/d")) as sets:
        assert (await within(anext(sets))).names == ("x",)
    async with aclosing(store.watch_children("/none")) as sets:
        assert (await within(anext(sets))).names == ()


async def test_a_children_watch_shows_who_comes_and_goes(world: World, store: Store) -> None:
    await store.create("/d", b"")
    other = await world.open()
    async with aclosing(store.watch_children("/d")) as sets:
        first = await within(anext(sets))
        await other.create("/d/e", b"", ephemeral=True)
        second = await within(anext(sets))
        await other.close()
        third = await within(anext(sets))
        assert [one.names for one in (first, second, third)] == [(), ("e",), ()]
        assert first.children_id < second.children_id < third.children_id


async def test_a_bounced_child_is_answered(world: World, store: Store) -> None:
    """Removed and created again between two answers: the names are the same, and yet there is an answer."""
    await store.create("/d/x", b"", make_parents=True)
    other = await world.open()
    async with aclosing(store.watch_children("/d")) as sets:
        first = await within(anext(sets))
        await other.delete("/d/x", version=0)
        await other.create("/d/x", b"")
        seen = await within(anext(sets))
        if seen.names == ():
            seen = await within(anext(sets))
        assert seen.names == ("x",)
        assert seen.children_id > first.children_id


async def test_a_children_watch_is_silent_about_data_and_grandchildren(world: World, store: Store) -> None:
    await store.create("/d/x", b"", make_parents=True)
    other = await world.open()
    async with aclosing(store.watch_children("/d")) as sets:
        await within(anext(sets))
        await other.set("/d/x", b"changed", version=0)
        await other.create("/d/x/deep", b"")
        await other.create("/d-neighbour", b"")
        await other.create("/d/y", b"")
        assert (await within(anext(sets))).names == ("x", "y")


async def test_a_children_watch_works_before_its_folder_exists(world: World, store: Store) -> None:
    other = await world.open()
    async with aclosing(store.watch_children("/later")) as sets:
        assert (await within(anext(sets))).names == ()
        await other.create("/later/x", b"", make_parents=True)
        assert (await within(anext(sets))).names == ("x",)


async def test_the_root_can_be_watched(world: World, store: Store) -> None:
    """Sessions that open and close leave no trace there."""
    async with aclosing(store.watch_children("/")) as sets:
        assert (await within(anext(sets))).names == ()
        other = await world.open()
        await other.create("/a", b"")
        assert (await within(anext(sets))).names == ("a",)


async def test_many_changes_in_one_transaction(world: World, store: Store) -> None:
    await store.create("/d/gone", b"", make_parents=True)
    other = await world.open()
    async with aclosing(store.watch_children("/d")) as sets:
        await within(anext(sets))
        await other.multi([Delete("/d/gone", 0), *(Create(f"/d/{number}", b"") for number in range(9))])
        assert (await within(anext(sets))).names == tuple(str(number) for number in range(9))


async def test_several_watches_of_one_session(world: World, store: Store) -> None:
    other = await world.open()
    async with (
        aclosing(store.watch_node("/a")) as one,
        aclosing(store.watch_node("/a")) as two,
        aclosing(store.watch_children("/")) as three,
    ):
        for watch in (one, two, three):
            await within(anext(watch))
        await other.create("/a", b"")
        assert await within(anext(one)) is not None
        assert await within(anext(two)) is not None
        assert (await within(anext(three))).names == ("a",)


async def test_watches_end_with_the_session(world: World, store: Store) -> None:
    async with aclosing(store.watch_node("/a")) as states, aclosing(store.watch_children("/")) as sets:
        await within(anext(states))
        await within(anext(sets))
        await world.expire(store)
        with pytest.raises(SessionExpired):
            await store.create("/b", b"")
        with pytest.raises(SessionExpired):
            await within(anext(states))
        with pytest.raises(SessionExpired):
            await within(anext(sets))


async def test_a_watch_goes_on_after_the_connection_was_away(world: World, store: Store) -> None:
    await store.create("/d", b"")
    await store.create("/d/a", b"0")
    other = await world.open()
    async with aclosing(store.watch_node("/d/a")) as states, aclosing(store.watch_children("/d")) as sets:
        await within(anext(states))
        await within(anext(sets))
        await world.interrupt(store)
        await other.set("/d/a", b"1", version=0)
        await other.set("/d/a", b"2", version=1)
        await other.create("/d/b", b"")
        await other.create("/d/c", b"")
        await world.restore(store)
        while (node := await within(anext(states))) is not None and node.data != b"2":
            assert node.data == b"1"
        assert node is not None
        while (names := (await within(anext(sets))).names) != ("a", "b", "c"):
            assert names == ("a", "b")
        await other.delete("/d/b", version=0)
        assert (await within(anext(sets))).names == ("a", "c")
