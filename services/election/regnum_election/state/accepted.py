"""Assignments as controllers accepted them: recorded in guards, and told of where a topic node says something else.

Goals: the controller of the next reign knows which replicas were accepted, whatever a person wrote into a topic node
(safety rule S14); an upgrade writes no faster than RECORDED_TOGETHER guards at a time.

Algorithm: whatever writes an assignment writes the guard in the same multi (``guard_write``). Guards of release 0.1.0
have no record: those topics are noted when they are taken up, and recorded some at a time, each only while its topic
node says what the picture does. Nodes are compared with the picture in the controller's task alone: beside it a node
may be ahead of the picture by the write that is under way.
"""

from collections.abc import AsyncGenerator, Collection, Mapping
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Final

from regnum.types.v1 import events_pb2
from regnum_coordination.port import Check, Group, Node, Operation, Refused, Set
from regnum_model import paths
from regnum_model.ids import BrokerId, LeaderEpoch, PartitionKey, TopicId
from regnum_model.nodes import AcceptedAssignment, MalformedNodeError, TopicIdNode, TopicNode
from regnum_model.reassignment import Reassignment

from regnum_election.decisions.cluster import Cluster, Partition, Topic
from regnum_election.decisions.topic_nodes import edits, is_recorded, readable
from regnum_election.history.events import BY_HAND
from regnum_election.reign.beside import PARTITION_WEIGHT, Beside
from regnum_election.state.context import ControllerContext

RECORDED_TOGETHER: Final = 100
"""Topics whose assignment is recorded together; the next ones follow at the next look for corrections."""

Assignments = Mapping[int, tuple[tuple[BrokerId, ...], Reassignment | None] | None]
"""Replicas and reassignment by partition; None: the partition goes."""

NOTHING: Final[Assignments] = MappingProxyType({})


NO_BEGINNINGS: Final[Mapping[int, LeaderEpoch]] = MappingProxyType({})


def members_of(picture: Cluster, id: TopicId) -> dict[int, Partition]:
    """Partitions of a topic of the picture, by number."""
    return {number: picture.partitions[PartitionKey(id, number)] for number in picture.topics[id].partitions}


def accepted_of(
    picture: Cluster, id: TopicId, changes: Assignments = NOTHING, began: Mapping[int, LeaderEpoch] = NO_BEGINNINGS
) -> AcceptedAssignment:
    """The assignment of a topic as the picture has it, with some changes; ``began``: of partitions that are added."""
    members = members_of(picture, id)
    assigned = {number: (one.replicas, one.reassignment) for number, one in members.items()}
    beginnings = {number: one.began for number, one in members.items() if one.began} | dict(began)
    for number, change in changes.items():
        if change is None:
            assigned.pop(number, None)
        else:
            assigned[number] = change
    return AcceptedAssignment(
        partitions={number: replicas for number, (replicas, _) in assigned.items()},
        reassigning={number: move for number, (_, move) in assigned.items() if move is not None},
        began={number: epoch for number, epoch in beginnings.items() if number in assigned},
    )


def node_of(picture: Cluster, topic: Topic) -> TopicNode:
    """What a controller writes that means a topic of the picture, none of whose partitions comes or goes."""
    accepted = accepted_of(picture, topic.id)
    return TopicNode(
        topic_id=topic.id,
        partitions=accepted.partitions,
        mutation=topic.mutation,
        partition_mutations=topic.partition_mutations,
        reassigning=accepted.reassigning,
        began=accepted.began,
    )


def guard_write(topic: Topic, guard: Node | None, accepted: AcceptedAssignment) -> Operation:
    """What ties a write of an assignment to its topic (safety rule S2), and records it; ``guard``: as it was read."""
    path = paths.topic_id(topic.id)
    if guard is None:
        return Check(path)
    return Set(path, TopicIdNode(topic=topic.name, accepted=accepted).encode(), guard.stat.version)


def note_edits(context: ControllerContext, topic: Topic, words: str) -> None:
    """A topic node differs from what was accepted, as these words say; empty: it does not."""
    if context.edited.get(topic.id, "") == words:
        return
    if not words:
        del context.edited[topic.id]
        # It could not be recorded as long as its node said something else.
        context.unrecorded[topic.id] = None
        context.log.info("topic node names the accepted assignment again", topic=topic.name)
        return
    context.edited[topic.id] = words
    context.log.error("edit of a topic node refused", topic=topic.name, reason=words)
    context.events.topic(events_pb2.EVENT_KIND_TOPIC_NODE_EDITED, topic.name, topic.id, BY_HAND, detail=words)


