"""A slow look at nodes of topics that stand, for damage that no watch tells of (safety rule S14).

Goals
    Who damages a node by hand, or a tool that does, is told while the partitions are still led, and not by the next
    controller or at the next failure.

Constraints
    - It changes nothing but what `regnum status` lists, and tells of an edited assignment: leaders lead on, nothing is
      written back. What the controller remembers of a state may be older than what the damage took the place of.
    - It costs the same whatever the number of topics (safety rule S22): so many nodes a look, in slices, beside the
      controller's task.

Algorithm
    Two rounds go over the topics of the picture, one over their nodes, one over the states of their partitions; each
    look goes on where the last one ended, and reads again what it found damaged. A node at the version that the
    controller knows is not looked into. Removed partitions have the numbers behind the last one, and their tombstones
    are looked at until there is none: one node more for each topic.

Example: with 20,000 topics of three partitions each topic node is read every 25 s and each state every 80 s. On etcd
and on ZooKeeper that took 1.4 % of a processor, and no more than 3 ms in one turn of the event loop.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from regnum_coordination.port import Node
from regnum_model import paths
from regnum_model.ids import PartitionKey, TopicId
from regnum_model.nodes import MAX_PARTITIONS, MalformedNodeError, TopicNode
from regnum_service.slices import slices

from regnum_election.decisions.cluster import Partition, Topic
from regnum_election.decisions.topic_nodes import judge_state, other_id
from regnum_election.partitions.tombstones import PROBED_MAX, found_node, note_tombstone
from regnum_election.reign.beside import Beside
from regnum_election.state.accepted import compare_nodes, note_unreadable
from regnum_election.state.context import ControllerContext
from regnum_election.state.open_removals import Part

ADVICE: Final = "; write it back"
TOPICS_PER_LOOK: Final = 4_000
"""Topic nodes that one look reads; fewer where they are large."""

STATES_PER_LOOK: Final = 5_000
"""States and tombstones that one look reads."""

NODES_PER_SLICE: Final = 250
"""Nodes that are read together."""

PARTITIONS_PER_NODE: Final = 20
"""Partitions that make a topic node count as another one: it has some ten bytes for each."""

DAMAGED_PER_LOOK: Final = 500
"""Nodes found damaged that each look reads again, of each kind."""

DAMAGED_PER_TURN: Final = 1_000
"""Nodes found damaged that are looked through between two turns of the event loop (safety rule S22)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stretch:
    """Numbers of partitions of one topic, standing and removed."""

    topic_id: TopicId
    first: int
    count: int

    @property
    def end(self) -> int:
        """The number behind the last one."""
        return self.first + self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A state that is read, with what was known of the partition before."""

    key: PartitionKey
    topic: Topic
    known: Partition | None


class Inspection:
    """Of one reign. Beside the controller's task; what it notes is for people only."""

    def __init__(
        self, context: ControllerContext, *, topics_max: int = TOPICS_PER_LOOK, states_max: int = STATES_PER_LOOK
    ) -> None:
        """Only assigns.

        Args:
            context: the reign.
            topics_max: topic nodes that one look reads, about.
            states_max: states and tombstones that one look reads, about.
        """
        self._topics_max: Final = topics_max
        self._states_max: Final = states_max
        self._context: Final = context
        self._beside: Final = Beside()
        self._suspects: Final[dict[TopicId, None]] = {}
        """Topics whose nodes somebody else may have written, and can be read."""
        self._noted: Final[dict[str, str]] = {}
        """Topics in the picture whose nodes were found damaged here, with the reason."""
        self._topics: Iterator[TopicId] | None = None
        """Those whose nodes this round has still to read; None: a round begins."""
        self._stretched: Iterator[TopicId] | None = None
        """Those whose states this round has still to read."""
        self._stretches: Final[deque[_Stretch]] = deque()
        """Begun, before the next topic of the round."""

    async def look(self) -> None:
        """Read what is next. Raises DeposedError."""
        await self._look_at_topics()
        await self._look_at_states()

    # Topic nodes.

    async def _look_at_topics(self) -> None:
        async for names in slices(tuple(self._noted), DAMAGED_PER_TURN):
            for name in names:
                if name not in self._context.picture.names:
                    # Deleted, or left alone by now: whoever did that says so.
                    del self._noted[name]
        noted = map(self._context.picture.topic_named, islice(self._noted, DAMAGED_PER_LOOK))
        again = [topic for topic in noted if topic is not None]
        await self._look_at_edits()
        for start in range(0, len(again), NODES_PER_SLICE):
            await self._read_topics(again[start : start + NODES_PER_SLICE])
        left = self._topics_max
        if self._topics is None:
            self._topics = iter(tuple(self._context.picture.topics))
        while left > 0:
            some, weight = self._next_topics(self._topics, min(left, NODES_PER_SLICE))
            if not some:
                self._topics = None
                return
            await self._read_topics(some)
            left -= weight

    def _next_topics(self, round_: Iterator[TopicId], most: int) -> tuple[list[Topic], int]:
        """The next ones, and for how many nodes they count."""
        some: list[Topic] = []
        weight = 0
        for id in round_:
            topic = self._context.picture.topics.get(id)
            if topic is None:
                continue
            some.append(topic)
            weight += 1 + len(topic.partitions) // PARTITIONS_PER_NODE
            if weight >= most:
                break
        return some, weight

    async def _read_topics(self, topics: Iterable[Topic]) -> None:
        known = {paths.topic(topic.name): topic for topic in topics}
        for path, node in (await self._context.store.read_many(tuple(known))).items():
            topic, problem = known[path], None
            if topic.creation_id not in {None, node.stat.creation_id}:
                # Removed and written again: that is judged as a whole, by who takes topics up.
                continue
            if node.stat.version != topic.version:
                problem = await self._beside.result(partial(_problem, topic, node), weight=len(node.data))
            if self._context.picture.topics.get(topic.id) is topic:
                self._note_topic(topic, problem)
                if problem is None and node.stat.version != topic.version:
                    self._suspects[topic.id] = None

    async def _look_at_edits(self) -> None:
        """Have nodes compared with the picture that may say something else: those found so, and those written since."""
        context = self._context
        async for some in slices(tuple(context.edited), DAMAGED_PER_TURN):
            for id in some:
                if id not in context.picture.topics:
                    del context.edited[id]
        suspects = {**dict.fromkeys(islice(context.edited, DAMAGED_PER_LOOK)), **self._suspects}
        self._suspects.clear()
        if suspects and not context.unverified.has_any:
            context.defer("topic nodes written by others", compare_nodes(context, suspects))

    def _note_topic(self, topic: Topic, problem: str | None) -> None:
        context, name = self._context, topic.name
        noted = self._noted.get(name)
        if problem is not None:
            if problem != noted or name not in context.refused:
                self._noted[name] = context.refused[name] = problem
                note_unreadable(context, topic, problem.removesuffix(ADVICE))
            return
        context.events.unreadable.pop(topic.id, None)
        if noted is None:
            return
        del self._noted[name]
        if context.refused.get(name) == noted:
            del context.refused[name]
        context.log.info("topic node put right", topic=name)

    # States and tombstones.

    async def _look_at_states(self) -> None:
        context = self._context
        await self._drop_settled()
        again = [*islice(context.spoiled, DAMAGED_PER_LOOK), *islice(self._damaged_tombstones(), DAMAGED_PER_LOOK)]
        for start in range(0, len(again), NODES_PER_SLICE):
            some = again[start : start + NODES_PER_SLICE]
            await self._read_states([_Stretch(topic_id=key.topic_id, first=key.partition, count=1) for key in some])
        left = self._states_max
        if self._stretched is None:
            self._stretched = iter(tuple(context.picture.topics))
        while left > 0:
            stretches = self._next_stretches(self._stretched, min(left, NODES_PER_SLICE))
            if not stretches:
                self._stretched = None
                return
            self._stretches.extendleft(reversed(await self._read_states(stretches)))
            left -= sum(one.count for one in stretches)

    async def _drop_settled(self) -> None:
        """Partitions that are gone, or without a leader by now, which is listed elsewhere."""
        context = self._context
        async for some in slices(tuple(context.spoiled), DAMAGED_PER_TURN):
            for key in some:
                partition = context.picture.partitions.get(key)
                if partition is None or partition.trouble is not None:
                    del context.spoiled[key]

    def _damaged_tombstones(self) -> Iterator[PartitionKey]:
        for id, numbers in self._context.removals.damaged.items():
            for number, damage in numbers.items():
                if damage.part is Part.TOMBSTONE:
                    yield PartitionKey(id, number)

    def _next_stretches(self, round_: Iterator[TopicId], left: int) -> list[_Stretch]:
        """The next ones, of so many numbers together."""
        some: list[_Stretch] = []
        while left > 0:
            stretch = self._stretches.popleft() if self._stretches else self._next_stretch(round_)
            if stretch is None:
                break
            if stretch.count > left:
                rest = _Stretch(topic_id=stretch.topic_id, first=stretch.first + left, count=stretch.count - left)
                self._stretches.appendleft(rest)
                stretch = _Stretch(topic_id=stretch.topic_id, first=stretch.first, count=left)
            some.append(stretch)
            left -= stretch.count
        return some

    def _next_stretch(self, round_: Iterator[TopicId]) -> _Stretch | None:
        for id in round_:
            topic = self._context.picture.topics.get(id)
            if topic is not None:
                return _Stretch(topic_id=id, first=0, count=topic.partitions[-1] + 2)
        return None

    async def _read_states(self, stretches: Iterable[_Stretch]) -> list[_Stretch]:
        """Judge them; returns where more tombstones may follow."""
        context = self._context
        places: dict[str, _Place] = {}
        ends: dict[str, _Stretch] = {}
        for stretch in stretches:
            topic = context.picture.topics.get(stretch.topic_id)
            if topic is None:
                continue
            for number in range(stretch.first, min(stretch.end, MAX_PARTITIONS)):
                key = PartitionKey(topic.id, number)
                path = paths.leader_and_isr(topic.name, number)
                places[path] = _Place(key=key, topic=topic, known=context.picture.partitions.get(key))
                ends[path] = stretch
        nodes = await context.store.read_many(tuple(places))
        for path, place in places.items():
            if context.picture.topics.get(place.key.topic_id) is not None:
                self._judge_state(place, nodes.get(path))
        return [further for further in _further(places, ends, nodes) if further.first < MAX_PARTITIONS]

    def _judge_state(self, place: _Place, node: Node | None) -> None:
        context, key = self._context, place.key
        if context.picture.partitions.get(key) is not place.known:
            # It changed while it was read: the next round.
            return
        seen = found_node(node)
        if place.known is None:
            note_tombstone(context, key, seen)
        elif place.known.held is not None and place.known.trouble is None:
            as_known = seen is not None and seen.version == place.known.held.version
            judged = (
                None
                if as_known
                else judge_state(key.topic_id, seen, creating=False, reign=context.reign.epoch, began=place.known.began)
            )
            self._note_state(place, judged if isinstance(judged, str) else None)

    def _note_state(self, place: _Place, problem: str | None) -> None:
        context, key = self._context, place.key
        if context.spoiled.get(key) == problem:
            return
        if problem is None:
            del context.spoiled[key]
            context.log.info("state put right", topic=place.topic.name, partition=key.partition)
            return
        context.spoiled[key] = problem
        context.log.error("state damaged", topic=place.topic.name, partition=key.partition, reason=problem)


def _problem(topic: Topic, node: Node) -> str | None:
    """Why the next controller would leave a topic alone; None: it would not."""
    try:
        content = TopicNode.decode(node.data)
    except MalformedNodeError as error:
        return f"{error}{ADVICE}"
    if content.topic_id not in {None, topic.id}:
        return other_id(content.topic_id, topic.id)
    return None


def _further(
    places: Mapping[str, _Place], ends: Mapping[str, _Stretch], nodes: Mapping[str, Node]
) -> Iterator[_Stretch]:
    """Behind stretches that end with a tombstone; longer ones where there are many."""
    for path, place in places.items():
        stretch, last = ends[path], place.topic.partitions[-1]
        if path in nodes and place.key.partition == stretch.end - 1 > last:
            behind = stretch.count if stretch.first > last else 0
            count = min(max(2 * behind, 1), PROBED_MAX)
            yield _Stretch(topic_id=place.key.topic_id, first=stretch.end, count=count)
