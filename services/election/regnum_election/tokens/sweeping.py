"""Tokens that have ended are swept up: their nodes go, an hour after the last change of each.

Nothing depends on when: whoever checks a token looks at its times. The hour is for repeats of that change, which are
answered from the node (``regnum_model.mutations.REPEATED_MS``).
"""

from collections.abc import Sequence
from typing import Final

import structlog
from regnum_coordination.errors import NodeFailure
from regnum_coordination.port import Create, Delete
from regnum_coordination.recipes.mutating import MutableStore, announcement
from regnum_coordination.recipes.stored_quotas import newest_change
from regnum_model.delegation_tokens import DelegationToken, path_of
from regnum_model.mutations import log_of
from regnum_model.nodes import MalformedNodeError
from regnum_model.quotas import CHANGES, change_path
from regnum_service.access.tokens.table import TokenTable
from regnum_service.clock import Clock

from regnum_election.candidacy.role import ControllerRole
from regnum_election.reign.reign import DeposedError

SWEEP_S: Final = 60.0
"""Time between two sweeps."""

SWEPT_MAX: Final = 1_000
"""Nodes of one sweep: what is left waits for the next."""


class TokenSweeper:
    """Of one process; sweeps while it reigns."""

    def __init__(self, role: ControllerRole, table: TokenTable, clock: Clock) -> None:
        """Only assigns."""
        self._role: Final = role
        self._table: Final = table
        self._clock: Final = clock
        self._log: Final = structlog.get_logger("delegation tokens")

    async def run(self) -> None:
        """Sweep, for ever; a task of the supervisor."""
        while True:
            await self._clock.sleep(SWEEP_S)
            controller = self._role.reigning
            if controller is not None:
                try:
                    await self.sweep(controller.health.context.store)
                except DeposedError:
                    # The next controller sweeps.
                    continue

    async def sweep(self, store: MutableStore) -> int:
        """Delete nodes of tokens that have ended; answers how many. Raises DeposedError."""
        now_ms = self._clock.wall_ms()
        # A node may only be too young by its log, which is not in the table: what was looked at is looked at again.
        dead = [token.id for token in self._table if token.is_dead(now_ms)][:SWEPT_MAX]
        nodes = await store.read_many([path_of(id) for id in dead])
        gone: list[str] = []
        for id in dead:
            node = nodes.get(path_of(id))
            if node is None or log_of(node.data).recent(now_ms) or not _is_dead(id, node.data, now_ms):
                continue
            gone.append(id)
        swept = await self._delete(store, gone, {id: nodes[path_of(id)].stat.version for id in gone})
        if swept:
            self._log.info("delegation tokens that had expired are swept up", tokens=swept)
        return swept

    async def _delete(self, store: MutableStore, ids: Sequence[str], versions: dict[str, int]) -> int:
        """One after another: each is announced by itself, so that others read that one and not all."""
        swept = 0
        newest = newest_change(await store.names(CHANGES)) if ids else 0
        for id in ids:
            path = path_of(id)
            try:
                await store.multi((Delete(path, versions[id]), Create(change_path(newest + 1), announcement(path))))
            except NodeFailure:
                # Renewed, or somebody else announced: the next sweep looks again.
                newest = newest_change(await store.names(CHANGES))
                continue
            newest += 1
            swept += 1
            self._table.drop(id)
        return swept


def _is_dead(id: str, data: bytes, now_ms: int) -> bool:
    try:
        return DelegationToken.decode(id, data).is_dead(now_ms)
    except MalformedNodeError:
        # Somebody wrote it by hand: nobody is let in by it, and it is theirs to remove.
        return False
