"""The beginning of a reign that has nothing to go on from: read everything, judge it, put it right, tell everybody.

A standby that holds its predecessor's picture begins as ``standby.succession`` says; the rules are the same.

Everything is read as of now, after the win (a read from before may be stale). Partitions whose leader bounced or is
away are treated first, which raises their leader epoch (safety rule S10); only then does INIT go out (safety rule S12).
ISRs that only have to shrink are written after that, as after any failure: their leaders lead already.
"""

from collections.abc import Callable, Mapping
from typing import Final

from regnum_coordination.port import Delete, Group, Node, TreePage
from regnum_model import paths
from regnum_model.ids import NO_LEADER, BrokerId, PartitionKey, TopicId, is_topic_id
from regnum_model.nodes import MalformedNodeError, Membership, PartitionDeletionNode
from regnum_service.slices import slices
from regnum_telemetry import conventions, tracing

from regnum_election.brokers.changes import leave_strangers_out, read_brokers
from regnum_election.brokers.draining import take_up_draining
from regnum_election.configs.book import ConfigBook
from regnum_election.decisions.deletion import Removal
from regnum_election.history.events import SUCCESSION
from regnum_election.reign.writing import WENT_BACK
from regnum_election.state.context import ControllerContext
from regnum_election.state.telling import publish
from regnum_election.topics.adoption import TopicAdopter, removed_while_away
from regnum_election.topics.deletion import read_deletions
from regnum_election.topics.deletion_orders import tell_deletions
from regnum_election.topics.found import read_guards
from regnum_election.topics.settling import settle_in_steps, settle_some
from regnum_election.traces.change_trace import ChangeTrace

PARTITIONS_PER_TURN: Final = 2_000
"""Partitions looked at between two turns of the event loop (safety rule S22)."""

RECORDS_PER_TURN: Final = 500
"""Deletion records taken up between two turns of the event loop (safety rule S22)."""


async def become_controller(
    context: ControllerContext, adopter: TopicAdopter, configs: ConfigBook, *, brokers_known: Callable[[], None]
) -> None:
    """ReleaseInfo the picture, settle it, and begin to tell every live broker.

    Args:
        context: the reign.
        adopter: takes topics up.
        configs: settings, not read yet.
        brokers_known: called when the picture holds the live brokers, and nothing else.
    """
    trace = begin_trace(context)
    context.events.reign_began("" if trace is None else trace.context)
    with tracing.within("" if trace is None else trace.context):
        await _take_office(context, adopter, configs, brokers_known, trace)


async def look_on(
    context: ControllerContext, adopter: TopicAdopter, configs: ConfigBook, *, brokers_known: Callable[[], None]
) -> None:
    """Know the cluster and show it, and do nothing: the store went back to an earlier state (trace T9).

    Partitions whose leader is not the one that the store records are Offline to this reign; some may be led on.
    """
    context.events.reign_began("")
    context.events.store_went_back()
    await configs.begin()
    await take_up_brokers(context)
    leave_strangers_out(context)
    await take_up_draining(context)
    brokers_known()
    await adopter.take_up_all()
    urgent, _ = await divided(context)
    context.trouble(dict.fromkeys(urgent, WENT_BACK))
    await publish(context, brokers_changed=True)
    context.log.critical("the store went back", proof=context.reign.went_back, partitions_offline=len(urgent))


