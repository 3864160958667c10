"""A store of a controller that writes one topic's node only when a test lets it."""

import asyncio
from collections.abc import Callable, Sequence

from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Check, Group, Outcome, Set
from regnum_model import paths

from regnum_testing.reigning import FakeCluster


class GatedStore(MemoryStore):
    """Counts the writes of a topic's node, and lets as many through as the gate has places."""

    def __init__(self, server: MemoryServer, topic: str) -> None:
        super().__init__(server)
        self._path = paths.topic(topic)
        self.gate: asyncio.Semaphore | None = None
        """None: it is open."""
        self.topic_writes = 0
        """Those that wait at the gate among them."""
        self.before_write: Callable[[], None] = lambda: None
        """Called with each of them."""

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        """See Store."""
        if any(isinstance(one, Set) and one.path == self._path for group in groups for one in group):
            self.topic_writes += 1
            self.before_write()
            if self.gate is not None:
                await self.gate.acquire()
        return await super().write_batch(groups, fence=fence)


def gated(cluster: FakeCluster, topic: str = "t") -> list[GatedStore]:
    """The stores of the reigns that begin from now on."""
    stores: list[GatedStore] = []

    def open_store(server: MemoryServer) -> MemoryStore:
        stores.append(GatedStore(server, topic))
        return stores[-1]

    cluster.open_store = open_store
    return stores
