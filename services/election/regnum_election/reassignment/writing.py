"""How assignments change: the topic node, and with it the states of the partitions that lose a replica, in one multi.

The topic node is read first and only the partitions concerned are changed in it, at the version that was read: what
others have written there stays. What it says of these partitions has to be what the picture says, or it was edited by
hand: the agent leaves such a partition alone, and what somebody asks for is written over the edit, with the accepted
assignment of all the topic's partitions. The guard records the assignment in the same multi.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from regnum_coordination.port import Check, Node, Operation, Refused, Set, Written
from regnum_model import paths
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_model.nodes import AcceptedAssignment, LaterVersionError, LeaderAndIsr, MalformedNodeError, TopicNode

from regnum_election.decisions.cluster import Cluster, HeldState, Topic
from regnum_election.decisions.topic_nodes import edits
from regnum_election.history.events import REASSIGNMENT, PartitionRow, Reason
from regnum_election.reassignment.decisions import Assigned
from regnum_election.reassignment.milestones import by_kind
from regnum_election.reign.beside import PARTITION_WEIGHT, beside
from regnum_election.state.accepted import accepted_of, guard_write, members_of, node_of, note_edits
from regnum_election.state.context import ControllerContext


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentChange:
    """A change of one partition."""

    assigned: Assigned
    """What the topic node is to say."""
    held: HeldState | None = None
    """leaderAndISR that the change relies on; None: it relies on none."""
    state: LeaderAndIsr | None = None
    """What leaderAndISR is to say; None: it stays."""


@dataclass(slots=True)
class Outcome:
    """What became of the changes of one topic."""

    written: list[PartitionKey] = field(default_factory=list)
    """Partitions whose change stands in the store and in the picture."""
    differing: list[PartitionKey] = field(default_factory=list)
    """Partitions of which the topic node says something else than the picture."""
    refused: str = ""
    """Why the others were not written; empty: they were."""


async def write_assignments(
    context: ControllerContext,
    topic: Topic,
    changes: Mapping[int, AssignmentChange],
    reason: Reason = REASSIGNMENT,
    *,
    over_edits: bool = False,
) -> Outcome:
    """Write changes of some partitions of a topic, all or none, and apply them to the picture.

    Raises NotTaken when the topic node would be too large.

    Args:
        context: the reign.
        topic: the topic.
        changes: by partition.
        reason: why, and who asked, for the event log.
        over_edits: whether the topic node is written over where a person edited its assignment.
    """
    outcome = Outcome()
    path, guard_path = paths.topic(topic.name), paths.topic_id(topic.id)
    nodes = await context.store.read_many((path, guard_path))
    found = nodes.get(path)
    if found is None:
        outcome.refused = "the topic node is gone"
        return outcome
    node = await _to_be_changed(context, topic, found, over_edits=over_edits)
    if isinstance(node, str):
        outcome.refused = node
        return outcome
    weight = PARTITION_WEIGHT * (len(node.partitions) + len(topic.partitions))
    meant = _meant(context, topic.id, node, changes, outcome)
    if not meant:
        return outcome
    await asyncio.sleep(0)
    data = await beside(_changed(node, meant).encode, weight=weight)
    guard = await beside(partial(_guard, context.picture, topic, nodes.get(guard_path), meant), weight=weight)
    operations = _operations(context, topic, meant, guard, Set(path, data, found.stat.version))
    (result,) = await context.store.write_batch([operations])
    match result:
        case Written(results=results):
            versions = {
                operation.path: done.stat.version
                for operation, done in zip(operations, results, strict=True)
                if isinstance(operation, Set) and done.stat is not None
            }
            await _apply(context, topic, meant, versions, reason)
            outcome.written = [PartitionKey(topic.id, number) for number in meant]
            if over_edits:
                note_edits(context, topic, "")
                if not topic.misses_numbers:
                    context.incomplete.pop(topic.name, None)
        case Refused(error=error):
            outcome.refused = str(error)
    return outcome


async def _to_be_changed(context: ControllerContext, topic: Topic, found: Node, *, over_edits: bool) -> TopicNode | str:
    """What the topic node says, or is to say before the changes; why it is left alone."""
    try:
        node = await beside(partial(TopicNode.decode, found.data), weight=len(found.data))
    except LaterVersionError as later:
        return f"the topic node cannot be read: {later}"
    except MalformedNodeError as malformed:
        node, damage = None, f"the topic node cannot be read: {malformed}"
    else:
        damage = "the topic node is another topic's"
    if node is None or node.topic_id != topic.id:
        if not over_edits or found.stat.creation_id != topic.creation_id:
            return damage
        context.log.warning("topic node written anew", topic=topic.name, reason=damage)
        return _anew(context, topic)
    if not over_edits:
        return node
    weight = PARTITION_WEIGHT * (len(node.partitions) + len(topic.partitions))
    note_edits(context, topic, await beside(partial(_edits, context.picture, topic, node), weight=weight))
    return await beside(partial(_as_accepted, context.picture, topic, node), weight=weight)


def _edits(picture: Cluster, topic: Topic, node: TopicNode) -> str:
    return edits(node, members_of(picture, topic.id))


def _as_accepted(picture: Cluster, topic: Topic, node: TopicNode) -> TopicNode:
    """The node with the assignment as it was accepted; what else it says stays, as far as it is of these partitions."""
    accepted = accepted_of(picture, topic.id)
    if AcceptedAssignment.of(node) == accepted:
        return node
    began = {**node.began, **accepted.began}
    return replace(
        node,
        partitions=accepted.partitions,
        reassigning=accepted.reassigning,
        began={number: epoch for number, epoch in began.items() if number in accepted.partitions},
        creating=node.creating & accepted.partitions.keys(),
        removing={number: ids for number, ids in node.removing.items() if number not in accepted.partitions},
    )


def _anew(context: ControllerContext, topic: Topic) -> TopicNode:
    """The node of a topic of the picture, where what stands there says nothing of it."""
    members = members_of(context.picture, topic.id)
    left = {number: context.dispatch.departing.of_partition(PartitionKey(topic.id, number)) for number in members}
    return replace(
        node_of(context.picture, topic),
        creating=frozenset(number for number, one in members.items() if one.creating),
        removing=dict(context.removals.begun.get(topic.id, {})),
        left={number: tuple(sorted(brokers)) for number, brokers in left.items() if brokers},
    )


def _guard(picture: Cluster, topic: Topic, guard: Node | None, changes: Mapping[int, AssignmentChange]) -> Operation:
    """The topic's guard, with the assignment as it is then."""
    assigned = {number: (one.assigned.replicas, one.assigned.reassignment) for number, one in changes.items()}
    return guard_write(topic, guard, accepted_of(picture, topic.id, assigned))


