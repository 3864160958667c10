"""CreateAcls, DeleteAcls, DescribeAcls and CheckAcls as callers meet them.

Rules share no node with topics, so they are changed beside the controller's task and never hold it up; every write
carries the reign's fence all the same. The rules of one pattern are one node: what a call changes of it is one
mutation, kept with its id in the node (safety rule S20), and announced to every process. A filter that may mean more
than one pattern has what it chose kept besides (``choices``).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_coordination.port import Node
from regnum_coordination.recipes.mutating import Carried, Change, Mutation, NodeMutations
from regnum_model.access import Operation, ResourceType
from regnum_model.acls.bindings import (
    AclBinding,
    Entry,
    InvalidAclError,
    PatternType,
    ResourcePattern,
    check_binding,
    check_resource_name,
)
from regnum_model.acls.chosen import Marks, mark_of
from regnum_model.acls.filters import AclFilter, PatternFilter
from regnum_model.acls.index import AclIndex, Decision
from regnum_model.acls.nodes import RULES_MAX, decode_rules, encode_rules, folder_of, path_of, pattern_at
from regnum_model.mutations import ID_LENGTH_MAX, check_id, digest_of
from regnum_model.nodes import MalformedNodeError
from regnum_service.slices import Turns, slices

from regnum_election.decisions.rejection import Rejection
from regnum_election.reign.request_queue import beside
from regnum_election.reign.writing import FencedStore
from regnum_election.state.acl_choices import Choice, Choices, Chosen

NODES_PER_READ: Final = 200
"""Nodes read between two turns of the event loop (safety rule S22)."""

NAMES_PER_TURN: Final = 1_000
"""Names of patterns looked at between two turns."""

_EXACT: Final = {PatternFilter.LITERAL: PatternType.LITERAL, PatternFilter.PREFIXED: PatternType.PREFIXED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What a filter took away."""

    bindings: tuple[AclBinding, ...] = ()
    """Now."""
    before: int = 0
    """And so many when the same call came before."""
    refused: Rejection | None = None
    """Why some of the rules are still there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A page of rules."""

    bindings: tuple[AclBinding, ...]
    """By path of their pattern."""
    unreadable: Mapping[str, str]
    """What is wrong with nodes that cannot be read, by path."""
    place: str
    """Path of the last pattern that was looked at; empty: there are no more."""


