"""Deletion of topics, in steps that a failover can come between.

Order (safety rule S13): the record ``/admin/delete_topics/<topic id>``; then the partition nodes; then the topic node,
its guard and its settings in one multi, which frees the name; then brokers confirm one by one; the record goes last.
A controller that comes in between finds the record and carries on from whatever is left. Each of these is done for
many topics together, as creation is.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from regnum.types.v1 import errors_pb2, events_pb2
from regnum_coordination.errors import NodeExists, NoNode
from regnum_coordination.port import Check, Create, Delete, Group, Refused, Set, Written
from regnum_model import paths
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_model.nodes import DeletionNode, MalformedNodeError
from regnum_service.slices import Turns, slices

from regnum_election.decisions.cluster import Partition
from regnum_election.decisions.deletion import Deletion
from regnum_election.decisions.rejection import Rejection
from regnum_election.history.events import BY_HAND, DELETION, Reason
from regnum_election.reign.beside import PARTITION_WEIGHT, beside
from regnum_election.reign.writing import NotTaken
from regnum_election.state.context import ControllerContext
from regnum_election.state.deleted_topics import DeletedTopics
from regnum_election.topics.clearing import PARTITIONS_TOGETHER, TOPICS_TOGETHER, TopicClearer, still_gone
from regnum_election.topics.deletion_orders import tell_deletions
from regnum_election.topics.requests import MUTATION_ID_LENGTH_MAX, DeletionRequest, find_topic

FINISHED_MAX: Final = 10_000
"""Finished deletions whose mutation ids are remembered (safety rule S20)."""

PARTITIONS_PER_TURN: Final = 2_000
"""Partitions looked at between two turns of the event loop (safety rule S22)."""

ANSWERS_PER_TURN: Final = 250
"""Brokers' answers taken between two turns of the event loop (safety rule S22)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """The topic is gone and its name is free."""

    name: str
    """Its name."""
    topic_id: TopicId
    """Its id."""


DeletionOutcome = Deleted | Rejection


@dataclass(slots=True, kw_only=True)
class DeletionCall:
    """One DeleteTopics call."""

    requests: Sequence[DeletionRequest]
    """What is wanted."""
    result: "asyncio.Future[tuple[DeletionOutcome, ...]]"
    """Outcomes in the order of the requests."""
    begun: bool = False
    """Whether anything may have been written."""
    outcomes: dict[int, DeletionOutcome] = field(default_factory=dict)
    """Outcomes so far; what has one before the first step is left alone."""


