"""Deletion of topics, in steps that a failover can come between.

Order (safety rule S13): the record ``/admin/delete_topics/<topic id>``; then the partition nodes; then the topic node,
its guard and its settings in one multi, which frees the name; then brokers confirm one by one; the record goes last.
A controller that comes in between finds the record and carries on from whatever is left.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_coordination.errors import NodeExists, NodeFailure, NoNode, NotEmpty
from regnum_coordination.port import Check, Create, Delete, Group, Refused, Set
from regnum_model import paths
from regnum_model.configs import topic_config
from regnum_model.ids import BrokerId, TopicId
from regnum_model.nodes import MAX_PARTITIONS, DeletionNode, MalformedNodeError, TopicIdNode, TopicNode

from regnum_election.broker_changes import tell_deletions
from regnum_election.context import ControllerContext
from regnum_election.deletion import Deletion
from regnum_election.topic_requests import DeletionRequest, Rejection, find_topic
from regnum_election.writing import NotTaken

PARTITIONS_PER_STEP: Final = 150
"""Partitions whose two nodes one step deletes."""

PROBE_PARTITIONS: Final = 128
"""Partitions looked for at a time when the topic node is gone and nobody knows how many there were."""

ROUNDS_MAX: Final = 50
"""Rounds against leaders that write while their nodes are deleted."""

FINISHED_MAX: Final = 10_000
"""Finished deletions whose mutation ids are remembered (safety rule S20)."""


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
        self._finished: OrderedDict[str, Deleted] = OrderedDict()
        self._numbers: dict[TopicId, tuple[str, ...]] = {}
        self._uncleared: set[TopicId] = set()
        """Topics whose nodes may still stand: until they are gone the record stays (safety rule S13)."""
        self._stuck: dict[TopicId, None] = {}
        """Those of them that nobody is at work on: somebody writes faster than they are deleted."""

    async def delete_topics(self, call: DeletionCall) -> AsyncGenerator[None, None]:
        """The steps of a DeleteTopics call."""
        for i, request in enumerate(call.requests):
            if i in call.outcomes:
                continue
            found = self.answered_before(request) or find_topic(request, self._context.picture)
            match found:
                case Rejection() | Deleted():
                    call.outcomes[i] = found
                    continue
                case str():
                    pass
            call.begun = True
            name = self._context.picture.topics[found].name
            refused = await self.begin(found, mutation=request.mutation)
            if refused is not None:
                call.outcomes[i] = refused
                continue
            yield
            async for _ in self.clear(found):
                yield
            cleared = found not in self._uncleared
            call.outcomes[i] = Deleted(name=name, topic_id=found) if cleared else _still_deleting(name)
        if not call.result.done():
            call.result.set_result(tuple(call.outcomes[i] for i in range(len(call.requests))))

    @property
    def is_stuck(self) -> bool:
        """Whether nodes of some topic were still there after all rounds; ``try_again`` goes on with them."""
        return bool(self._stuck)

    def try_again(self) -> AsyncGenerator[None, None]:
        """Steps that go on with topics whose nodes could not be deleted."""
        topics, self._stuck = tuple(self._stuck), {}
        return self._clear_all(topics)

    def answered_before(self, request: DeletionRequest) -> DeletionOutcome | None:
        """The answer to a repeat (safety rule S20)."""
        if request.mutation is None:
            return None
        if request.mutation in self._finished:
            return self._finished[request.mutation]
        for deletion in self._context.deletions.values():
            if deletion.mutation != request.mutation:
                continue
            if self._context.clearing.get(deletion.topic) == deletion.topic_id:
                return _still_deleting(deletion.topic)
            return Deleted(name=deletion.topic, topic_id=deletion.topic_id)
        return None

    async def begin(
        self, topic_id: TopicId, *, mutation: str | None, brokers: Collection[BrokerId] = ()
    ) -> Rejection | None:
        """Write the record and stop the topic everywhere.

        Args:
            topic_id: a topic of the picture, or one whose guard alone is left.
            mutation: id of the mutation.
            brokers: brokers to tell besides the assigned ones.
        """
        context = self._context
        topic = context.picture.topics[topic_id]
        keys = context.picture.of_topic(topic_id)
        hosts = frozenset(id for key in keys for id in context.picture.partitions[key].replicas) | frozenset(brokers)
        record = DeletionNode(topic=topic.name, brokers=hosts, mutation=mutation)
        try:
            await context.store.multi(
                (Check(paths.topic_id(topic_id)), Create(paths.deletion(topic_id), record.encode()))
            )
        except NotTaken as error:
            return Rejection(
                code=errors_pb2.ERROR_CODE_INVALID_REQUEST,
                message=f"the deletion of topic {topic.name} cannot be recorded: {error}",
            )
        except NodeExists:
            context.log.info("deletion recorded already", topic=topic.name, topic_id=topic_id)
        except NoNode as error:
            return Rejection(
                code=errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION, message=f"topic {topic.name} is damaged: {error}"
            )
        context.log.info("topic deletion begun", topic=topic.name, topic_id=topic_id, brokers=sorted(hosts))
        context.deletions[topic_id] = Deletion.recorded_as(topic_id, record, version=0)
        context.clearing[topic.name] = topic_id
        self._uncleared.add(topic_id)
        self._numbers[topic_id] = tuple(str(key.partition) for key in keys)
        context.picture = replace(
            context.picture.without_topics((topic_id,)),
            settings=context.picture.settings.of_topics({topic.name: None}),
        )
        context.dispatch.show(context.picture)
        context.metadata.publish(context.picture, (), {topic_id: topic.name})
        tell_deletions(context)
        return None

    async def clear(self, topic_id: TopicId) -> AsyncGenerator[None, None]:
        """Delete the nodes of a recorded topic; its name is free afterwards."""
        name = self._context.deletions[topic_id].topic
        store = self._context.store
        guard_path = paths.topic_id(topic_id)
        for _ in range(ROUNDS_MAX):
            config_path = topic_config(name)
            found = await store.read_many((guard_path, config_path))
            guard, config = found.get(guard_path), found.get(config_path)
            if guard is None or not _guards(guard.data, name):
                # Topic and guard go together: whatever stands under the name now is another topic's.
                break
            topic_path = paths.topic(name)
            topic = (await store.read_many((topic_path,))).get(topic_path)
            last: list[Delete] = [Delete(guard_path, guard.stat.version)]
            if config is not None and (topic is None or _is_life_of(topic.data, topic_id)):
                last.append(Delete(config_path, config.stat.version))
            if topic is None:
                await self._delete_orphans(name, topic_id)
            elif _is_life_of(topic.data, topic_id):
                last.insert(0, Delete(topic_path, topic.stat.version))
                # Listing is slow on some stores: the first round goes by what the picture knew.
                numbers = self._numbers.pop(topic_id, None) or await store.names(topic_path)
                for start in range(0, len(numbers), PARTITIONS_PER_STEP):
                    await self._delete_partitions(name, topic_id, numbers[start : start + PARTITIONS_PER_STEP])
                    yield
            try:
                await store.multi(last)
            except NodeFailure as error:
                self._context.log.info("deletion goes round again", topic=name, reason=str(error))
                yield
            else:
                break
        else:
            self._context.log.error("topic nodes cannot be deleted; trying again later", topic=name)
            self._stuck[topic_id] = None
            return
        if self._context.clearing.get(name) == topic_id:
            del self._context.clearing[name]
        self._uncleared.discard(topic_id)
        self._context.log.info("topic name free", topic=name, topic_id=topic_id)
        await self._settle_record(topic_id)

    async def _delete_partitions(self, name: str, topic_id: TopicId, numbers: Sequence[str]) -> None:
        store = self._context.store
        folders = [f"{paths.topic(name)}/{number}" for number in numbers]
        found = await store.read_many([path for folder in folders for path in (folder, f"{folder}/leaderAndISR")])
        groups: list[Group] = []
        deleted: list[str] = []
        for folder in folders:
            node, state = found.get(folder), found.get(f"{folder}/leaderAndISR")
            steps: list[Delete] = []
            if state is not None:
                steps.append(Delete(f"{folder}/leaderAndISR", state.stat.version))
            if node is not None:
                steps.append(Delete(folder, node.stat.version))
            if steps:
                groups.append((Check(paths.topic_id(topic_id)), *steps))
                deleted.append(folder)
        for folder, outcome in zip(deleted, await store.write_batch(groups), strict=True):
            if isinstance(outcome, Refused) and isinstance(outcome.error, NotEmpty):
                await self._delete_below(folder, topic_id)

    async def _delete_below(self, folder: str, topic_id: TopicId) -> None:
        """Nodes that somebody put into a partition's folder must not keep the topic alive."""
        store = self._context.store
        for name in await store.names(folder):
            path = f"{folder}/{name}"
            await self._delete_below(path, topic_id)
            node = (await store.read_many((path,))).get(path)
            if node is not None:
                await store.write_batch([(Check(paths.topic_id(topic_id)), Delete(path, node.stat.version))])

    async def _delete_orphans(self, name: str, topic_id: TopicId) -> None:
        """Delete partition nodes that a plain ``etcdctl del`` of the topic node left without a parent."""
        store = self._context.store
        for start in range(0, MAX_PARTITIONS, PROBE_PARTITIONS):
            folders = [paths.partition(name, number) for number in range(start, start + PROBE_PARTITIONS)]
            found = await store.read_many([path for folder in folders for path in (folder, f"{folder}/leaderAndISR")])
            if not found:
                return
            # Children before their folders.
            for path in sorted(found, key=len, reverse=True):
                group = (Check(paths.topic_id(topic_id)), Delete(path, found[path].stat.version))
                (outcome,) = await store.write_batch([group])
                if isinstance(outcome, Refused):
                    self._context.log.info("orphan not deleted", path=path, reason=str(outcome.error))

    async def answered(self, broker: BrokerId, topic_id: TopicId, *, succeeded: bool) -> None:
        """A broker answered the order to delete."""
        deletion = self._context.deletions.get(topic_id)
        if deletion is None:
            return
        # A refused order is repeated by the dispatch until the broker obeys or is gone.
        self._context.deletions[topic_id] = (
            deletion.confirmed(broker) if succeeded else deletion.refused(broker).told((broker,))
        )
        await self._settle_record(topic_id)

    async def _settle_record(self, topic_id: TopicId) -> None:
        context = self._context
        if topic_id in self._uncleared:
            return
        deletion = context.deletions[topic_id]
        path = paths.deletion(topic_id)
        due = deletion.record_due(context.picture.brokers)
        try:
            if not deletion.remaining:
                await context.store.multi((Delete(path, deletion.record_version),))
            elif due is not None:
                (result,) = await context.store.multi((Set(path, due.encode(), deletion.record_version),))
                if result.stat is not None:
                    context.deletions[topic_id] = deletion.rewritten(due, version=result.stat.version)
        except NodeFailure as error:
            # Somebody wrote the record by hand: the next reign reads it again.
            context.log.warning("deletion record changed meanwhile", topic_id=topic_id, reason=str(error))
            if isinstance(error, NoNode):
                self._finish(deletion)
            return
        if not deletion.remaining:
            context.log.info("topic deleted everywhere", topic=deletion.topic, topic_id=topic_id)
            self._finish(deletion)

    def _finish(self, deletion: Deletion) -> None:
        del self._context.deletions[deletion.topic_id]
        if deletion.mutation is not None:
            self._finished[deletion.mutation] = Deleted(name=deletion.topic, topic_id=deletion.topic_id)
            if len(self._finished) > FINISHED_MAX:
                self._finished.popitem(last=False)

    def resume(self, topics: Sequence[TopicId]) -> AsyncGenerator[None, None]:
        """Steps that carry on with deletions that an earlier reign, or a person, began."""
        # Brokers may confirm before the first step.
        self._uncleared.update(topics)
        return self._clear_all(topics)

    async def _clear_all(self, topics: Iterable[TopicId]) -> AsyncGenerator[None, None]:
        for topic_id in topics:
            async for _ in self.clear(topic_id):
                yield


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


def _guards(data: bytes, name: str) -> bool:
    try:
        return TopicIdNode.decode(data).topic == name
    except MalformedNodeError:
        return False


def _is_life_of(data: bytes, topic_id: TopicId) -> bool:
    """Whether a topic node is this topic's and not that of a later one with the same name."""
    try:
        return TopicNode.decode(data).topic_id == topic_id
    except MalformedNodeError:
        # What cannot be read is what the deletion is for.
        return True
