"""Verification of a picture that was handed on: everything is compared with the store (safety rules S10, S12, S14).

Goals: what the picture had wrong is put right and told; a failure that happened while it was behind is replayed over
what that adds; nobody waits for it but full sets, and clients who change topics.

Algorithm: topics are read in steps that other events come between. One whose nodes are what a controller writes that
means what the picture says is proved. Any other is taken up by the rules that hold for every topic at the start of a
reign. Then each partition is settled, so that it fits the brokers that are live now.
"""

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from regnum.types.v1 import events_pb2
from regnum_coordination.port import Node
from regnum_model import paths
from regnum_model.ids import ControllerEpoch, PartitionKey, TopicId
from regnum_model.nodes import AcceptedAssignment, TopicIdNode
from regnum_telemetry import conventions, tracing

from regnum_election.decisions.cluster import Cluster, Partition, Topic
from regnum_election.history.events import SUCCESSION, PartitionRow, Reason
from regnum_election.reign.beside import PARTITION_WEIGHT, Beside
from regnum_election.state.accepted import members_of, node_of
from regnum_election.state.context import ControllerContext
from regnum_election.state.partition_writes import Applied, found_row
from regnum_election.state.telling import publish, tell
from regnum_election.topics.adoption import TopicAdopter
from regnum_election.topics.settling import settle_some
from regnum_election.traces.change_trace import ChangeTrace

PARTITIONS_PER_STEP: Final = 500
"""Partitions that are read anew in one step, unless one topic has more; a failover waits for one step at most."""


def unpublished(epoch: ControllerEpoch) -> Reason:
    """Why a state is not as the predecessor published it; ``epoch``: the controller epoch in the state."""
    evidence = f"found in the store, written under controller epoch {epoch}: whoever wrote it did not publish it"
    return Reason(events_pb2.EVENT_CAUSE_SUCCESSION, evidence)


async def verify(
    context: ControllerContext, adopter: TopicAdopter, trace: ChangeTrace | None, names: Sequence[str]
) -> AsyncGenerator[None, None]:
    """The steps that verify a picture that was handed on, and then send every broker its full set.

    Args:
        context: the reign.
        adopter: takes topics up.
        trace: the succession; None when nothing is traced.
        names: topics whose state may be unverified.
    """
    cause = "" if trace is None else trace.context
    started_s = context.clock.monotonic()
    corrected = 0
    for some in _portions(context, names):
        with tracing.within(cause):
            corrected += await _verify_some(context, adopter, some)
        yield
    if trace is not None:
        trace.since(conventions.LOADED_UNIX_NANO, conventions.VERIFY)
        trace.reached(conventions.VERIFIED_UNIX_NANO)
        trace.expect(context.picture.brokers, partitions=len(context.picture.partitions))
        trace.seal()
    with tracing.within(cause):
        context.dispatch.show(context.picture)
        await context.dispatch.release_full_sets()
    context.log.info(
        "picture verified",
        topics=len(names),
        corrected=corrected,
        verified_ms=round((context.clock.monotonic() - started_s) * 1000),
    )


def _portions(context: ControllerContext, names: Sequence[str]) -> Iterator[list[str]]:
    """Names in portions of so many partitions; of topics that are still there when their turn comes."""
    portion: list[str] = []
    partitions = 0
    for name in names:
        topic = context.picture.topic_named(name)
        if topic is None:
            continue
        if portion and partitions + len(topic.partitions) > PARTITIONS_PER_STEP:
            yield portion
            portion, partitions = [], 0
        portion.append(name)
        partitions += len(topic.partitions)
    if portion:
        yield portion


