"""What only a real server can do: restart, compact, forget a lease, and set limits of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
import pytest_asyncio
from regnum_coordination import open_store
from regnum_coordination.errors import ConnectionLoss, InvalidRequest, SessionExpired
from regnum_coordination.port import Check, Create, SessionState, Set, Store, Written
from regnum_coordination.recipes.membership import Membership
from regnum_coordination.recipes.resolve import Resolver
from regnum_service.channel import aio_channel
from regnum_service.clock import SystemClock
from regnum_testing.coordination_worlds import EtcdWorld
from regnum_testing.etcd_server import EtcdServer
from regnum_testing.ports import unused_port
from regnum_testing.proxy import TcpProxy
from regnum_testing.waiting import eventually, within


@pytest_asyncio.fixture
async def own(tmp_path: Path) -> AsyncIterator[EtcdWorld]:
    """A server that a test may kill."""
    server = EtcdServer(tmp_path)
    server.start()
    world = EtcdWorld(server, "")
    yield world
    await world.close()
    server.kill()


async def _compact(world: EtcdWorld) -> None:
    from etcd3.etcdrpc import rpc_pb2, rpc_pb2_grpc  # noqa: PLC0415 - loadable once the driver is

    async with aio_channel(f"127.0.0.1:{world.server.port}") as channel:
        kv = rpc_pb2_grpc.KVStub(channel)
        now = (await kv.Range(rpc_pb2.RangeRequest(key=b"\0"), timeout=5)).header.revision
        await kv.Compact(rpc_pb2.CompactionRequest(revision=now, physical=True), timeout=5)


async def test_a_restart_of_the_server_costs_no_session(own: EtcdWorld) -> None:
    store, other = await own.open(), await own.open()
    await store.create("/e", b"0", ephemeral=True)
    async with aclosing(store.watch_node("/e")) as states:
        await within(anext(states))
        own.server.kill()
        with pytest.raises(ConnectionLoss):
            await within(store.set("/e", b"1", version=0))
        await asyncio.to_thread(own.server.start)
        (changed,) = await within(Resolver(other, SystemClock()).multi([Set("/e", b"1", 0)]), 20)
        assert changed.stat is not None
        node = await within(anext(states))
        assert node is not None
        assert node.data == b"1"

    async def connected() -> bool:
        return store.session_state is SessionState.CONNECTED

    await eventually(connected)
    assert (await store.get("/e")).stat.ephemeral_owner == store.session_id


async def test_a_watch_survives_a_compaction_of_what_it_missed(own: EtcdWorld) -> None:
    store, other = await own.open(), await own.open()
    await other.create("/d", b"")
    await other.create("/d/a", b"0")
    async with aclosing(store.watch_node("/d/a")) as states, aclosing(store.watch_children("/d")) as sets:
        await within(anext(states))
        await within(anext(sets))
        own.proxy(store).refuse()
        for version in range(5):
            await other.set("/d/a", str(version + 1).encode(), version=version)
        await other.create("/d/b", b"")
        await _compact(own)
        own.proxy(store).accept()
        node = await within(anext(states))
        assert node is not None
        assert node.data == b"5"
        assert (await within(anext(sets))).names == ("a", "b")
        await other.set("/d/a", b"on", version=5)
        node = await within(anext(states))
        assert node is not None
        assert node.data == b"on"


async def test_a_session_without_contact_gives_itself_up_in_time(own: EtcdWorld) -> None:
    """At 0.8 of the time-out its owner knows; the server still keeps the node then."""
    own.session_timeout_s = 10.0
    store, other = await own.open(), await own.open()
    await store.create("/e", b"", ephemeral=True)
    async with aclosing(store.session_states()) as states:
        assert await within(anext(states)) is SessionState.CONNECTED
        own.proxy(store).refuse()
        seen = [state async for state in states]
    assert seen == [SessionState.SUSPENDED, SessionState.LOST]
    assert await other.exists("/e", current=True) is not None
    own.proxy(store).accept()
    with pytest.raises(SessionExpired):
        await store.set("/e", b"", version=0)

    async def gone() -> bool:
        return await other.exists("/e", current=True) is None

    await eventually(gone)


async def test_an_idle_owner_learns_of_a_revoked_lease(own: EtcdWorld) -> None:
    """Without a write: the answer to a keep-alive says so."""
    store = await own.open()
    await own.expire(store)
    await within(store.wait_lost(), 0.75 * own.session_timeout_s)
    with pytest.raises(SessionExpired):
        await store.create("/e", b"", ephemeral=True)


async def test_a_session_outlives_its_time_out(own: EtcdWorld) -> None:
    store = await own.open()
    created = await store.create("/e", b"", ephemeral=True)
    async with aclosing(store.session_states()) as states:
        assert await within(anext(states)) is SessionState.CONNECTED
        with pytest.raises(AssertionError, match="no result"):
            await within(anext(states), 6.0)
    assert (await store.get("/e")).stat.creation_id == created.stat.creation_id


async def test_the_limit_of_operations_can_be_raised(tmp_path: Path) -> None:
    server = EtcdServer(tmp_path, max_txn_ops=2000)
    server.start()
    try:
        store = await open_store(f"etcd://127.0.0.1:{server.port}/x?max_txn_ops=2000")
        await store.create("/a", b"")
        operations = [Create(f"/a/{number}", b"") for number in range(400)]
        assert len(await store.multi(operations)) == 400
        groups = [(Check("/a", 0), Set(f"/a/{number}", b"1", 0)) for number in range(400)]
        assert all(isinstance(outcome, Written) for outcome in await store.write_batch(groups))
        await store.close()
    finally:
        server.kill()


async def test_a_multi_beyond_the_limit_is_refused_before_it_is_sent(own: EtcdWorld) -> None:
    store = await own.open()
    await store.create("/a", b"")
    with pytest.raises(InvalidRequest, match="max-txn-ops"):
        await store.multi([Create(f"/a/{number}", b"") for number in range(100)])
    assert (await store.children("/a")).names == ()


async def test_two_prefixes_do_not_see_each_other(own: EtcdWorld) -> None:
    address = f"etcd://127.0.0.1:{own.server.port}"
    whole, part = await open_store(address), await open_store(f"{address}/part")
    await part.create("/a", b"inside")
    assert (await part.children("/")).names == ("a",)
    assert await whole.exists("/a") is None
    await whole.close()
    await part.close()


async def test_the_keys_are_the_paths(own: EtcdWorld) -> None:
    """A person with etcdctl finds /controller under that very name."""
    store = await own.open()
    await store.create("/controller", b"readable", ephemeral=True)
    address = f"127.0.0.1:{own.server.port}"
    command = [
        str(own.server.binary.with_name("etcdctl")),
        "--endpoints",
        address,
        "get",
        "/controller",
        "--print-value-only",
    ]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await within(process.communicate())
    assert output == b"readable\n"


async def test_several_addresses_one_of_them_dead(own: EtcdWorld) -> None:
    store = await open_store(f"etcd://127.0.0.1:{unused_port()},localhost:{own.server.port}/several")
    await store.create("/a", b"")
    assert (await store.children("/")).names == ("a",)
    await store.close()


async def test_no_server_is_a_clear_error() -> None:
    port = unused_port()
    with pytest.raises(ConnectionLoss, match=f"no etcd answers at 127.0.0.1:{port}.*is it running"):
        await open_store(f"etcd://127.0.0.1:{port}", operation_timeout_s=0.3)


async def test_closing_ends_calls_in_flight(own: EtcdWorld) -> None:
    store = await own.open()
    own.proxy(store).hold_answers()
    reading = asyncio.create_task(store.get("/a", current=True))

    async def asked() -> bool:
        return bool(own.proxy(store).held_answers())

    await eventually(asked, what="an answer that nobody gets")
    own.proxy(store).refuse()
    await within(store.close(), 15)
    with pytest.raises((ConnectionLoss, SessionExpired)):
        await within(reading)


async def test_members_whose_names_nobody_knows_are_done_without(own: EtcdWorld) -> None:
    """Where a member has its name only as long as it runs, one that is away must not keep all processes out."""
    for endpoints in (f"away.invalid,127.0.0.1:{own.server.port}", f"127.0.0.1:{own.server.port},away.invalid"):
        store = await within(open_store(f"etcd://{endpoints}/names"))
        await Resolver(store, SystemClock()).multi([Create("/e", b"", ephemeral=True)], deadline_s=5)
        await store.close()
    with pytest.raises(ConnectionLoss, match=r"away\.invalid.*gone\.invalid"):
        await open_store("etcd://away.invalid,gone.invalid")


async def test_an_opening_that_is_given_up_leaves_nothing_open(own: EtcdWorld) -> None:
    proxy = TcpProxy(upstream_port=own.server.port)
    await proxy.start()
    proxy.hold_answers()
    opening = asyncio.create_task(open_store(f"etcd://127.0.0.1:{proxy.port}"))

    async def begun() -> bool:
        return proxy.connections > 0

    async def over() -> bool:
        return proxy.connections == 0

    await eventually(begun)
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    proxy.release_answers()
    await eventually(over)
    assert opening.cancelled()
    await proxy.stop()


async def test_nodes_below_a_registration_keep_nobody_out(own: EtcdWorld) -> None:
    """Only a person can put one below an ephemeral node, past the port."""

    def member(store: Store) -> Membership:
        return Membership(
            store,
            SystemClock(),
            path="/ids/1",
            encode=lambda _: b"mine",
            is_predecessor=lambda data: data == b"mine",
            patience_s=1.0,
        )

    dead, born = await own.open(), await own.open()
    old = await within(member(dead).join())
    await own.overwrite("/ids/1/note/deeper", b"")
    await own.overwrite("/ids/1/note", b"")
    new = await within(member(born).join())
    assert new.creation_id > old.creation_id
    assert (await born.children("/ids/1", current=True)).names == ()
