"""Topic nodes and partition states as they are read: some topics by name, or all there are.

Where the store reads a tree at one moment, all topics are one read, and the states come with the topics. Elsewhere a
topic node is read first, because it says which states there are; listing them would cost more than reading them.
"""

from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Final

from regnum_coordination.port import Node, TreePage
from regnum_model import paths
from regnum_model.ids import ControllerEpoch, TopicId
from regnum_model.nodes import AcceptedAssignment, LeaderAndIsr, MalformedNodeError, TopicIdNode, TopicNode
from regnum_service.slices import Turns, slices

from regnum_election.decisions.topic_nodes import Accepted, FoundNode, Refused, as_recorded, judge_topic, readable
from regnum_election.reign.beside import Beside
from regnum_election.reign.writing import FencedStore
from regnum_election.state.context import ControllerContext

STATES_PER_TURN: Final = 1_000
"""States that are put where they belong between two turns of the event loop (safety rule S22)."""

_STATE: Final = "leaderAndISR"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTopics:
    """What was read of some topics."""

    nodes: Mapping[str, Node]
    """Topic nodes by name; those that exist."""
    states: Mapping[str, Mapping[int, FoundNode]]
    """leaderAndISR nodes by topic name and partition; those that exist, perhaps of partitions that no topic has."""


async def read_topics(store: FencedStore, names: Collection[str]) -> FoundTopics:
    """The topics of these names, as of now."""
    found = await store.read_many([paths.topic(name) for name in names])
    nodes = {name: node for name in names if (node := found.get(paths.topic(name))) is not None}
    wanted: dict[str, tuple[str, int]] = {}
    beside = Beside()
    for name, node in nodes.items():
        content = await beside.result(partial(readable, node.data), weight=len(node.data))
        for number in () if content is None else sorted(content.partitions):
            wanted[paths.leader_and_isr(name, number)] = name, number
    states: dict[str, dict[int, FoundNode]] = {}
    turns = Turns(STATES_PER_TURN)
    for path, node in (await store.read_many(tuple(wanted))).items():
        name, number = wanted[path]
        states.setdefault(name, {})[number] = FoundNode(data=node.data, version=node.stat.version)
        await turns.took()
    return FoundTopics(nodes=nodes, states=states)


def mentioned_ids(
    contents: Mapping[str, TopicNode | None], states: Mapping[str, Mapping[int, FoundNode]]
) -> frozenset[TopicId]:
    """Topic ids that topic nodes say, or the states of those that say none."""
    ids: set[TopicId] = set()
    for name, content in contents.items():
        if content is None:
            continue
        if content.topic_id is not None:
            ids.add(content.topic_id)
            continue
        for found in states[name].values():
            try:
                ids.add(LeaderAndIsr.decode(found.data).topic_id)
            except MalformedNodeError:
                continue
    return frozenset(ids)


async def read_guards(context: ControllerContext, ids: Collection[TopicId]) -> dict[TopicId, TopicIdNode]:
    """Guards by topic id: those that stand and can be read."""
    by_path = {paths.topic_id(id): id for id in ids}
    guards: dict[TopicId, TopicIdNode] = {}
    decoding = Beside()
    for path, node in (await context.store.read_many(tuple(by_path))).items():
        try:
            decoded = await decoding.result(partial(TopicIdNode.decode, node.data), weight=len(node.data))
            guards[by_path[path]] = decoded
        except MalformedNodeError as error:
            context.log.warning("guard unreadable", path=path, reason=f"{error}; write the topic's name back")
    return guards


@dataclass(frozen=True, slots=True, kw_only=True)
class Witnesses:
    """What topic nodes are judged by."""

    contents: Mapping[str, TopicNode | None]
    """What the nodes say, by topic name; None: it cannot be read."""
    states: Mapping[str, Mapping[int, FoundNode]]
    """leaderAndISR nodes by topic name and partition, of partitions that the node names or the guard records."""
    owners: Mapping[TopicId, str]
    """Topic names by topic id, as the guards say."""
    records: Mapping[TopicId, AcceptedAssignment]
    """Accepted assignments by topic id, of guards that have one."""

    def verdict(
        self, name: str, node: Node, id: TopicId | None, *, minted: TopicId, reign: ControllerEpoch
    ) -> Accepted | Refused:
        """What one of these topic nodes means (safety rule S14).

        Args:
            name: topic name.
            node: the topic node.
            id: the topic's id, if it is known; None: only the node says it.
            minted: a fresh id, used when the topic needs one.
            reign: controller epoch of the reader.
        """
        found, states = FoundNode(data=node.data, version=node.stat.version), self.states[name]
        judged = judge_topic(
            name,
            found,
            states,
            self.owners,
            minted=minted,
            reign=reign,
            content=self.contents[name],
            records=self.records,
        )
        if id is None or self.owners.get(id) != name or id not in self.records:
            return judged
        if isinstance(judged, Accepted) and (judged.make_guard or judged.topic_id == id):
            return judged
        return as_recorded(id, found, states, self.records[id], reign=reign) or judged