class TopicDeleter:
    """Carries deletions out. One for each reign; used by the controller's task only."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._clearer = TopicClearer(context)
        self._deleted: Final = DeletedTopics(context.store, context.clock.wall_ms)
        self._finished: OrderedDict[str, Deleted] = OrderedDict()
        self._uncleared: set[TopicId] = set()
        """Topics whose nodes may still stand: until they are gone the record stays (safety rule S13)."""
        self._stuck: dict[TopicId, None] = {}
        """Those of them that nobody is at work on: somebody writes faster than they are deleted."""

    async def delete_topics(self, call: DeletionCall) -> AsyncGenerator[None, None]:
        """The steps of a DeleteTopics call."""
        open_requests = [i for i in range(len(call.requests)) if i not in call.outcomes]
        while open_requests:
            chosen = self._next_portion(call, open_requests)
            if not chosen:
                yield
                continue
            call.begun = True
            names = {id: self._context.picture.topics[id].name for id in chosen}
            refused = await self.begin_all({id: call.requests[i].mutation for id, i in chosen.items()})
            yield
            async for _ in self.clear([id for id in chosen if id not in refused]):
                yield
            for id, i in chosen.items():
                if id in refused:
                    call.outcomes[i] = refused[id]
                elif id in self._uncleared:
                    call.outcomes[i] = _still_deleting(names[id])
                else:
                    call.outcomes[i] = Deleted(name=names[id], topic_id=id)
        if not call.result.done():
            call.result.set_result(tuple(call.outcomes[i] for i in range(len(call.requests))))

    def _next_portion(self, call: DeletionCall, open_requests: list[int]) -> dict[TopicId, int]:
        """Topics to delete together, with the places of their requests, which are taken from the open ones.

        What needs no work is settled. A topic that stands twice ends the portion: its repeat is judged afterwards.
        """
        chosen: dict[TopicId, int] = {}
        partitions = taken = 0
        for i in open_requests[:TOPICS_TOGETHER]:
            request = call.requests[i]
            found = self.answered_before(request) or find_topic(
                request, self._context.picture, refused=self._context.refused
            )
            if isinstance(found, str):
                weight = len(self._context.picture.topics[found].partitions)
                if found in chosen or (chosen and partitions + weight > PARTITIONS_TOGETHER):
                    break
                chosen[found] = i
                partitions += weight
            else:
                call.outcomes[i] = found
            taken += 1
        del open_requests[:taken]
        return chosen

    @property
    def is_stuck(self) -> bool:
        """Whether nodes of some topic were still there after all rounds; ``try_again`` goes on with them."""
        return bool(self._stuck)

    def try_again(self) -> AsyncGenerator[None, None]:
        """Steps that go on with topics whose nodes could not be deleted."""
        topics, self._stuck = tuple(self._stuck), {}
        return self.clear(topics)

    def answered_before(self, request: DeletionRequest) -> DeletionOutcome | None:
        """The answer to a repeat (safety rule S20)."""
        if request.mutation is None:
            return None
        if request.mutation in self._finished:
            return _answer(request, self._finished[request.mutation])
        for deletion in self._context.deletions.of_mutation(request.mutation):
            answer = _answer(request, Deleted(name=deletion.topic, topic_id=deletion.topic_id))
            if isinstance(answer, Deleted) and deletion.topic_id in self._uncleared:
                # What was asked for, and not what it was called: not everybody may know that.
                return _still_deleting(request.name or request.topic_id)
            return answer
        return None

    async def answer_earlier(self, call: DeletionCall) -> None:
        """Answer repeats of what an earlier reign, or this one long ago, has finished. Raises what the store raises.

        For the caller's coroutine, before anything is charged: what this reign finishes from here on is in memory.
        """
        asked = {
            i: request.mutation
            for i, request in enumerate(call.requests)
            if request.mutation and len(request.mutation) <= MUTATION_ID_LENGTH_MAX
            if i not in call.outcomes and self.answered_before(request) is None
        }
        found = await self._deleted.remembered(tuple(dict.fromkeys(asked.values())))
        for i, mutation in asked.items():
            if (node := found.get(mutation)) is not None:
                call.outcomes[i] = _answer(call.requests[i], Deleted(name=node.topic, topic_id=node.topic_id))

    async def write_records(self, records: Sequence[tuple[Deletion, Group]]) -> tuple[Written | Refused, ...]:
        """Write groups that end with a deletion's record; the mutation id of a record that goes is kept for repeats."""
        return await self._deleted.write(records)

    async def begin(
        self, topic_id: TopicId, *, mutation: str | None, brokers: Collection[BrokerId] = ()
    ) -> Rejection | None:
        """As ``begin_all``, for one topic."""
        return (await self.begin_all({topic_id: mutation}, brokers=brokers)).get(topic_id)

    async def begin_all(
        self, topics: Mapping[TopicId, str | None], *, brokers: Collection[BrokerId] = (), removed: bool = False
    ) -> dict[TopicId, Rejection]:
        """Write records and stop the topics everywhere; returns those that cannot be deleted, with the reason.

        Args:
            topics: topics of the picture, each with the id of the mutation that asks for it.
            brokers: brokers to tell besides the assigned ones.
            removed: whether their nodes were removed by hand: one that is there again is no deletion (safety rule S14).
        """
        context = self._context
        begun = [await self._planned(id, mutation, brokers) for id, mutation in topics.items()]
        groups = [record_of_removed(one) if removed else record_of(one) for one in begun]
        await context.store.outdate_guards()
        refused: dict[TopicId, Rejection] = {}
        for one, outcome in zip(begun, await context.store.write_batch(groups), strict=True):
            match outcome:
                case Written():
                    pass
                case Refused(error=NodeExists(path=path)) if path == paths.deletion(one.topic_id):
                    context.log.info("deletion recorded already", topic=one.topic, topic_id=one.topic_id)
                case Refused(error=error):
                    refused[one.topic_id] = _not_recorded(one.topic, error)
        reason = BY_HAND if removed else DELETION
        await self._take_out([one for one in begun if one.topic_id not in refused], reason)
        return refused

    async def _planned(self, topic_id: TopicId, mutation: str | None, brokers: Collection[BrokerId]) -> Deletion:
        picture = self._context.picture
        topic = picture.topics[topic_id]
        hosts: Counter[BrokerId] = Counter()
        turns = Turns(PARTITIONS_PER_TURN)
        for number in topic.partitions:
            partition = picture.partitions[PartitionKey(topic_id, number)]
            move = partition.reassignment
            hosts.update(partition.replicas if move is None else {*partition.replicas, *move.kept})
            await turns.took()
        named = frozenset(hosts) | frozenset(brokers) | self._context.removals.brokers_of(topic_id)
        named |= self._context.dispatch.departing.of_topic(topic_id)
        record = DeletionNode(topic=topic.name, brokers=named, mutation=mutation)
        return Deletion.recorded_as(topic_id, record, version=0, weight=max(hosts.values(), default=1))

    async def _take_out(self, begun: Sequence[Deletion], reason: Reason) -> None:
        """Topics whose deletion is recorded are in the picture no more, and everybody hears of it."""
        context = self._context
        if not begun:
            return
        forgotten: list[PartitionKey] = []
        turns = Turns(PARTITIONS_PER_TURN)
        for one in begun:
            context.log.info(
                "topic deletion begun", topic=one.topic, topic_id=one.topic_id, brokers=sorted(one.recorded)
            )
            context.events.topic(events_pb2.EVENT_KIND_TOPIC_DELETED, one.topic, one.topic_id, reason)
            context.deletions.add(one)
            removed = frozenset(
                PartitionKey(one.topic_id, number) for number in context.removals.of_topic(one.topic_id)
            )
            for broker in context.removals.brokers_of(one.topic_id) if removed else ():
                context.dispatch.withdraw_stops(broker, removed)
            context.removals.drop_topic(one.topic_id)
            context.dispatch.departing.forget(one.topic_id)
            context.clearing[one.topic] = one.topic_id
            self._uncleared.add(one.topic_id)
            known: dict[int, int | None] = {}
            for key in context.picture.of_topic(one.topic_id):
                known[key.partition] = _known_version(context.picture.partitions[key])
                forgotten.append(key)
                await turns.took()
            self._clearer.remember(one.topic_id, known)
        without = await beside(
            partial(context.picture.without_topics, [one.topic_id for one in begun]),
            weight=PARTITION_WEIGHT * len(forgotten),
        )
        context.picture = replace(
            without, settings=context.picture.settings.with_topics({one.topic: None for one in begun})
        )
        context.dispatch.show(context.picture)
        context.dispatch.forget_orders(forgotten)
        context.unpublished.forget(one.topic_id for one in begun)
        context.metadata.publish(context.picture, (), {one.topic_id: one.topic for one in begun})
        await tell_deletions(context)

    async def clear(self, topics: Collection[TopicId]) -> AsyncGenerator[None, None]:
        """Delete the nodes of recorded topics; their names are free afterwards."""
        context = self._context
        for some in self._clearer.together(topics):
            names = {id: deletion.topic for id in some if (deletion := context.deletions.get(id)) is not None}
            cleared: set[TopicId] = set()
            async for _ in self._clearer.clear(names, cleared):
                yield
            for id, name in names.items():
                if id not in cleared:
                    context.log.error("topic nodes cannot be deleted; trying again later", topic=name)
                    self._stuck[id] = None
                    continue
                if context.clearing.get(name) == id:
                    del context.clearing[name]
                self._uncleared.discard(id)
                context.log.info("topic name free", topic=name, topic_id=id)
            await self._settle_records(cleared)

    async def answered(self, broker: BrokerId, topics: Iterable[tuple[TopicId, bool]]) -> None:
        """A broker answered orders to delete, and says of each topic whether it did."""
        deletions = self._context.deletions
        heard: list[TopicId] = []
        async for some in slices(topics, ANSWERS_PER_TURN):
            for topic_id, succeeded in some:
                if topic_id in deletions:
                    deletions.answered(broker, topic_id, succeeded=succeeded)
                    heard.append(topic_id)
        await self._settle_records(heard)

    async def _settle_records(self, topics: Iterable[TopicId]) -> None:
        """Remove records that every broker has confirmed; name only absent brokers in the others, once that is so."""
        context = self._context
        meant: list[tuple[Deletion, DeletionNode | None]] = []
        async for some in slices(topics, ANSWERS_PER_TURN):
            for topic_id in some:
                deletion = context.deletions.get(topic_id)
                if deletion is None or topic_id in self._uncleared:
                    continue
                due = deletion.record_due(context.picture.brokers)
                if due is not None or not deletion.remaining:
                    meant.append((deletion, due))
        written = await self.write_records([(deletion, _record_write(deletion, due)) for deletion, due in meant])
        for (deletion, due), outcome in zip(meant, written, strict=True):
            self._record_settled(deletion, due, outcome)

    def is_cleared(self, topic_id: TopicId) -> bool:
        """Whether the nodes of a topic are gone, so that its record may go with the last broker that it names."""
        return topic_id not in self._uncleared

    def ended(self, deletion: Deletion) -> None:
        """The record of a deletion is gone."""
        context = self._context
        context.log.info("topic deleted everywhere", topic=deletion.topic, topic_id=deletion.topic_id)
        self._finish(deletion)

    def _record_settled(self, deletion: Deletion, due: DeletionNode | None, outcome: Written | Refused) -> None:
        context = self._context
        match outcome:
            case Written(results=results) if due is not None:
                stat = results[-1].stat
                if stat is not None:
                    context.deletions.add(deletion.rewritten(due, version=stat.version))
            case Written():
                self.ended(deletion)
            case Refused(error=error):
                # Somebody wrote the record by hand: the next reign reads it again.
                context.log.warning("deletion record changed meanwhile", topic_id=deletion.topic_id, reason=str(error))
                if isinstance(error, NoNode):
                    self._finish(deletion)

    def _finish(self, deletion: Deletion) -> None:
        self._context.deletions.remove(deletion.topic_id)
        if deletion.mutation is not None:
            self._finished[deletion.mutation] = Deleted(name=deletion.topic, topic_id=deletion.topic_id)
            if len(self._finished) > FINISHED_MAX:
                self._finished.popitem(last=False)

    def inherit(self) -> None:
        """Deletions that an earlier reign, or a person, began: until ``resume`` has run, nodes of theirs may stand.

        To be called before any broker's confirmation is looked at, which may be between the steps that verify a
        picture: a record that went before the nodes would leave a topic that stands and has lost its records.
        """
        self._uncleared.update(self._context.deletions)

    def resume(self) -> AsyncGenerator[None, None]:
        """Steps that carry on with what was inherited."""
        self.inherit()
        return self.clear(tuple(self._context.deletions))


