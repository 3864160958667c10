"""Topics written or deleted by hand (safety rule S14); the same judgement for every topic when a reign begins."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

from regnum.types.v1 import errors_pb2, events_pb2
from regnum_coordination.errors import NodeExists, NodeFailure, NoNode
from regnum_coordination.port import Check, Create, Node, Operation, Set
from regnum_model import paths
from regnum_model.ids import BrokerId, ControllerEpoch, LeaderEpoch, PartitionKey, TopicId, encode_id
from regnum_model.nodes import AcceptedAssignment, DeletionNode, TopicIdNode, TopicNode
from regnum_service.slices import Turns, slices

from regnum_election.decisions.cluster import Cluster, Partition, Topic
from regnum_election.decisions.deletion import Deletion
from regnum_election.decisions.leadership import Decision, Refusal, reaffirm
from regnum_election.decisions.topic_nodes import (
    RESTORED,
    STATE_MISSING,
    Accepted,
    Refused,
    is_restored,
    other_id,
)
from regnum_election.history.events import BY_HAND
from regnum_election.reign.beside import Beside
from regnum_election.reign.writing import NotTaken, results_of
from regnum_election.state.accepted import note_edits
from regnum_election.state.context import ControllerContext
from regnum_election.state.partition_writes import change
from regnum_election.state.telling import publish, tell
from regnum_election.topics.clearing import TOPICS_TOGETHER
from regnum_election.topics.deletion import TopicDeleter, record_of, record_of_removed
from regnum_election.topics.found import FoundTopics, every_topic, read_topics, read_witnesses
from regnum_election.topics.incomplete import IncompleteTopics
from regnum_election.topics.settling import settle

TOPICS_PER_ROUND: Final = 100
"""Topics judged together."""

TOPICS_PER_COMPARISON: Final = 500
"""Topic nodes that are read together to see whether they are the ones known."""

NAMES_PER_TURN: Final = 5_000
"""Topic names that are compared between two turns of the event loop (safety rule S22)."""

PARTITIONS_PER_TURN: Final = 1_000
"""Partitions taken into the picture between two turns of the event loop (safety rule S22)."""

STATE_BYTES: Final = 250
"""About the size of a leaderAndISR node."""

NO_IDS: Final[Mapping[str, TopicId]] = MappingProxyType({})

_IS_BACK: Final = errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS
"""What refuses the deletion of a topic whose node was gone and is there again."""


class TopicAdopter:
    """Takes topics into the picture. One for each reign; used by the controller's task only."""

    def __init__(self, context: ControllerContext, deleter: TopicDeleter) -> None:
        self._context = context
        self._deleter = deleter
        self._reported: Final = context.refused
        self._beside = Beside()
        self._incomplete: Final = IncompleteTopics(context)
        self._listed = False

    @property
    def has_damage(self) -> bool:
        """Whether something waits for a person's correction."""
        return bool(self._reported or self._context.troubled or self._context.incomplete)

    def leaves_alone(self, name: str) -> bool:
        """Whether a topic was refused when it was last taken up."""
        return name in self._reported

    @property
    def is_in_doubt(self) -> bool:
        """Whether topic nodes may have been removed and written again at once, which no listing shows."""
        return self._listed

    async def look(self, names: Collection[str]) -> AsyncGenerator[None, None]:
        """Topic names as a watch showed them: take up what is new, delete what a person removed."""
        context = self._context
        self._listed = True
        known = context.picture.names
        # The list may be older than our own writes: what differs is read again before it counts.
        added: list[str] = []
        async for some in slices(names, NAMES_PER_TURN):
            added += [name for name in some if name not in known and name not in context.clearing]
        added.sort()
        missing: list[str] = []
        async for some in slices(known, NAMES_PER_TURN):
            missing += [name for name in some if name not in names]
        # One that is not listed yet is told of again when it is taken up.
        async for some in slices(tuple(self._reported), NAMES_PER_TURN):
            self._forget([name for name in some if name not in names])
        if added:
            accepted = await self.take_up(added)
            keys = [key for id in accepted for key in context.picture.of_topic(id)]
            await self._bring_in(keys)
            yield
        for start in range(0, len(missing), TOPICS_TOGETHER):
            looked = missing[start : start + TOPICS_TOGETHER]
            standing = await context.store.read_many([paths.topic(name) for name in looked])
            gone = [name for name in looked if paths.topic(name) not in standing and name in context.picture.names]
            async for _ in self._removed_by_hand(gone):
                yield

    async def compare(self) -> AsyncGenerator[None, None]:
        """Topic nodes that a person removed and wrote again at once: the listing is the same, the creation ids are not.

        A topic node is small beside its topic, and this happens after changes only, and not more often than corrections
        are looked for.
        """
        context = self._context
        self._listed = False
        names = tuple(context.picture.names)
        for start in range(0, len(names), TOPICS_PER_COMPARISON):
            some = names[start : start + TOPICS_PER_COMPARISON]
            nodes = await context.store.read_many([paths.topic(name) for name in some])
            anew = [name for name in some if self._is_anew(name, nodes.get(paths.topic(name)))]
            if anew:
                context.log.warning("topic nodes removed and written again", topics=anew)
                await self._take_up_anew(anew)
            yield

    def _is_anew(self, name: str, node: Node | None) -> bool:
        topic = self._context.picture.topic_named(name)
        if topic is None or node is None or topic.creation_id is None:
            return False
        return topic.creation_id != node.stat.creation_id

    async def _take_up_anew(self, names: list[str]) -> None:
        context = self._context
        before = context.picture
        accepted = await self.take_up(names)
        keys = [key for id in accepted for key in context.picture.of_topic(id)]
        # The node that was written again may name fewer.
        gone = [key for id in accepted for key in before.of_topic(id) if key not in context.picture.partitions]
        context.dispatch.forget_orders(gone)
        await publish(context, gone)
        changed = {
            key: known
            for key in keys
            if (known := before.partitions.get(key)) is not None and known.held != context.picture.partitions[key].held
        }
        applied = await change(context, list(changed), partial(self._reaffirm, changed), BY_HAND)
        await tell(context, applied)
        await self._bring_in(keys)

    async def _bring_in(self, keys: Sequence[PartitionKey]) -> None:
        """Tell of partitions that came into the picture, and give them leaders."""
        context = self._context
        context.unpublished.add({key.topic_id for key in keys})
        await publish(context, keys)
        await settle(context, keys, (), BY_HAND)

    async def look_again(self) -> AsyncGenerator[None, None]:
        """What was refused, or in trouble, may have been corrected by hand: no watch tells of that."""
        context = self._context
        if rewritten := await self._incomplete.rewritten():
            await self._take_up_anew(rewritten)
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
        some = [key for key in healed if key in damaged]
        await tell(context, await change(context, some, partial(self._reaffirm, damaged), BY_HAND))
        await self._bring_in(healed)
        yield

    def _reaffirm(
        self, damaged: Mapping[PartitionKey, Partition], picture: Cluster, key: PartitionKey, partition: Partition
    ) -> Decision:
        if partition.held is None:
            return Refusal.NOTHING_TO_CHANGE
        context, known = self._context, damaged[key].held
        return reaffirm(
            partition.held.state,
            context.surroundings_of(key),
            min_insync=picture.min_insync(key, partition),
            known_epoch=LeaderEpoch(0) if known is None else known.state.leader_epoch,
        )

    async def take_up_all(self) -> list[TopicId]:
        """As ``take_up``, of all topics there are."""
        accepted: list[TopicId] = []
        async with aclosing(every_topic(self._context.store, topics_per_part=TOPICS_PER_ROUND)) as parts:
            async for names, found in parts:
                accepted.extend(await self._judge(names, found))
        await self._give_way(accepted)
        return accepted

    async def take_up(self, names: Iterable[str], ids: Mapping[str, TopicId] = NO_IDS) -> list[TopicId]:
        """Judge topic nodes, repair what may be repaired, add what is whole to the picture; returns what was added.

        Args:
            names: of the topics.
            ids: by name, ids of topics whose guards stand, and whose nodes may say nothing.

        Raises:
            DeposedError: a state is from a later reign, the highest of all that were read.
        """
        accepted: list[TopicId] = []
        async for some in slices(tuple(names), TOPICS_PER_ROUND):
            accepted.extend(await self._judge(some, await read_topics(self._context.store, some), ids))
        self._context.trouble_contradicted()
        await self._give_way(accepted)
        return accepted

    async def _give_way(self, accepted: Iterable[TopicId]) -> None:
        latest = ControllerEpoch(0)
        for id in accepted:
            latest = max(latest, _latest_reign(self._context.picture, id))
            await asyncio.sleep(0)
        self._context.give_way(latest)

    async def _judge(
        self, names: Sequence[str], found: FoundTopics, ids: Mapping[str, TopicId] = NO_IDS
    ) -> list[TopicId]:
        context = self._context
        ids = {name: id for name in names if (id := ids.get(name) or context.picture.names.get(name))}
        self._forget(name for name in names if name not in found.nodes)
        nodes = {name: found.nodes[name] for name in names if name in found.nodes}
        by = await read_witnesses(context, nodes, found, ids)
        added: list[tuple[Topic, Mapping[int, Partition]]] = []
        for name, node in nodes.items():
            minted = TopicId(encode_id(uuid.UUID(int=context.chance.getrandbits(128))))
            verdict = await self._beside.result(
                partial(by.verdict, name, node, ids.get(name), minted=minted, reign=context.reign.epoch),
                weight=len(node.data) + len(by.states[name]) * STATE_BYTES,
            )
            match verdict:
                case Refused(reason=reason):
                    self._report(name, reason)
                case Accepted(topic_id=id) if id in context.deletions:
                    context.clearing[name] = id
                    context.events.found_deleting(name, id)
                case Accepted():
                    if not await self._makes_room(name, verdict, added):
                        continue
                    topic = await self._repair(name, node, verdict)
                    if topic is not None:
                        self._note(topic, verdict)
                        added.append((topic, _remembering(context.picture, topic.id, verdict.partitions)))
        before = context.picture.partitions
        for some in _portions(added):
            weight = STATE_BYTES * sum(len(members) for _, members in some)
            context.picture = await self._beside.result(partial(context.picture.with_topics, some), weight=weight)
        context.unverified.prove_topics(topic.id for topic, _ in added)
        turns = Turns(PARTITIONS_PER_TURN)
        for topic, members in added:
            await turns.took(len(members))
            context.trouble(_news_of_trouble(topic.id, members, before))
        return [topic.id for topic, _ in added]

    async def _repair(self, name: str, node: Node, verdict: Accepted) -> Topic | None:
        version = node.stat.version
        operations: list[Operation] = []
        if verdict.rewrite:
            operations.append(Set(f"{paths.TOPICS}/{name}", verdict.node.encode(), version))
        if verdict.make_guard:
            operations.append(Create(paths.topic_id(verdict.topic_id), _guard(name, verdict.node).encode()))
        elif operations:
            operations.insert(0, Check(paths.topic_id(verdict.topic_id)))
        if operations:
            try:
                write = self._context.store.write_guards if verdict.make_guard else self._context.store.write_batch
                results = results_of(*await write([tuple(operations)]))
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
        # A person may have put there what the topic has still.
        removing = {n: brokers for n, brokers in verdict.node.removing.items() if n not in verdict.partitions}
        if removing:
            self._context.removals.begun[verdict.topic_id] = removing
        self._context.dispatch.departing.found(verdict.topic_id, verdict.node.left)
        return Topic(
            name=name,
            id=verdict.topic_id,
            version=version,
            partitions=tuple(sorted(verdict.partitions)),
            mutation=verdict.node.mutation,
            creation_id=node.stat.creation_id,
            partition_mutations=verdict.node.partition_mutations,
        )

    def _note(self, topic: Topic, verdict: Accepted) -> None:
        """What is to be said, or done later, of a topic that is taken up."""
        context = self._context
        self._incomplete.note(topic, verdict.unreadable)
        note_edits(context, topic, verdict.edited)
        if not verdict.recorded:
            context.unrecorded[topic.id] = None
        if verdict.make_guard:
            kind, count = events_pb2.EVENT_KIND_TOPIC_CREATED, len(verdict.partitions)
            context.events.topic(kind, topic.name, topic.id, BY_HAND, partitions=count)
        elif all(one.creating for one in verdict.partitions.values()):
            context.events.found_unborn(topic.id)

    async def _makes_room(
        self, name: str, verdict: Accepted, added: Sequence[tuple[Topic, Mapping[int, Partition]]]
    ) -> bool:
        """Whether a topic may come into the picture: not beside another life of its name, nor under a name of another.

        A life whose node was removed, and written again as that of a new topic, is deleted (safety rule S14).
        """
        context, id = self._context, verdict.topic_id
        standing = next((topic for topic, _ in added if topic.id == id), context.picture.topics.get(id))
        if standing is not None and standing.name != name:
            self._report(name, f"topic id {id} belongs to topic {standing.name}; remove the id, and a new one is given")
            return False
        former = context.picture.names.get(name)
        if former is None or former == id or verdict.unreadable:
            # The id in a node that says nothing of its topic is that of no life.
            return True
        if not verdict.make_guard:
            # Only a slip of the pen, perhaps: nothing is deleted for it, and nothing written under the name.
            reason = other_id(id, former)
            self._report(name, reason)
            await _take_out_of_reach(context, former, reason)
            return False
        refused = await self._deleter.begin(former, mutation=None, brokers=await _perhaps_hosts(context))
        if refused is None:
            context.log.warning("topic was made anew by hand, deleting what it was", topic=name, topic_id=former)
            context.defer("delete a former life", self._deleter.clear((former,)))
            return True
        context.log.error("topic was made anew by hand, and what it was stays", topic_id=former, reason=refused.message)
        context.events.topic(events_pb2.EVENT_KIND_TOPIC_DELETED, name, former, BY_HAND)
        context.picture = context.picture.without_topics((former,))
        context.dispatch.show(context.picture)
        context.metadata.publish(context.picture, (), {former: name})
        return True

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._reported.pop(name, None)

    def _report(self, name: str, reason: str) -> None:
        if self._reported.get(name) != reason:
            self._reported[name] = reason
            self._context.log.error("topic left alone", topic=name, reason=reason)

    async def _removed_by_hand(self, names: Sequence[str]) -> AsyncGenerator[None, None]:
        """Topics of the picture whose nodes are gone: deletions while their guards stand, accidents otherwise."""
        context = self._context
        ids = {context.picture.names[name]: name for name in names}
        guards = await context.store.read_many([paths.topic_id(id) for id in ids])
        guarded = [id for id in ids if paths.topic_id(id) in guards]
        # A guard may go while the record is written.
        refused = {}
        if guarded:
            brokers = await _perhaps_hosts(context)
            refused = await self._deleter.begin_all(dict.fromkeys(guarded), brokers=brokers, removed=True)
        back = [name for id, name in ids.items() if id in refused and refused[id].code == _IS_BACK]
        for id, name in ids.items():
            if name in back:
                context.log.warning("topic removed by hand is there again", topic=name, topic_id=id)
                continue
            if paths.topic_id(id) in guards and id not in refused:
                context.log.warning("topic removed by hand, deleting it", topic=name, topic_id=id)
                continue
            reason = "topic node and guard are both gone; restore them, or delete the rest of the topic"
            if id in refused and refused[id].code == errors_pb2.ERROR_CODE_INVALID_REQUEST:
                reason = refused[id].message
            await _take_out_of_reach(context, id, reason)
        if back:
            await self._take_up_anew(back)
        async for _ in self._deleter.clear([id for id in guarded if id not in refused]):
            yield


