"""Registration of a process by an ephemeral node (safety rules S2 and S5).

Goals: a process that comes back takes over the node its last incarnation left behind, at once; nobody else's node is
ever touched; a broker's registration raises its guard in the same transaction.

Constraints: a put would keep the creation id, and the new incarnation would carry the old broker epoch: so a takeover
is a conditional delete, then a create. The answer to either may be lost.

Algorithm: read guard and node. Node absent: one multi sets (or creates) the guard, writes what a companion adds, and
creates the node with the guard's new version in it. Node of this session or of a predecessor, as the caller's predicate
says: delete it, tied to the guard as read; again. Another's: wait one session time-out for it to go, then end with
TakenByAnotherError. Claims are nodes that are created in the same multi, each by one process at a time: one that this
process's last incarnation left behind is deleted first, another's is waited for like the node itself.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Protocol

from regnum_coordination.errors import BadVersion, ConnectionLoss, NodeExists, NoNode, NotEmpty, SessionExpired
from regnum_coordination.paths import parent
from regnum_coordination.port import Check, Create, Delete, Node, Operation, OperationResult, Set, Store
from regnum_coordination.recipes.folders import ensure_folders, remove_below
from regnum_coordination.recipes.resolve import Resolver
from regnum_coordination.timing import Backoff, Clock

_LOG = logging.getLogger(__name__)


class TakenByAnotherError(Exception):
    """Another live process holds the node. The message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A registration."""

    creation_id: int
    """Creation id of the node: a broker's epoch."""
    registration: int | None
    """Version of the guard that it set; None without a guard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What a process has for itself for as long as it is registered, besides its own node."""

    paths: tuple[str, ...]
    """Ephemeral nodes."""
    data: bytes
    """Content of each; the same in every incarnation of the process, and another one in every other process."""
    taken: Callable[[str, bytes], str]
    """What another process's node means, in words for the operator: from its path and content; must not raise."""


NO_CLAIMS: Final = Claims(paths=(), data=b"", taken=lambda path, _: f"{path} is taken")


class Companion(Protocol):
    """What is written in the transaction of each registration."""

    async def propose(self) -> Sequence[Operation]:
        """What to write, as of now; asked for anew before each attempt."""

    async def confirmed(self, results: Sequence[OperationResult]) -> None:
        """It was written, with these results."""


