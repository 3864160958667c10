"""A store that hands every call on to another: what wraps one begins with it and says only what it does differently."""

from collections.abc import AsyncGenerator, Sequence
from typing import Final

from regnum_coordination.port import (
    Check,
    Children,
    Created,
    Group,
    Node,
    Operation,
    OperationResult,
    Outcome,
    SessionState,
    Stat,
    Store,
    TreeChange,
    TreePage,
)


class ForwardingStore(Store):
    """The session that it is made of."""

    def __init__(self, store: Store) -> None:
        """Only assigns."""
        self._store: Final = store

    @property
    def session_id(self) -> int:
        """See Store."""
        return self._store.session_id

    @property
    def session_state(self) -> SessionState:
        """See Store."""
        return self._store.session_state

    async def wait_lost(self) -> None:
        """See Store."""
        await self._store.wait_lost()

    def session_states(self) -> AsyncGenerator[SessionState, None]:
        """See Store."""
        return self._store.session_states()

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False, make_parents: bool = False
    ) -> Created:
        """See Store."""
        return await self._store.create(
            path, data, ephemeral=ephemeral, sequential=sequential, make_parents=make_parents
        )

    async def get(self, path: str, *, current: bool = False) -> Node:
        """See Store."""
        return await self._store.get(path, current=current)

    async def get_many(self, paths: Sequence[str], *, current: bool = False) -> tuple[Node | None, ...]:
        """See Store."""
        return await self._store.get_many(paths, current=current)

    async def exists(self, path: str, *, current: bool = False) -> Stat | None:
        """See Store."""
        return await self._store.exists(path, current=current)

    async def children(self, path: str, *, current: bool = False) -> Children:
        """See Store."""
        return await self._store.children(path, current=current)

    async def set(self, path: str, data: bytes, *, version: int | None) -> Stat:
        """See Store."""
        return await self._store.set(path, data, version=version)

    async def delete(self, path: str, *, version: int | None) -> None:
        """See Store."""
        await self._store.delete(path, version=version)

    async def delete_below(self, path: str) -> None:
        """See Store."""
        await self._store.delete_below(path)

    async def multi(self, operations: Sequence[Operation]) -> tuple[OperationResult, ...]:
        """See Store."""
        return await self._store.multi(operations)

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        """See Store."""
        return await self._store.write_batch(groups, fence=fence)

    def watch_node(self, path: str) -> AsyncGenerator[Node | None, None]:
        """See Store."""
        return self._store.watch_node(path)

    def watch_children(self, path: str) -> AsyncGenerator[Children, None]:
        """See Store."""
        return self._store.watch_children(path)

    @property
    def tree_watch_offered(self) -> bool:
        """See Store."""
        return self._store.tree_watch_offered

    def read_tree(self, path: str, *, current: bool = True) -> AsyncGenerator[TreePage, None]:
        """See Store."""
        return self._store.read_tree(path, current=current)

    def watch_tree(self, path: str, *, after_revision: int) -> AsyncGenerator[TreeChange, None]:
        """See Store."""
        return self._store.watch_tree(path, after_revision=after_revision)

    async def close(self) -> None:
        """See Store."""
        await self._store.close()
