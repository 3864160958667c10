"""Reassignments that a person writes into the store (seed 001, F).

    /admin/partitions_reassigned/<topic>/<partition>     broker ids, ``[4,5,6]``, the preferred leader first

Goals: the node stays until the partition has arrived, and goes then; what cannot be done is said, and does not lie in
wait for a day on which it can; whoever calls a reassignment back by command is not overruled by a node from before.

Algorithm: every few seconds the folder is read as far as there is anything, and all of it then. The folder of a topic
need not stand: on etcd a person writes the node alone, and no listing of children shows that. A node that is new to
this reign asks once, by the rules of AlterPartitionReassignments. What is refused stays for a few seconds, because what
it lacks may be on its way; then it is deleted, and logged with the reason. A node that has asked and whose partition
goes elsewhere by now has been overruled, and is deleted. A new controller takes every node for new.
"""

from collections.abc import AsyncGenerator, Mapping
from typing import Final

from regnum_coordination.port import Delete, Node, TreePage
from regnum_model import paths
from regnum_model.ids import BrokerId, PartitionKey
from regnum_model.nodes import MAX_PARTITIONS, MalformedNodeError, decode_added_replicas
from regnum_service.slices import Turns

from regnum_election.history.events import BY_HAND
from regnum_election.reassignment.calls import PartitionReassignments
from regnum_election.state.context import ControllerContext

NODES_MAX: Final = 5_000
"""Nodes that are looked at together; the rest follows when these have arrived."""

NODES_PER_TURN: Final = 500
"""Nodes looked at between two turns of the event loop (safety rule S22)."""

WHO: Final = "a node in the store"
"""Who asks, for the log."""


class _Wishes:
    """Takes nodes out of the pages of the folder."""

    def __init__(self) -> None:
        self.folders: Final[dict[str, int]] = {}
        self.nodes: Final[dict[str, dict[int, Node]]] = {}
        self.strange: Final[dict[str, int]] = {}
        self.paths: Final[set[str]] = set()
        """Of ``nodes``."""
        self._taken = 0

    @property
    def is_full(self) -> bool:
        """Whether there may be more."""
        return self._taken >= NODES_MAX

    def take(self, page: TreePage) -> None:
        """Another page."""
        skip = len(paths.PARTITIONS_REASSIGNED) + 1
        for path, node in page.nodes.items():
            topic, *deeper = path[skip:].split("/")
            if not topic or self._taken >= NODES_MAX:
                continue
            self._taken += 1
            if not deeper:
                self.folders[topic] = node.stat.version
            elif len(deeper) == 1 and (number := _number(deeper[0])) is not None:
                self.nodes.setdefault(topic, {})[number] = node
                self.paths.add(path)
            else:
                self.strange[path] = node.stat.version


