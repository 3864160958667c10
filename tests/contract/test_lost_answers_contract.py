"""Safety rule S1: an unknown outcome is settled by repeating, never by looking."""

import pytest
from regnum_coordination.errors import BadVersion, ConnectionLoss, NodeExists
from regnum_coordination.port import Check, Create, SessionState, Set, Store, Unknown, Written
from regnum_coordination.recipes.resolve import Resolver
from regnum_service.clock import SystemClock
from regnum_testing.coordination_worlds import World
from regnum_testing.waiting import eventually

PADDING = b"." * 3000


async def _reachable(store: Store) -> None:
    async def answers() -> bool:
        try:
            await store.exists("/")
        except ConnectionLoss:
            return False
        return store.session_state is SessionState.CONNECTED

    await eventually(answers, what="the connection")


async def _repeated(store: Store, data: bytes) -> None:
    """The same write, until it has an answer: a connection may still be going down with the one before."""

    async def answered() -> bool:
        try:
            await store.set("/a", data, version=0)
        except ConnectionLoss:
            return False
        return True

    await eventually(answered, what="an answer")


async def test_a_write_whose_answer_is_lost_has_happened(world: World, store: Store) -> None:
    other = await world.open()
    await store.create("/a", b"")
    answer = await world.lose_reply(store, lambda: store.set("/a", b"1", version=0), "/a")
    assert isinstance(answer, ConnectionLoss)
    assert (await other.get("/a", current=True)).data == b"1"
    with pytest.raises(BadVersion):
        await _repeated(store, b"1")


async def test_a_batch_whose_answer_is_lost_is_unknown(world: World, store: Store) -> None:
    other = await world.open()
    answer = await world.lose_reply(
        store, lambda: store.write_batch([(Create("/a", b""),), (Create("/b", b""),)]), "/a"
    )
    assert answer == (Unknown(), Unknown())
    assert (await other.children("/", current=True)).names == ("a", "b")


async def test_a_write_can_happen_after_a_read_has_shown_the_old_value(world: World, store: Store) -> None:
    other = await world.open()
    await store.create("/a", b"old")
    late = await world.delay(store, lambda: store.set("/a", PADDING, version=0), cut_off=True)
    assert isinstance(late.answer, ConnectionLoss)
    assert (await other.get("/a", current=True)).data == b"old"
    await late.arrive()
    assert (await other.get("/a", current=True)).data == PADDING


async def test_a_repeat_closes_the_door_for_the_late_write(world: World, store: Store) -> None:
    other = await world.open()
    await store.create("/a", b"old")
    late = await world.delay(store, lambda: store.set("/a", PADDING, version=0))
    await other.set("/a", b"other", version=0)
    with pytest.raises(BadVersion):
        await _repeated(store, PADDING)
    await late.arrive()
    assert (await other.get("/a", current=True)).data == b"other"


async def test_the_resolver_finds_its_own_lost_write(world: World, store: Store) -> None:
    await store.create("/a", b"")
    resolver = Resolver(store, SystemClock())
    answer = await world.lose_reply(
        store, lambda: resolver.multi([Set("/a", b"1", 0), Create("/e", b"", ephemeral=True)], deadline_s=10), "/a"
    )
    assert isinstance(answer, tuple)
    assert [result.stat.version for result in answer] == [1, 0]
    assert (await store.get("/a", current=True)).stat.version == 1


async def test_the_resolver_settles_a_batch(world: World, store: Store) -> None:
    await store.create("/fence", b"")
    await store.create("/b", b"taken")
    resolver = Resolver(store, SystemClock())
    answer = await world.lose_reply(
        store,
        lambda: resolver.write_batch(
            [(Create("/a", b"mine"),), (Create("/b", b"mine"),)], fence=Check("/fence", 0), deadline_s=10
        ),
        "/a",
    )
    assert isinstance(answer, tuple)
    assert isinstance(answer[0], Written)
    assert isinstance(answer[1].error, NodeExists)


async def test_the_resolver_carries_out_what_never_arrived(world: World, store: Store) -> None:
    await store.create("/a", b"")
    resolver = Resolver(store, SystemClock())
    late = await world.delay(store, lambda: resolver.multi([Set("/a", PADDING, 0)], deadline_s=10))
    assert isinstance(late.answer, tuple)
    assert (await store.get("/a", current=True)).stat.version == 1
    await late.arrive()
    assert (await store.get("/a", current=True)).stat.version == 1


async def test_a_session_survives_a_short_loss_of_the_connection(world: World, store: Store) -> None:
    await store.create("/e", b"", ephemeral=True)
    await world.interrupt(store)
    with pytest.raises(ConnectionLoss):
        await store.get("/e")
    with pytest.raises(ConnectionLoss):
        await store.set("/e", b"", version=0)
    assert (await store.write_batch([(Create("/x", b""),)])) == (Unknown(),)

    async def suspended() -> bool:
        return store.session_state is SessionState.SUSPENDED

    await eventually(suspended)
    await world.restore(store)
    await _reachable(store)
    node = await store.get("/e", current=True)
    assert (node.stat.ephemeral_owner, node.stat.version) == (store.session_id, 0)
