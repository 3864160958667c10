"""Sessions: ephemeral nodes, their end, and what an owner learns of it."""

import asyncio
from contextlib import aclosing

import pytest
from regnum_coordination.errors import BadVersion, NoNode, SessionExpired
from regnum_coordination.port import Check, Create, Delete, SessionState, Set, Store
from regnum_testing.coordination_worlds import World
from regnum_testing.waiting import eventually, within


async def test_an_open_session_is_connected(store: Store) -> None:
    assert store.session_state is SessionState.CONNECTED
    async with aclosing(store.session_states()) as states:
        assert await within(anext(states)) is SessionState.CONNECTED


async def test_sessions_have_ids_of_their_own(world: World, store: Store) -> None:
    assert (await world.open()).session_id != store.session_id


async def test_an_ephemeral_node_names_its_owner(world: World, store: Store) -> None:
    await store.create("/e", b"", ephemeral=True)
    other = await world.open()
    assert (await other.get("/e", current=True)).stat.ephemeral_owner == store.session_id


async def test_set_keeps_a_node_ephemeral(world: World, store: Store) -> None:
    await store.create("/e", b"", ephemeral=True)
    await store.set("/e", b"1", version=0)
    other = await world.open()
    await other.set("/e", b"2", version=1)
    assert (await other.get("/e", current=True)).stat.ephemeral_owner == store.session_id
    await store.close()
    assert await other.exists("/e", current=True) is None


async def test_close_removes_ephemeral_nodes_and_keeps_the_others(world: World, store: Store) -> None:
    await store.create("/e", b"", ephemeral=True)
    await store.create("/p", b"")
    other = await world.open()
    await store.close()
    await store.close()
    assert await other.exists("/e", current=True) is None
    assert await other.exists("/p", current=True) is not None
    assert store.session_state is SessionState.LOST
    await within(store.wait_lost())


async def test_everything_is_refused_after_close(store: Store) -> None:
    await store.create("/p", b"")
    await store.close()
    for call in (
        lambda: store.get("/p"),
        lambda: store.get_many(["/p"]),
        lambda: store.exists("/p"),
        lambda: store.children("/p"),
        lambda: store.set("/p", b"", version=0),
        lambda: store.multi([Check("/p", 0)]),
        lambda: store.create("/p/x-", b"", sequential=True),
        lambda: anext(store.watch_node("/p")),
        lambda: anext(store.watch_children("/p")),
    ):
        with pytest.raises(SessionExpired):
            await within(call())


async def test_expiry_removes_ephemeral_nodes(world: World, store: Store) -> None:
    await store.create("/e", b"", ephemeral=True)
    other = await world.open()
    await world.expire(store)
    assert await other.exists("/e", current=True) is None


async def test_a_lost_session_writes_nothing(world: World, store: Store) -> None:
    """Safety rule S6: etcd itself would take the write."""
    await store.create("/p", b"")
    other = await world.open()
    await world.expire(store)
    with pytest.raises(SessionExpired):
        await store.set("/p", b"from the grave", version=0)
    assert store.session_state is SessionState.LOST
    with pytest.raises(SessionExpired):
        await store.multi([Create("/q", b"")])
    assert (await other.get("/p", current=True)).data == b""
    assert await other.exists("/q", current=True) is None


async def test_a_write_from_a_lost_session_is_over_before_it_is_bad(world: World, store: Store) -> None:
    await world.expire(store)
    with pytest.raises(SessionExpired):
        await store.set("/none", b"", version=3)


async def test_an_owner_learns_that_its_session_is_over(world: World, store: Store) -> None:
    await world.expire(store)
    with pytest.raises(SessionExpired):
        await store.create("/x", b"")
    await within(store.wait_lost())
    async with aclosing(store.session_states()) as states:
        assert [state async for state in states] == [SessionState.LOST]


async def test_taking_over_changes_the_creation_id(world: World, store: Store) -> None:
    """Safety rule S5: a conditional delete and then a create."""
    old = (await store.create("/e", b"old", ephemeral=True)).stat
    new_owner = await world.open()
    await new_owner.delete("/e", version=old.version)
    new = (await new_owner.create("/e", b"new", ephemeral=True)).stat
    assert new.creation_id > old.creation_id
    assert new.ephemeral_owner == new_owner.session_id
    await store.close()
    assert (await new_owner.get("/e", current=True)).data == b"new"


async def test_versions_alone_do_not_tell_incarnations_apart(world: World, store: Store) -> None:
    """Safety rule S2: the hole that guard nodes close."""
    await store.create("/guard", b"")
    await store.create("/e", b"old", ephemeral=True)
    other = await world.open()
    await other.delete("/e", version=0)
    await other.multi([Set("/guard", b"", 0), Create("/e", b"new", ephemeral=True)])
    with pytest.raises(BadVersion):
        await store.multi([Check("/guard", 0), Delete("/e", 0)])
    assert (await other.get("/e", current=True)).data == b"new"


async def test_a_hand_edit_strips_the_owner(world: World, store: Store) -> None:
    """Safety rule S7: the node then outlives everybody."""
    await store.create("/controller", b"mine", ephemeral=True)
    await world.overwrite("/controller", b"theirs")
    other = await world.open()
    await store.close()
    node = await other.get("/controller", current=True)
    assert (node.data, node.stat.version, node.stat.ephemeral_owner) == (b"theirs", 1, None)
    await other.delete("/controller", version=1)


async def test_many_ephemeral_nodes_go_together(world: World, store: Store) -> None:
    await store.create("/d", b"")
    await store.write_batch([(Create(f"/d/{number}", b"", ephemeral=True),) for number in range(200)])
    other = await world.open()
    assert len((await other.children("/d", current=True)).names) == 200
    await world.expire(store)

    async def empty() -> bool:
        return (await other.children("/d", current=True)).names == ()

    await eventually(empty)


async def test_an_ephemeral_node_can_be_deleted_by_anybody(world: World, store: Store) -> None:
    await store.create("/e", b"", ephemeral=True)
    other = await world.open()
    await other.delete("/e", version=0)
    with pytest.raises(NoNode):
        await store.get("/e", current=True)


async def test_a_close_whose_caller_gives_up_goes_on(world: World, store: Store) -> None:
    await store.create("/e", b"", ephemeral=True)
    other = await world.open()
    async with aclosing(other.watch_node("/e")) as states:
        assert await within(anext(states)) is not None
        closing = asyncio.create_task(store.close())
        # One turn: it has begun and waits for whatever it waits for first, which no port shows.
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        await within(store.close())
        assert await within(anext(states), 15.0) is None  # before the session would end by itself
