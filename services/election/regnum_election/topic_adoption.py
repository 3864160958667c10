"""Topics written or deleted by hand (safety rule S14); the same judgement for every topic when a reign begins."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, TypeVar

from regnum.types.v1 import errors_pb2
from regnum_coordination.errors import NodeExists, NodeFailure, NoNode
from regnum_coordination.port import Create, Node, Operation, Set
from regnum_model import paths
from regnum_model.ids import BrokerId, LeaderEpoch, PartitionKey, TopicId, encode_id
from regnum_model.nodes import DeletionNode, LeaderAndIsr, MalformedNodeError, TopicIdNode, TopicNode

from regnum_election.adoption import Accepted, FoundNode, Refused, judge_topic, needs_states
from regnum_election.broker_changes import settle
from regnum_election.cluster import Cluster, Partition, Topic
from regnum_election.context import ControllerContext
from regnum_election.deletion import Deletion
from regnum_election.leadership import Decision, Refusal, reaffirm
from regnum_election.topic_deletion import TopicDeleter
from regnum_election.writing import NotTaken

TOPICS_PER_READ: Final = 100
"""Topics judged together."""

PARTITIONS_PER_TURN: Final = 1_000
"""Partitions taken into the picture between two turns of the event loop (safety rule S22)."""

BYTES_PER_TURN: Final = 64 * 1024
"""About how many bytes of JSON are decoded on the loop in one turn."""

STATE_BYTES: Final = 250
"""About the size of a leaderAndISR node."""

T = TypeVar("T")


class TopicAdopter:
    """Takes topics into the picture. One for each reign; used by the controller's task only."""

    def __init__(self, context: ControllerContext, deleter: TopicDeleter) -> None:
        self._context = context
        self._deleter = deleter
        self._reported: dict[str, str] = {}

    @property
    def has_damage(self) -> bool:
        """Whether something waits for a person's correction."""
        return bool(self._reported or self._context.troubled)

    async def look(self, names: Collection[str]) -> AsyncGenerator[None, None]:
        """Topic names as a watch showed them: take up what is new, delete what a person removed."""
        context = self._context
        # The list may be older than our own writes: what differs is read again before it counts.
        added = [name for name in sorted(names) if name not in context.picture.names and name not in context.clearing]
        missing = [name for name in context.picture.names if name not in names]
        if added:
            accepted = await self.take_up(added)
            keys = [key for id in accepted for key in context.picture.of_topic(id)]
            context.dispatch.show(context.picture)
            await context.publish(keys)
            await settle(context, keys, ())
            yield
        standing = await context.store.read_many([paths.topic(name) for name in missing])
        for name in missing:
            if paths.topic(name) in standing or name not in context.picture.names:
                continue
            async for _ in self.removed_by_hand(name):
                yield

    async def look_again(self) -> AsyncGenerator[None, None]:
        """What was refused, or in trouble, may have been corrected by hand: no watch tells of that."""
        context = self._context
        before = context.picture
        damaged = {
            key: partition
            for id in tuple(context.troubled)
            for key in before.of_topic(id)
            if (partition := before.partitions[key]).trouble is not None
        }
        context.troubled = {key.topic_id for key in damaged}
        names = {before.topics[id].name for id in context.troubled}
        names.update(name for name in self._reported if name not in before.names and name not in context.clearing)
        if not names:
            return
        accepted = await self.take_up(sorted(names))
        healed = [
            key
            for id in accepted
            for key in context.picture.of_topic(id)
            if context.picture.partitions[key].trouble is None and (key in damaged or id not in before.topics)
        ]
        if not healed:
            return
        context.log.info("topics corrected by hand", partitions=len(healed))
        context.dispatch.show(context.picture)
        applied = await context.change([key for key in healed if key in damaged], partial(self._reaffirm, damaged))
        await context.tell(applied)
        await context.publish(healed)
        await settle(context, healed, ())
        yield

    def _reaffirm(
        self, damaged: Mapping[PartitionKey, Partition], _picture: Cluster, key: PartitionKey, partition: Partition
    ) -> Decision:
        if partition.held is None:
            return Refusal.NOTHING_TO_CHANGE
        context, known = self._context, damaged[key].held
        return reaffirm(
            partition.held.state,
            context.surroundings_of(key),
            min_insync=context.min_insync(partition),
            known_epoch=LeaderEpoch(0) if known is None else known.state.leader_epoch,
        )

    async def take_up(self, names: Iterable[str]) -> list[TopicId]:
        """Judge topic nodes, repair what may be repaired, add what is whole to the picture; returns what was added."""
        wanted = list(names)
        accepted: list[TopicId] = []
        for start in range(0, len(wanted), TOPICS_PER_READ):
            accepted.extend(await self._take_up(wanted[start : start + TOPICS_PER_READ]))
        return accepted

    async def _take_up(self, names: list[str]) -> list[TopicId]:
        context = self._context
        nodes = await context.store.read_many([f"{paths.TOPICS}/{name}" for name in names])
        self._forget(name for name in names if f"{paths.TOPICS}/{name}" not in nodes)
        numbers = await _numbers(names, nodes)
        states = await context.store.read_many(
            [f"{paths.TOPICS}/{name}/{number}/leaderAndISR" for name in numbers for number in numbers[name]]
        )
        found_states: dict[str, dict[int, FoundNode]] = {}
        for name, listed in numbers.items():
            await asyncio.sleep(0)
            found_states[name] = {
                number: _found(node)
                for number in listed
                if (node := states.get(f"{paths.TOPICS}/{name}/{number}/leaderAndISR")) is not None
            }
        guards = await self._guards(nodes, found_states)
        added: list[tuple[Topic, Mapping[int, Partition]]] = []
        for name, listed in numbers.items():
            node = nodes[f"{paths.TOPICS}/{name}"]
            minted = TopicId(encode_id(uuid.UUID(int=context.chance.getrandbits(128))))
            verdict = await _beside(
                partial(judge_topic, name, _found(node), found_states[name], guards, minted=minted),
                weight=len(listed) * STATE_BYTES,
            )
            match verdict:
                case Refused(reason=reason):
                    self._report(name, reason)
                case Accepted(topic_id=id) if id in context.deletions:
                    context.clearing[name] = id
                case Accepted():
                    topic = await self._repair(name, node, verdict)
                    if topic is not None:
                        added.append((topic, verdict.partitions))
        before = context.picture.partitions
        for some in _portions(added):
            weight = STATE_BYTES * sum(len(members) for _, members in some)
            context.picture = await _beside(partial(context.picture.with_topics, some), weight=weight)
        for topic, members in added:
            context.trouble(_news_of_trouble(topic.id, members, before))
        return [topic.id for topic, _ in added]

    async def _guards(
        self, nodes: Mapping[str, Node], states: Mapping[str, Mapping[int, FoundNode]]
    ) -> dict[TopicId, str]:
        """Names by topic id, for the ids that these nodes mention."""
        ids: set[TopicId] = set()
        for path, node in nodes.items():
            try:
                content = await _beside(partial(TopicNode.decode, node.data), weight=len(node.data))
            except MalformedNodeError:
                continue
            if content.topic_id is not None:
                ids.add(content.topic_id)
                continue
            for found in states[path.rpartition("/")[2]].values():
                try:
                    ids.add(LeaderAndIsr.decode(found.data).topic_id)
                except MalformedNodeError:
                    continue
        return await read_guards(self._context, ids)

    async def _repair(self, name: str, node: Node, verdict: Accepted) -> Topic | None:
        version = node.stat.version
        operations: list[Operation] = []
        if verdict.rewrite:
            operations.append(Set(f"{paths.TOPICS}/{name}", verdict.node.encode(), version))
        if verdict.make_guard:
            operations.append(Create(paths.topic_id(verdict.topic_id), TopicIdNode(topic=name).encode()))
        if operations:
            try:
                results = await self._context.store.multi(operations)
            except NotTaken as error:
                self._report(name, f"it cannot be written back with what is added to it ({error}); make it smaller")
                return None
            except NodeFailure as error:
                self._report(
                    name, f"changed while it was taken up ({error}); it is looked at again with the next change"
                )
                return None
            version = next((result.stat.version for result in results if result.stat is not None), version)
            self._context.log.info("topic taken up", topic=name, topic_id=verdict.topic_id)
        self._reported.pop(name, None)
        return Topic(
            name=name,
            id=verdict.topic_id,
            version=version,
            partitions=tuple(sorted(verdict.partitions)),
            mutation=verdict.node.mutation,
        )

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._reported.pop(name, None)

    def _report(self, name: str, reason: str) -> None:
        if self._reported.get(name) != reason:
            self._reported[name] = reason
            self._context.log.error("topic left alone", topic=name, reason=reason)

    async def removed_by_hand(self, name: str) -> AsyncGenerator[None, None]:
        """A topic of the picture whose node is gone: a deletion while its guard stands, an accident otherwise."""
        context = self._context
        topic_id = context.picture.names[name]
        guard_path = paths.topic_id(topic_id)
        guard = (await context.store.read_many((guard_path,))).get(guard_path)
        # The guard may go while the record is written.
        refused = None if guard is None else await self._deleter.begin(topic_id, mutation=None)
        if guard is None or refused is not None:
            reason = "topic node and guard are both gone; restore them, or delete the rest of the topic"
            if refused is not None and refused.code == errors_pb2.ERROR_CODE_INVALID_REQUEST:
                reason = refused.message
            keys = context.picture.of_topic(topic_id)
            reached = [key for key in keys if context.picture.partitions[key].trouble != reason]
            if reached:
                context.trouble(dict.fromkeys(reached, reason))
                await context.publish(reached)
            return
        context.log.warning("topic removed by hand, deleting it", topic=name, topic_id=topic_id)
        async for _ in self._deleter.clear(topic_id):
            yield

    async def removed_while_away(self, name: str, topic_id: TopicId) -> None:
        """At the start of a reign: a guard whose topic node is gone (safety rule S14). Every broker known is told."""
        context = self._context
        brokers = frozenset(context.picture.brokers) | await known_brokers(context)
        record = DeletionNode(topic=name, brokers=brokers)
        try:
            await context.store.multi((Create(paths.deletion(topic_id), record.encode()),))
        except (NodeExists, NoNode, NotTaken) as error:
            context.log.warning("deletion cannot be recorded", topic=name, reason=str(error))
            return
        context.log.warning("topic was removed by hand, deleting it", topic=name, topic_id=topic_id)
        context.deletions[topic_id] = Deletion.recorded_as(topic_id, record, version=0)
        if name not in context.picture.names:
            context.clearing[name] = topic_id


