"""Creation of topics, in steps that a failover can come between.

Order of the writes (safety rules S13, S14, S20): the topic node with all partitions marked ``creating`` together with
its guard and the settings that it has of its own; then each partition with its first state; then the topic node without
the marks. A controller that dies in between leaves marks, and the next one carries on from them; a leaderAndISR node is
never made for a partition without a mark.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from regnum.types.v1 import errors_pb2, events_pb2
from regnum_coordination.errors import NodeExists
from regnum_coordination.port import Check, Create, Group, Refused, Set, Stat, Written
from regnum_model import paths
from regnum_model.configs import encode_config, format_value, topic_config
from regnum_model.ids import PartitionKey, TopicId, encode_id
from regnum_model.nodes import AcceptedAssignment, MalformedNodeError, TopicIdNode, TopicNode
from regnum_service.slices import Turns

from regnum_election.decisions.cluster import Cluster, Partition, Topic
from regnum_election.decisions.rejection import Rejection, node_damaged
from regnum_election.decisions.topic_nodes import readable
from regnum_election.history.events import CREATION
from regnum_election.reign.beside import PARTITION_WEIGHT, Beside, beside
from regnum_election.state.context import ControllerContext
from regnum_election.state.partition_writes import change
from regnum_election.state.telling import publish, tell
from regnum_election.topics.requests import Plan, Repeated, TopicRequest, plan_topic, repeated_names

PARTITIONS_PER_STEP: Final = 300
"""Partitions that one step writes; a failover waits for one step at most."""

TOPICS_PER_STEP: Final = 50
"""Topic nodes that one step writes."""

PARTITIONS_PER_TURN: Final = 2_000
"""Partitions of topic nodes that are written anew between two turns of the event loop (safety rule S22)."""

PARTITIONS_PLANNED_PER_STEP: Final = 2_000
"""Partitions that are placed in one step, unless one topic has more."""

FIRST_VERSION: Final = 0
"""Version of a node that was just created, on every store (safety rule S2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """A topic exists, by this call or by an earlier one with the same mutation id."""

    topic_id: TopicId
    """Its id."""
    partitions: int
    """Number of partitions."""
    replication_factor: int
    """Replicas of the first partition."""


CreationOutcome = Created | Rejection


@dataclass(slots=True, kw_only=True)
class Creation:
    """One CreateTopics call."""

    requests: Sequence[TopicRequest]
    """What is wanted."""
    validate_only: bool
    """Check only."""
    result: "asyncio.Future[tuple[CreationOutcome, ...]]"
    """Outcomes in the order of the requests, when everything is written."""
    begun: bool = False
    """Whether anything may have been written."""
    outcomes: dict[int, CreationOutcome] = field(default_factory=dict)
    """Outcomes so far; what has one before the first step is left alone."""
    keys: list[PartitionKey] = field(default_factory=list)
    """Partitions whose leaders the caller waits for; the caller says when it does not any more."""


async def create_topics(context: ControllerContext, creation: Creation) -> AsyncGenerator[None, None]:
    """The steps of a creation."""
    repeated = repeated_names([request.name for request in creation.requests])
    for indexes in _in_steps(creation.requests):
        plans = await _plans(context, creation, indexes, repeated)
        if not plans:
            yield
            continue
        creation.begun = True
        written = await _write_topics(context, creation, plans)
        keys = [PartitionKey(id, number) for id, node in written.items() for number in node.partitions]
        yield
        for first in range(0, len(keys), PARTITIONS_PER_STEP):
            applied = await change(context, keys[first : first + PARTITIONS_PER_STEP], context.settle, CREATION)
            await tell(context, applied)
            yield
        # Topics none of whose partitions could be given a leader.
        left = context.unpublished.among(written)
        await publish(context, [key for id in left for key in context.picture.of_topic(id)])
        await finish_creation(context, written.keys(), written=written)
        yield
    if not creation.result.done():
        creation.result.set_result(tuple(creation.outcomes[i] for i in range(len(creation.requests))))


def _in_steps(requests: Sequence[TopicRequest]) -> Iterator[range]:
    """Indexes of the requests that are planned and written together: few, and few partitions (safety rule S22)."""
    start = partitions = 0
    for i, request in enumerate(requests):
        asked = max(request.partitions, len(request.assignment))
        if i > start and (i - start == TOPICS_PER_STEP or partitions + asked > PARTITIONS_PLANNED_PER_STEP):
            yield range(start, i)
            start, partitions = i, 0
        partitions += asked
    yield range(start, len(requests))


async def _plans(
    context: ControllerContext, creation: Creation, indexes: range, repeated: frozenset[str]
) -> dict[int, Plan]:
    """What the next topics are to become; what needs no writing is settled."""
    plans: dict[int, Plan] = {}
    turns = Turns(PARTITIONS_PER_TURN)
    for i in indexes:
        request = creation.requests[i]
        if i in creation.outcomes:
            continue
        planned = plan_topic(
            request,
            context.picture,
            repeated=repeated,
            clearing=context.clearing,
            # What was left alone may be gone by now: a creation finds that out, and a check takes it as known.
            refused=context.refused if creation.validate_only else (),
            chance=context.chance,
        )
        match planned:
            case Rejection():
                creation.outcomes[i] = planned
            case Repeated(topic_id=id):
                creation.outcomes[i] = await created(context, id, turns)
            case Plan() if creation.validate_only:
                creation.outcomes[i] = Created(
                    topic_id=TopicId(""),
                    partitions=len(planned.assignment),
                    replication_factor=len(planned.assignment[0]),
                )
            case Plan():
                plans[i] = planned
    return plans


async def _write_topics(
    context: ControllerContext, creation: Creation, plans: dict[int, Plan]
) -> dict[TopicId, TopicNode]:
    """Write topic nodes and guards; returns the nodes that are there now."""
    ids = {i: TopicId(encode_id(uuid.UUID(int=context.chance.getrandbits(128)))) for i in plans}
    nodes = {
        i: TopicNode(
            topic_id=ids[i], partitions=plan.assignment, creating=frozenset(plan.assignment), mutation=plan.mutation
        )
        for i, plan in plans.items()
    }
    groups: list[Group] = []
    encoding = Beside()
    for i, plan in plans.items():
        data = await encoding.result(nodes[i].encode, weight=PARTITION_WEIGHT * len(plan.assignment))
        guarding = TopicIdNode(topic=plan.name, accepted=AcceptedAssignment.of(nodes[i]))
        guard = await encoding.result(guarding.encode, weight=PARTITION_WEIGHT * len(plan.assignment))
        groups.append(
            (Create(paths.topic(plan.name), data), Create(paths.topic_id(ids[i]), guard), *_own_settings(plan))
        )
    written: dict[TopicId, TopicNode] = {}
    added: list[tuple[Topic, dict[int, Partition]]] = []
    for (i, plan), outcome in zip(plans.items(), await context.store.write_guards(groups), strict=True):
        match outcome:
            case Written(results=results):
                added.append(_picture_of(plan.name, nodes[i], results[0].stat))
                written[ids[i]] = nodes[i]
                creation.outcomes[i] = Created(
                    topic_id=ids[i],
                    partitions=len(plan.assignment),
                    replication_factor=len(plan.assignment[0]),
                )
            case Refused(error=error):
                standing = await _standing(context, plan.name, error)
                creation.outcomes[i] = standing or _not_written(plan.name, error)
    keys = [PartitionKey(id, number) for id, node in written.items() for number in node.partitions]
    own = {plan.name: plan.configs for i, plan in plans.items() if ids[i] in written and plan.configs}
    if own:
        # Before the first leader is chosen.
        context.picture = replace(context.picture, settings=context.picture.settings.with_topics(own))
    # A large topic comes into the picture as a whole.
    context.picture = await beside(partial(context.picture.with_topics, added), weight=PARTITION_WEIGHT * len(keys))
    if not creation.result.done():
        creation.keys.extend(keys)
        context.dispatch.expect(keys)
    context.log.info("topics created", topics=len(added), partitions=len(keys))
    for topic, members in added:
        context.events.topic(
            events_pb2.EVENT_KIND_TOPIC_CREATED, topic.name, topic.id, CREATION, partitions=len(members)
        )
    context.unpublished.add(written)
    context.dispatch.show(context.picture)
    return written


def _own_settings(plan: Plan) -> tuple[Create, ...]:
    """The node with a topic's own settings; a topic without has none."""
    if not plan.configs:
        return ()
    texts = {key: format_value(key, value) for key, value in plan.configs.items()}
    return (Create(topic_config(plan.name), encode_config(texts)),)


async def _standing(context: ControllerContext, name: str, error: Exception) -> Rejection | None:
    """What there is to say of a topic node that stands, and that this reign has not taken up."""
    if not isinstance(error, NodeExists) or error.path != paths.topic(name):
        return None
    found = (await context.store.read_many((error.path,))).get(error.path)
    if found is not None and await beside(partial(readable, found.data), weight=len(found.data)) is None:
        return node_damaged(name)
    return Rejection(
        code=errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS,
        message=f"topic {name} exists: its node was written by hand and is taken up in a moment; describe it then, or "
        "see `regnum status`",
    )


def _not_written(name: str, error: Exception) -> Rejection:
    code = errors_pb2.ERROR_CODE_INVALID_REQUEST
    advice = "look at the store and try again"
    if isinstance(error, NodeExists):
        code = errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS
        if error.path == topic_config(name):
            advice = "settings of that name stand in the store without a topic; delete the node, or create without any"
    return Rejection(code=code, message=f"topic {name} cannot be written ({error}); {advice}")


def _picture_of(name: str, node: TopicNode, stat: Stat | None) -> tuple[Topic, dict[int, Partition]]:
    if node.topic_id is None:
        raise AssertionError("a topic that the controller makes has an id")
    topic = Topic(
        name=name,
        id=node.topic_id,
        version=FIRST_VERSION,
        partitions=tuple(sorted(node.partitions)),
        mutation=node.mutation,
        creation_id=None if stat is None else stat.creation_id,
    )
    return topic, {number: Partition(replicas=replicas, creating=True) for number, replicas in node.partitions.items()}


async def created(context: ControllerContext, id: TopicId, turns: Turns) -> CreationOutcome:
    """What a repeat is answered for a topic of the picture (safety rule S20); ``turns`` count partitions."""
    topic = context.picture.topics[id]
    replicas = context.picture.partitions[PartitionKey(id, topic.partitions[0])].replicas
    outcome: CreationOutcome = Created(topic_id=id, partitions=len(topic.partitions), replication_factor=len(replicas))
    if not has_states(context.picture, topic):
        outcome = still_creating(id)
    await turns.took(len(topic.partitions))
    return outcome


def has_states(picture: Cluster, topic: Topic) -> bool:
    """Whether no partition waits for its first leader. One whose leaders all died since does not, nor a damaged one."""
    if not picture.unled:
        return True
    partitions = (picture.partitions[PartitionKey(topic.id, number)] for number in topic.partitions)
    return not any(one.creating and one.held is None for one in partitions)


def still_creating(id: TopicId) -> Rejection:
    """What is said of a topic that is written, and that cannot be used yet."""
    return Rejection(
        code=errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
        message=f"topic id {id} is still being created: not every partition is led yet; describe it later",
    )


async def finish_creation(
    context: ControllerContext, topics: Collection[TopicId], *, written: Mapping[TopicId, TopicNode] | None = None
) -> None:
    """Take the marks of partitions that have their state now out of the topic nodes.

    Args:
        context: the reign.
        topics: their topics.
        written: nodes as they were written when the topics were made: they need not be read.
    """
    unknown = list(topics)
    if written:
        # At the version of the creation: what an addition or a removal by hand wrote since is to be read first.
        known = {
            id: _Marked(node=written[id], version=FIRST_VERSION)
            for id in topics
            if id in written and (topic := context.picture.topics.get(id)) and topic.version == FIRST_VERSION
        }
        refused = await _write_marks(context, known)
        unknown = [id for id in topics if id in refused or id not in known]
    wanted = {paths.topic(topic.name): topic for id in unknown if (topic := context.picture.topics.get(id)) is not None}
    found: dict[TopicId, _Marked] = {}
    for path, node in (await context.store.read_many(tuple(wanted))).items():
        topic = wanted[path]
        try:
            content = await beside(partial(TopicNode.decode, node.data), weight=len(node.data))
        except MalformedNodeError as error:
            context.log.warning("topic node unreadable", topic=topic.name, reason=str(error))
            continue
        if content.topic_id == topic.id:
            found[topic.id] = _Marked(node=content, version=node.stat.version)
    for id, reason in (await _write_marks(context, found)).items():
        # Somebody else wrote it meanwhile; the marks go with the next change or the next reign.
        context.log.warning("topic node changed meanwhile", topic=context.picture.topics[id].name, reason=str(reason))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marked:
    node: TopicNode
    """As it stands in the store."""
    version: int
    """Version at which it does."""


async def _write_marks(context: ControllerContext, found: Mapping[TopicId, _Marked]) -> dict[TopicId, Exception]:
    """Write topic nodes with the marks that are left; those that have changed meanwhile, with the reason."""
    groups: list[Group] = []
    meant: list[TopicId] = []
    turns = Turns(PARTITIONS_PER_TURN)
    for id, marked in found.items():
        left = _left(context, id, marked.node)
        if left == marked.node.creating:
            continue
        path = paths.topic(context.picture.topics[id].name)
        groups.append(
            (Check(paths.topic_id(id)), Set(path, replace(marked.node, creating=left).encode(), marked.version))
        )
        meant.append(id)
        await turns.took(len(marked.node.partitions))
    refused: dict[TopicId, Exception] = {}
    versions: dict[TopicId, int] = {}
    for id, outcome in zip(meant, await context.store.write_batch(groups), strict=True):
        match outcome:
            case Written(results=results):
                stat = results[-1].stat
                if stat is not None:
                    versions[id] = stat.version
            case Refused(error=error):
                refused[id] = error
    context.picture = context.picture.with_topic_versions(versions)
    return refused


def _left(context: ControllerContext, id: TopicId, node: TopicNode) -> frozenset[int]:
    """Partitions that have no state yet."""
    partitions = context.picture.partitions
    return frozenset(
        number
        for number in node.creating
        if (known := partitions.get(PartitionKey(id, number))) is not None and known.creating
    )