class Membership:
    """Registers one process at one path."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        path: str,
        encode: Callable[[int], bytes],
        is_predecessor: Callable[[bytes], bool],
        patience_s: float,
        guard: str | None = None,
        companion: Companion | None = None,
        claims: Claims = NO_CLAIMS,
        backoff: Backoff | None = None,
    ) -> None:
        """Only assigns.

        Args:
            store: an open session.
            clock: source of time.
            path: the ephemeral node.
            encode: content of the node for a registration (the guard's new version; 0 without a guard).
            is_predecessor: whether a node's content was written by this process's last incarnation; must not raise.
            patience_s: seconds to wait for another owner's node to go; the session time-out and a little.
            guard: persistent node whose version numbers the registrations (safety rule S2).
            companion: writes something in the same transactions.
            claims: created in the same transactions.
            backoff: pauses between attempts.
        """
        self._store = store
        self._clock = clock
        self._path = path
        self._encode = encode
        self._is_predecessor = is_predecessor
        self._patience_s = patience_s
        self._guard = guard
        self._companion = companion
        self._claims = claims
        self._backoff = Backoff() if backoff is None else backoff
        self._resolver = Resolver(store, clock, backoff=self._backoff)

    async def join(self) -> Joined:
        """Register. Raises TakenByAnotherError, SessionExpired."""
        give_up_s = self._clock.monotonic() + self._patience_s
        folders = {parent(path) for path in (self._path, self._guard, *self._claims.paths) if path is not None}
        await ensure_folders(self._store, sorted(folders), self._clock, backoff=self._backoff)
        while True:
            guard, node = await self._read()
            if node is None:
                rival = await self._rival(guard)
                if rival is None:
                    if (joined := await self._create(guard)) is not None:
                        return joined
                else:
                    taken = self._claims.taken(rival[0], rival[1].data)
                    if (left_s := give_up_s - self._clock.monotonic()) <= 0:
                        raise TakenByAnotherError(taken)
                    _LOG.warning("waiting up to %.1f s for a session to end: %s", left_s, taken)
                    await self._wait_for_change(*rival, left_s)
            elif node.stat.ephemeral_owner == self._store.session_id or self._is_predecessor(node.data):
                await self._delete(guard, node)
            elif (left_s := give_up_s - self._clock.monotonic()) > 0:
                await self._wait_for_change(self._path, node, left_s)
            else:
                raise TakenByAnotherError(self._taken(node))

    async def leave(self, joined: Joined) -> None:
        """Remove the registration, if it is still there. Raises SessionExpired."""
        while True:
            guard, node = await self._read()
            if node is None or node.stat.creation_id != joined.creation_id:
                return
            await self._delete(guard, node)

    async def wait_gone(self, joined: Joined) -> None:
        """Return when the node is not this registration's any more: deleted, fenced, replaced, or overwritten by hand.

        Overwritten means that this session still owns the node and nobody knows the process by it; ``join`` then makes
        it anew. Raises SessionExpired.
        """
        async with aclosing(self._store.watch_node(self._path)) as states:
            async for node in states:
                if node is None or node.stat.creation_id != joined.creation_id or self._is_defaced(node):
                    return
        raise SessionExpired("the watch on the registration ended; open a new store and register again")

    async def stay(self, joined: Joined) -> None:
        """Register again whenever the registration is gone, after a pause that grows while that goes on.

        Ends by raising TakenByAnotherError or SessionExpired.
        """
        attempts = 0
        while True:
            registered_s = self._clock.monotonic()
            await self.wait_gone(joined)
            _LOG.warning("%s was removed; registering again", self._path)
            attempts = attempts + 1 if self._clock.monotonic() - registered_s < self._patience_s else 1
            await self._clock.sleep(self._backoff.pause_s(attempts))
            joined = await self.join()

    def _is_defaced(self, node: Node) -> bool:
        return node.stat.ephemeral_owner == self._store.session_id and not self._is_predecessor(node.data)

    async def _create(self, guard: Node | None) -> Joined | None:
        registration = 0 if guard is None else guard.stat.version + 1
        operations: list[Operation] = []
        if self._guard is not None:
            operations.append(Create(self._guard, b"") if guard is None else Set(self._guard, b"", guard.stat.version))
        operations += [Create(path, self._claims.data, ephemeral=True) for path in self._claims.paths]
        more = () if self._companion is None else await self._companion.propose()
        # Encoded behind it: what it looks at may change what the node says.
        operations += [*more, Create(self._path, self._encode(registration), ephemeral=True)]
        try:
            results = await self._resolver.multi(operations)
        except (NodeExists, BadVersion):
            return None
        except NoNode:
            folders = sorted({parent(operation.path) for operation in operations})
            await ensure_folders(self._store, folders, self._clock, backoff=self._backoff)
            return None
        if (stat := results[-1].stat) is None:
            raise AssertionError("a create leaves a stat")
        if self._companion is not None:
            await self._companion.confirmed(results[-1 - len(more) : -1])
        return Joined(creation_id=stat.creation_id, registration=None if self._guard is None else registration)

    async def _rival(self, guard: Node | None) -> tuple[str, Node] | None:
        """A claim that another process has; what the last incarnation of this one left behind is deleted.

        The node at the path is gone: whatever process has this one's id is not registered.
        """
        own: list[tuple[str, Node]] = []
        for path, node in zip(self._claims.paths, await self._current(self._claims.paths), strict=True):
            if node is None:
                continue
            if node.data != self._claims.data:
                return path, node
            own.append((path, node))
        for path, node in own:
            await self._delete(guard, node, path)
        return None

    async def _delete(self, guard: Node | None, node: Node, path: str | None = None) -> None:
        path = self._path if path is None else path
        operations: list[Operation] = []
        if self._guard is not None and guard is not None:
            operations.append(Check(self._guard, guard.stat.version))
        operations.append(Delete(path, node.stat.version))
        try:
            await self._resolver.multi(operations)
        except (NoNode, BadVersion):
            return
        except NotEmpty:
            # Written there by hand: etcd has nodes below ephemeral ones for those who go past the port.
            await remove_below(self._store, path)
            await self._clock.sleep(self._backoff.pause_s(1))

    async def _wait_for_change(self, path: str, node: Node, left_s: float) -> None:
        """Return when a node is not as read any more, or after that time."""
        change = asyncio.create_task(self._change(path, node), name=f"wait for {path}")
        timer = asyncio.create_task(self._clock.sleep(left_s), name=f"patience for {path}")
        try:
            await asyncio.wait({change, timer}, return_when=asyncio.FIRST_COMPLETED)
            if change.done():
                change.result()
        finally:
            change.cancel()
            timer.cancel()
            await asyncio.gather(change, timer, return_exceptions=True)

    async def _change(self, path: str, node: Node) -> None:
        async with aclosing(self._store.watch_node(path)) as states:
            async for now in states:
                if now is None or now.stat.modification_id != node.stat.modification_id:
                    return

    async def _read(self) -> tuple[Node | None, Node | None]:
        """The guard, and the node as it was after that."""
        guard = None
        if self._guard is not None:
            (guard,) = await self._current((self._guard,))
        (node,) = await self._current((self._path,))
        return guard, node

    async def _current(self, paths: Sequence[str]) -> Sequence[Node | None]:
        attempts = 0
        while paths:
            try:
                return await self._store.get_many(paths, current=True)
            except ConnectionLoss:
                attempts += 1
                await self._clock.sleep(self._backoff.pause_s(attempts))
        return ()

    def _taken(self, node: Node) -> str:
        owner = node.stat.ephemeral_owner
        if owner is None:
            return (
                f"{self._path} was written by hand and belongs to no session; delete it in the store, then start again"
            )
        return (
            f"{self._path} is held by another live process (session {owner:#x}); stop that process, or start this one "
            "with another id"
        )
