"""A store of a controller between whose reading and writing a person does something."""

from collections.abc import Awaitable, Callable, Sequence

from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Check, Group, Outcome

from regnum_testing.reigning import FakeCluster

Act = Callable[[], Awaitable[None]]
"""What the person does."""


class InterruptedStore(MemoryStore):
    """Before a batch that writes or checks a node the act for that node is done, once."""

    def __init__(self, server: MemoryServer, acts: dict[str, Act]) -> None:
        super().__init__(server)
        self._acts = acts

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        """See Store."""
        for path in {operation.path for group in groups for operation in group} & self._acts.keys():
            await self._acts.pop(path)()
        return await super().write_batch(groups, fence=fence)


def interrupted(cluster: FakeCluster, acts: dict[str, Act]) -> None:
    """Have the controllers of the reigns that begin from now on interrupted; an act that was done is in it no more."""
    cluster.open_store = lambda server: InterruptedStore(server, acts)
