"""Addition of partitions to topics, in steps that a failover can come between.

Order of the writes (safety rules S13, S14, S20), as for a new topic: the topic node with the new partitions, marked
``creating``; then each partition with its first state; then the topic node without the marks. The first of these is
the moment at which the partitions exist: before it nothing has changed, and a controller that comes after it finds the
marks and carries on from them.

A number that a removed partition had goes on from the tombstone: its version and its leader epoch (safety rule S2). So
nothing that was said of the former one can be taken for news of this one. The first of the writes says from which
leader epoch on (``began``), and every order repeats it: a broker that comes back with files of the former one, after
it was forgotten, deletes them (trace T10). Until every broker that is not forgotten has confirmed that the former one's
files are gone, the number is not given again.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from regnum.types.v1 import errors_pb2, events_pb2
from regnum_coordination.port import Delete, Group, Node, Operation, Refused, Set, Written
from regnum_model import paths
from regnum_model.ids import PartitionKey
from regnum_model.nodes import MalformedNodeError, TopicNode
from regnum_service.slices import Turns

from regnum_election.decisions.cluster import HeldState, Partition, Topic
from regnum_election.decisions.rejection import Rejection, node_damaged
from regnum_election.decisions.topic_nodes import FoundNode, beginning_after, is_restored, judge_state
from regnum_election.history.events import CREATION, Reason
from regnum_election.partitions.requests import (
    ENOUGH_NAMED,
    Addition,
    AdditionRequest,
    Done,
    in_words,
    plan_addition,
    with_mutation,
)
from regnum_election.partitions.tombstones import note_damage
from regnum_election.reign.beside import PARTITION_WEIGHT, Beside, beside
from regnum_election.state.accepted import accepted_of, guard_write
from regnum_election.state.context import ControllerContext
from regnum_election.state.open_removals import Part
from regnum_election.state.partition_writes import change
from regnum_election.state.telling import tell
from regnum_election.topics.creation import PARTITIONS_PER_STEP, PARTITIONS_PER_TURN, finish_creation, has_states
from regnum_election.topics.requests import repeated_names

TOPICS_PER_STEP: Final = 50
"""Topic nodes that one step writes."""

PARTITIONS_PLANNED_PER_STEP: Final = 2_000
"""Partitions that are placed in one step, unless one topic gets more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """The topic has the partitions, by this call or by an earlier one with the same mutation id."""

    total: int
    """Partitions of the topic now."""


AdditionOutcome = Added | Rejection


@dataclass(slots=True, kw_only=True)
class AdditionCall:
    """One CreatePartitions call, or what nodes written by hand ask for."""

    requests: Sequence[AdditionRequest]
    """What is wanted."""
    validate_only: bool
    """Check only."""
    result: "asyncio.Future[tuple[AdditionOutcome, ...]]"
    """Outcomes in the order of the requests, when everything is written."""
    orders: Mapping[str, Sequence[tuple[str, int]]] = field(default_factory=dict)
    """By topic name, nodes (path and version) that ask for it: they go in the write that carries it out."""
    reason: Reason = CREATION
    """Why, and who asked, for the event log."""
    begun: bool = False
    """Whether anything may have been written."""
    outcomes: dict[int, AdditionOutcome] = field(default_factory=dict)
    """Outcomes so far; what has one before the first step is left alone."""
    keys: list[PartitionKey] = field(default_factory=list)
    """Partitions whose leaders the caller waits for; the caller says when it does not any more."""


async def add_partitions(context: ControllerContext, call: AdditionCall) -> AsyncGenerator[None, None]:
    """The steps of an addition."""
    repeated = repeated_names([request.name for request in call.requests])
    for indexes in _in_steps(call.requests):
        plans = await _plans(context, call, indexes, repeated)
        if not plans:
            yield
            continue
        added = await _write_topics(context, call, plans)
        yield
        keys = [PartitionKey(topic.id, number) for topic, members in added for number in members]
        for first in range(0, len(keys), PARTITIONS_PER_STEP):
            # A topic may have been deleted, by hand, between two steps.
            some = [key for key in keys[first : first + PARTITIONS_PER_STEP] if key in context.picture.partitions]
            await tell(context, await change(context, some, context.settle, call.reason))
            yield
        await finish_creation(context, [topic.id for topic, _ in added if topic.id in context.picture.topics])
        yield
    if not call.result.done():
        call.result.set_result(tuple(call.outcomes[i] for i in range(len(call.requests))))


def _in_steps(requests: Sequence[AdditionRequest]) -> Iterator[range]:
    """Indexes of the requests that are planned and written together: few, and few partitions (safety rule S22)."""
    start = partitions = 0
    for i, request in enumerate(requests):
        asked = max(request.total, len(request.assignment))
        if i > start and (i - start == TOPICS_PER_STEP or partitions + asked > PARTITIONS_PLANNED_PER_STEP):
            yield range(start, i)
            start, partitions = i, 0
        partitions += asked
    yield range(start, len(requests))


