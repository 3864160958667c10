"""An ephemeral node that several contend for, and the persistent guard beside it that outlives all of them.

Goals: nothing that anybody writes into the node, or below it, keeps it alive; no delete that was meant for one holder
ever hits the next.

Constraints: the node's version starts again at 0 with every holder (safety rule S2), so a delete at a version alone
may come late and hit a successor.

Algorithm: every win sets the guard in the multi that creates the node. The guard is read *before* the node; a delete
checks it at that version (or creates it, where there is none) and deletes the node at its own (safety rule S7).
"""

from regnum_coordination.errors import BadVersion, ConnectionLoss, NodeExists, NoNode, NotEmpty
from regnum_coordination.port import Check, Create, Delete, Node, Operation, Store
from regnum_coordination.recipes.folders import remove_below
from regnum_coordination.recipes.resolve import Resolver
from regnum_coordination.timing import Backoff, Clock


class ContestedNode:
    """Reads and removes the node for one contender during one session."""

    def __init__(self, store: Store, clock: Clock, *, path: str, guard_path: str, backoff: Backoff) -> None:
        self._store = store
        self._clock = clock
        self._path = path
        self._guard_path = guard_path
        self._backoff = backoff
        self._resolver = Resolver(store, clock, backoff=backoff)

    async def read(self) -> tuple[Node | None, Node | None]:
        """The guard, and the node as it was after that. Raises SessionExpired."""
        attempts = 0
        while True:
            try:
                (guard,) = await self._store.get_many([self._guard_path], current=True)
                (node,) = await self._store.get_many([self._path], current=True)
            except ConnectionLoss:
                attempts += 1
                await self._clock.sleep(self._backoff.pause_s(attempts))
            else:
                return guard, node

    async def remove(self, guard: Node | None, node: Node, *, missing_guard: bytes) -> None:
        """Delete the node as read, if the guard is still as it was read before it; in vain if it is not.

        Args:
            guard: as read.
            node: as read.
            missing_guard: content of the guard where there is none.

        Raises SessionExpired.
        """
        tie: Operation = (
            Create(self._guard_path, missing_guard) if guard is None else Check(self._guard_path, guard.stat.version)
        )
        try:
            await self._resolver.multi([tie, Delete(self._path, node.stat.version)])
        except (NodeExists, NoNode, BadVersion):
            return
        except NotEmpty:
            await remove_below(self._store, self._path)
            await self._clock.sleep(self._backoff.pause_s(1))
