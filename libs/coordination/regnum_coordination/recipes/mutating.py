"""One mutation of one node: read, answered from its log or decided, written, announced (safety rules S19 and S20).

Goals: a mutation with an id is carried out at most once, whoever carries it out and whoever dies meanwhile; everybody
who follows ``/config/changes`` hears of it; the one who decides is a pure function, the same in every process.

Algorithm:

    1  read the node, and what else the decision wants to see
    2  its log knows the id: answer from it, nothing is written; with another digest: refused
    3  decide; refused: nothing is written and nothing is kept
    4  in one multi: the node at the version that was read, with the record; what the decision writes besides; a new
       node below /config/changes. Whoever refuses it (another writer, another announcement) leads back to 1
    5  an unknown outcome never comes here: the store repeats the same conditional write until it knows (S1)

What is changed to what it was already is written all the same where there is an id: without the record, a repeat that
comes after somebody else's change would be carried out.

Example: the controller dies between 4 and its answer. The client repeats with the same id at the next one, which reads
the node, finds the id, and answers as the first would have.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from regnum.types.v1 import errors_pb2
from regnum_model.mutations import (
    KEY,
    MutationLog,
    MutationRecord,
    another_content,
    check_id,
    log_of,
    with_log,
)
from regnum_model.nodes import MalformedNodeError
from regnum_model.quotas import CHANGES, change_number, change_path
from regnum_model.rejection import Rejection

from regnum_coordination.errors import BadVersion, NodeExists, NodeFailure, NoNode, NotEmpty
from regnum_coordination.port import Create, Delete, Group, Node, Operation, OperationResult, Set
from regnum_coordination.recipes.stored_quotas import newest_change

ROUNDS_MAX: Final = 200
"""Rounds against others who write the same node, or announce at the same time: of so many processes one announces in
each round, and there may be as many as brokers below protocol 2."""

CHANGES_KEPT: Final = 100
"""Announcements that stay in the store."""


NOTHING: Final = b'{"version":1}'
"""What a node says that says nothing."""


class MutableStore(Protocol):
    """Reads that are never stale, and conditional writes with definite outcomes.

    The controller's fenced store, or ``ResolvedStore`` of a broker below protocol 2.
    """

    async def names(self, folder: str) -> tuple[str, ...]:
        """Children of a folder; none when there is no folder."""

    async def read_many(self, wanted: Sequence[str]) -> Mapping[str, Node]:
        """The nodes that exist, by path."""

    async def multi(self, operations: Sequence[Operation]) -> tuple[OperationResult, ...]:
        """All operations or none. Raises NodeFailure where they are refused."""

    async def write_batch(self, groups: Sequence[Group]) -> Sequence[object]:
        """Groups, each on its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a decision makes of a node."""

    data: bytes
    """Its content, a JSON object; the log is added to it."""
    empty: bool = False
    """It says nothing: the node goes, or, while its log has to be kept, says ``{"version":1}`` and the log."""
    result: str = ""
    """What the answer says besides that it is done, as ``MutationRecord.result``."""
    also: tuple[Operation, ...] = ()
    """Checks and writes that happen with it, or prevent it: guards, missing folders. None of the node itself."""
    quiet: bool = False
    """Nobody is told, whatever ``Mutation.announced`` says: nobody but the writer acts by what differs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """A mutation of one node."""

    path: str
    """The node; its folder exists, or ``Change.also`` makes it."""
    id: str | None
    """Mutation id; None: a repeat is carried out again."""
    digest: str
    """Of what is to be done, as ``regnum_model.mutations.digest_of`` makes it."""
    decide: Callable[[Mapping[str, Node]], Change | Rejection]
    """What becomes of the node, given it and ``reads`` as they are, by path; what is absent is not there. Pure. May be
    asked more than once. Raises MalformedNodeError where the node cannot be read."""
    reads: tuple[str, ...] = ()
    """Other nodes that the decision wants to see."""
    announced: bool = True
    """Whether those who follow ``/config/changes`` are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """A mutation was carried out, now or when it first came."""

    data: bytes | None
    """What the node says now, without its log; None: nothing, and it may be there for its log."""
    result: str = ""
    """What the answer says besides."""
    repeated: bool = False
    """It had been carried out before; nothing was written."""
    change: int = 0
    """Number of the announcement; 0: there was none."""
    version: int = -1
    """Version of the node; -1: there is none."""


@dataclass(slots=True)
class _Round:
    """What the rounds so far have shown."""

    has_children: bool = False
    """The node cannot be deleted."""
    reason: str = ""
    """What refused the last write."""


class NodeMutations:
    """Mutations of nodes through one store: one at a time."""

    def __init__(self, store: MutableStore, *, wall_ms: Callable[[], int], turn: asyncio.Lock | None = None) -> None:
        """Only assigns.

        Args:
            store: where the nodes are.
            wall_ms: milliseconds since 1970; only tells how old a record is.
            turn: held by whoever carries one out; None: nobody else in this process does.
        """
        self._store: Final = store
        self._wall_ms: Final = wall_ms
        self._turn: Final = turn or asyncio.Lock()
        self._announced = 0

    @property
    def announced(self) -> int:
        """Number of the last announcement made here; 0: none."""
        return self._announced

    async def carry_out(self, mutation: Mutation, *, validate_only: bool = False) -> Carried | Rejection:
        """Do it, or say why not. Raises what the store raises besides NodeFailure.

        Args:
            mutation: what is to be done.
            validate_only: decide and write nothing.
        """
        if (refused := check_id(mutation.id)) is not None:
            return refused
        async with self._turn:
            return await self._rounds(mutation, validate_only=validate_only)

    async def sweep(self, paths: Sequence[str]) -> int:
        """Delete those of some nodes that stand only for a log that nobody asks any more; returns how many went.

        Nodes that say anything, that have no log, or that have others below them stay. Raises what the store raises.
        """
        now_ms, gone = self._wall_ms(), 0
        for path, node in (await self._store.read_many(paths)).items():
            log = log_of(node.data)
            if log and not log.recent(now_ms) and _bare(node) == NOTHING:
                try:
                    await self._store.multi((Delete(path, node.stat.version),))
                except NodeFailure:
                    continue
                gone += 1
        return gone

    async def _rounds(self, mutation: Mutation, *, validate_only: bool) -> Carried | Rejection:
        so_far = _Round()
        for _ in range(ROUNDS_MAX):
            nodes = await self._store.read_many((mutation.path, *mutation.reads))
            done = self._decided(mutation, nodes)
            if not isinstance(done, Change) or validate_only:
                return done if not isinstance(done, Change) else _would_be(done)
            node = nodes.get(mutation.path)
            try:
                operation = self._operation(mutation, node, done, has_children=so_far.has_children)
            except ValueError as error:
                return _unreadable(mutation.path, error)
            if operation is None:
                return Carried(data=_said(node), result=done.result, version=-1 if node is None else node.stat.version)
            try:
                return await self._write(mutation, done, operation, told=_is_told(mutation, done, node))
            except NotEmpty:
                so_far.has_children = True
            except (BadVersion, NodeExists, NoNode) as error:
                so_far.reason = str(error)
            except NodeFailure as error:
                so_far.reason = str(error)
                break
        return Rejection(
            code=errors_pb2.ERROR_CODE_INVALID_REQUEST,
            message=f"{mutation.path} cannot be written ({so_far.reason}); look at the store and try again",
        )

    async def _write(self, mutation: Mutation, change: Change, operation: Operation, *, told: bool) -> Carried:
        """Raises NodeFailure."""
        names = await self._store.names(CHANGES) if told else ()
        number = max(newest_change(names), self._announced) + 1 if told else 0
        announcements = (Create(change_path(number), announcement(mutation.path)),) if told else ()
        results = await self._store.multi((*change.also, operation, *announcements))
        self._announced = max(self._announced, number)
        await self._forget(names)
        stat = results[len(change.also)].stat
        return Carried(
            data=None if change.empty else change.data,
            result=change.result,
            change=number,
            version=-1 if stat is None else stat.version,
        )

    def _decided(self, mutation: Mutation, nodes: Mapping[str, Node]) -> Carried | Change | Rejection:
        node = nodes.get(mutation.path)
        if mutation.id is not None and node is not None:
            known = log_of(node.data).find(mutation.id)
            if known is not None:
                if known.digest != mutation.digest:
                    return another_content(mutation.path, mutation.id)
                return Carried(data=_said(node), result=known.result, repeated=True, version=node.stat.version)
        try:
            return mutation.decide(nodes)
        except MalformedNodeError as error:
            return _unreadable(mutation.path, error)

    def _operation(
        self, mutation: Mutation, node: Node | None, change: Change, *, has_children: bool
    ) -> Operation | None:
        """What has to be written; None where the node says it already. Raises ValueError where no log fits in."""
        if mutation.id is None and _same(change, node):
            return None
        now_ms = self._wall_ms()
        log = log_of(None if node is None else node.data)
        if mutation.id is not None:
            log = log.add(MutationRecord(id=mutation.id, digest=mutation.digest, at_ms=now_ms, result=change.result))
        kept = not change.empty or log.recent(now_ms)
        if node is None:
            return Create(mutation.path, with_log(NOTHING if change.empty else change.data, log)) if kept else None
        if not kept and not has_children:
            return Delete(mutation.path, node.stat.version)
        data = NOTHING if change.empty else change.data
        return Set(mutation.path, with_log(data, log) if kept else b"", node.stat.version)

    async def _forget(self, names: Sequence[str]) -> None:
        """Delete announcements that nobody needs any more."""
        numbers = {name: number for name in names if (number := change_number(name)) is not None}
        old = sorted(numbers, key=numbers.__getitem__, reverse=True)[CHANGES_KEPT - 1 :]
        if old:
            nodes = await self._store.read_many([f"{CHANGES}/{name}" for name in old])
            await self._store.write_batch([(Delete(path, node.stat.version),) for path, node in nodes.items()])


def announcement(path: str) -> bytes:
    """Content of a node below ``/config/changes``: which node changed."""
    return json.dumps({"version": 1, "path": path}, separators=(",", ":")).encode("utf-8")


def _is_told(mutation: Mutation, change: Change, node: Node | None) -> bool:
    return mutation.announced and not change.quiet and not _same(change, node)


def _same(change: Change, node: Node | None) -> bool:
    """Whether the node says that already."""
    if node is None:
        return change.empty
    return change.data in (node.data, _bare(node))


def _bare(node: Node | None) -> bytes | None:
    """What a node says, without its log."""
    if node is None or KEY.encode() not in node.data:
        return None if node is None else node.data
    try:
        return with_log(node.data, MutationLog())
    except (MalformedNodeError, ValueError):
        return node.data


def _said(node: Node | None) -> bytes | None:
    said = _bare(node)
    return None if said in (NOTHING, b"") else said


def _would_be(change: Change) -> Carried:
    return Carried(data=None if change.empty else change.data, result=change.result)


def _unreadable(path: str, error: Exception) -> Rejection:
    return Rejection(
        code=errors_pb2.ERROR_CODE_INVALID_REQUEST,
        message=f"{path} cannot be read ({error}); correct the node or delete it in the store, and try again",
    )