async def _plans(
    context: ControllerContext, call: AdditionCall, indexes: range, repeated: frozenset[str]
) -> dict[int, Addition]:
    """What is to be added next; what needs no writing is settled."""
    plans: dict[int, Addition] = {}
    turns = Turns(PARTITIONS_PER_TURN)
    for i in indexes:
        if i in call.outcomes:
            continue
        planned = plan_addition(
            call.requests[i], context.picture, repeated=repeated, clearing=context.clearing, refused=context.refused
        )
        match planned:
            case Rejection():
                call.outcomes[i] = planned
            case Done(topic=topic):
                call.outcomes[i] = added(context, topic)
                await turns.took(len(topic.partitions))
            case Addition() if (refused := on_its_way_out(context, planned)) is not None:
                call.outcomes[i] = refused
            case Addition() if call.validate_only:
                call.outcomes[i] = Added(total=len(planned.topic.partitions) + len(planned.assignment))
            case Addition():
                plans[i] = planned
    return plans


def added(context: ControllerContext, topic: Topic) -> AdditionOutcome:
    """What a repeat is answered for a topic of the picture (safety rule S20)."""
    return Added(total=len(topic.partitions)) if has_states(context.picture, topic) else still_adding(topic.name)


def still_adding(name: str) -> Rejection:
    """What is said of a topic with new partitions that cannot be used yet."""
    return Rejection(
        code=errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
        message=f"topic {name} has the partitions now, and not each of them is led yet; describe it later",
    )


def on_its_way_out(context: ControllerContext, addition: Addition) -> Rejection | None:
    """Refuses numbers of removed partitions that some broker may still have files of (safety rule S2)."""
    topic, removals = addition.topic, context.removals
    if not removals.is_open(topic.id, addition.assignment):
        return None
    damaged = [number for number in addition.assignment if number in removals.damaged_of(topic.id)]
    if damaged:
        return _damaged(topic.name, damaged[0], removals.damaged[topic.id][damaged[0]].part)
    brokers = sorted(removals.waiting_for(topic.id, addition.assignment))
    away = [id for id in brokers if id not in context.picture.brokers]
    advice = f"; {away} are not live: start them, or see `regnum brokers unregister`" if away else ""
    return Rejection(
        code=errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
        message=f"partitions of these numbers were removed from topic {topic.name}, and brokers {brokers} have not "
        f"deleted them yet; nothing was added; try again later{advice}",
    )


async def _write_topics(
    context: ControllerContext, call: AdditionCall, plans: Mapping[int, Addition]
) -> list[tuple[Topic, dict[int, Partition]]]:
    """Write topic nodes; returns the topics as they are now, each with its new partitions."""
    nodes = await context.store.read_many([path for plan in plans.values() for path in _paths_of(plan)])
    prepared: dict[int, _Prepared] = {}
    groups: list[Group] = []
    encoding = Beside()
    for i, plan in plans.items():
        weight = PARTITION_WEIGHT * (len(plan.topic.partitions) + len(plan.assignment))
        one = await encoding.result(partial(_prepare, context, plan, nodes), weight=weight)
        if isinstance(one, _DamagedTombstone):
            note_damage(context, one.key, one.reason)
            one = _damaged(plan.topic.name, one.key.partition, Part.TOMBSTONE)
        if isinstance(one, Rejection):
            call.outcomes[i] = one
            continue
        prepared[i] = one
        path = paths.topic(plan.topic.name)
        data = await encoding.result(one.node.encode, weight=weight)
        orders = (Delete(path, version) for path, version in call.orders.get(plan.topic.name, ()))
        guard = await encoding.result(partial(_guard, context, plan, one, nodes), weight=weight)
        groups.append((guard, Set(path, data, one.version), *orders))
    call.begun = call.begun or bool(groups)
    added: list[tuple[Topic, dict[int, Partition]]] = []
    for (i, one), outcome in zip(prepared.items(), await context.store.write_batch(groups), strict=True):
        topic = plans[i].topic
        match outcome:
            case Written(results=results):
                stat = results[1].stat
                if stat is None:
                    raise AssertionError("a set leaves a stat")
                numbers = tuple(sorted(one.node.partitions))
                mutations = one.node.partition_mutations
                grown = replace(topic, partitions=numbers, version=stat.version, partition_mutations=mutations)
                added.append((grown, one.members))
                call.outcomes[i] = Added(total=len(numbers))
            case Refused(error=error):
                call.outcomes[i] = changed_meanwhile(topic.name, error)
    await _show(context, call, added)
    return added


