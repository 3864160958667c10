"""A store whose writes have definite outcomes, for whoever writes without being the controller (safety rule S19)."""

from collections.abc import Mapping, Sequence

from regnum_coordination.port import Group, Node, Operation, OperationResult, Outcome, Store
from regnum_coordination.recipes.resolve import Resolver
from regnum_coordination.recipes.stored_quotas import StoreReader
from regnum_coordination.timing import Clock


class ResolvedStore:
    """Reads that are not stale and conditional writes that are repeated until their outcome is known.

    Raises SessionExpired, and ConnectionLoss: of a read that got no answer, of a write whose outcome is still unknown
    after ``deadline_s``.
    """

    def __init__(self, store: Store, clock: Clock, *, deadline_s: float) -> None:
        self._reader = StoreReader(store)
        self._resolver = Resolver(store, clock)
        self._deadline_s = deadline_s

    async def names(self, folder: str) -> tuple[str, ...]:
        """Children of a folder; none when there is no folder."""
        return await self._reader.names(folder)

    async def read_many(self, wanted: Sequence[str]) -> Mapping[str, Node]:
        """The nodes that exist, by path."""
        return await self._reader.read_many(wanted)

    async def multi(self, operations: Sequence[Operation]) -> tuple[OperationResult, ...]:
        """All operations or none; raises what refuses them."""
        return await self._resolver.multi(operations, deadline_s=self._deadline_s)

    async def write_batch(self, groups: Sequence[Group]) -> Sequence[Outcome]:
        """Groups, each on its own."""
        return await self._resolver.write_batch(groups, deadline_s=self._deadline_s) if groups else ()