async def read_guards(context: ControllerContext, ids: Collection[TopicId]) -> dict[TopicId, str]:
    """Topic names by topic id, as the guards say."""
    by_path = {paths.topic_id(id): id for id in ids}
    guards: dict[TopicId, str] = {}
    for path, node in (await context.store.read_many(tuple(by_path))).items():
        try:
            guards[by_path[path]] = TopicIdNode.decode(node.data).topic
        except MalformedNodeError as error:
            context.log.warning("guard unreadable", path=path, reason=f"{error}; write the topic's name back")
    return guards


async def known_brokers(context: ControllerContext) -> frozenset[BrokerId]:
    """Every broker that ever registered."""
    names = await context.store.names(paths.BROKER_EPOCHS)
    return frozenset(BrokerId(int(name)) for name in names if name.isascii() and name.isdigit())


async def _numbers(names: Iterable[str], nodes: Mapping[str, Node]) -> dict[str, tuple[int, ...]]:
    """Partitions of each topic node that was found."""
    numbers: dict[str, tuple[int, ...]] = {}
    for name in names:
        node = nodes.get(f"{paths.TOPICS}/{name}")
        if node is not None:
            numbers[name] = await _beside(partial(needs_states, node.data), weight=len(node.data))
    return numbers


async def _beside(work: Callable[[], T], *, weight: int) -> T:
    """The result of a pure function; what weighs much is done on a thread (safety rule S22)."""
    await asyncio.sleep(0)
    return work() if weight < BYTES_PER_TURN else await asyncio.to_thread(work)


def _portions(
    added: Iterable[tuple[Topic, Mapping[int, Partition]]],
) -> Iterator[list[tuple[Topic, Mapping[int, Partition]]]]:
    """Topics in portions of about PARTITIONS_PER_TURN partitions; a topic comes into the picture as a whole."""
    portion: list[tuple[Topic, Mapping[int, Partition]]] = []
    partitions = 0
    for topic, members in added:
        portion.append((topic, members))
        partitions += len(members)
        if partitions >= PARTITIONS_PER_TURN:
            yield portion
            portion, partitions = [], 0
    if portion:
        yield portion


def _news_of_trouble(
    id: TopicId, members: Mapping[int, Partition], before: Mapping[PartitionKey, Partition]
) -> dict[PartitionKey, str]:
    """Troubles of a topic's partitions that nobody has been told of."""
    news: dict[PartitionKey, str] = {}
    for number, partition in members.items():
        key = PartitionKey(id, number)
        known = before.get(key)
        if partition.trouble is not None and (known is None or known.trouble != partition.trouble):
            news[key] = partition.trouble
    return news


def _found(node: Node) -> FoundNode:
    return FoundNode(data=node.data, version=node.stat.version)
