"""Three real etcd members, killed and paused: sessions survive, writes are away for a bounded time."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Final

import pytest
import pytest_asyncio
from regnum_coordination import open_store
from regnum_coordination.errors import BadVersion, ConnectionLoss
from regnum_coordination.port import Create, Node, SessionState, Set, Store, Written
from regnum_coordination.recipes.resolve import Resolver
from regnum_service.clock import SystemClock
from regnum_testing.etcd_ensemble import EtcdEnsemble
from regnum_testing.proxy import TcpProxy
from regnum_testing.waiting import eventually, within

OPERATION_TIMEOUT_S: Final = 2.0
"""A write on its way to a dead or stopped leader is never answered: it is this time-out that sends it again."""

UNAVAILABLE_MAX_S: Final = 10.0
"""Seconds without writes that a test bears; 1 to 3 on a quiet machine."""

PADDING: Final = b"." * 3000


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdEnsemble]:
    made = EtcdEnsemble(tmp_path_factory.mktemp("ensemble"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest_asyncio.fixture
async def members(ensemble: EtcdEnsemble) -> AsyncIterator[EtcdEnsemble]:
    """All members are well before and after each test."""
    yield ensemble
    for member in ensemble.members:
        if not ensemble.is_running(member):
            ensemble.kill(member)
            ensemble.launch(member)
    for member in ensemble.members:
        await asyncio.to_thread(ensemble.wait_until_ready, member)


@asynccontextmanager
async def _session(url: str) -> AsyncIterator[Store]:
    store = await open_store(url, session_timeout_s=30.0, operation_timeout_s=OPERATION_TIMEOUT_S)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def _proxy(upstream_port: int) -> AsyncIterator[TcpProxy]:
    proxy = TcpProxy(upstream_port=upstream_port)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()


async def _read(store: Store, path: str) -> Node:
    """Read a node; the member that is asked first may be silent, the next one is not."""
    try:
        return await store.get(path)
    except ConnectionLoss:
        return await store.get(path)


async def _connected(store: Store) -> None:
    async def connected() -> bool:
        return store.session_state is SessionState.CONNECTED

    await eventually(connected, what="the session")


async def test_a_session_survives_the_death_of_each_member_in_turn(members: EtcdEnsemble) -> None:
    """The keep-alives stay with one member until it dies, so one of the kills is that one's; the leader comes first."""
    first = await asyncio.to_thread(members.leader)
    async with _session(members.url("/kills")) as store:
        resolver = Resolver(store, SystemClock())
        await store.create("/e", b"0", ephemeral=True)
        async with aclosing(store.watch_node("/e")) as states:
            await within(anext(states))
            for written, member in enumerate((first, (first + 1) % 3, (first + 2) % 3)):
                members.kill(member)
                data = str(written + 1).encode()
                await within(resolver.multi([Set("/e", data, written)]), UNAVAILABLE_MAX_S)
                seen = await within(anext(states))
                assert seen is not None
                assert seen.data == data

                async def reads() -> bool:
                    try:
                        return (await store.get("/e")).data == data  # noqa: B023 - awaited in the same round
                    except ConnectionLoss:
                        return False

                await eventually(reads)
                await asyncio.to_thread(members.restart, member)
                await asyncio.to_thread(members.leader)
            await _connected(store)
        assert (await store.get("/e")).stat.ephemeral_owner == store.session_id


async def test_a_session_survives_the_pause_of_each_member_in_turn(members: EtcdEnsemble) -> None:
    """Connections to a paused member stay open and silent; one of the members is the one we talk to, the last leads.

    What is asked of the leader is asked before it wakes: etcd 3.5.1 then ends leases that it has not seen renewed.
    """
    last = await asyncio.to_thread(members.leader)
    async with _session(members.url("/pauses")) as store:
        resolver = Resolver(store, SystemClock())
        await store.create("/e", b"0", ephemeral=True)
        async with aclosing(store.watch_node("/e")) as states:
            await within(anext(states))
            for written, member in enumerate(((last + 1) % 3, (last + 2) % 3, last)):
                members.pause(member)
                data = str(written + 1).encode()
                (changed,) = await within(resolver.multi([Set("/e", data, written)]), UNAVAILABLE_MAX_S)
                assert changed.stat is not None
                assert changed.stat.ephemeral_owner == store.session_id
                seen = await within(anext(states))
                assert seen is not None
                assert seen.data == data
                await _connected(store)
                members.resume(member)
                await asyncio.to_thread(members.wait_until_ready, member)


