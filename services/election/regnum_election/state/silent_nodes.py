"""Nodes that stand only for the mutations that they know: silent ones of access rules, choices, deleted topics.

Nobody asks them after ``REPEATED_MS``; then they go. (Nodes of topics' settings go with ``ConfigBook.look``, those of
quotas with the next change of a quota.)
"""

from typing import Final

from regnum_coordination.recipes.mutating import NodeMutations
from regnum_coordination.recipes.stored_quotas import NODES_PER_READ
from regnum_model.acls.nodes import FOLDERS
from regnum_service.clock import Clock
from regnum_service.slices import slices

from regnum_election.reign.writing import FencedStore
from regnum_election.state.acl_choices import Choices
from regnum_election.state.deleted_topics import DeletedTopics

SWEEP_S: Final = 1_800.0
"""Time between two sweeps: each reads every pattern that has rules."""

SWEPT_MAX: Final = 1_000
"""Nodes of one sweep, give or take those that are read together: what is left waits for the next."""


class SilentNodes:
    """Of one reign."""

    def __init__(self, store: FencedStore, clock: Clock) -> None:
        """Only assigns."""
        self._store: Final = store
        self._clock: Final = clock
        self._mutations: Final = NodeMutations(store, wall_ms=clock.wall_ms)
        self._choices: Final = Choices(store, clock.wall_ms)
        self._deleted: Final = DeletedTopics(store, clock.wall_ms)
        self._next_s = clock.monotonic() + SWEEP_S

    async def sweep_in_time(self) -> int:
        """Sweep if it is time to; how many nodes went. Raises DeposedError."""
        if self._clock.monotonic() < self._next_s:
            return 0
        self._next_s = self._clock.monotonic() + SWEEP_S
        gone = await self._choices.sweep() + await self._deleted.sweep()
        for folder in FOLDERS:
            names = await self._store.names(folder)
            async for some in slices(names, NODES_PER_READ):
                gone += await self._mutations.sweep([f"{folder}/{name}" for name in some])
                if gone >= SWEPT_MAX:
                    return gone
        return gone
