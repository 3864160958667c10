"""Partitions that a person adds or removes in the store (seed 001, H).

    /admin/partitions_add/<topic>/<partition>       broker ids, ``[1,2,3]``; empty: the controller places the replicas
    /admin/partitions_remove/<topic>/<partition>    content is not looked at

Goals: what can be done is done once, whatever dies when; what cannot is said, and does not lie in wait for a day on
which it can: a number that may not be removed today would take other records with it then.

Algorithm: a watch on the two folders shows new topics, and every few seconds both are read. The nodes of one topic that
join on to what is there are one request, judged by the rules of CreatePartitions and DeletePartitions; the write that
carries it out deletes them (one multi). What is refused stays for a few seconds, because what it lacks may be on its
way (a neighbour, the topic itself, an earlier change); then it is deleted, and logged with the reason. Only numbers of
removed partitions that some broker still has are waited for without end. An empty folder goes after the same time.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_coordination.port import Delete, Node, TreePage, Written
from regnum_model import paths
from regnum_model.ids import BrokerId
from regnum_model.nodes import MAX_PARTITIONS, MalformedNodeError, decode_added_replicas
from regnum_service.slices import slices

from regnum_election.decisions.rejection import Rejection
from regnum_election.history.events import BY_HAND
from regnum_election.partitions.addition import AdditionCall, AdditionOutcome, add_partitions
from regnum_election.partitions.removal import PartitionRemover, RemovalCall, RemovalOutcome
from regnum_election.partitions.requests import AdditionRequest, RemovalRequest
from regnum_election.state.context import ControllerContext

FOLDERS: Final = (paths.PARTITIONS_ADD, paths.PARTITIONS_REMOVE)
"""Where orders are written."""

ORDERS_MAX: Final = 90
"""Nodes of one topic that are carried out together: they go in one multi. The rest follows."""

NODES_MAX: Final = 5_000
"""Nodes of one folder that are looked at together."""

CONTENT_BYTES_MAX: Final = 16_384
"""Content of a node: thousands of broker ids."""

STRANGE: Final = "it is not the number of a partition, or its content is too long"
"""What is wrong with nodes that can be no order."""

ASKED: Final = BY_HAND.asked_by("a node in the store", "")
"""Why, and who asked, for the event log."""

NODES_PER_TURN: Final = 500
"""Nodes looked at between two turns of the event loop (safety rule S22)."""


@dataclass(slots=True)
class _Orders:
    """What stands below one of the folders."""

    root: str
    folders: dict[str, int] = field(default_factory=dict)
    """Topics whose folder stands, with its version."""
    numbers: dict[str, dict[int, Node]] = field(default_factory=dict)
    """Orders by topic and partition."""
    strange: dict[str, int] = field(default_factory=dict)
    """Nodes (path and version) that can be no order."""
    _taken: int = 0

    def take(self, page: TreePage) -> None:
        """Another page."""
        skip = len(self.root) + 1
        for path, node in page.nodes.items():
            topic, *deeper = path[skip:].split("/")
            if not topic or self._taken >= NODES_MAX:
                continue
            self._taken += 1
            if not deeper:
                self.folders[topic] = node.stat.version
            elif len(deeper) == 1 and (number := _order(deeper[0], node)) is not None:
                self.numbers.setdefault(topic, {})[number] = node
            else:
                self.strange[path] = node.stat.version


class OrdersByHand:
    """Of one reign."""

    def __init__(self, context: ControllerContext, remover: PartitionRemover, *, patience_s: float) -> None:
        """Only assigns.

        Args:
            context: the reign.
            remover: removes partitions.
            patience_s: how long what is refused stays.
        """
        self._context: Final = context
        self._remover: Final = remover
        self._patience_s: Final = patience_s
        self._begun = False
        self._looking = False
        self._waiting_since_s: dict[str, float] = {}
        """Nodes and folders that are left for a while."""

    def begin(self) -> AsyncGenerator[None, None]:
        """The picture is what the store says: nothing is refused because a predecessor's was behind. As ``look``."""
        self._begun = True
        return self.look()

    async def are_there(self) -> bool:
        """Whether anything stands in one of the folders. Beside the controller's task. Raises DeposedError."""
        if not self._begun:
            return False
        for root in FOLDERS:
            if await self._context.store.has_below(root):
                return True
        return False

    async def look(self) -> AsyncGenerator[None, None]:
        """Steps that carry out what stands there, or say why not."""
        if self._looking or not self._begun:
            return
        self._looking = True
        try:
            async for _ in self._look():
                yield
        finally:
            self._looking = False

    async def _look(self) -> AsyncGenerator[None, None]:
        seen: set[str] = set()
        for root in FOLDERS:
            orders = await self._read(root)
            refused: dict[str, _Refused] = {}
            for topic, numbers in orders.numbers.items():
                asked = {number: (f"{root}/{topic}/{number}", node) for number, node in numbers.items()}
                steps = self._add if root == paths.PARTITIONS_ADD else self._remove
                async for _ in steps(topic, asked, refused):
                    yield
            for path, version in orders.strange.items():
                refused[path] = _Refused(version=version, reason=STRANGE)
            for topic, version in orders.folders.items():
                if topic not in orders.numbers:
                    refused[f"{root}/{topic}"] = _Refused(version=version, reason="")
            seen.update(refused)
            await self._drop(refused)
            yield
        self._waiting_since_s = {path: at for path, at in self._waiting_since_s.items() if path in seen}

    async def _read(self, root: str) -> _Orders:
        return await self._context.store.read_tree(root, lambda: _Orders(root))

    async def _add(
        self, topic: str, asked: Mapping[int, tuple[str, Node]], refused: "dict[str, _Refused]"
    ) -> AsyncGenerator[None, None]:
        """Those that join on, in runs of one kind; the others are refused for now."""
        left = dict(sorted(asked.items()))
        while run := self._next_run(topic, left, refused):
            replicas = [(number, ids) for number, ids in run.items() if ids]
            total = max(run) + 1
            request = AdditionRequest(name=topic, total=total, assignment=replicas, mutation=None)
            future: asyncio.Future[tuple[AdditionOutcome, ...]] = asyncio.get_running_loop().create_future()
            orders = [(left[number][0], left[number][1].stat.version) for number in run]
            call = AdditionCall(
                requests=[request], validate_only=False, result=future, orders={topic: orders}, reason=ASKED
            )
            try:
                async for _ in add_partitions(self._context, call):
                    yield
            finally:
                self._context.dispatch.forget(call.keys)
            outcome = call.outcomes[0]
            if isinstance(outcome, Rejection):
                self._refuse(run, left, outcome, refused)
            for number in run:
                del left[number]
            if isinstance(outcome, Rejection):
                break
        known = self._context.picture.topic_named(topic)
        for number, (path, node) in left.items():
            if path not in refused:
                reason = (
                    f"there is no topic {topic}"
                    if known is None
                    else f"partition {number} is there already"
                    if number in known.partitions
                    else f"topic {topic} has {len(known.partitions)} partitions, and those between are not asked for"
                )
                refused[path] = _Refused(version=node.stat.version, reason=reason)

    def _next_run(
        self, topic: str, left: Mapping[int, tuple[str, Node]], refused: "dict[str, _Refused]"
    ) -> dict[int, tuple[BrokerId, ...]]:
        """The next numbers that are asked for, with their replicas, or all without."""
        known = self._context.picture.topic_named(topic)
        run: dict[int, tuple[BrokerId, ...]] = {}
        number = 0 if known is None else len(known.partitions)
        while known is not None and number in left and len(run) < ORDERS_MAX:
            path, node = left[number]
            try:
                replicas = decode_added_replicas(node.data)
            except MalformedNodeError as error:
                refused[path] = _Refused(version=node.stat.version, reason=f"{error}; write broker ids, as [1,2,3]")
                break
            if run and bool(replicas) != bool(next(iter(run.values()))):
                break
            run[number] = replicas
            number += 1
        return run

    async def _remove(
        self, topic: str, asked: Mapping[int, tuple[str, Node]], refused: "dict[str, _Refused]"
    ) -> AsyncGenerator[None, None]:
        """From the highest down; the others are refused for now."""
        left = dict(asked)
        while True:
            known = self._context.picture.topic_named(topic)
            run: list[int] = []
            for number in () if known is None else reversed(known.partitions[1:]):
                if number not in left or len(run) == ORDERS_MAX:
                    break
                run.append(number)
            if not run:
                break
            request = RemovalRequest(name=topic, topic_id="", partitions=run, mutation=None)
            future: asyncio.Future[tuple[RemovalOutcome, ...]] = asyncio.get_running_loop().create_future()
            orders = [(left[number][0], left[number][1].stat.version) for number in run]
            call = RemovalCall(
                requests=[request], validate_only=False, result=future, orders={topic: orders}, reason=ASKED
            )
            async for _ in self._remover.remove_partitions(call):
                yield
            outcome = call.outcomes[0]
            if isinstance(outcome, Rejection):
                self._refuse(run, left, outcome, refused)
            for number in run:
                del left[number]
            if isinstance(outcome, Rejection):
                break
        for number, (path, node) in left.items():
            reason = (
                f"there is no topic {topic}"
                if known is None
                else f"topic {topic} has no partition {number}"
                if number not in known.partitions
                else f"only the highest partitions of topic {topic} can be removed, and never the last one left; "
                f"partition {known.partitions[-1]} is not asked for"
            )
            refused[path] = _Refused(version=node.stat.version, reason=reason)

    def _refuse(
        self,
        run: Iterable[int],
        left: Mapping[int, tuple[str, Node]],
        rejection: Rejection,
        refused: "dict[str, _Refused]",
    ) -> None:
        waits = rejection.code == errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT
        for number in run:
            path, node = left[number]
            refused[path] = _Refused(version=node.stat.version, reason=rejection.message, waits=waits)

    async def _drop(self, refused: "Mapping[str, _Refused]") -> None:
        """Delete what has been refused for long enough, the deepest first."""
        now_s = self._context.clock.monotonic()
        due: list[str] = []
        async for some in slices(refused, NODES_PER_TURN):
            for path in some:
                since_s = self._waiting_since_s.setdefault(path, now_s)
                if now_s - since_s >= self._patience_s and not refused[path].waits:
                    due.append(path)
        due.sort(key=lambda path: path.count("/"), reverse=True)
        outcomes = await self._context.store.write_batch([(Delete(path, refused[path].version),) for path in due])
        for path, outcome in zip(due, outcomes, strict=True):
            if isinstance(outcome, Written) and refused[path].reason:
                self._context.log.error("order by hand refused and deleted", path=path, reason=refused[path].reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refused:
    version: int
    """Of the node that was read."""
    reason: str
    """Why; empty for a folder that is empty."""
    waits: bool = False
    """Whether it stays however long it takes."""


def _order(name: str, node: Node) -> int | None:
    """The partition that a node is an order for; None if it can be none."""
    return _number(name) if len(node.data) <= CONTENT_BYTES_MAX else None


def _number(name: str) -> int | None:
    plain = len(name) < 8 and name.isascii() and name.isdigit() and str(int(name)) == name
    return int(name) if plain and int(name) < MAX_PARTITIONS else None
