"""Coordination stores with the faults that the contract suite needs, the same way for every driver."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress

from regnum_coordination import open_store
from regnum_coordination.drivers.memory import HeldWrite, MemoryServer, MemoryStore
from regnum_coordination.port import Store
from regnum_service.channel import aio_channel

from regnum_testing.etcd_server import EtcdServer
from regnum_testing.proxy import TcpProxy
from regnum_testing.waiting import DEADLINE_S, eventually, within

Answer = object
"""Result or exception of a write."""


class LateWrite(ABC):
    """A write without an answer that has not happened yet."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        """What its sender got: ConnectionLoss, or an outcome Unknown."""

    @abstractmethod
    async def arrive(self) -> None:
        """Let it reach the store now."""


class World(ABC):
    """One store with nothing in it, and sessions that are closed at the end."""

    driver: str
    """Name of the driver, for cases where stores differ."""

    def __init__(self) -> None:
        self._stores: list[Store] = []

    async def open(self) -> Store:
        """A new session."""
        store = await self._open()
        self._stores.append(store)
        return store

    async def close(self) -> None:
        """Close all sessions."""
        for store in self._stores:
            await store.close()

    @abstractmethod
    async def _open(self) -> Store: ...

    @abstractmethod
    async def expire(self, store: Store) -> None:
        """End a session from outside; its owner has not been told yet."""

    @abstractmethod
    async def overwrite(self, path: str, data: bytes) -> None:
        """A hand edit without session or checks."""

    @abstractmethod
    async def lose_reply(self, store: Store, write: Callable[[], Awaitable[Answer]], path: str) -> Answer:
        """Carry out a write that changes ``path``; its answer is lost."""

    @abstractmethod
    async def delay(self, store: Store, write: Callable[[], Awaitable[Answer]], *, cut_off: bool = False) -> LateWrite:
        """Send a write that stays under way. Its data must have at least 2000 bytes.

        ``cut_off``: the sender finds no connection until the write has arrived. ZooKeeper needs that for it to happen:
        with a new connection of the session the old one's requests are gone.
        """

    @abstractmethod
    async def interrupt(self, store: Store) -> None:
        """Break the session's connection and refuse new ones."""

    @abstractmethod
    async def restore(self, store: Store) -> None:
        """Undo ``interrupt``."""


async def answer_of(write: Callable[[], Awaitable[Answer]]) -> Answer:
    """Result or exception."""
    (answer,) = await asyncio.gather(write(), return_exceptions=True)
    return answer


class _LateMemoryWrite(LateWrite):
    def __init__(self, answer: Answer, held: HeldWrite) -> None:
        super().__init__(answer)
        self._held = held

    async def arrive(self) -> None:
        """Deliver it."""
        self._held.commit()


class MemoryWorld(World):
    """The memory driver."""

    driver = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.server = MemoryServer(groups_per_transaction=50)

    async def _open(self) -> Store:
        return MemoryStore(self.server)

    async def expire(self, store: Store) -> None:
        """End a session."""
        self.server.expire(store.session_id, announce=False)

    async def overwrite(self, path: str, data: bytes) -> None:
        """Put a node from outside."""
        self.server.overwrite(path, data)

    async def lose_reply(self, store: Store, write: Callable[[], Awaitable[Answer]], path: str) -> Answer:
        """Write and lose the answer."""
        self.server.lose_reply(session_id=store.session_id, touching=path)
        return await answer_of(write)

    async def delay(self, store: Store, write: Callable[[], Awaitable[Answer]], *, cut_off: bool = False) -> LateWrite:
        """Send and keep under way; happens all the same."""
        del cut_off
        held = self.server.hold_write(session_id=store.session_id)
        return _LateMemoryWrite(await answer_of(write), held)

    async def interrupt(self, store: Store) -> None:
        """Break the connection."""
        self.server.disconnect(store.session_id)

    async def restore(self, store: Store) -> None:
        """Let connections through again."""
        self.server.reconnect(store.session_id)