async def _verify_some(context: ControllerContext, adopter: TopicAdopter, names: Sequence[str]) -> int:
    """Read topics anew and put right what the picture had wrong; returns of how many partitions that was."""
    names = [name for name in names if name in context.picture.names]
    before = context.picture
    known = [before.topics[before.names[name]] for name in names]
    differing = await _differing(context, known)
    found = await adopter.take_up(differing) if differing else []
    _drop_refused(context, adopter, before, differing)
    changed = [
        key
        for id in found
        for key in context.picture.of_topic(id)
        if before.partitions.get(key) != context.picture.partitions[key]
    ]
    if changed:
        _write_down(context, before, changed)
        await tell(context, Applied(leader_changes=set(changed)))
    # Partitions that the predecessor removed and did not publish as gone.
    await publish(
        context, [key for id in found for key in before.of_topic(id) if key not in context.picture.partitions]
    )
    topics = dict.fromkeys((*(topic.id for topic in known), *found))
    await settle_some(context, [key for id in topics for key in context.picture.of_topic(id)], SUCCESSION)
    return len(changed)


def _write_down(context: ControllerContext, before: Cluster, keys: Iterable[PartitionKey]) -> None:
    """What the predecessor did and did not live to tell."""
    by_reign: dict[ControllerEpoch, list[PartitionRow]] = {}
    for key in keys:
        held, known = context.picture.partitions[key].held, before.partitions.get(key)
        if held is not None:
            row = found_row(key, None if known is None else known.held, held)
            by_reign.setdefault(held.state.controller_epoch, []).append(row)
    for epoch, rows in by_reign.items():
        context.events.partitions(rows, context.picture.topics, unpublished(epoch))


async def _differing(context: ControllerContext, topics: Sequence[Topic]) -> list[str]:
    """Names of topics that are not in the store as the picture says; the others are proved."""
    wanted = [path for topic in topics for path in _paths_of(topic)]
    nodes = await context.store.read_many(wanted)
    differing: list[str] = []
    versions: dict[TopicId, int] = {}
    aside = Beside()
    for topic in topics:
        weight = PARTITION_WEIGHT * len(topic.partitions)
        if not await aside.result(partial(is_as_known, context.picture, topic, nodes), weight=weight):
            differing.append(topic.name)
            continue
        context.unverified.prove_topics((topic.id,))
        # Marks of partitions that were being created are gone since, which is not published.
        versions[topic.id] = nodes[paths.topic(topic.name)].stat.version
    context.picture = context.picture.with_topic_versions(versions)
    return differing


def is_as_known(picture: Cluster, topic: Topic, nodes: Mapping[str, Node]) -> bool:
    """Whether a topic's nodes say, byte for byte, what a controller writes that means this picture.

    What says the same in other words, or anything else, is judged by the rules for topics that are taken up.

    Args:
        picture: what is known.
        topic: a topic of it.
        nodes: by path, as read: the topic's node, its guard, its states.
    """
    node, guard = nodes.get(paths.topic(topic.name)), nodes.get(paths.topic_id(topic.id))
    said = node_of(picture, topic)
    if topic.misses_numbers:
        # A person wrote it so, which every controller says anew.
        return False
    if node is None or node.data != said.encode() or topic.creation_id != node.stat.creation_id:
        return False
    if guard is None or guard.data != TopicIdNode(topic=topic.name, accepted=AcceptedAssignment.of(said)).encode():
        return False
    return all(
        _is_held(partition, nodes.get(paths.leader_and_isr(topic.name, number)))
        for number, partition in members_of(picture, topic.id).items()
    )


def _is_held(partition: Partition, node: Node | None) -> bool:
    held = partition.held
    if node is None or held is None or partition.trouble is not None or partition.creating:
        return False
    return node.stat.version == held.version and node.data == held.state.encode()


def _paths_of(topic: Topic) -> Iterator[str]:
    yield paths.topic(topic.name)
    yield paths.topic_id(topic.id)
    for number in topic.partitions:
        yield paths.leader_and_isr(topic.name, number)


def _drop_refused(context: ControllerContext, adopter: TopicAdopter, before: Cluster, names: Sequence[str]) -> None:
    """A topic whose node cannot be used any more is left alone, as at the start of any reign."""
    refused: dict[TopicId, str] = {
        id: name
        for name in names
        if adopter.leaves_alone(name) and (id := before.names[name]) in context.picture.topics
    }
    if refused:
        context.picture = context.picture.without_topics(refused)
        context.dispatch.show(context.picture)
        context.metadata.publish(context.picture, (), refused)