async def _take_office(
    context: ControllerContext,
    adopter: TopicAdopter,
    configs: ConfigBook,
    brokers_known: Callable[[], None],
    trace: ChangeTrace | None,
) -> None:
    started_s = context.clock.monotonic()
    await configs.begin()
    await take_up_brokers(context)
    leave_strangers_out(context)
    await take_up_draining(context)
    brokers_known()
    await take_up_deletions(context)
    await adopter.take_up_all()
    await find_removed(context, adopter, await guarded_topics(context))
    await take_up_removals(context)
    read_s = context.clock.monotonic()
    if trace is not None:
        trace.since(conventions.WON_UNIX_NANO, conventions.LOAD)
        trace.reached(conventions.LOADED_UNIX_NANO)
    # Before any broker is told anything: nobody has a dispatch yet, so this only writes.
    urgent, rest = await divided(context)
    with context.traced(trace):
        await settle_some(context, urgent, SUCCESSION)
    await publish(context, brokers_changed=True)
    if trace is not None:
        trace.since(conventions.LOADED_UNIX_NANO, conventions.VERIFY)
        trace.reached(conventions.VERIFIED_UNIX_NANO)
        trace.expect(context.picture.brokers, partitions=len(urgent))
        trace.seal()
    for broker in context.picture.brokers.values():
        context.dispatch.begin(broker)
    await tell_deletions(context)
    context.log.info(
        "reign begun",
        brokers=sorted(context.picture.brokers),
        topics=len(context.picture.topics),
        partitions=len(context.picture.partitions),
        deletions=len(context.deletions),
        read_ms=round((read_s - started_s) * 1000),
        settled_ms=round((context.clock.monotonic() - read_s) * 1000),
    )
    if rest:
        context.defer("settle followed partitions", settle_in_steps(context, rest, SUCCESSION))


def begin_trace(context: ControllerContext) -> ChangeTrace | None:
    """The trace of a succession; None for the first reign."""
    reign, predecessor = context.reign, context.reign.predecessor
    if predecessor is None:
        return None
    moment = predecessor.noticed_unix_nano
    trace = context.changes.succession_of(predecessor.id, cause=predecessor.cause, noticed_unix_nano=moment)
    for boundary, name, at in (
        (conventions.DETECTED_UNIX_NANO, conventions.DETECTION, predecessor.detected_unix_nano),
        (conventions.FENCED_UNIX_NANO, conventions.FENCE, predecessor.fenced_unix_nano),
        (conventions.WON_UNIX_NANO, conventions.CAMPAIGN, reign.won_unix_nano),
    ):
        tracing.between(name, moment, at, parent=trace.context)
        trace.reached(boundary, at)
        moment = max(moment, at)
    return trace


async def take_up_brokers(context: ControllerContext) -> None:
    """The live brokers come into the picture."""
    for broker in (await read_brokers(context)).values():
        context.picture = context.picture.with_broker(broker)


async def take_up_deletions(context: ControllerContext) -> None:
    """Read the records of deletions that are under way."""
    names = await context.store.names(paths.DELETE_TOPICS)
    nodes: Mapping[str, Node] = await context.store.read_many([f"{paths.DELETE_TOPICS}/{name}" for name in names])
    deletions, unreadable = read_deletions(
        {path.rpartition("/")[2]: (node.data, node.stat.version) for path, node in nodes.items()}
    )
    for name, reason in unreadable.items():
        context.log.error("deletion record ignored", topic_id=name, reason=f"{reason}; delete it or correct it")
    async for some in slices(deletions.values(), RECORDS_PER_TURN):
        for deletion in some:
            context.deletions.add(deletion)


async def take_up_removals(context: ControllerContext) -> None:
    """Read the records of removed partitions that some broker has still to confirm (safety rule S13).

    After the topics: those of a deleted topic are its deletion's. All together, in as few calls as they fit in.
    """
    records = await context.store.read_tree(paths.DELETE_PARTITIONS, _RemovalRecords)
    empty: list[Group] = []
    for name, nodes in records.topics.items():
        id = TopicId(name)
        if id in context.deletions:
            continue
        if not nodes:
            # Its last record went, and then the controller did.
            empty.append((Delete(paths.partition_deletions(id), 0),))
        async for some in slices(nodes.items(), RECORDS_PER_TURN):
            _take_up_records(context, id, dict(some))
    await context.store.write_batch(empty)


class _RemovalRecords:
    """Records of removed partitions, by topic id and name of the record."""

    def __init__(self) -> None:
        self.topics: Final[dict[str, dict[str, tuple[bytes, int]]]] = {}

    def take(self, page: TreePage) -> None:
        """Another page."""
        skip = len(paths.DELETE_PARTITIONS) + 1
        for path, node in page.nodes.items():
            id, *record = path[skip:].split("/")
            if not is_topic_id(id) or len(record) > 1:
                continue
            records = self.topics.setdefault(id, {})
            if record:
                records[record[0]] = (node.data, node.stat.version)


