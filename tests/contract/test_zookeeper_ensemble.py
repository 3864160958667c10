"""Three ZooKeeper nodes: what a session survives, and what its old requests and reads must not do."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Protocol

import pytest
from regnum_coordination import open_store
from regnum_coordination.errors import ConnectionLoss
from regnum_coordination.port import Node, SessionState, Store
from regnum_testing.proxy import TcpProxy
from regnum_testing.waiting import eventually, within
from regnum_testing.zookeeper_server import ZooKeeperEnsemble

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    ensemble = ZooKeeperEnsemble(tmp_path_factory.mktemp("ensemble"))
    ensemble.start()
    yield ensemble
    ensemble.kill()


class Opened(Protocol):
    """Opens sessions that are closed after the test, whatever became of it."""

    async def __call__(self, endpoints: str, *, session_timeout_s: float) -> Store: ...


@pytest.fixture
async def opened(ensemble: ZooKeeperEnsemble) -> AsyncIterator[Opened]:
    stores: list[Store] = []

    async def open_session(endpoints: str, *, session_timeout_s: float) -> Store:
        url = f"zookeeper://{endpoints}/t"
        stores.append(await open_store(url, session_timeout_s=session_timeout_s, operation_timeout_s=5.0))
        return stores[-1]

    yield open_session
    # A test that failed in the middle leaves no frozen server to the next one.
    for server in ensemble.servers:
        server.resume()
    for store in stores:
        await store.close()


async def _connected(store: Store) -> None:
    async def answers() -> bool:
        try:
            await store.exists("/", current=True)
        except ConnectionLoss:
            return False
        return store.session_state is SessionState.CONNECTED

    await eventually(answers, within_s=20, what="the connection")


async def _whole(ensemble: ZooKeeperEnsemble) -> None:
    """One leads, and two follow: before that there may be no majority without the next node."""

    async def is_whole() -> bool:
        modes = await asyncio.to_thread(lambda: [server.mode() for server in ensemble.servers])
        return sorted(map(str, modes)) == ["follower", "follower", "leader"]

    await eventually(is_whole, within_s=30, what="a leader and two followers")


async def test_a_session_moves_when_its_node_is_killed_or_stands_still(
    ensemble: ZooKeeperEnsemble, opened: Opened
) -> None:
    """Safety rule S8; each node in turn, the leader among them."""
    store = await opened(ensemble.endpoints, session_timeout_s=16.0)
    first = await store.create("/moves", b"", ephemeral=True)
    version = 0
    async with aclosing(store.watch_node("/moves")) as states:
        for server in ensemble.servers:
            await asyncio.to_thread(server.kill)
            await _connected(store)
            await asyncio.to_thread(server.start)
            await _whole(ensemble)
            await _connected(store)
            node = await store.get("/moves", current=True)
            assert node.stat.creation_id == first.stat.creation_id
            version = (await store.set("/moves", b"", version=node.stat.version)).version
        for server in ensemble.servers:
            server.pause()
            await _connected(store)
            server.resume()
            await _whole(ensemble)
            version = (await store.set("/moves", b"", version=version)).version
        seen = -1
        while seen != version:
            changed: Node | None = await within(anext(states))
            assert changed is not None
            assert changed.stat.ephemeral_owner == store.session_id
            seen = changed.stat.version


async def test_a_current_read_at_a_deposed_leader_is_not_stale(ensemble: ZooKeeperEnsemble, opened: Opened) -> None:
    """It stood still, was deposed, and has the question before the news; it would answer ``sync`` by itself."""
    leader = ensemble.leader()
    others = ",".join(server.endpoint for server in ensemble.servers if server is not leader)
    reader = await opened(leader.endpoint, session_timeout_s=50.0)
    writer = await opened(others, session_timeout_s=50.0)
    await writer.create("/deposed", b"old")
    assert (await reader.get("/deposed", current=True)).data == b"old"
    leader.pause()
    await _connected(writer)
    await writer.set("/deposed", b"new", version=0)
    reads = [asyncio.create_task(reader.get("/deposed", current=True)) for _ in range(20)]
    # One turn: each has asked; a server that stands still shows nothing of it.
    await asyncio.sleep(0)
    leader.resume()
    for answer in await asyncio.gather(*reads, return_exceptions=True):
        assert isinstance(answer, ConnectionLoss) or (isinstance(answer, Node) and answer.data == b"new")
    await _connected(reader)
    assert (await reader.get("/deposed", current=True)).data == b"new"


async def test_a_current_read_behind_a_follower_that_lags_is_not_stale(
    ensemble: ZooKeeperEnsemble, opened: Opened
) -> None:
    follower = ensemble.followers()[0]
    reader = await opened(follower.endpoint, session_timeout_s=10.0)
    writer = await opened(ensemble.leader().endpoint, session_timeout_s=10.0)
    await writer.create("/counter", b"")
    for version in range(30):
        await writer.set("/counter", b"", version=version)
        assert (await reader.get("/counter", current=True)).stat.version == version + 1


async def test_a_request_left_behind_at_another_node_never_commits(ensemble: ZooKeeperEnsemble, opened: Opened) -> None:
    """Safety rule S1 with three nodes: the leader knows where the session has gone."""
    proxies = [TcpProxy(upstream_port=server.port) for server in ensemble.followers()]
    for proxy in proxies:
        await proxy.start()
    store = await opened(",".join(f"127.0.0.1:{proxy.port}" for proxy in proxies), session_timeout_s=20.0)
    observer = await opened(ensemble.endpoints, session_timeout_s=20.0)
    await store.create("/left", b"old")
    (left,) = [proxy for proxy in proxies if proxy.connections]
    left.hold_requests()
    writing = asyncio.create_task(store.set("/left", b"." * 3000, version=0))
    await within(left.held(3000))
    left.turn_away()
    left.drop_clients()
    with pytest.raises(ConnectionLoss):
        await within(writing)
    await _connected(store)
    assert left.deliver()

    async def refused() -> bool:
        return left.connections == 0

    await eventually(refused, what="the end of the old connection")
    assert (await observer.get("/left", current=True)).data == b"old"
    assert (await store.set("/left", b"new", version=0)).version == 1
    for proxy in proxies:
        await proxy.stop()
