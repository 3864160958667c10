"""Removal of partitions from topics, in steps that a failover can come between.

Order of the writes (safety rules S2, S13):

    1. The topic node without the partitions, which it names as ``removing`` with the brokers that may have files of
       them. This one write is the moment at which they are gone, all of them: before it nothing has changed, after it
       whoever reigns carries on.
    2. For each partition in one multi: leaderAndISR becomes a tombstone, which fences the last leader, and the record
       ``/admin/delete_partitions/<topic id>/<partition>`` names the brokers that have still to confirm.
    3. The topic node without ``removing``.
    4. Brokers delete their files, and confirm; one that was away does when it returns. The record goes last.

The tombstone stays for as long as the topic exists: a partition of the same number goes on from its version and leader
epoch. Deleting the topic takes tombstones and records with it.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from regnum.types.v1 import events_pb2
from regnum_coordination.port import Delete, Group, Node, Operation, Refused, Set, Written
from regnum_model import paths
from regnum_model.ids import BrokerId, LeaderEpoch, PartitionKey, TopicId
from regnum_model.nodes import TopicNode

from regnum_election.decisions.rejection import Rejection
from regnum_election.history.events import DELETION, Reason
from regnum_election.partitions.addition import changed_meanwhile, node_as_known
from regnum_election.partitions.burial import Burial
from regnum_election.partitions.removal_records import RemovalRecords
from regnum_election.partitions.requests import (
    Done,
    RemovalPlan,
    RemovalRequest,
    in_words,
    plan_removal,
    with_mutation,
)
from regnum_election.reign.beside import PARTITION_WEIGHT, Beside, beside
from regnum_election.state.accepted import accepted_of, guard_write
from regnum_election.state.context import ControllerContext
from regnum_election.state.telling import publish
from regnum_election.topics.deletion_orders import tell_deletions
from regnum_election.topics.requests import repeated_names

TOPICS_PER_STEP: Final = 50
"""Topic nodes that one step writes."""

PARTITIONS_PLANNED_PER_STEP: Final = 2_000
"""Partitions that are taken out in one step, unless one topic has more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """The topic has these partitions no more, by this call or by an earlier one with the same mutation id."""

    total: int
    """Partitions that the topic has left."""


RemovalOutcome = Removed | Rejection


@dataclass(slots=True, kw_only=True)
class RemovalCall:
    """One DeletePartitions call, or what nodes written by hand ask for."""

    requests: Sequence[RemovalRequest]
    """What is wanted."""
    validate_only: bool
    """Check only."""
    result: "asyncio.Future[tuple[RemovalOutcome, ...]]"
    """Outcomes in the order of the requests, when the partitions are gone and brokers are being told."""
    orders: Mapping[str, Sequence[tuple[str, int]]] = field(default_factory=dict)
    """By topic name, nodes (path and version) that ask for it: they go in the write that carries it out."""
    reason: Reason = DELETION
    """Why, and who asked, for the event log."""
    begun: bool = False
    """Whether anything may have been written."""
    outcomes: dict[int, RemovalOutcome] = field(default_factory=dict)
    """Outcomes so far; what has one before the first step is left alone."""


