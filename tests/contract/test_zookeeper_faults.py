"""What only a real ZooKeeper can do: stand still, be silent, be killed, move a session, know more than one user."""

import asyncio
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
import pytest_asyncio
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl
from regnum_coordination import open_store
from regnum_coordination.errors import ConnectionLoss, NoAuth, SessionExpired
from regnum_coordination.port import Create, SessionState, Set, Store, Unknown, Written
from regnum_testing.certificates import CA, CLIENT_CERT, CLIENT_KEY, SERVER_CERT, SERVER_KEY
from regnum_testing.ports import unused_port
from regnum_testing.proxy import TcpProxy
from regnum_testing.waiting import eventually, within
from regnum_testing.zookeeper_server import ZooKeeperServer
from regnum_testing.zookeeper_sessions import expire_session
from regnum_testing.zookeeper_world import ZooKeeperWorld

pytestmark = pytest.mark.full

TIMEOUT_S = 6.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    server = ZooKeeperServer(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest_asyncio.fixture
async def proxied(server: ZooKeeperServer) -> AsyncIterator[tuple[Store, TcpProxy]]:
    proxy = TcpProxy(upstream_port=server.port)
    await proxy.start()
    store = await open_store(f"zookeeper://127.0.0.1:{proxy.port}/p", session_timeout_s=12.0)
    yield store, proxy
    proxy.accept()
    proxy.release_answers()
    await store.close()
    await proxy.stop()


async def _open(endpoints: str, *, session_timeout_s: float = TIMEOUT_S) -> Store:
    return await open_store(f"zookeeper://{endpoints}/t", session_timeout_s=session_timeout_s, operation_timeout_s=5.0)


async def _becomes(store: Store, wanted: SessionState) -> None:
    async def so() -> bool:
        return store.session_state is wanted

    await eventually(so, what=f"{wanted}")


async def _connected(store: Store) -> None:
    async def answers() -> bool:
        try:
            await store.exists("/", current=True)
        except ConnectionLoss:
            return False
        return store.session_state is SessionState.CONNECTED

    await eventually(answers, within_s=20, what="the connection")


async def test_an_owner_gives_up_before_the_store_does(server: ZooKeeperServer) -> None:
    """The server stands still: SUSPENDED, then LOST; only after it runs again does it end the session itself."""
    owner = await _open(server.endpoint)
    await owner.create("/e", b"", ephemeral=True)
    before_s = time.monotonic()
    server.pause()
    async with aclosing(owner.session_states()) as states, asyncio.timeout(30):
        assert [state async for state in states] == [
            SessionState.CONNECTED,
            SessionState.SUSPENDED,
            SessionState.LOST,
        ]
    assert time.monotonic() - before_s < TIMEOUT_S
    server.resume()
    other = await _open(server.endpoint)
    with pytest.raises(SessionExpired):
        await owner.get("/e")
    with pytest.raises(SessionExpired):
        await owner.create("/late", b"")
    assert await other.exists("/late", current=True) is None
    await owner.close()
    await other.close()


async def test_a_server_that_stands_still_for_a_moment_costs_no_session(server: ZooKeeperServer) -> None:
    store = await _open(server.endpoint, session_timeout_s=12.0)
    await store.create("/e", b"", ephemeral=True)
    server.pause()
    await _becomes(store, SessionState.SUSPENDED)
    server.resume()
    await _connected(store)
    assert (await store.get("/e", current=True)).stat.ephemeral_owner == store.session_id
    await store.close()


async def test_a_server_whose_answers_get_lost_is_left(proxied: tuple[Store, TcpProxy]) -> None:
    """Requests flow and the connection stands, so that only our own heartbeats can notice."""
    store, proxy = proxied
    session = store.session_id
    proxy.hold_answers()
    await _becomes(store, SessionState.SUSPENDED)
    proxy.release_answers()
    await _connected(store)
    assert store.session_id == session


async def test_a_killed_server_comes_back_with_its_sessions(server: ZooKeeperServer) -> None:
    store = await _open(server.endpoint, session_timeout_s=30.0)
    await store.create("/e", b"", ephemeral=True)
    await store.set("/e", b"1", version=0)
    async with aclosing(store.watch_node("/e")) as states:
        await within(anext(states))
        await asyncio.to_thread(server.kill)
        await _becomes(store, SessionState.SUSPENDED)
        with pytest.raises(ConnectionLoss):
            await store.set("/e", b"2", version=1)
        await asyncio.to_thread(server.start)
        await _connected(store)
        await store.set("/e", b"3", version=1)
        node = await within(anext(states))
        assert node is not None
        assert (node.data, node.stat.ephemeral_owner) == (b"3", store.session_id)
    await store.close()


async def test_nothing_goes_on_after_the_end_of_a_session(server: ZooKeeperServer) -> None:
    """Kazoo would silently open another session and send what is waiting."""
    store = await _open(server.endpoint)
    await store.create("/a", b"")
    await expire_session(server.port, store.session_id)
    writes = [asyncio.create_task(store.set("/a", b"late", version=0)) for _ in range(50)]
    await within(store.wait_lost())
    answers = await asyncio.gather(*writes, return_exceptions=True)
    assert {type(answer) for answer in answers} <= {SessionExpired, ConnectionLoss}

    async def gone() -> bool:
        return not [thread for thread in threading.enumerate() if thread.name == "zookeeper connection"]

    await eventually(gone, what="the end of kazoo's thread")
    other = await _open(server.endpoint)
    assert (await other.get("/a", current=True)).stat.version == 0
    await other.close()
    await store.close()


async def test_close_does_not_wait_for_a_silent_server(server: ZooKeeperServer) -> None:
    store = await _open(server.endpoint)
    server.pause()
    await within(store.close(), 8)
    assert store.session_state is SessionState.LOST
    server.resume()


async def test_opening_without_a_server(server: ZooKeeperServer) -> None:
    server.kill()
    with pytest.raises(ConnectionLoss, match="no ZooKeeper answers"):
        await open_store(f"zookeeper://{server.endpoint}", session_timeout_s=1.0, operation_timeout_s=0.5)


async def test_opening_may_be_given_up_at_any_moment() -> None:
    """A service is told to stop while its store is away: also when the attempt is just about to fail by itself."""
    url = f"zookeeper://127.0.0.1:{unused_port()}"

    async def given_up_after(pause_s: float) -> BaseException | Store:
        opening = asyncio.create_task(open_store(url, operation_timeout_s=0.2))
        await asyncio.wait({opening}, timeout=pause_s)
        opening.cancel()
        (end,) = await asyncio.gather(opening, return_exceptions=True)
        return end

    async def nothing_goes_on() -> bool:
        return not [thread for thread in threading.enumerate() if thread.name == "zookeeper connection"]

    for _ in range(6):
        ends = await within(asyncio.gather(*(given_up_after(0.2 + number * 0.004) for number in range(4))), 30)
        assert {type(end) for end in ends} <= {asyncio.CancelledError, ConnectionLoss}
    await eventually(nothing_goes_on, what="the end of kazoo's threads")


async def test_a_short_time_out_that_is_granted_counts(tmp_path: Path) -> None:
    """The server grants less than was asked for; the local deadline follows what was granted."""
    server = ZooKeeperServer(tmp_path, settings={"maxSessionTimeout": "2000"})
    server.start()
    try:
        store = await open_store(f"zookeeper://{server.endpoint}", session_timeout_s=60.0)
        before_s = time.monotonic()
        server.pause()
        await within(store.wait_lost(), 30)
        assert time.monotonic() - before_s < 30.0
        await store.close()
    finally:
        server.kill()


async def test_a_batch_that_breaks_in_the_middle_is_partly_unknown(proxied: tuple[Store, TcpProxy]) -> None:
    store, proxy = proxied
    await store.create("/d", b"")
    writing = asyncio.create_task(store.write_batch([(Create(f"/d/{n}", b"." * 500),) for n in range(30_000)]))

    async def begun() -> bool:
        return (await store.children("/d")).names != ()

    await eventually(begun, what="the first transaction")
    proxy.cut()
    outcomes = await within(writing, 30)
    assert {type(outcome) for outcome in outcomes} <= {Written, Unknown}
    assert Unknown() in outcomes
    await _connected(store)
    names = set((await store.children("/d", current=True)).names)
    assert {str(number) for number, outcome in enumerate(outcomes) if isinstance(outcome, Written)} <= names


async def test_a_watch_outlives_a_time_in_which_its_node_may_not_be_read(zookeeper_server: ZooKeeperServer) -> None:
    """The server takes the watch away with a change that it does not tell of."""
    store = await open_store(f"zookeeper://{zookeeper_server.endpoint}/closing")
    await store.create("/f", b"")
    admin = KazooClient(hosts=zookeeper_server.endpoint, auth_data=[("digest", "admin:admin")])
    await asyncio.to_thread(admin.start)
    async with aclosing(store.watch_children("/f")) as states:
        await within(anext(states))
        waiting = asyncio.ensure_future(anext(states))
        # Behind it on the same connection: the watch is set.
        await store.children("/f")
        await store.children("/f")
        await asyncio.to_thread(admin.set_acls, "/closing/f", [make_digest_acl("admin", "admin", all=True)])
        await asyncio.to_thread(admin.create, "/closing/f/a", b"")
        with pytest.raises(NoAuth):
            await store.children("/f")
        await asyncio.to_thread(admin.set_acls, "/closing/f", OPEN_ACL_UNSAFE)
        assert (await within(waiting)).names == ("a",)
    await asyncio.to_thread(admin.stop)
    await asyncio.to_thread(admin.close)
    await store.close()


async def test_users_see_their_own_nodes(zookeeper_server: ZooKeeperServer, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n", encoding="ascii")
    url = f"zookeeper://{zookeeper_server.endpoint}/users?user=anna&password_file={tmp_path / 'password'}"
    owner = await open_store(url)
    await owner.create("/a", b"mine")
    await owner.multi([Create("/b", b""), Set("/a", b"mine too", 0)])
    with pytest.raises(NoAuth):
        await open_store(f"zookeeper://{zookeeper_server.endpoint}/users")
    stranger = await open_store(f"zookeeper://{zookeeper_server.endpoint}")
    with pytest.raises(NoAuth):
        await stranger.get("/users/a")
    with pytest.raises(NoAuth):
        await stranger.set("/users/b", b"", version=0)
    (outcome,) = await stranger.write_batch([(Set("/users/b", b"", 0),)])
    assert isinstance(outcome, Unknown)
    assert isinstance(outcome.because, NoAuth)
    mine = ((Create(f"/of-{name}", b""),) for name in "ab")
    outcomes = await stranger.write_batch([next(mine), (Set("/users/b", b"", 0),), next(mine)])
    assert [type(one) for one in outcomes] == [Written, Unknown, Written], "a closed node fails no other group"
    assert (await stranger.exists("/of-b", current=True)) is not None
    assert (await owner.get("/a", current=True)).data == b"mine too"
    await stranger.close()
    await owner.close()


async def test_without_a_chroot_the_servers_own_folder_is_hidden(zookeeper_server: ZooKeeperServer) -> None:
    store = await open_store(f"zookeeper://{zookeeper_server.endpoint}")
    assert "zookeeper" not in (await store.children("/")).names
    await store.create("/plain", b"")
    assert "plain" in (await store.children("/", current=True)).names
    await store.close()


async def test_an_early_connections_request_never_commits_after_the_session_moved(
    zookeeper_server: ZooKeeperServer,
) -> None:
    """Safety rule S1 on ZooKeeper: with a new connection of the session the old one's requests are gone."""
    world = ZooKeeperWorld(zookeeper_server, "/moved")
    store, other = await world.open(), await world.open()
    await store.create("/a", b"old")
    late = await world.delay(store, lambda: store.set("/a", b"." * 3000, version=0))
    assert isinstance(late.answer, ConnectionLoss)
    await _connected(store)
    await late.arrive()
    assert (await other.get("/a", current=True)).data == b"old"
    await world.close()


async def test_tls_with_certificates_of_both_sides(tmp_path: Path) -> None:
    for name, parts in (("server", (SERVER_KEY, SERVER_CERT)), ("trusted", (CA,))):
        (tmp_path / f"{name}.pem").write_bytes(b"".join(part.read_bytes() for part in parts))
    secure_port = unused_port()
    server = ZooKeeperServer(
        tmp_path,
        settings={
            "secureClientPort": str(secure_port),
            "secureClientPortAddress": "127.0.0.1",
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": str(tmp_path / "server.pem"),
            "ssl.trustStore.location": str(tmp_path / "trusted.pem"),
            "ssl.clientAuth": "need",
        },
    )
    server.start()
    try:
        url = f"zookeeper://127.0.0.1:{secure_port}/tls?ca={CA}"
        with_certificate = f"{url}&cert={CLIENT_CERT}&key={CLIENT_KEY}"
        store = await open_store(with_certificate, session_timeout_s=30.0, operation_timeout_s=20.0)
        await store.create("/d", b"")
        outcomes = await store.write_batch([(Create(f"/d/{number}", b"." * 300),) for number in range(3000)])
        assert {type(outcome) for outcome in outcomes} == {Written}
        nodes = await store.get_many([f"/d/{number}" for number in range(3000)], current=True)
        assert {node.data for node in nodes if node} == {b"." * 300}
        await store.close()
        for options in (f"?ca={CA}", "", f"?ca={CLIENT_CERT}&cert={CLIENT_CERT}&key={CLIENT_KEY}"):
            with pytest.raises(ConnectionLoss, match="options fit"):
                await open_store(f"zookeeper://127.0.0.1:{secure_port}{options}", operation_timeout_s=1.0)
    finally:
        server.kill()


async def test_the_nodes_of_a_killed_owner_go_when_its_session_ends(zookeeper_server: ZooKeeperServer) -> None:
    url = f"zookeeper://{zookeeper_server.endpoint}/killed"
    code = (
        "import asyncio, sys\n"
        "from regnum_coordination import open_store\n"
        "async def own():\n"
        f"    store = await open_store({url!r}, session_timeout_s=2.0)\n"
        "    await store.create('/e', b'', ephemeral=True)\n"
        "    print(store.session_id, flush=True)\n"
        "    await store.wait_lost()\n"
        "asyncio.run(own())\n"
    )
    owner = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert owner.stdout is not None
    session_id = int(await within(owner.stdout.readline(), 60))
    other = await open_store(url)
    async with aclosing(other.watch_node("/e")) as states:
        node = await within(anext(states))
        assert node is not None
        assert node.stat.ephemeral_owner == session_id
        owner.kill()
        await owner.wait()
        assert await within(anext(states), 30) is None
    await other.close()


async def test_servers_that_are_silent_leave_time_for_one_that_answers(zookeeper_server: ZooKeeperServer) -> None:
    """Which one is asked first is a matter of chance; the time that they take is not taken from the session's."""
    silent = [socket.create_server(("127.0.0.1", unused_port())) for _ in range(8)]
    hosts = ",".join(f"127.0.0.1:{listener.getsockname()[1]}" for listener in silent)
    url = f"zookeeper://{hosts},{zookeeper_server.endpoint}/silent"
    try:
        stores = await asyncio.gather(*(open_store(url) for _ in range(4)))
        assert [store.session_state for store in stores] == [SessionState.CONNECTED] * 4
        for store in stores:
            await store.close()
    finally:
        for listener in silent:
            listener.close()