async def read_witnesses(
    context: ControllerContext, nodes: Mapping[str, Node], found: FoundTopics, ids: Mapping[str, TopicId]
) -> Witnesses:
    """What topic nodes are judged by.

    Args:
        context: the reign.
        nodes: by topic name.
        found: what was read of them.
        ids: by name, ids of topics whose nodes may say nothing.
    """
    reading = Beside()
    contents: dict[str, TopicNode | None] = {}
    states: dict[str, dict[int, FoundNode]] = {}
    for name, node in nodes.items():
        content = await reading.result(partial(readable, node.data), weight=len(node.data))
        seen = found.states.get(name, {})
        contents[name] = content
        states[name] = {} if content is None else {n: seen[n] for n in sorted(content.partitions) if n in seen}
    unnamed_ids = {
        id
        for name, content in contents.items()
        if (id := ids.get(name)) is not None and (content is None or content.topic_id != id)
    }
    guards = await read_guards(context, mentioned_ids(contents, states) | unnamed_ids)
    for guard in guards.values():
        if guard.topic in contents and guard.accepted is not None:
            content = contents[guard.topic]
            named = () if content is None else content.partitions
            unnamed = guard.accepted.partitions.keys() - named
            states[guard.topic].update(await _read_states(context.store, guard.topic, sorted(unnamed)))
    return Witnesses(
        contents=contents,
        states=states,
        owners={id: guard.topic for id, guard in guards.items()},
        records={id: guard.accepted for id, guard in guards.items() if guard.accepted is not None},
    )


async def _read_states(store: FencedStore, name: str, numbers: Collection[int]) -> dict[int, FoundNode]:
    wanted = {paths.leader_and_isr(name, number): number for number in numbers}
    nodes = await store.read_many(tuple(wanted)) if wanted else {}
    return {wanted[path]: FoundNode(data=node.data, version=node.stat.version) for path, node in nodes.items()}


async def every_topic(
    store: FencedStore, *, topics_per_part: int
) -> AsyncGenerator[tuple[tuple[str, ...], FoundTopics], None]:
    """All topics there are, as of now: parts of their names, and what was found under these."""
    if store.reads_trees:
        tree = await store.read_tree(paths.TOPICS, TopicsOfTree)
        found = FoundTopics(nodes=tree.nodes, states=tree.states)
        async with aclosing(slices(sorted(tree.nodes), topics_per_part)) as parts:
            async for names in parts:
                yield names, found
        return
    async with aclosing(slices(await store.names(paths.TOPICS), topics_per_part)) as parts:
        async for names in parts:
            yield names, await read_topics(store, names)


class TopicsOfTree:
    """Takes topics out of the pages of a tree."""

    def __init__(self) -> None:
        self.nodes: Final[dict[str, Node]] = {}
        """As in ``FoundTopics``."""
        self.states: Final[dict[str, dict[int, FoundNode]]] = {}
        """As in ``FoundTopics``."""

    def take(self, page: TreePage) -> None:
        """Another page."""
        skip = len(paths.TOPICS) + 1
        for path, node in page.nodes.items():
            name, *deeper = path[skip:].split("/")
            if not deeper:
                if name:
                    self.nodes[name] = node
            elif len(deeper) == 2 and deeper[1] == _STATE and (number := _number(deeper[0])) is not None:
                self.states.setdefault(name, {})[number] = FoundNode(data=node.data, version=node.stat.version)


def _number(part: str) -> int | None:
    """The partition that a folder is of; None if it is of none."""
    if not part.isascii() or not part.isdigit() or (part[0] == "0" and part != "0"):
        return None
    return int(part)