async def _show(
    context: ControllerContext, call: AdditionCall, added: Sequence[tuple[Topic, dict[int, Partition]]]
) -> None:
    keys = [PartitionKey(topic.id, number) for topic, members in added for number in members]
    weight = PARTITION_WEIGHT * len(keys)
    context.picture = await beside(partial(context.picture.with_more_of_topics, added), weight=weight)
    if not call.result.done():
        call.keys.extend(keys)
        context.dispatch.expect(keys)
    for topic, members in added:
        kind = events_pb2.EVENT_KIND_PARTITIONS_ADDED
        total = len(topic.partitions)
        new = f"{in_words(sorted(members))} {'is' if len(members) == 1 else 'are'} new"
        detail = f"{total - len(members)} before, {total} now: {new}"
        context.events.topic(kind, topic.name, topic.id, call.reason, partitions=len(members), detail=detail)
        context.log.info("partitions added", topic=topic.name, partitions=len(members), total=len(topic.partitions))
    context.dispatch.show(context.picture)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    node: TopicNode
    """To be written."""
    version: int
    """Over this one."""
    members: dict[int, Partition]
    """The new partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _DamagedTombstone:
    key: PartitionKey
    reason: str
    """What is wrong with it."""


def _guard(context: ControllerContext, plan: Addition, prepared: "_Prepared", nodes: Mapping[str, Node]) -> Operation:
    """The topic's guard, with the assignment as it is then."""
    added = {number: (replicas, None) for number, replicas in plan.assignment.items()}
    began = {number: member.began for number, member in prepared.members.items() if member.began}
    accepted = accepted_of(context.picture, plan.topic.id, added, began)
    return guard_write(plan.topic, nodes.get(paths.topic_id(plan.topic.id)), accepted)


def _paths_of(plan: Addition) -> Iterator[str]:
    yield paths.topic(plan.topic.name)
    yield paths.topic_id(plan.topic.id)
    for number in plan.assignment:
        yield paths.leader_and_isr(plan.topic.name, number)


def _prepare(
    context: ControllerContext, plan: Addition, nodes: Mapping[str, Node]
) -> _Prepared | _DamagedTombstone | Rejection:
    """What the topic node becomes, by what the store holds now. Nothing but a tombstone may stand in the way."""
    topic = plan.topic
    found = node_as_known(topic, nodes.get(paths.topic(topic.name)))
    if isinstance(found, Rejection):
        return found
    node, version = found
    if begun := sorted(node.removing.keys() & plan.assignment.keys()):
        return _changed_by_hand(topic.name, f"it names partitions {begun[:ENOUGH_NAMED]} as being removed")
    members: dict[int, Partition] = {}
    for number, replicas in plan.assignment.items():
        state = nodes.get(paths.leader_and_isr(topic.name, number))
        seen = None if state is None else FoundNode(data=state.data, version=state.stat.version)
        match judge_state(topic.id, seen, creating=True, reign=context.reign.epoch):
            case None:
                members[number] = Partition(replicas=replicas, creating=True)
            case HeldState() as held if held.state.removed:
                began = beginning_after(held)
                members[number] = Partition(replicas=replicas, creating=True, tombstone=held, began=began)
            case HeldState():
                return _in_the_way(topic.name, number, "it has a state, though the topic node does not name it")
            case str(reason) if is_restored(reason):
                return _in_the_way(topic.name, number, reason)
            case str(reason):
                return _DamagedTombstone(key=PartitionKey(topic.id, number), reason=reason)
    grown = replace(
        node,
        partitions={**node.partitions, **plan.assignment},
        creating=node.creating | plan.assignment.keys(),
        partition_mutations=with_mutation(node.partition_mutations, plan.mutation),
        began={**node.began, **{number: one.began for number, one in members.items() if one.tombstone is not None}},
    )
    return _Prepared(node=grown, version=version, members=members)


def node_as_known(topic: Topic, found: Node | None) -> tuple[TopicNode, int] | Rejection:
    """A topic node and its version; refused where it does not name the partitions that the picture has."""
    if found is not None:
        try:
            node = TopicNode.decode(found.data)
        except MalformedNodeError:
            return node_damaged(topic.name)
        if node.topic_id == topic.id and tuple(sorted(node.partitions)) == topic.partitions:
            return node, found.stat.version
    return _changed_by_hand(topic.name, "it does not name the partitions that the controller knows")


def changed_meanwhile(name: str, error: Exception) -> Rejection:
    """A topic node could not be written over what was read."""
    return Rejection(
        code=errors_pb2.ERROR_CODE_INVALID_REQUEST,
        message=f"topic {name} changed meanwhile ({error}); nothing was done; try again",
    )


def _changed_by_hand(name: str, reason: str) -> Rejection:
    return Rejection(
        code=errors_pb2.ERROR_CODE_INVALID_REQUEST,
        message=f"the node {paths.topic(name)} was changed by hand: {reason}; put it right first",
    )


def _in_the_way(name: str, number: int, reason: str) -> Rejection:
    return Rejection(
        code=errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS,
        message=f"{paths.leader_and_isr(name, number)} stands in the way of partition {number}: {reason}; "
        "nothing was added; write the partition back into the topic node if it was taken out there, and remove it with "
        "`regnum topics remove-partitions`",
    )


def _damaged(name: str, number: int, part: Part) -> Rejection:
    # Of a removal that is under way the rest is tried again, and the number may be free by then.
    conflict = part is Part.TOMBSTONE
    return Rejection(
        code=errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS if conflict else errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
        message=f"partition {number} of topic {name} was removed before, and what is recorded of it cannot be read; "
        f"nothing was added; see `regnum partitions remove-damaged {name} {number}`",
    )