class PartitionRemover:
    """Carries removals out. One for each reign; used by the controller's task only."""

    def __init__(self, context: ControllerContext) -> None:
        self._context: Final = context
        self._burial: Final = Burial(context)
        self.records: Final = RemovalRecords(context)
        """What brokers have still to confirm."""

    def accept_unreadable(self, key: PartitionKey, epoch: LeaderEpoch) -> None:
        """See ``Burial.accept_unreadable``."""
        self._burial.accept_unreadable(key, epoch)

    def accept_no_more(self, key: PartitionKey) -> None:
        """See ``Burial.accept_no_more``."""
        self._burial.accept_no_more(key)

    async def bury(self, topics: Collection[TopicId]) -> AsyncGenerator[None, None]:
        """Steps that carry on with removals of these topics that have begun."""
        async for _ in self._burial.bury(topics):
            yield

    async def remove_partitions(self, call: RemovalCall) -> AsyncGenerator[None, None]:
        """The steps of a removal."""
        repeated = repeated_names([request.name for request in call.requests])
        for indexes in _in_steps(call.requests):
            plans = self._plans(call, indexes, repeated)
            if plans:
                gone = await self._write_topics(call, plans)
                yield
                async for _ in self._burial.bury(gone):
                    yield
            yield
        if not call.result.done():
            call.result.set_result(tuple(call.outcomes[i] for i in range(len(call.requests))))

    def _plans(self, call: RemovalCall, indexes: range, repeated: frozenset[str]) -> dict[int, RemovalPlan]:
        """What is to be removed next; what needs no writing is settled."""
        context = self._context
        plans: dict[int, RemovalPlan] = {}
        for i in indexes:
            if i in call.outcomes:
                continue
            planned = plan_removal(
                call.requests[i], context.picture, repeated=repeated, clearing=context.clearing, refused=context.refused
            )
            match planned:
                case Rejection():
                    call.outcomes[i] = planned
                case Done(topic=topic):
                    call.outcomes[i] = Removed(total=len(topic.partitions))
                case RemovalPlan() if call.validate_only:
                    call.outcomes[i] = Removed(total=len(planned.topic.partitions) - len(planned.brokers))
                case RemovalPlan():
                    plans[i] = self._with_departing(planned)
        return plans

    def _with_departing(self, plan: RemovalPlan) -> RemovalPlan:
        """Brokers that partitions were reassigned from, and that may still have their files, are named as well."""
        departing, id = self._context.dispatch.departing, plan.topic.id
        if not departing.of_topic(id):
            return plan
        brokers = {
            number: tuple(dict.fromkeys((*named, *sorted(departing.of_partition(PartitionKey(id, number))))))
            for number, named in plan.brokers.items()
        }
        return replace(plan, brokers=brokers)

    async def _write_topics(self, call: RemovalCall, plans: dict[int, RemovalPlan]) -> list[TopicId]:
        """Write topic nodes, and take what is gone out of the picture; returns the topics concerned."""
        context = self._context
        nodes = await context.store.read_many(
            [path for plan in plans.values() for path in (paths.topic(plan.topic.name), paths.topic_id(plan.topic.id))]
        )
        meant: dict[int, TopicNode] = {}
        groups: list[Group] = []
        encoding = Beside()
        for i, plan in tuple(plans.items()):
            topic, weight = plan.topic, PARTITION_WEIGHT * len(plan.topic.partitions)
            found = await encoding.result(
                partial(node_as_known, topic, nodes.get(paths.topic(topic.name))), weight=weight
            )
            if isinstance(found, Rejection):
                call.outcomes[i] = found
                continue
            plans[i] = await encoding.result(partial(_with_found, plan, found[0]), weight=weight)
            meant[i] = await encoding.result(partial(_less, found[0], plans[i]), weight=weight)
            data = await encoding.result(meant[i].encode, weight=weight)
            orders = (Delete(path, version) for path, version in call.orders.get(topic.name, ()))
            guard = await encoding.result(partial(_guard, context, plans[i], nodes), weight=weight)
            groups.append((guard, Set(paths.topic(topic.name), data, found[1]), *orders))
        call.begun = call.begun or bool(groups)
        gone: dict[TopicId, RemovalPlan] = {}
        for (i, node), outcome in zip(meant.items(), await context.store.write_batch(groups), strict=True):
            plan = plans[i]
            match outcome:
                case Written(results=results):
                    gone[plan.topic.id] = plan
                    version = None if (stat := results[1].stat) is None else stat.version
                    self._note(plan, node, call.reason, version=version)
                    call.outcomes[i] = Removed(total=len(node.partitions))
                case Refused(error=error):
                    call.outcomes[i] = changed_meanwhile(plan.topic.name, error)
        await self._take_out(gone)
        return list(gone)

    def _note(self, plan: RemovalPlan, node: TopicNode, reason: Reason, *, version: int | None) -> None:
        context, topic = self._context, plan.topic
        if version is None:
            raise AssertionError("a set leaves a stat")
        context.removals.begun.setdefault(topic.id, {}).update(plan.brokers)
        known = replace(context.picture.topics[topic.id], version=version, partition_mutations=node.partition_mutations)
        context.picture = context.picture.with_more_of_topics([(known, {})])
        kind = events_pb2.EVENT_KIND_PARTITIONS_REMOVED
        left = len(node.partitions)
        detail = f"{left + len(plan.brokers)} before, {left} now: {in_words(sorted(plan.brokers))} went"
        context.events.topic(kind, topic.name, topic.id, reason, partitions=len(plan.brokers), detail=detail)
        context.log.warning(
            "partitions removed", topic=topic.name, partitions=sorted(plan.brokers), total=len(node.partitions)
        )

    async def _take_out(self, gone: Mapping[TopicId, RemovalPlan]) -> None:
        """Partitions are in the picture no more, and everybody hears of it."""
        context = self._context
        keys = [PartitionKey(id, number) for id, plan in gone.items() for number in plan.brokers]
        for key in keys:
            held = context.picture.partitions[key].held
            if held is not None and key not in context.unverified:
                self._burial.remember(key, held)
        numbers = {id: plan.brokers.keys() for id, plan in gone.items()}
        context.picture = await beside(
            partial(context.picture.without_partitions, numbers), weight=PARTITION_WEIGHT * len(keys)
        )
        context.dispatch.show(context.picture)
        context.dispatch.forget_orders(keys)
        for id, plan in gone.items():
            context.dispatch.departing.forget(id, plan.brokers)
        await publish(context, keys)

    async def resume(self) -> AsyncGenerator[None, None]:
        """Steps that carry on with removals that an earlier reign began, or that could not be finished."""
        removals = self._context.removals
        async for _ in self._burial.bury(tuple(removals.begun)):
            yield
        open_keys = [
            PartitionKey(id, number)
            for id in removals.topics
            for number, removal in removals.of_topic(id).items()
            if not removal.waiting
        ]
        await self.records.settle(open_keys)
        await tell_deletions(self._context)
        yield