class AclCalls:
    """Access rules of one reign, as callers change and see them."""

    def __init__(self, store: FencedStore, wall_ms: Callable[[], int]) -> None:
        """``store``: of the reign; ``wall_ms``: milliseconds since 1970."""
        self._store: Final = store
        self._mutations: Final = NodeMutations(store, wall_ms=wall_ms)
        self._choices: Final = Choices(store, wall_ms)

    async def create(
        self,
        bindings: Sequence[AclBinding | Rejection],
        *,
        validate_only: bool,
        wait_s: float,
        mutation: str | None = None,
    ) -> tuple[Rejection | None, ...]:
        """Add rules, each on its own; None for each that is there. Raises RegnumError."""
        creating = self._create(bindings, validate_only=validate_only, mutation=mutation)
        return await beside(creating, wait_s, late="not all rules are there; list them before trying again")

    async def delete(
        self, filters: Sequence[AclFilter | Rejection], *, validate_only: bool, wait_s: float, mutation: str | None
    ) -> tuple[Removed, ...]:
        """Remove what each filter chooses. Raises RegnumError."""
        deleting = self._delete(filters, validate_only=validate_only, mutation=mutation)
        return await beside(deleting, wait_s, late="not all rules are gone; list them before trying again")

    async def describe(self, wanted: AclFilter, *, after: str, most: int, wait_s: float) -> Described:
        """Rules of patterns whose paths come after that one, ``most`` of them or a few more. Raises RegnumError."""
        return await beside(
            self._describe(wanted, after=after, most=most), wait_s, late="the store does not answer; try again"
        )

    async def decide(
        self,
        index: AclIndex,
        *,
        principal: str,
        host: str,
        operation: Operation,
        type: ResourceType,
        name: str,
        wait_s: float,
    ) -> Decision:
        """What the rules as they are now say. Raises RegnumError. ``index``: empty, with the settings that count."""
        reading = self._fill(index, type, name)
        await beside(reading, wait_s, late="the store does not answer; try again")
        return index.decide(principal, host, operation, type, name)

    async def _create(
        self, bindings: Sequence[AclBinding | Rejection], *, validate_only: bool, mutation: str | None
    ) -> tuple[Rejection | None, ...]:
        await self._store.until_connected()
        outcomes: list[Rejection | None] = [_refusal(binding) for binding in bindings]
        by_pattern: dict[ResourcePattern, list[int]] = {}
        turns = Turns(NAMES_PER_TURN)
        for place, binding in enumerate(bindings):
            await turns.took()
            if outcomes[place] is None and isinstance(binding, AclBinding):
                by_pattern.setdefault(binding.pattern, []).append(place)
        for pattern, places in by_pattern.items():
            added = frozenset(one.entry for place in places if isinstance(one := bindings[place], AclBinding))
            done = await self._mutations.carry_out(_adding(pattern, added, mutation), validate_only=validate_only)
            for place in places:
                outcomes[place] = done if isinstance(done, Rejection) else None
        return tuple(outcomes)

    async def _delete(
        self, filters: Sequence[AclFilter | Rejection], *, validate_only: bool, mutation: str | None
    ) -> tuple[Removed, ...]:
        await self._store.until_connected()
        outcomes: list[Removed] = []
        for number, wanted in enumerate(filters):
            if isinstance(wanted, Rejection):
                outcomes.append(Removed(refused=wanted))
                continue
            # Two filters of one call may change the same node, each once.
            id = _id_of(mutation, number) if mutation and len(filters) > 1 else mutation
            outcomes.append(await self._delete_fitting(wanted, id, validate_only=validate_only))
        return tuple(outcomes)

    async def _delete_fitting(self, wanted: AclFilter, id: str | None, *, validate_only: bool) -> Removed:
        exact = _exact(wanted)
        if exact is not None:
            return await self._remove([(exact, None)], wanted, id, validate_only=validate_only)
        known = await self._choice(wanted, id, validate_only=validate_only)
        if isinstance(known, Rejection):
            return Removed(refused=known)
        if known is None:
            chosen = [one async for one in self._choose(wanted)]
            return await self._remove(chosen, wanted, id, validate_only=validate_only)
        if known.done is not None:
            return Removed(before=known.done)
        removed = await self._remove(known.chosen, wanted, id, validate_only=validate_only)
        if removed.refused is None and not validate_only:
            await known.finish(len(removed.bindings) + removed.before)
        return removed

    async def _choice(self, wanted: AclFilter, id: str | None, *, validate_only: bool) -> Choice | Rejection | None:
        """What a call chose, in the store by now; None: that is not kept."""
        if id is None or (refused := check_id(id)) is not None:
            return None if id is None else refused
        if validate_only:
            return await self._choices.known(id, _digest(wanted))
        return await self._choices.of(id, _digest(wanted), lambda: self._choose(wanted))

    async def _remove(self, chosen: Chosen, wanted: AclFilter, id: str | None, *, validate_only: bool) -> Removed:
        bindings: list[AclBinding] = []
        before, refused = 0, None
        for pattern, marks in chosen:
            found: list[AclBinding] = []
            removing = _removing(pattern, wanted, marks, id, found)
            done = await self._mutations.carry_out(removing, validate_only=validate_only)
            if isinstance(done, Rejection):
                refused = refused or done
            elif isinstance(done, Carried) and done.repeated:
                before += int(done.result or 0)
            else:
                bindings += found
        return Removed(bindings=tuple(bindings), before=before, refused=refused)

    async def _choose(self, wanted: AclFilter) -> AsyncIterator[tuple[ResourcePattern, Marks]]:
        """Patterns that have a rule that is meant, with those rules, or that have rules that nobody can read."""
        patterns = [pattern async for pattern in self._patterns(wanted)]
        async for some in slices(patterns, NODES_PER_READ):
            nodes = await self._store.read_many([path_of(pattern) for pattern in some])
            for pattern in some:
                node = nodes.get(path_of(pattern))
                if node is None:
                    continue
                try:
                    there = [AclBinding(pattern=pattern, entry=one) for one in decode_rules(pattern, node.data)]
                except MalformedNodeError:
                    yield pattern, None
                    continue
                if marks := frozenset(mark_of(one.entry) for one in wanted.among(there)):
                    yield pattern, marks
                await asyncio.sleep(0)

    async def _describe(self, wanted: AclFilter, *, after: str, most: int) -> Described:
        await self._store.until_connected()
        bindings: list[AclBinding] = []
        unreadable: dict[str, str] = {}
        paths = [path for path in [path_of(one) async for one in self._patterns(wanted)] if path > after]
        async for some in slices(sorted(paths), NODES_PER_READ):
            nodes = await self._store.read_many(some)
            for path in some:
                if (node := nodes.get(path)) is None:
                    continue
                pattern = pattern_at(path)
                try:
                    entries = sorted(decode_rules(pattern, node.data), key=_order)
                except MalformedNodeError as error:
                    unreadable[path] = str(error)
                    continue
                bindings.extend(wanted.among(AclBinding(pattern=pattern, entry=entry) for entry in entries))
                if len(bindings) >= most:
                    return Described(bindings=tuple(bindings), unreadable=unreadable, place=path)
                await asyncio.sleep(0)
        return Described(bindings=tuple(bindings), unreadable=unreadable, place="")

    async def _patterns(self, wanted: AclFilter) -> AsyncIterator[ResourcePattern]:
        """Patterns that a filter means, as far as their paths can be read."""
        turns = Turns(NAMES_PER_TURN)
        for kind in PatternType:
            if (exact := _EXACT.get(wanted.pattern)) is not None and exact is not kind:
                continue
            for type in ResourceType if wanted.type is None else (wanted.type,):
                folder = folder_of(type, kind)
                for name in await self._store.names(folder):
                    await turns.took()
                    try:
                        pattern = pattern_at(f"{folder}/{name}")
                    except MalformedNodeError:
                        continue
                    if wanted.takes_pattern(pattern):
                        yield pattern

    async def _fill(self, index: AclIndex, type: ResourceType, name: str) -> None:
        """Put the rules of all patterns in that a resource fits."""
        await self._store.until_connected()
        fitting = AclFilter(type=type, name=name, pattern=PatternFilter.MATCH)
        async for pattern in self._patterns(fitting):
            node = (await self._store.read_many((path_of(pattern),))).get(path_of(pattern))
            try:
                index.put(pattern, () if node is None else decode_rules(pattern, node.data))
            except MalformedNodeError:
                index.put(pattern, None)