def note_unreadable(context: ControllerContext, topic: Topic, reason: str) -> None:
    """A topic node cannot be read; its partitions go on as they were accepted. Told once, whoever finds it first.

    Those who look through all nodes know it, and who takes topics up (also one whose node is damaged already).
    """
    if context.events.unreadable.get(topic.id) == reason:
        return
    context.events.unreadable[topic.id] = reason
    context.log.error("topic node damaged", topic=topic.name, reason=reason)
    context.events.topic(events_pb2.EVENT_KIND_TOPIC_NODE_EDITED, topic.name, topic.id, BY_HAND, detail=reason)


async def compare_nodes(context: ControllerContext, ids: Collection[TopicId]) -> AsyncGenerator[None, None]:
    """Steps that see whether topic nodes say what the picture does. What cannot be read at all is told of elsewhere."""
    comparing = Beside()
    for start in range(0, len(ids), RECORDED_TOGETHER):
        some = islice(ids, start, start + RECORDED_TOGETHER)
        topics = {paths.topic(topic.name): topic for id in some if (topic := context.picture.topics.get(id))}
        for path, node in (await context.store.read_many(tuple(topics))).items():
            topic = topics[path]
            if topic.creation_id in {None, node.stat.creation_id}:
                weight = len(node.data) + PARTITION_WEIGHT * len(topic.partitions)
                words = await comparing.result(partial(_edits, context.picture, topic, node), weight=weight)
                if words is not None:
                    note_edits(context, topic, words)
        yield


def _edits(picture: Cluster, topic: Topic, node: Node) -> str | None:
    """How a node differs from the picture; None: nobody can say."""
    content = readable(node.data)
    if content is None or content.topic_id not in {None, topic.id}:
        return None
    return edits(content, members_of(picture, topic.id))


async def record_assignments(context: ControllerContext) -> AsyncGenerator[None, None]:
    """A step that records the assignments of some topics whose guards do not say them."""
    ids = tuple(islice(context.unrecorded, RECORDED_TOGETHER))
    # What is in trouble waits for a correction of the node: recorded, the damage would be what is accepted, and the
    # correction an edit to refuse. Taken up again, the topic is to be recorded again.
    topics = [
        topic
        for id in ids
        if (topic := context.picture.topics.get(id)) is not None and not _is_troubled(context.picture, id)
    ]
    for id in ids:
        del context.unrecorded[id]
    nodes = await context.store.read_many(
        [path for topic in topics for path in (paths.topic(topic.name), paths.topic_id(topic.id))]
    )
    groups: list[Group] = []
    recorded: list[Topic] = []
    preparing = Beside()
    for topic in topics:
        node, guard = nodes.get(paths.topic(topic.name)), nodes.get(paths.topic_id(topic.id))
        if node is None or guard is None:
            continue
        weight = len(node.data) + len(guard.data) + PARTITION_WEIGHT * len(topic.partitions)
        group = await preparing.result(partial(_record, context.picture, topic, node, guard), weight=weight)
        if group:
            groups.append(group)
            recorded.append(topic)
    for topic, outcome in zip(recorded, await context.store.write_batch(groups), strict=True):
        if isinstance(outcome, Refused):
            context.log.info("assignment not recorded", topic=topic.name, reason=str(outcome.error))
    yield


def _is_troubled(picture: Cluster, id: TopicId) -> bool:
    return any(picture.partitions[key].trouble is not None for key in picture.of_topic(id))


def _record(picture: Cluster, topic: Topic, node: Node, guard: Node) -> Group:
    """The write that records an assignment; nothing where it is recorded, or the topic node says something else."""
    members = members_of(picture, topic.id)
    try:
        content, known = TopicNode.decode(node.data), TopicIdNode.decode(guard.data)
    except MalformedNodeError:
        return ()
    if content.topic_id != topic.id or known.topic != topic.name or edits(content, members):
        return ()
    if known.accepted is not None and is_recorded(known.accepted, members):
        return ()
    write = guard_write(topic, guard, accepted_of(picture, topic.id))
    return (Check(paths.topic(topic.name), node.stat.version), write)