def _known_version(partition: Partition) -> int | None:
    """Version of a partition's state, where the picture can be believed."""
    return None if partition.held is None or partition.trouble is not None else partition.held.version


def _record_write(deletion: Deletion, due: DeletionNode | None) -> Group:
    path = paths.deletion(deletion.topic_id)
    if due is None:
        return (Delete(path, deletion.record_version),)
    return (Set(path, due.encode(), deletion.record_version),)


def _answer(request: DeletionRequest, deleted: Deleted) -> DeletionOutcome:
    """What a repeat hears; an id that was another topic's is a mistake of whoever made it."""
    if request.name in {"", deleted.name} and request.topic_id in {"", deleted.topic_id}:
        return deleted
    return Rejection(
        code=errors_pb2.ERROR_CODE_INVALID_REQUEST,
        message=f"mutation id {request.mutation} has been used for the deletion of another topic; give each deletion "
        "an id of its own",
    )


def record_of(deletion: Deletion) -> Group:
    """The write that begins a deletion."""
    return (
        Check(paths.topic_id(deletion.topic_id)),
        Create(paths.deletion(deletion.topic_id), deletion.record.encode()),
    )


def record_of_removed(deletion: Deletion) -> Group:
    """The write that begins the deletion of a topic whose node is gone, if it is gone still (safety rule S14)."""
    guard, record = record_of(deletion)
    return (guard, *still_gone(deletion.topic), record)