async def removed_while_away(context: ControllerContext, name: str, topic_id: TopicId, *, replaced: bool) -> None:
    """At the start of a reign: a guard whose topic node is gone (safety rule S14). Every broker known is told.

    ``replaced``: another topic has the name by now. Otherwise a node that is there again is no deletion.
    """
    brokers = frozenset(context.picture.brokers) | await known_brokers(context)
    deletion = Deletion.recorded_as(topic_id, DeletionNode(topic=name, brokers=brokers), version=0)
    try:
        await context.store.multi(record_of(deletion) if replaced else record_of_removed(deletion))
    except (NodeExists, NoNode, NotTaken) as error:
        context.log.warning("deletion cannot be recorded", topic=name, reason=str(error))
        return
    context.log.warning("topic was removed by hand, deleting it", topic=name, topic_id=topic_id)
    context.events.topic(events_pb2.EVENT_KIND_TOPIC_DELETED, name, topic_id, BY_HAND)
    context.deletions.add(deletion)
    context.removals.drop_topic(topic_id)
    if name not in context.picture.names:
        context.clearing[name] = topic_id


async def _take_out_of_reach(context: ControllerContext, id: TopicId, reason: str) -> None:
    keys = context.picture.of_topic(id)
    reached = [key for key in keys if context.picture.partitions[key].trouble != reason]
    if reached:
        context.trouble(dict.fromkeys(reached, reason))
        await publish(context, reached)