def _guard(context: ControllerContext, plan: RemovalPlan, nodes: Mapping[str, Node]) -> Operation:
    """The topic's guard, with the assignment as it is then."""
    accepted = accepted_of(context.picture, plan.topic.id, dict.fromkeys(plan.brokers))
    return guard_write(plan.topic, nodes.get(paths.topic_id(plan.topic.id)), accepted)


def _in_steps(requests: Sequence[RemovalRequest]) -> Iterator[range]:
    """Indexes of the requests that are planned and written together: few, and few partitions (safety rule S22)."""
    start = partitions = 0
    for i, request in enumerate(requests):
        asked = len(request.partitions)
        if i > start and (i - start == TOPICS_PER_STEP or partitions + asked > PARTITIONS_PLANNED_PER_STEP):
            yield range(start, i)
            start, partitions = i, 0
        partitions += asked
    yield range(start, len(requests))


def _with_found(plan: RemovalPlan, node: TopicNode) -> RemovalPlan:
    """Who has a part in the partitions as the topic node says is named as well: the record cannot name too many."""
    brokers: dict[int, tuple[BrokerId, ...]] = {}
    for number, named in plan.brokers.items():
        move = node.reassigning.get(number)
        kept = () if move is None else move.kept
        brokers[number] = tuple(
            dict.fromkeys((*named, *node.partitions.get(number, ()), *kept, *node.left.get(number, ())))
        )
    return replace(plan, brokers=brokers)


def _less(node: TopicNode, plan: RemovalPlan) -> TopicNode:
    return replace(
        node,
        partitions={number: ids for number, ids in node.partitions.items() if number not in plan.brokers},
        creating=node.creating - plan.brokers.keys(),
        removing={**node.removing, **plan.brokers},
        reassigning={number: move for number, move in node.reassigning.items() if number not in plan.brokers},
        left={number: ids for number, ids in node.left.items() if number not in plan.brokers},
        partition_mutations=with_mutation(node.partition_mutations, plan.mutation),
    )
