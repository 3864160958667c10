"""ZooKeeper with the faults that the contract suite needs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from kazoo.client import KazooClient
from regnum_coordination import open_store
from regnum_coordination.port import SessionState, Store

from regnum_testing.coordination_worlds import Answer, LateWrite, World, answer_of
from regnum_testing.proxy import TcpProxy
from regnum_testing.waiting import eventually, within
from regnum_testing.zookeeper_server import ZooKeeperServer
from regnum_testing.zookeeper_sessions import expire_session


class _LateZooKeeperWrite(LateWrite):
    def __init__(self, answer: Answer, proxy: TcpProxy, server: ZooKeeperServer) -> None:
        super().__init__(answer)
        self._proxy = proxy
        self._server = server

    async def arrive(self) -> None:
        """Deliver it."""
        # The server's last transaction shows that it came, also if it was refused.
        before = await _last_transaction(self._server)
        if self._proxy.deliver():

            async def moved() -> bool:
                return await _last_transaction(self._server) != before

            await eventually(moved, what="the late write")
        self._proxy.accept()


async def _last_transaction(server: ZooKeeperServer) -> str:
    (line,) = [line for line in (await asyncio.to_thread(server.ask, "srvr")).splitlines() if line.startswith("Zxid")]
    return line


class ZooKeeperWorld(World):
    """The ZooKeeper driver: every session goes through a proxy of its own."""

    driver = "zookeeper"

    def __init__(self, server: ZooKeeperServer, chroot: str) -> None:
        super().__init__()
        self.server = server
        """The process."""
        self.chroot = chroot
        """What this world's paths begin with."""
        self._proxies: dict[int, TcpProxy] = {}

    async def _open(self) -> Store:
        proxy = TcpProxy(upstream_port=self.server.port)
        await proxy.start()
        store = await open_store(
            f"zookeeper://127.0.0.1:{proxy.port}{self.chroot}", session_timeout_s=20.0, operation_timeout_s=5.0
        )
        self._proxies[store.session_id] = proxy
        return store

    async def close(self) -> None:
        """Close all sessions and proxies."""
        for proxy in self._proxies.values():
            proxy.accept()
            proxy.release_answers()
        await super().close()
        for proxy in self._proxies.values():
            await proxy.stop()

    def proxy(self, store: Store) -> TcpProxy:
        """The proxy of a session."""
        return self._proxies[store.session_id]

    async def expire(self, store: Store) -> None:
        """End a session; returns when its owner's connection has gone over that, as it always does."""
        await expire_session(self.server.port, store.session_id)

        async def disconnected() -> bool:
            return store.session_state is not SessionState.CONNECTED

        await eventually(disconnected, what="the end of the connection")

    async def overwrite(self, path: str, data: bytes) -> None:
        """Put a node from outside; an ephemeral one is replaced by one that nobody owns."""
        async with self._direct() as store:
            stat = await store.exists(path, current=True)
            if stat is not None and stat.ephemeral_owner is not None:
                # In one transaction, which the port has not: who waits for the node to go would have it first.
                await asyncio.to_thread(self._replace, path, data)
            elif stat is not None:
                await store.set(path, data, version=None)
            else:
                await store.create(path, data)

    def _replace(self, path: str, data: bytes) -> None:
        client = KazooClient(hosts=f"127.0.0.1:{self.server.port}{self.chroot}")
        client.start()
        try:
            transaction = client.transaction()
            transaction.delete(path)
            transaction.create(path, b"")
            transaction.set_data(path, data)
            refused = [result for result in transaction.commit() if isinstance(result, Exception)]
            assert not refused, refused
        finally:
            client.stop()
            client.close()

    @asynccontextmanager
    async def _direct(self) -> AsyncIterator[Store]:
        """A session without a proxy."""
        url = f"zookeeper://127.0.0.1:{self.server.port}{self.chroot}"
        store = await open_store(url, session_timeout_s=10.0, operation_timeout_s=10.0)
        try:
            yield store
        finally:
            await store.close()

    async def lose_reply(self, store: Store, write: Callable[[], Awaitable[Answer]], path: str) -> Answer:
        """Write and lose the answer."""
        # A transaction that is refused counts as well: its answer is what a batch goes on from.
        del path
        proxy = self.proxy(store)
        before = await _last_transaction(self.server)
        proxy.hold_answers()
        sending = asyncio.create_task(answer_of(write), name="write whose answer is lost")

        async def happened() -> bool:
            return await _last_transaction(self.server) != before

        await eventually(happened, what="the write")
        proxy.cut()
        proxy.release_answers()
        return await within(sending)

    async def delay(self, store: Store, write: Callable[[], Awaitable[Answer]], *, cut_off: bool = False) -> LateWrite:
        """Send and keep under way."""
        proxy = self.proxy(store)
        proxy.hold_requests()
        sending = asyncio.create_task(answer_of(write), name="write under way")
        await within(proxy.held(2000))
        if cut_off:
            proxy.turn_away()
        proxy.drop_clients()
        return _LateZooKeeperWrite(await within(sending), proxy, self.server)

    async def interrupt(self, store: Store) -> None:
        """Break the connection."""
        self.proxy(store).refuse()

    async def restore(self, store: Store) -> None:
        """Let connections through again."""
        self.proxy(store).accept()