class _LateEtcdWrite(LateWrite):
    def __init__(self, answer: Answer, proxy: TcpProxy, revision: Callable[[], Awaitable[int]]) -> None:
        super().__init__(answer)
        self._proxy = proxy
        self._revision = revision

    async def arrive(self) -> None:
        """Deliver it."""
        # The store's revision shows that the write happened; one that is refused leaves no trace, hence the short wait.
        before = await self._revision()
        self._proxy.deliver()

        async def moved() -> bool:
            return await self._revision() > before

        with suppress(AssertionError):
            await eventually(moved, within_s=1.0)


class EtcdWorld(World):
    """The etcd driver: every session goes through a proxy of its own."""

    driver = "etcd"

    def __init__(self, server: EtcdServer, prefix: str) -> None:
        super().__init__()
        self.server = server
        """The process."""
        self.prefix = prefix
        """Prefix of this world's keys."""
        self.session_timeout_s = 20.0
        """Of sessions that are opened from now on; long, for a machine may be away for some seconds."""
        self._proxies: dict[int, TcpProxy] = {}
        self._observer: Store | None = None

    async def _open(self) -> Store:
        proxy = TcpProxy(upstream_port=self.server.port)
        await proxy.start()
        store = await open_store(
            f"etcd://127.0.0.1:{proxy.port}{self.prefix}",
            session_timeout_s=self.session_timeout_s,
            operation_timeout_s=5.0,
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
        """End a session."""
        from etcd3.etcdrpc import rpc_pb2, rpc_pb2_grpc  # noqa: PLC0415 - loadable once the driver is

        async with aio_channel(f"127.0.0.1:{self.server.port}") as channel:
            stub = rpc_pb2_grpc.LeaseStub(channel)
            await stub.LeaseRevoke(rpc_pb2.LeaseRevokeRequest(ID=store.session_id), timeout=DEADLINE_S)

    async def overwrite(self, path: str, data: bytes) -> None:
        """Put a node from outside."""
        from etcd3.etcdrpc import rpc_pb2, rpc_pb2_grpc  # noqa: PLC0415 - loadable once the driver is

        async with aio_channel(f"127.0.0.1:{self.server.port}") as channel:
            key = (self.prefix + path).encode()
            await rpc_pb2_grpc.KVStub(channel).Put(rpc_pb2.PutRequest(key=key, value=data), timeout=DEADLINE_S)

    async def _revision(self) -> int:
        from etcd3.etcdrpc import rpc_pb2, rpc_pb2_grpc  # noqa: PLC0415 - loadable once the driver is

        async with aio_channel(f"127.0.0.1:{self.server.port}") as channel:
            answer = await rpc_pb2_grpc.KVStub(channel).Range(rpc_pb2.RangeRequest(key=b"\0"), timeout=DEADLINE_S)
            return int(answer.header.revision)

    async def lose_reply(self, store: Store, write: Callable[[], Awaitable[Answer]], path: str) -> Answer:
        """Write and lose the answer."""
        del path
        proxy = self.proxy(store)
        before = await self._revision()
        proxy.hold_answers()
        sending = asyncio.create_task(answer_of(write), name="write whose answer is lost")

        async def happened() -> bool:
            answered = proxy.held_answers()
            if await self._revision() > before:
                return True
            # What was answered before that changed nothing: a refusal, which is followed by another try.
            for answer in answered:
                answer.set()
            return False

        await eventually(happened, what="the write")
        proxy.cut()
        proxy.release_answers()
        return await within(sending)

    async def delay(self, store: Store, write: Callable[[], Awaitable[Answer]], *, cut_off: bool = False) -> LateWrite:
        """Send and keep under way; happens all the same."""
        del cut_off
        proxy = self.proxy(store)
        proxy.hold_requests()
        sending = asyncio.create_task(answer_of(write), name="write under way")
        await within(proxy.held(2000))
        proxy.drop_clients()
        return _LateEtcdWrite(await within(sending), proxy, self._revision)

    async def interrupt(self, store: Store) -> None:
        """Break the connection."""
        self.proxy(store).refuse()

    async def restore(self, store: Store) -> None:
        """Let connections through again."""
        self.proxy(store).accept()
