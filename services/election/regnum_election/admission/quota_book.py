"""The quotas of one reign: read, kept up with, changed.

Quotas share no node with topics, so they are changed beside the controller's task and never hold it up; every write
carries the reign's fence all the same. One change of one entity is one multi: the entity's node at the version that
was read, missing folders above it, and the node that announces the change. Whoever edits a quota by hand announces it
by a node below ``/config/changes`` of any name. Settings, access rules and tokens are announced there, too; for those
nothing is read.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Final, TypeAlias, assert_never

import structlog
from regnum_coordination.errors import SessionExpired
from regnum_coordination.port import Store
from regnum_coordination.recipes.announced import Announced, touches_quotas
from regnum_coordination.recipes.config_mutations import quota_mutation
from regnum_coordination.recipes.mutating import NodeMutations
from regnum_coordination.recipes.stored_quotas import Complaints, StoredQuotas, read_quotas
from regnum_model.bucket import Limit
from regnum_model.quota_changes import EntityChange, check_change, repeated_entities
from regnum_model.quotas import CHANGES, Default, QuotaEntity, QuotaTable, Subject
from regnum_service.slices import Turns

from regnum_election.decisions.rejection import Rejection
from regnum_election.reign.reign import DeposedError
from regnum_election.reign.writing import FencedStore

Limits: TypeAlias = Mapping[QuotaEntity, Limit]
"""Rate and burst by entity."""

SWEPT_AT_ONCE: Final = 50
"""Nodes of removed quotas that a call looks at, and deletes when nobody repeats their removal any more."""

ENTITIES_PER_TURN: Final = 500
"""Entities that are checked between two turns of the event loop (safety rule S22)."""


class QuotaBook:
    """All quotas, as far as this reign knows."""

    def __init__(
        self, store: FencedStore, *, limits_changed: Callable[[Limits, Limits], None], wall_ms: Callable[[], int]
    ) -> None:
        """Only assigns.

        Args:
            store: where quotas are.
            wall_ms: milliseconds since 1970, for what nodes know of their mutations.
            limits_changed: told the limits before and after, whenever they were read.
        """
        self._store = store
        self._limits_changed = limits_changed
        self._stored = StoredQuotas()
        self._complaints: Final = Complaints()
        self._change = 0
        self._announced: frozenset[str] = frozenset()
        self._read = asyncio.Event()
        self._over = False
        self._reading = asyncio.Lock()
        self._writing = asyncio.Lock()
        self._mutations: Final = NodeMutations(store, wall_ms=wall_ms)
        self._log = structlog.get_logger("quotas")

    @property
    def table(self) -> QuotaTable:
        """Limits by entity; nothing before they are read."""
        return self._stored.table

    @property
    def change(self) -> int:
        """Newest change when they were read or written: no quota is newer."""
        return self._change

    @property
    def is_read(self) -> bool:
        """Whether the quotas were read."""
        return self._read.is_set()

    def has_seen(self, announcement: str) -> bool:
        """Whether they are as new as what somebody announced under that name."""
        return announcement in self._announced

    async def known(self) -> QuotaTable:
        """The limits, once they are read. Raises DeposedError when the reign ends before that."""
        await self._read.wait()
        if self._over:
            raise DeposedError("the reign is over")
        return self._stored.table

    def close(self) -> None:
        """The reign is over: who waits for the limits waits in vain."""
        self._over = True
        self._read.set()

    async def follow(self, store: Store) -> None:
        """Keep up with what is announced; a task that ends with the session."""
        announced = Announced()
        try:
            async with aclosing(store.watch_children(CHANGES)) as changes:
                async for children in changes:
                    names = frozenset(children.names)
                    changed = await announced.look(self._store, children.names)
                    if changed is None or (names - self._announced and touches_quotas(changed)):
                        await self._read_again()
                        # A name that is gone may be used again.
                        self._announced &= names
                    else:
                        self._announced = names
        except (SessionExpired, DeposedError):
            self._log.info("watch ended with the session", folder=CHANGES)

    async def _read_again(self) -> None:
        # One at a time: what was read later must not be replaced by what was read before.
        async with self._reading:
            former, self._stored = self._stored, await read_quotas(self._store, self._complaints)
            self._announced = self._stored.announced
            self._limits_changed(former.table.limits, self._stored.table.limits)
        self._change = max(self._change, self._stored.table.change)
        self._read.set()
        self._log.info("quotas read", entities=len(self._stored.nodes), change=self._change)

    async def describe(self, entity: QuotaEntity | None) -> tuple[tuple[QuotaEntity, Mapping[str, float]], ...]:
        """What is set, sorted; for one entity or for all. Raises DeposedError."""
        await self._store.until_connected()
        await self._read_again()
        nodes = self._stored.nodes
        wanted = nodes if entity is None else {entity: nodes[entity]} if entity in nodes else {}
        return tuple((one, wanted[one].values) for one in sorted(wanted, key=_order))

    async def alter(
        self, changes: Sequence[EntityChange | Rejection], *, validate_only: bool, mutation: str | None = None
    ) -> tuple[Rejection | None, ...]:
        """Change quotas, each entity on its own; None for each that is done. Raises DeposedError.

        ``mutation``: id of the call, kept with each entity that it changes; None: a repeat changes them again.
        """
        repeated = repeated_entities(changes)
        outcomes: list[Rejection | None] = []
        await self._store.until_connected()
        async with self._writing:
            before = self._change
            turns = Turns(ENTITIES_PER_TURN)
            for change in changes:
                await turns.took()
                if isinstance(change, Rejection):
                    outcomes.append(change)
                    continue
                refused = check_change(change, repeated=repeated)
                outcomes.append(refused or await self._alter(change, mutation=mutation, validate_only=validate_only))
            if self._change != before:
                # Who asks for mutations next is judged by what was answered, not by what the watch has shown yet.
                await self._read_again()
                await self._mutations.sweep(self._stored.silent[:SWEPT_AT_ONCE])
        return tuple(outcomes)

    async def _alter(self, change: EntityChange, *, mutation: str | None, validate_only: bool) -> Rejection | None:
        done = await self._mutations.carry_out(quota_mutation(change, id=mutation), validate_only=validate_only)
        if isinstance(done, Rejection):
            return done
        if done.change:
            self._log.info("quota changed", entity=str(change.entity), change=done.change, mutation=mutation or "")
            self._change = max(self._change, done.change)
        return None


def _order(entity: QuotaEntity) -> tuple[tuple[int, str], tuple[int, str]]:
    """By user, then by client id: nothing said, everyone, names."""
    return _rank(entity.user), _rank(entity.client_id)


def _rank(subject: Subject) -> tuple[int, str]:
    match subject:
        case None:
            return 0, ""
        case str():
            return 2, subject
        case Default():
            return 1, ""
        case _:
            assert_never(subject)