def _refusal(binding: AclBinding | Rejection) -> Rejection | None:
    if isinstance(binding, Rejection):
        return binding
    try:
        check_binding(binding)
    except InvalidAclError as error:
        return Rejection(code=errors_pb2.ERROR_CODE_INVALID_REQUEST, message=str(error))
    return None


def _adding(pattern: ResourcePattern, added: frozenset[Entry], mutation: str | None) -> Mutation:
    path = path_of(pattern)

    def decide(nodes: Mapping[str, Node]) -> Change | Rejection:
        node = nodes.get(path)
        there = frozenset() if node is None else decode_rules(pattern, node.data)
        after = there | added
        if len(after) > RULES_MAX:
            return Rejection(
                code=errors_pb2.ERROR_CODE_INVALID_REQUEST,
                message=f"{pattern} would have {len(after)} rules, and {RULES_MAX} are the most; remove some, or give "
                "the right on a longer or shorter name",
            )
        return Change(data=encode_rules(after))

    digest = digest_of("create acls", map(str, sorted(added, key=_order)))
    return Mutation(path=path, id=mutation, digest=digest, decide=decide)


def _removing(
    pattern: ResourcePattern, wanted: AclFilter, marks: Marks, mutation: str | None, found: list[AclBinding]
) -> Mutation:
    """``marks``: the rules that were chosen; None: whatever fits. ``found`` gets the rules that go."""
    path = path_of(pattern)

    def decide(nodes: Mapping[str, Node]) -> Change | Rejection:
        node = nodes.get(path)
        there = frozenset() if node is None else decode_rules(pattern, node.data)
        fitting = wanted.among(AclBinding(pattern=pattern, entry=entry) for entry in sorted(there, key=_order))
        found[:] = [one for one in fitting if marks is None or mark_of(one.entry) in marks]
        after = there - {one.entry for one in found}
        return Change(data=encode_rules(after), empty=not after, result=str(len(found)))

    return Mutation(path=path, id=mutation, digest=_digest(wanted), decide=decide)


def _digest(wanted: AclFilter) -> str:
    return digest_of("delete acls", (repr(wanted),))


def _exact(wanted: AclFilter) -> ResourcePattern | None:
    """The one pattern that a filter means, if it means one."""
    kind = _EXACT.get(wanted.pattern)
    if kind is None or wanted.type is None or wanted.name is None:
        return None
    try:
        check_resource_name(wanted.name)
    except InvalidAclError:
        return None
    return ResourcePattern(type=wanted.type, name=wanted.name, pattern=kind)


def _id_of(mutation: str, number: int) -> str:
    """Of one filter of several; the call's own id may be as long as ids are."""
    id = f"{mutation}/{number}"
    return id if len(id) <= ID_LENGTH_MAX else digest_of("filter", (mutation, str(number)))


def _order(entry: Entry) -> tuple[str, str, int, int]:
    return entry.principal, entry.host, entry.operation, entry.permission
