"""A session with etcd, behind the port."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, assert_never

from etcd3.etcdrpc import rpc_pb2

from regnum_coordination.drivers.etcd.batches import EtcdBatch
from regnum_coordination.drivers.etcd.conditions import at_count
from regnum_coordination.drivers.etcd.keys import Keys
from regnum_coordination.drivers.etcd.reading import EtcdReader
from regnum_coordination.drivers.etcd.rpc import EtcdRpc
from regnum_coordination.drivers.etcd.session import LeaseSession
from regnum_coordination.drivers.etcd.transactions import (
    batch_outcomes,
    batch_request,
    check_size,
    clearing_request,
    part,
)
from regnum_coordination.drivers.etcd.trees import EtcdTrees
from regnum_coordination.drivers.etcd.watch import EtcdWatcher
from regnum_coordination.drivers.session_state import expired
from regnum_coordination.errors import ConnectionLoss, CoordinationError, NodeExists, NoNode
from regnum_coordination.paths import ROOT, check_path, check_written_path, parent
from regnum_coordination.port import (
    Check,
    Children,
    Create,
    Created,
    Delete,
    Expired,
    Fenced,
    Group,
    Node,
    Operation,
    OperationResult,
    Outcome,
    Refused,
    SessionState,
    Set,
    Stat,
    Store,
    TreeChange,
    TreePage,
    Unknown,
    Written,
)
from regnum_coordination.requests import check_operations
from regnum_coordination.timing import Backoff


class EtcdStore(Store):
    """One session; made by ``open_url``."""

    def __init__(self, client: Any, rpc: EtcdRpc, keys: Keys, session: LeaseSession, *, max_txn_ops: int) -> None:
        self._client = client
        self._rpc = rpc
        self._keys = keys
        self._session = session
        self._max_txn_ops = max_txn_ops
        self._reader = EtcdReader(rpc, keys, max_txn_ops=max_txn_ops)
        self._trees = EtcdTrees(rpc, keys)
        self._watcher = EtcdWatcher(rpc, self._reader, keys, session.feed, backoff=Backoff())
        self._closing: asyncio.Task[None] | None = None

    @property
    def session_id(self) -> int:
        """Id of the lease."""
        return self._session.lease_id

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
        if make_parents:
            await self._make_parents(path)
        if sequential:
            return await self._create_sequential(path, data, ephemeral=ephemeral)
        (result,) = await self.multi([Create(path, data, ephemeral=ephemeral)])
        return _created(result)

    async def _make_parents(self, path: str) -> None:
        folders: list[str] = []
        folder = parent(path)
        while folder != ROOT:
            folders.insert(0, folder)
            folder = parent(folder)
        for folder, node in zip(folders, await self.get_many(folders, current=True), strict=True):
            if node is None:
                try:
                    await self.multi([Create(folder, b"")])
                except NodeExists:
                    continue

    async def _create_sequential(self, path: str, data: bytes, *, ephemeral: bool) -> Created:
        """The folder's counter key moves in the same transaction; somebody else's move means another try."""
        counter = self._keys.sequence(parent(path))
        while True:
            self._check_alive()
            found = await self._rpc.range(rpc_pb2.RangeRequest(key=counter, keys_only=True))
            number = found.kvs[0].version if found.kvs else 0
            operation = Create(f"{path}{number:010d}", data, ephemeral=ephemeral)
            item = part([operation], self._keys, self.session_id)
            request = batch_request([item], self._keys.session(self.session_id), (), self._keys)
            nested = request.success[0].request_txn
            nested.compare.append(at_count(counter, number))
            nested.success.add(request_put=rpc_pb2.PutRequest(key=counter))
            (outcome,) = batch_outcomes([item], await self._rpc.txn(request), self._keys)
            if not isinstance(outcome, Unknown):
                (result,) = self._results(outcome)
                return _created(result)

    async def get(self, path: str, *, current: bool = False) -> Node:
        """Read a node; always current."""
        del current
        check_path(path)
        self._check_alive()
        node, _ = await self._reader.node(path)
        if node is None:
            raise NoNode(path)
        return node

    async def get_many(self, paths: Sequence[str], *, current: bool = False) -> tuple[Node | None, ...]:
        """Read many nodes; always current."""
        del current
        for path in paths:
            check_path(path)
        self._check_alive()
        return await self._reader.nodes(paths)

    async def exists(self, path: str, *, current: bool = False) -> Stat | None:
        """Stat of a node; always current."""
        del current
        check_path(path)
        self._check_alive()
        (node,) = await self._reader.nodes([path], keys_only=True)
        return None if node is None else node.stat

    async def children(self, path: str, *, current: bool = False) -> Children:
        """Names of a folder's children; always current."""
        del current
        check_path(path)
        self._check_alive()
        return await self._reader.children(path)

    async def set(self, path: str, data: bytes, *, version: int | None) -> Stat:
        """Replace data."""
        (result,) = await self.multi([Set(path, data, version)])
        return _created(result).stat

    async def delete(self, path: str, *, version: int | None) -> None:
        """Delete a node."""
        await self.multi([Delete(path, version)])

    async def delete_below(self, path: str) -> None:
        """Delete all that lies below, also keys without a parent and keys that are no path."""
        check_written_path(path)
        self._check_alive()
        answer = await self._rpc.txn(clearing_request(self._keys.session(self.session_id), *self._keys.below(path)))
        if not answer.succeeded:
            self._results(Expired())

    async def multi(self, operations: Sequence[Operation]) -> tuple[OperationResult, ...]:
        """All operations or none."""
        check_operations(operations)
        self._check_alive()
        if not operations:
            return ()
        item = part(operations, self._keys, self.session_id)
        check_size(item, self._max_txn_ops)
        request = batch_request([item], self._keys.session(self.session_id), (), self._keys)
        (outcome,) = batch_outcomes([item], await self._rpc.txn(request), self._keys)
        return self._results(outcome)

    def _results(self, outcome: Outcome) -> tuple[OperationResult, ...]:
        match outcome:
            case Written(results=results):
                return results
            case Refused(error=error):
                raise error
            case Expired():
                self._session.feed.set(SessionState.LOST)
                raise expired()
            case Unknown():
                raise ConnectionLoss("etcd refused without a reason that can be seen; resolve by repeating")
            case Fenced():
                raise AssertionError("a multi has no fence")
            case _:
                assert_never(outcome)

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        """Many groups, in as few transactions as the server allows."""
        batch = EtcdBatch(self._rpc, self._keys, self._session, groups, fence=fence, max_txn_ops=self._max_txn_ops)
        return await batch.write()

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
        """It is."""
        return True

    async def read_tree(self, path: str, *, current: bool = True) -> AsyncGenerator[TreePage, None]:
        """A node and everything below it at one revision; always current."""
        del current
        check_path(path)
        self._check_alive()
        async with aclosing(self._trees.read(path)) as pages:
            async for page in pages:
                self._check_alive()
                yield page

    async def watch_tree(self, path: str, *, after_revision: int) -> AsyncGenerator[TreeChange, None]:
        """All changes of a subtree after a revision."""
        check_path(path)
        async with aclosing(self._watcher.tree(path, after_revision)) as changes:
            async for change in changes:
                yield change

    async def close(self) -> None:
        """End the session."""
        # Not in the task of the caller, who may be cancelled: channels and the lease would stay.
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name=f"close etcd session {self.session_id:x}")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._session.stop()
        await self._revoke()
        await self._rpc.close()
        self._client.close()

    async def _revoke(self) -> None:
        """End the lease. A failure means that it is gone already, or ends by itself when its time is up.

        Not by etcd3's client: of several members it knows the addresses that they had when the session began.
        """
        for _ in range(2):
            try:
                await self._rpc.revoke(self.session_id)
            except ConnectionLoss:
                continue  # the next one is asked of another member
            except CoordinationError:
                return
            else:
                return

    def _check_alive(self) -> None:
        if self._session.state is SessionState.LOST:
            raise expired()


def _created(result: OperationResult) -> Created:
    if result.stat is None:
        raise AssertionError("a create and a set leave stats")
    return Created(path=result.path, stat=result.stat)