def _take_up_records(context: ControllerContext, id: TopicId, nodes: Mapping[str, tuple[bytes, int]]) -> None:
    removals, unreadable = read_removals(id, nodes)
    for name, reason in unreadable.items():
        path = f"{paths.partition_deletions(id)}/{name}"
        context.log.error("removal record ignored", path=path, reason=f"{reason}; delete it or correct it")
        if (number := _number(name)) is not None:
            context.removals.unreadable(PartitionKey(id, number), f"{path}: {reason}")
    for removal in removals:
        context.removals.add(removal)


def read_removals(id: TopicId, nodes: Mapping[str, tuple[bytes, int]]) -> tuple[list[Removal], dict[str, str]]:
    """Removals of a topic from records (content and version by name), and what is wrong with unreadable ones."""
    removals: list[Removal] = []
    unreadable: dict[str, str] = {}
    for name, (data, version) in nodes.items():
        number = _number(name)
        try:
            node = PartitionDeletionNode.decode(data)
        except MalformedNodeError as error:
            unreadable[name] = str(error)
            continue
        if number is None:
            unreadable[name] = "its name is not that of a partition"
            continue
        removals.append(Removal.recorded_as(PartitionKey(id, number), node, version=version))
    return removals, unreadable


def _number(name: str) -> int | None:
    """The partition that a node's name means; None if it means none."""
    plain = len(name) < 10 and name.isascii() and name.isdigit() and str(int(name)) == name
    return int(name) if plain else None


async def guarded_topics(context: ControllerContext) -> frozenset[TopicId]:
    """Ids of which a guard stands."""
    return frozenset(TopicId(name) for name in await context.store.names(paths.TOPIC_IDS))


async def find_removed(context: ControllerContext, adopter: TopicAdopter, guarded: frozenset[TopicId]) -> list[TopicId]:
    """Delete topics whose node was removed by hand while nobody reigned (safety rule S14).

    Those whose nodes say nothing of them go on by what their guards record; returns these.

    Args:
        context: the reign; its picture holds every topic whose node stands.
        adopter: takes up those that go on.
        guarded: ids of which a guard stands.
    """
    unknown = [id for id in sorted(guarded) if id not in context.picture.topics and id not in context.deletions]
    guards = await read_guards(context, unknown)
    standing = await context.store.read_many([f"{paths.TOPICS}/{guard.topic}" for guard in guards.values()])
    for id, name in ((id, guard.topic) for id, guard in guards.items()):
        node = standing.get(f"{paths.TOPICS}/{name}")
        # Another life of the name has a guard of its own; without one the id in the node may be a slip of the pen.
        if node is None or context.picture.names.get(name) in guarded:
            await removed_while_away(context, name, id, replaced=node is not None)
        # Otherwise the topic node stands and was refused: a person has to look at it, and nothing is deleted.
    names = context.picture.names
    silent = {
        guard.topic: id
        for id, guard in guards.items()
        if guard.topic in context.refused or (guard.topic in names and names[guard.topic] not in guarded)
    }
    return await adopter.take_up(sorted(silent), silent)


async def divided(context: ControllerContext) -> tuple[list[PartitionKey], list[PartitionKey]]:
    """All partitions of the picture: those that may need a leader or acknowledge nothing until then, and the others.

    A leader may lead on if it has been up ever since it was recorded (safety rule S10).
    """
    urgent: list[PartitionKey] = []
    rest: list[PartitionKey] = []
    surroundings = context.surroundings
    intact: dict[tuple[BrokerId, Membership | None], bool] = {}
    async for some in slices(context.picture.partitions.items(), PARTITIONS_PER_TURN):
        for key, partition in some:
            held = partition.held
            if held is None or held.state.leader == NO_LEADER:
                urgent.append(key)
                continue
            leader, members = held.state.leader, held.state.members
            # Few leaders and many partitions: each life of a broker is judged once.
            life = (leader, members.get(leader))
            stands = intact.get(life)
            if stands is None:
                stands = intact[life] = surroundings.is_intact(leader, members)
            (rest if stands and not context.is_held_up(key, partition) else urgent).append(key)
    return urgent, rest