async def _perhaps_hosts(context: ControllerContext) -> Collection[BrokerId]:
    """Brokers that may have files of a topic of which nothing is left to read, besides those of the picture."""
    return await known_brokers(context) if context.dispatch.holds_full_sets else ()


async def known_brokers(context: ControllerContext) -> frozenset[BrokerId]:
    """Every broker that ever registered."""
    names = await context.store.names(paths.BROKER_EPOCHS)
    return frozenset(BrokerId(id) for id in map(paths.id_named, names) if id is not None)


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


def _latest_reign(picture: Cluster, id: TopicId) -> ControllerEpoch:
    """The highest controller epoch in a topic's states."""
    states = (picture.partitions[key].held for key in picture.of_topic(id))
    return max((held.state.controller_epoch for held in states if held is not None), default=ControllerEpoch(0))


def _remembering(picture: Cluster, id: TopicId, members: Mapping[int, Partition]) -> Mapping[int, Partition]:
    """Partitions as judged; one that was past its creation stays so, whatever marks a restored node carries."""

    def seen(number: int, partition: Partition) -> Partition:
        known = picture.partitions.get(PartitionKey(id, number))
        if partition.trouble == RESTORED and known is not None and is_restored(known.trouble):
            # What has been found of it since says more.
            return replace(partition, trouble=known.trouble)
        if not partition.creating or known is None or known.creating:
            return partition
        return replace(partition, creating=False, trouble=STATE_MISSING)

    return {number: seen(number, partition) for number, partition in members.items()}


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


def _guard(name: str, node: TopicNode) -> TopicIdNode:
    """The guard of a topic that is taken up for the first time."""
    return TopicIdNode(topic=name, accepted=AcceptedAssignment.of(node))
