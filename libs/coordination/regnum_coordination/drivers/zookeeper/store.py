"""A session with ZooKeeper, behind the port."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final

from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from regnum_coordination.drivers.session_state import expired
from regnum_coordination.drivers.zookeeper.absences import AbsencesChecked
from regnum_coordination.drivers.zookeeper.address import ZooKeeperAddress
from regnum_coordination.drivers.zookeeper.answers import node_of, stat_of, wire_version
from regnum_coordination.drivers.zookeeper.batches import Failed, ZooKeeperBatches
from regnum_coordination.drivers.zookeeper.bulk_client import BulkClient
from regnum_coordination.drivers.zookeeper.calls import Call, ZooKeeperCalls, value
from regnum_coordination.drivers.zookeeper.handler import LoopHandler
from regnum_coordination.drivers.zookeeper.mailbox import Mailbox
from regnum_coordination.drivers.zookeeper.names import ServerNames
from regnum_coordination.drivers.zookeeper.reading import ZooKeeperReader
from regnum_coordination.drivers.zookeeper.session import HEARTBEATS, HeartbeatSession
from regnum_coordination.drivers.zookeeper.transactions import check_size
from regnum_coordination.drivers.zookeeper.watch import ZooKeeperWatcher
from regnum_coordination.errors import CoordinationError, InvalidRequest, NodeExists, NoNode, SessionExpired
from regnum_coordination.paths import ROOT, check_path, check_written_path, parent
from regnum_coordination.port import (
    Check,
    Children,
    Create,
    Created,
    Delete,
    Group,
    Node,
    Operation,
    OperationResult,
    Outcome,
    SessionState,
    Set,
    Stat,
    Store,
    TreeChange,
    TreePage,
)
from regnum_coordination.requests import check_operations
from regnum_coordination.timing import Backoff

MIN_CONNECT_TIMEOUT_S: Final = 0.25
"""Seconds that a server has at least to take a connection."""

_DIGITS: Final = 10
"""What the server appends to the name of a sequential node."""

# A process that keeps no log hears of trouble by errors and states; kazoo's own lines would go to its stderr.
logging.getLogger("kazoo").addHandler(logging.NullHandler())


async def open_url(url: str, *, session_timeout_s: float, operation_timeout_s: float) -> Store:
    """Open a session; see ``regnum_coordination.open_store``."""
    address = ZooKeeperAddress.parse(url)
    if session_timeout_s <= 0:
        raise ValueError(f"a session time-out is above 0 s, not {session_timeout_s}")
    if operation_timeout_s <= 0:
        raise ValueError(f"an operation time-out is above 0 s, not {operation_timeout_s}")
    loop = asyncio.get_running_loop()
    handler = LoopHandler(connect_timeout_s=max(MIN_CONNECT_TIMEOUT_S, session_timeout_s / HEARTBEATS))
    mailbox = Mailbox(loop)
    client = await asyncio.to_thread(_client, address, handler, session_timeout_s)
    calls = ZooKeeperCalls(client, handler, mailbox, timeout_s=operation_timeout_s)
    names = ServerNames(address.chroot)
    await calls.start()
    # The session is younger than the connection that it was made on; servers asked in vain before do not count.
    session = HeartbeatSession(calls, root=names.root, opened_at_s=calls.linked_at_s)
    session.start()
    try:
        value(await calls.ask(calls.ensure_path(names.root)), names.root)
    except (CoordinationError, asyncio.CancelledError):
        await session.stop()
        await calls.stop()
        raise
    return ZooKeeperStore(calls, names, session, mailbox)


def _client(address: ZooKeeperAddress, handler: LoopHandler, session_timeout_s: float) -> Any:
    credentials = address.credentials
    credentials.check_files()
    auth: list[tuple[str, str]] = []
    if credentials.user is not None:
        auth.append(("digest", f"{credentials.user}:{credentials.password().decode()}"))
    return BulkClient(
        hosts=address.hosts,
        timeout=session_timeout_s,
        handler=handler,
        auth_data=auth,
        default_acl=CREATOR_ALL_ACL if auth else None,
        connection_retry=KazooRetry(
            max_tries=-1, delay=0.05, max_delay=0.5, max_jitter=0.5, sleep_func=handler.sleep_func
        ),
        use_ssl=credentials.ca is not None,
        ca=None if credentials.ca is None else str(credentials.ca),
        certfile=None if credentials.cert is None else str(credentials.cert),
        keyfile=None if credentials.key is None else str(credentials.key),
        check_hostname=credentials.ca is not None,
    )


class ZooKeeperStore(Store):
    """One session; made by ``open_url``."""

    def __init__(self, calls: ZooKeeperCalls, names: ServerNames, session: HeartbeatSession, mailbox: Mailbox) -> None:
        self._calls = calls
        self._names = names
        self._session = session
        self._reader = ZooKeeperReader(calls, names, self._check_alive)
        absences = AbsencesChecked()
        self._batches = ZooKeeperBatches(calls, names, absences, session_id=session.session_id, lose=session.lose)
        self._watcher = ZooKeeperWatcher(calls, names, session.feed, mailbox, absences, backoff=Backoff())
        self._closing: asyncio.Task[None] | None = None

    @property
    def session_id(self) -> int:
        """The server's id of the session."""
        return self._session.session_id

    @property
    def session_state(self) -> SessionState:
        """The state at this moment."""
        return self._session.state

    async def wait_lost(self) -> None:
        """Return when the session is LOST."""
        await self._session.feed.wait_lost()

    async def session_states(self) -> AsyncGenerator[SessionState, None]:
        """The present state and every change."""
        async with aclosing(self._session.feed.states()) as states:
            async for state in states:
                yield state

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False, make_parents: bool = False
    ) -> Created:
        """Create a node."""
        check_written_path(path)
        check_operations([Create(path, data)])
        check_size([Create(path, data)], self._names)
        call = self._calls.create(self._names.path(path), data, ephemeral=ephemeral, sequential=sequential)
        try:
            answered, stat = await self._write(call, path)
        except NoNode:
            if not make_parents:
                raise
            await self._make_parents(path)
            answered, stat = await self._write(call, path)
        return Created(path=path + answered[-_DIGITS:] if sequential else path, stat=stat_of(stat))

    async def _make_parents(self, path: str) -> None:
        folders: list[str] = []
        folder = parent(path)
        while folder != ROOT:
            folders.insert(0, folder)
            folder = parent(folder)
        for folder in folders:
            try:
                await self.create(folder, b"")
            except NodeExists:
                continue

    async def get(self, path: str, *, current: bool = False) -> Node:
        """Read a node."""
        check_path(path)
        (answer,) = await self._reader.ask([self._calls.get(self._names.path(path))], current=current)
        return node_of(value(answer, path))

    async def get_many(self, paths: Sequence[str], *, current: bool = False) -> tuple[Node | None, ...]:
        """Read many nodes, pipelined."""
        for path in paths:
            check_path(path)
        self._check_alive()
        return tuple(await self._reader.nodes(paths, current=current))

    async def exists(self, path: str, *, current: bool = False) -> Stat | None:
        """Stat of a node."""
        check_path(path)
        (answer,) = await self._reader.ask([self._calls.exists(self._names.path(path))], current=current)
        found = value(answer, path)
        return None if found is None else stat_of(found)

    async def children(self, path: str, *, current: bool = False) -> Children:
        """Names of a folder's children."""
        check_path(path)
        (answer,) = await self._reader.ask([self._calls.children(self._names.path(path))], current=current)
        names, stat = value(answer, path)
        return Children(names=self._names.children(path, names), children_id=stat.pzxid)

    async def set(self, path: str, data: bytes, *, version: int | None) -> Stat:
        """Replace data."""
        operation = Set(path, data, version)
        check_operations([operation])
        check_size([operation], self._names)
        call = self._calls.set(self._names.path(path), data, wire_version(version))
        return stat_of(await self._write(call, path, version))

    async def delete(self, path: str, *, version: int | None) -> None:
        """Delete a node."""
        check_operations([Delete(path, version)])
        await self._write(self._calls.delete(self._names.path(path), wire_version(version)), path, version)

    async def _write(self, call: Call, path: str, version: int | None = None) -> Any:
        self._check_alive()
        answer = await self._calls.ask(call)
        try:
            return value(answer, path, version)
        except SessionExpired:
            self._session.lose()
            raise

    async def multi(self, operations: Sequence[Operation]) -> tuple[OperationResult, ...]:
        """All operations or none."""
        check_operations(operations)
        check_size(operations, self._names)
        self._check_alive()
        if not operations:
            return ()
        done = await self._batches.transact(operations)
        if isinstance(done, Failed):
            raise done.error
        (left,) = self._batches.results([tuple(operations)], done)
        return left

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        """Many groups, in as few transactions as the server allows."""
        return await self._batches.write(groups, fence)

    async def watch_node(self, path: str) -> AsyncGenerator[Node | None, None]:
        """The present state of a node and its changes."""
        check_path(path)
        async with aclosing(self._watcher.node(path)) as states:
            async for state in states:
                yield state

    async def watch_children(self, path: str) -> AsyncGenerator[Children, None]:
        """The present children of a folder and every change of the set."""
        check_path(path)
        async with aclosing(self._watcher.children(path)) as states:
            async for state in states:
                yield state

    @property
    def tree_watch_offered(self) -> bool:
        """It is not: a watch of ZooKeeper's tells once that something changed, and not what."""
        return False

    async def read_tree(self, path: str, *, current: bool = True) -> AsyncGenerator[TreePage, None]:
        """A node and everything below it, pipelined; a page has nodes of one depth."""
        check_path(path)
        async with aclosing(self._reader.tree(path, current=current)) as pages:
            async for page in pages:
                yield page

    async def watch_tree(self, path: str, *, after_revision: int) -> AsyncGenerator[TreeChange, None]:
        """Refused."""
        del path, after_revision
        raise InvalidRequest("ZooKeeper offers no watch of a tree; read it, and watch its folders")
        yield

    async def close(self) -> None:
        """End the session."""
        # Not in the task of the caller, who may be cancelled: kazoo would keep the session alive.
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name=f"close zookeeper session {self.session_id:x}")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._session.stop()
        await self._calls.stop()

    def _check_alive(self) -> None:
        if self._session.state is SessionState.LOST:
            raise expired()
