"""A session with a memory server, behind the port."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final, assert_never

from regnum_service.slices import slices

from regnum_coordination.drivers.memory.server import MemoryServer, Transaction, Watch
from regnum_coordination.drivers.memory.tree import Tree
from regnum_coordination.drivers.session_state import expired
from regnum_coordination.errors import ConnectionLoss, NodeExists, NoNode
from regnum_coordination.paths import ROOT, check_path, check_written_path, folder_prefix, parent
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
from regnum_coordination.requests import check_batch, check_operations, waves

NODES_PER_PAGE: Final = 100
"""Nodes of one page of a tree: few, so that tests meet several."""


class MemoryStore(Store):
    """One session; see the head of the package."""

    def __init__(self, server: MemoryServer) -> None:
        self._server = server
        self._session = server.open_session()

    @property
    def session_id(self) -> int:
        """Id of the session."""
        return self._session.id

    @property
    def session_state(self) -> SessionState:
        """What the owner has been told."""
        return self._session.feed.state

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
            path = f"{path}{self._server.next_sequence(parent(path)):010d}"
        (result,) = await self.multi([Create(path, data, ephemeral=ephemeral)])
        if result.stat is None:
            raise AssertionError("a create leaves a stat")
        return Created(path=path, stat=result.stat)

    async def _make_parents(self, path: str) -> None:
        missing: list[str] = []
        folder = parent(path)
        while await self.exists(folder, current=True) is None:
            missing.append(folder)
            folder = parent(folder)
        for folder in reversed(missing):
            try:
                await self.multi([Create(folder, b"")])
            except NodeExists:
                continue

    async def get(self, path: str, *, current: bool = False) -> Node:
        """Read a node."""
        node = (await self._read(current=current)).get(self._checked(path))
        if node is None:
            raise NoNode(path)
        return node

    async def get_many(self, paths: Sequence[str], *, current: bool = False) -> tuple[Node | None, ...]:
        """Read many nodes."""
        tree = await self._read(current=current)
        return tuple(tree.get(self._checked(path)) for path in paths)

    async def exists(self, path: str, *, current: bool = False) -> Stat | None:
        """Stat of a node."""
        node = (await self._read(current=current)).get(self._checked(path))
        return None if node is None else node.stat

    async def children(self, path: str, *, current: bool = False) -> Children:
        """Names of a folder's children."""
        children = (await self._read(current=current)).children(self._checked(path))
        if children is None:
            raise NoNode(path)
        return children

    async def set(self, path: str, data: bytes, *, version: int | None) -> Stat:
        """Replace data."""
        (result,) = await self.multi([Set(path, data, version)])
        if result.stat is None:
            raise AssertionError("a set leaves a stat")
        return result.stat

    async def delete(self, path: str, *, version: int | None) -> None:
        """Delete a node."""
        await self.multi([Delete(path, version)])

    async def multi(self, operations: Sequence[Operation]) -> tuple[OperationResult, ...]:
        """All operations or none."""
        check_operations(operations)
        if not operations:
            return ()
        (outcome,) = await self._send((tuple(operations),), None)
        match outcome:
            case Written(results=results):
                return results
            case Refused(error=error):
                raise error
            case Expired():
                raise expired()
            case Unknown():
                raise ConnectionLoss("no answer; resolve by repeating (safety rule S1)")
            case Fenced():
                raise AssertionError("a multi has no fence")
            case _:
                assert_never(outcome)

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        """Many groups, in transactions of the server's size."""
        check_batch(groups, fence)
        outcomes: list[Outcome] = [Unknown()] * len(groups)
        size = self._server.groups_per_transaction
        for wave in waves(groups):
            for start in range(0, len(wave), size):
                part = wave[start : start + size]
                answers = await self._send(tuple(groups[index] for index in part), fence)
                for index, answer in zip(part, answers, strict=True):
                    outcomes[index] = answer
        return tuple(outcomes)

    async def _send(self, groups: tuple[Group, ...], fence: Check | None) -> tuple[Outcome, ...]:
        await asyncio.sleep(0)
        if self._session.feed.state is SessionState.LOST:
            return (Expired(),) * len(groups)
        transaction = Transaction(session_id=self._session.id, groups=groups, fence=fence)
        try:
            outcomes = self._server.send(transaction)
        except ConnectionLoss:
            outcomes = (Unknown(),) * len(groups)
        await asyncio.sleep(0)
        return outcomes

    async def _read(self, *, current: bool) -> Tree:
        await asyncio.sleep(0)
        match self._session.feed.state:
            case SessionState.LOST:
                raise expired()
            case SessionState.SUSPENDED:
                raise ConnectionLoss("the session is disconnected; read again later")
            case SessionState.CONNECTED:
                return self._server.reading(current=current)

    @staticmethod
    def _checked(path: str) -> str:
        check_path(path)
        return path

    async def watch_node(self, path: str) -> AsyncGenerator[Node | None, None]:
        """The present state of a node and its changes."""
        known: Node | None = None
        first = True
        async with aclosing(self._watch(path, of_children=False)) as trees:
            async for tree in trees:
                node = tree.get(path)
                if first or node != known:
                    first, known = False, node
                    yield node

    async def watch_children(self, path: str) -> AsyncGenerator[Children, None]:
        """The present children of a folder and every change of the set."""
        latest = 0
        async with aclosing(self._watch(path, of_children=True)) as trees:
            async for tree in trees:
                children = tree.children(path)
                latest = max(latest, tree.last_id if children is None else children.children_id)
                yield Children(names=() if children is None else children.names, children_id=latest)

    @property
    def tree_watch_offered(self) -> bool:
        """It is."""
        return True

    async def read_tree(self, path: str, *, current: bool = True) -> AsyncGenerator[TreePage, None]:
        """A node and everything below it."""
        check_path(path)
        tree = await self._read(current=current)
        seen, revision, prefix = tree.nodes(), tree.last_id, folder_prefix(path)
        del seen[ROOT]
        # Parents first, and no sorting: it would hold the loop for longer than a page takes.
        levels: dict[int, list[str]] = {}
        async for some in slices(seen, 10_000):
            for one in some:
                if one == path or one.startswith(prefix):
                    levels.setdefault(one.count("/"), []).append(one)
        paths = [one for depth in sorted(levels) for one in levels[depth]]
        async for some in slices(paths or ("",), NODES_PER_PAGE):
            await self._read(current=current)
            yield TreePage(nodes={one: seen[one] for one in some if one}, revision=revision)

    async def watch_tree(self, path: str, *, after_revision: int) -> AsyncGenerator[TreeChange, None]:
        """All changes of a subtree after a revision."""
        below, after = folder_prefix(path), after_revision
        async with aclosing(self._watch(path, of_tree=True)) as trees:
            async for _ in trees:
                if self._server.watches_held:
                    continue
                for change in self._server.changes(after):
                    after = change.revision
                    changed = {at: node for at, node in change.changed.items() if at == path or at.startswith(below)}
                    if changed:
                        yield TreeChange(revision=change.revision, changed=changed)

    async def _watch(
        self, path: str, *, of_children: bool = False, of_tree: bool = False
    ) -> AsyncGenerator[Tree, None]:
        """The tree at the start and whenever the watched thing may have changed."""
        check_path(path)
        watch = Watch(session_id=self._session.id, path=path, of_children=of_children, of_tree=of_tree)
        self._server.watch(watch)
        self._session.feed.listen(watch.changed)
        watch.changed.set()
        try:
            while True:
                await watch.changed.wait()
                watch.changed.clear()
                match self._session.feed.state:
                    case SessionState.LOST:
                        raise expired()
                    case SessionState.SUSPENDED:
                        continue
                    case SessionState.CONNECTED:
                        yield self._server.reading(current=True)
        finally:
            self._server.unwatch(watch)
            self._session.feed.unlisten(watch.changed)

    async def close(self) -> None:
        """End the session."""
        self._server.expire(self._session.id)