class ReassignmentsByHand:
    """Of one reign. Used by the controller's task, but for ``are_there``."""

    def __init__(self, context: ControllerContext, reassignments: PartitionReassignments, *, patience_s: float) -> None:
        """Only assigns.

        Args:
            context: the reign.
            reassignments: asks for them.
            patience_s: how long what is refused stays.
        """
        self._context: Final = context
        self._reassignments: Final = reassignments
        self._patience_s: Final = patience_s
        self._asked: dict[str, tuple[int, int]] = {}
        """The node that has asked, by path: its creation id and version. A node made anew asks anew (S2)."""
        self._refused_since_s: dict[str, float] = {}

    async def are_there(self) -> bool:
        """Whether anything stands below the folder. Beside the controller's task. Raises DeposedError."""
        if self._context.unverified.has_any:
            # Nothing is refused because a predecessor's picture was behind.
            return False
        return await self._context.store.has_below(paths.PARTITIONS_REASSIGNED)

    async def look(self) -> AsyncGenerator[None, None]:
        """Steps that ask for what stands there, and delete what is done."""
        if self._context.unverified.has_any:
            return
        found = await self._context.store.read_tree(paths.PARTITIONS_REASSIGNED, _Wishes)
        refused: dict[str, tuple[int, str]] = {
            path: (version, "it is not the number of a partition") for path, version in found.strange.items()
        }
        over: dict[str, int] = {}
        if not found.is_full:
            # Whoever deleted a node by hand took it back.
            self._asked = {path: asked for path, asked in self._asked.items() if path in found.paths}
        for topic, nodes in found.nodes.items():
            await self._take(topic, nodes, refused, over)
            yield
        for topic, version in found.folders.items():
            if topic not in found.nodes:
                refused[f"{paths.PARTITIONS_REASSIGNED}/{topic}"] = (version, "")
        await self._delete(refused, over)
        self._reassignments.wake()

    async def _take(
        self,
        topic: str,
        nodes: Mapping[int, Node],
        refused: dict[str, tuple[int, str]],
        over: dict[str, int],
    ) -> None:
        wanted: dict[int, tuple[BrokerId, ...] | None] = {}
        turns = Turns(NODES_PER_TURN)
        for number, node in nodes.items():
            await turns.took()
            path, version = f"{paths.PARTITIONS_REASSIGNED}/{topic}/{number}", node.stat.version
            try:
                target = decode_added_replicas(node.data)
            except MalformedNodeError as error:
                refused[path] = (version, f"{error}; write broker ids, as [4,5,6]")
                continue
            if self._stands(topic, number, target):
                if self._has_arrived(topic, number, target):
                    over[path] = version
                self._asked[path] = _life(node)
            elif self._asked.get(path) == _life(node):
                self._context.log.info("reassignment by hand was overruled", topic=topic, partition=number)
                over[path] = version
            else:
                wanted[number] = target
        rejected = (
            await self._reassignments.ask(topic, wanted, validate_only=False, who=WHO, cause=BY_HAND) if wanted else {}
        )
        for number in wanted:
            path, version = f"{paths.PARTITIONS_REASSIGNED}/{topic}/{number}", nodes[number].stat.version
            if number in rejected:
                refused[path] = (version, rejected[number].message)
            else:
                self._asked[path] = _life(nodes[number])

    def _stands(self, topic: str, number: int, target: tuple[BrokerId, ...]) -> bool:
        """Whether a partition is, or will be, where a node wants it."""
        known = self._context.picture.topic_named(topic)
        partition = None if known is None else self._context.picture.partitions.get(PartitionKey(known.id, number))
        return partition is not None and partition.wanted_replicas == target

    def _has_arrived(self, topic: str, number: int, target: tuple[BrokerId, ...]) -> bool:
        picture = self._context.picture
        partition = picture.partitions[PartitionKey(picture.names[topic], number)]
        return partition.reassignment is None and partition.replicas == target

    async def _delete(self, refused: Mapping[str, tuple[int, str]], over: dict[str, int]) -> None:
        now_s = self._context.clock.monotonic()
        due = dict(over)
        for path, (version, reason) in refused.items():
            if now_s - self._refused_since_s.setdefault(path, now_s) < self._patience_s:
                continue
            due[path] = version
            if reason:
                self._context.log.warning("reassignment by hand refused and deleted", path=path, reason=reason)
        self._refused_since_s = {
            path: at_s for path, at_s in self._refused_since_s.items() if path in refused and path not in due
        }
        for path in due:
            self._asked.pop(path, None)
        ordered = sorted(due, key=lambda path: path.count("/"), reverse=True)
        await self._context.store.write_batch([(Delete(path, due[path]),) for path in ordered])


def _life(node: Node) -> tuple[int, int]:
    return node.stat.creation_id, node.stat.version


def _number(name: str) -> int | None:
    plain = len(name) < 8 and name.isascii() and name.isdigit() and str(int(name)) == name
    return int(name) if plain and int(name) < MAX_PARTITIONS else None
