"""The faults of the memory store do what they say, and nothing else."""

import asyncio
from contextlib import aclosing

import pytest
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.errors import BadVersion, Compacted, ConnectionLoss, SessionExpired
from regnum_coordination.port import Create, Refused, SessionState, Set, Unknown, Written
from regnum_testing.clock import settle
from regnum_testing.waiting import within


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer(groups_per_transaction=2)


@pytest.fixture
def store(server: MemoryServer) -> MemoryStore:
    return MemoryStore(server)


async def test_a_lost_reply_happened_and_a_dropped_write_did_not(server: MemoryServer, store: MemoryStore) -> None:
    server.lose_reply(touching="/a")
    server.drop_write(touching="/b")
    await store.create("/other", b"")
    for path in ("/a", "/b"):
        with pytest.raises(ConnectionLoss):
            await store.create(path, b"")
    assert await store.exists("/a") is not None
    assert await store.exists("/b") is None
    await store.create("/b", b"")


async def test_a_fault_hits_one_transaction_of_a_batch(server: MemoryServer, store: MemoryStore) -> None:
    server.lose_reply(touching="/2")
    outcomes = await store.write_batch([(Create(f"/{number}", b""),) for number in range(5)])
    assert [type(outcome) for outcome in outcomes] == [Written, Written, Unknown, Unknown, Written]


async def test_a_held_write_happens_when_it_is_told_to(server: MemoryServer, store: MemoryStore) -> None:
    await store.create("/a", b"old")
    held = server.hold_write(session_id=store.session_id)
    with pytest.raises(ConnectionLoss):
        await store.set("/a", b"new", version=0)
    assert held.arrived.is_set()
    assert (await store.get("/a", current=True)).data == b"old"
    assert isinstance(held.commit()[0], Written)
    (again,) = held.commit()
    assert isinstance(again, Refused)
    assert isinstance(again.error, BadVersion)


async def test_faults_of_another_session_wait(server: MemoryServer, store: MemoryStore) -> None:
    other = MemoryStore(server)
    server.lose_reply(session_id=other.session_id)
    await store.create("/a", b"")
    with pytest.raises(ConnectionLoss):
        await other.create("/b", b"")


async def test_frozen_reads_are_old_unless_current(server: MemoryServer, store: MemoryStore) -> None:
    await store.create("/a", b"old")
    server.freeze_reads()
    await store.set("/a", b"new", version=0)
    await store.create("/b", b"")
    assert (await store.get("/a")).data == b"old"
    assert await store.exists("/b") is None
    assert (await store.children("/")).names == ("a",)
    assert (await store.get("/a", current=True)).data == b"new"
    server.thaw_reads()
    assert (await store.get("/a")).data == b"new"


async def test_held_watches_answer_once_with_the_last_state(server: MemoryServer, store: MemoryStore) -> None:
    await store.create("/a", b"0")
    async with aclosing(store.watch_node("/a")) as states:
        await anext(states)
        server.hold_watches()
        waiting = asyncio.ensure_future(anext(states))
        await store.set("/a", b"1", version=0)
        await store.set("/a", b"2", version=1)
        await settle()
        assert not waiting.done()
        server.release_watches()
        node = await within(waiting)
        assert node is not None
        assert node.data == b"2"
    assert server.watches_open() == 0


async def test_an_expiry_that_is_announced_late(server: MemoryServer, store: MemoryStore) -> None:
    await store.create("/e", b"", ephemeral=True)
    server.expire(store.session_id, announce=False)
    assert store.session_state is SessionState.CONNECTED
    with pytest.raises(SessionExpired):
        await store.create("/x", b"")
    assert store.session_state is SessionState.LOST
    assert server.sessions() == ()


async def test_a_disconnected_session_is_suspended_and_comes_back(server: MemoryServer, store: MemoryStore) -> None:
    async with aclosing(store.session_states()) as states:
        seen = [await anext(states)]
        server.disconnect(store.session_id)
        seen.append(await anext(states))
        with pytest.raises(ConnectionLoss):
            await store.get("/")
        server.reconnect(store.session_id)
        seen.append(await anext(states))
        server.disconnect(store.session_id)
        server.expire(store.session_id, announce=False)
        server.reconnect(store.session_id)
        seen += [state async for state in states][-1:]
    assert seen == [SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED, SessionState.LOST]


async def test_other_tasks_run_before_and_after_a_write(store: MemoryStore) -> None:
    """A caller that assumes that nothing happens between its read and its write is found out."""
    await store.create("/a", b"0")
    outcomes = await asyncio.gather(
        store.set("/a", b"1", version=0), store.set("/a", b"2", version=0), return_exceptions=True
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["BadVersion", "Stat"]


async def test_two_servers_do_the_same(server: MemoryServer) -> None:
    async def story(server: MemoryServer) -> list[object]:
        store = MemoryStore(server)
        await store.create("/a", b"", ephemeral=True)
        results: list[object] = [await store.write_batch([(Set("/a", b"x", 0),), (Create("/b/c", b""),)])]
        results.append(await store.get("/a"))
        return results

    assert repr(await story(server)) == repr(await story(MemoryServer(groups_per_transaction=2)))


async def test_a_compaction_ends_tree_watches_that_have_not_answered_everything() -> None:
    server = MemoryServer()
    store, other = MemoryStore(server), MemoryStore(server)
    await other.create("/t", b"0")
    async with aclosing(store.read_tree("/t")) as pages:
        (revision,) = [page.revision async for page in pages]
    assert revision is not None
    async with aclosing(store.watch_tree("/t", after_revision=revision)) as changes:
        server.hold_watches()
        await other.set("/t", b"1", version=0)
        server.release_watches()
        assert (await within(anext(changes))).changed["/t"] is not None
        server.hold_watches()
        await other.set("/t", b"2", version=1)
        server.compact()
        server.release_watches()
        with pytest.raises(Compacted):
            await within(anext(changes))