async def test_a_paused_member_costs_no_session_however_long_it_sleeps(members: EtcdEnsemble) -> None:
    """Twice the session's time-out, with a session on each member: all of them go over to the others."""
    paused = (await asyncio.to_thread(members.leader) + 1) % 3
    async with (
        _session(members.url("/sleep")) as one,
        _session(members.url("/sleep")) as two,
        _session(members.url("/sleep", members=[(paused + 1) % 3, paused])) as three,
    ):
        stores = (one, two, three)
        for number, store in enumerate(stores):
            await store.create(f"/{number}", b"", ephemeral=True)
        members.pause(paused)
        until_s = time.monotonic() + 12.0

        async def slept() -> bool:
            assert all(store.session_state is not SessionState.LOST for store in stores)
            return time.monotonic() > until_s

        await eventually(slept, within_s=20.0)
        for number, store in enumerate(stores):
            await _connected(store)
            owned = await _read(store, f"/{number}")
            assert owned.stat.ephemeral_owner == store.session_id
        members.resume(paused)


@pytest.mark.parametrize("repeated", [False, True])
async def test_s1_a_write_behind_a_paused_follower_comes_late_or_never(members: EtcdEnsemble, repeated: bool) -> None:
    """Safety rule S1: the others show the old value again and again, and then the write comes.

    Repeated at the same version elsewhere it has a definite answer, and the late one is refused.
    """
    follower = (await asyncio.to_thread(members.leader) + 1) % 3
    path = f"/late{repeated}"
    async with (
        _proxy(members.ports[follower]) as proxy,
        _session(f"etcd://127.0.0.1:{proxy.port}/s1") as sender,
        _session(members.url("/s1", members=[(follower + 1) % 3, (follower + 2) % 3])) as other,
    ):
        await sender.create(path, b"old")
        proxy.hold_requests()
        sending = asyncio.create_task(sender.set(path, PADDING, version=0))
        await within(proxy.held(2000))
        members.pause(follower)
        proxy.deliver()
        proxy.drop_clients()
        with pytest.raises(ConnectionLoss):
            await within(sending)
        for _ in range(5):
            assert (await other.get(path, current=True)).data == b"old"
        if repeated:
            await other.set(path, b"repeated", version=0)
            with pytest.raises(BadVersion):
                await other.set(path, PADDING, version=0)
        members.resume(follower)
        await asyncio.to_thread(members.wait_until_ready, follower)

        async def arrived() -> bool:
            return (await other.get(path, current=True)).stat.version == 1

        await eventually(arrived)
        assert (await other.get(path, current=True)).data == (b"repeated" if repeated else PADDING)
        with pytest.raises(BadVersion):
            await other.set(path, b"again", version=0)


async def test_a_member_without_a_majority_refuses_and_comes_back(members: EtcdEnsemble) -> None:
    """Nothing is written or read there, a watch is not silent for good, and the session lives on afterwards."""
    alone = await asyncio.to_thread(members.leader)
    others = [member for member in members.members if member != alone]
    async with _session(members.url("/minority", members=[alone])) as store:
        await store.create("/e", b"0", ephemeral=True)
        async with aclosing(store.watch_node("/e")) as states:
            await within(anext(states))
            for member in others:
                members.kill(member)
            # What the lonely member has taken into its log may yet happen, so that one resolver sees it through.
            writing = asyncio.create_task(Resolver(store, SystemClock()).multi([Set("/e", b"1", 0)]))
            with pytest.raises(ConnectionLoss):
                await store.get("/e", current=True)
            assert not writing.done()
            for member in others:
                members.launch(member)
            for member in others:
                await asyncio.to_thread(members.wait_until_ready, member)
            await within(writing, UNAVAILABLE_MAX_S)
            seen = await within(anext(states))
            assert seen is not None
            assert seen.data == b"1"
        await _connected(store)
        assert (await store.get("/e")).stat.ephemeral_owner == store.session_id


async def test_a_batch_in_the_middle_of_which_the_leader_dies(members: EtcdEnsemble) -> None:
    """Safety rules S1 and S4: what is unknown is resolved by repeating, and every group happens exactly once."""
    leader = await asyncio.to_thread(members.leader)
    async with _session(members.url("/batch")) as store:
        resolver = Resolver(store, SystemClock())
        paths = [f"/{number}" for number in range(5000)]
        created = await resolver.write_batch([(Create(path, b""),) for path in paths])
        assert all(isinstance(outcome, Written) for outcome in created)
        async with aclosing(store.watch_node(paths[0])) as states:
            await within(anext(states))
            writing = asyncio.create_task(resolver.write_batch([(Set(path, b"1", 0),) for path in paths]))
            await within(anext(states))
            members.kill(leader)
            outcomes = await within(writing, 30.0)
        assert all(isinstance(outcome, Written) for outcome in outcomes)
        nodes = await store.get_many(paths)
        assert {(node.data, node.stat.version) for node in nodes if node is not None} == {(b"1", 1)}
        assert len(nodes) == len(paths)