def _not_recorded(topic: str, error: Exception) -> Rejection:
    if isinstance(error, NodeExists):
        return Rejection(
            code=errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS, message=f"the node of topic {topic} is there again"
        )
    if isinstance(error, NoNode):
        return Rejection(
            code=errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION, message=f"topic {topic} is damaged: {error}"
        )
    if isinstance(error, NotTaken):
        return Rejection(
            code=errors_pb2.ERROR_CODE_INVALID_REQUEST,
            message=f"the deletion of topic {topic} cannot be recorded: {error}",
        )
    raise error


def read_deletions(nodes: Mapping[str, tuple[bytes, int]]) -> tuple[dict[TopicId, Deletion], dict[str, str]]:
    """Deletions by topic id from records (content and version by node name), and what is wrong with unreadable ones."""
    deletions: dict[TopicId, Deletion] = {}
    unreadable: dict[str, str] = {}
    for name, (data, version) in nodes.items():
        try:
            node = DeletionNode.decode(data)
        except MalformedNodeError as error:
            unreadable[name] = str(error)
            continue
        deletions[TopicId(name)] = Deletion.recorded_as(TopicId(name), node, version=version)
    return deletions, unreadable


def _still_deleting(name: str) -> Rejection:
    return Rejection(
        code=errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
        message=f"topic {name} is still being deleted and its name is not free yet; list the topics later",
    )