def _meant(
    context: ControllerContext,
    topic_id: TopicId,
    node: TopicNode,
    changes: Mapping[int, AssignmentChange],
    outcome: Outcome,
) -> dict[int, AssignmentChange]:
    """Changes of what the topic node says as the picture does."""
    meant: dict[int, AssignmentChange] = {}
    for number, change in changes.items():
        key = PartitionKey(topic_id, number)
        known = context.picture.partitions.get(key)
        if known is None:
            continue
        if (node.partitions.get(number), node.reassigning.get(number)) == (known.replicas, known.reassignment):
            meant[number] = change
        else:
            outcome.differing.append(key)
    return meant


def _changed(node: TopicNode, changes: Mapping[int, AssignmentChange]) -> TopicNode:
    partitions, reassigning, left = dict(node.partitions), dict(node.reassigning), dict(node.left)
    for number, change in changes.items():
        partitions[number] = change.assigned.replicas
        left[number] = _without((*node.left.get(number, ()), *node.partitions[number]), change.assigned.replicas)
        if not left[number]:
            del left[number]
        if change.assigned.reassignment is None:
            reassigning.pop(number, None)
        else:
            reassigning[number] = change.assigned.reassignment
    return replace(node, partitions=partitions, reassigning=reassigning, left=left)


def _without(brokers: Iterable[BrokerId], others: Collection[BrokerId]) -> tuple[BrokerId, ...]:
    return tuple(dict.fromkeys(broker for broker in brokers if broker not in others))


def _operations(
    context: ControllerContext,
    topic: Topic,
    changes: Mapping[int, AssignmentChange],
    guard: Operation,
    last: Set,
) -> tuple[Operation, ...]:
    checks: dict[str, Check] = {}
    sets: list[Set] = []
    for number, change in changes.items():
        if change.held is None:
            continue
        path = paths.leader_and_isr(topic.name, number)
        if change.state is None:
            checks[path] = Check(path, change.held.version)
            continue
        sets.append(Set(path, change.state.encode(), change.held.version))
        # What goes is deleted: that those who stay are as the decision saw them is what it relies on (safety rule S3).
        for id in change.state.isr:
            epoch_path, id_path = paths.broker_epoch(id), paths.broker_id(id)
            checks[epoch_path] = Check(epoch_path, context.picture.brokers[id].registration)
            checks[id_path] = Check(id_path)
    return (guard, *checks.values(), *sets, last)


async def _apply(
    context: ControllerContext,
    topic: Topic,
    changes: Mapping[int, AssignmentChange],
    versions: Mapping[str, int],
    reason: Reason,
) -> None:
    states: dict[PartitionKey, HeldState] = {}
    rows: list[PartitionRow] = []
    for number, change in changes.items():
        if change.state is not None:
            key, version = PartitionKey(topic.id, number), versions[paths.leader_and_isr(topic.name, number)]
            states[key] = HeldState(state=change.state.kept(), version=version)
            rows.append(PartitionRow(key, None if change.held is None else change.held.state, change.state, version))
    departing = context.dispatch.departing
    for number, change in changes.items():
        key, replicas = PartitionKey(topic.id, number), change.assigned.replicas
        departing.add(key, _without(context.picture.partitions[key].replicas, replicas))
        for broker in context.picture.offline_at(key):
            departing.note_damaged(broker, (key,))
        departing.back(key, replicas)
    await _note(context, topic, changes, reason)
    context.events.partitions(rows, context.picture.topics, reason)
    context.unverified.prove(states)
    assigned = {
        PartitionKey(topic.id, number): (change.assigned.replicas, change.assigned.reassignment)
        for number, change in changes.items()
    }
    # Nobody but the controller's one task, which waits here, puts another picture in place.
    picture = await beside(partial(context.picture.with_assignments, assigned), weight=PARTITION_WEIGHT * len(assigned))
    context.picture = picture.with_states(states).with_topic_versions({topic.id: versions[paths.topic(topic.name)]})


async def _note(
    context: ControllerContext, topic: Topic, changes: Mapping[int, AssignmentChange], reason: Reason
) -> None:
    """Put into the event log what became of reassignments, before what it did to states."""
    known = context.picture.partitions
    passed = [
        (key, known[key], change.assigned)
        for number, change in changes.items()
        if (key := PartitionKey(topic.id, number)) in known
    ]
    told = await beside(partial(by_kind, passed), weight=PARTITION_WEIGHT * len(passed))
    for kind, rows in told.items():
        context.events.assignments(kind, rows, context.picture.topics, reason)
