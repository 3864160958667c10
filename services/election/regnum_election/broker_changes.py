"""Brokers that come, go, bounce, are fenced, or ask to stop.

A failure is handled in rounds: first the partitions that are busy, as the dead broker said while it lived: somebody
waits for those, whether it led or only followed them; then those that need a leader, written and told at once; then
those that it only followed, whose ISR shrinks so that acks=all does not wait for the lag limit. A bounce is a failure
and then a start (safety rule S10).
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Final

from regnum_coordination.errors import BadVersion, NodeFailure
from regnum_coordination.port import Delete, Set
from regnum_model import paths
from regnum_model.ids import NO_LEADER, TOPIC_DELETED_EPOCH, BrokerEpoch, BrokerId, PartitionKey
from regnum_model.nodes import BrokerNode, MalformedNodeError
from regnum_service.slices import Turns, slices
from regnum_telemetry import conventions, tracing

from regnum_election.cluster import Broker, Cluster, HeldState, Partition
from regnum_election.context import DECISIONS_PER_SLICE, Applied, ControllerContext
from regnum_election.deletion import Deletion
from regnum_election.events import BrokerDead
from regnum_election.failover_trace import FailoverTrace
from regnum_election.isr_reports import ReportedNode, Unbelieved, judge_report
from regnum_election.leadership import Decision, hand_over
from regnum_election.outbox import Stop
from regnum_election.registrations import Difference, broker_named, compare
from regnum_election.topic_creation import finish_creation

PARTITIONS_PER_WRITE: Final = 500
"""Partitions that are written and told together after a failure."""

FIRST_PARTITIONS_PER_WRITE: Final = 100
"""The same for the first of them; each further part is twice as large, up to PARTITIONS_PER_WRITE. Few partitions are
written, told and taken up sooner than many, and the brokers have something to do while the next are written.
"""

PARTITIONS_PER_STEP: Final = 1_000
"""Partitions of one step of work that is not urgent."""

PARTITIONS_PER_TURN: Final = 2_000
"""Partitions looked at between two turns of the event loop (safety rule S22)."""

DELETIONS_PER_TURN: Final = 500
"""Open deletions that are told of, or given up as told, between two turns of the event loop (safety rule S22)."""

REGISTRATIONS_PER_TURN: Final = 200
"""Registrations decoded between two turns of the event loop (safety rule S22)."""

FENCED_CONTENT: Final = b"fenced"
"""Content of a guard node after a fence; only its version means something."""


async def read_brokers(context: ControllerContext, names: Iterable[str] | None = None) -> dict[BrokerId, Broker]:
    """Registrations that can be read, as of now: those of these names, or all."""
    if names is None:
        names = await context.store.names(paths.BROKER_IDS)
    nodes = await context.store.read_many([f"{paths.BROKER_IDS}/{name}" for name in names])
    brokers: dict[BrokerId, Broker] = {}
    turns = Turns(REGISTRATIONS_PER_TURN)
    for path, node in nodes.items():
        await turns.took()
        id = broker_named(path.rpartition("/")[2])
        if id is None:
            context.log.error("registration ignored", path=path, reason="its name is not a broker id; delete it")
            continue
        try:
            content = BrokerNode.decode(node.data)
        except MalformedNodeError as error:
            context.log.warning("registration ignored", path=path, reason=f"{error}; the broker has to register again")
            continue
        brokers[id] = Broker.registered(
            id, content, epoch=BrokerEpoch(node.stat.creation_id), node_version=node.stat.version
        )
    return brokers


async def look_at_brokers(context: ControllerContext, names: Collection[str] | None = None) -> bool:
    """Read registrations and act on what changed; returns whether anything did.

    Args:
        context: the reign.
        names: names of the nodes that may have changed; None: all, also of those that the picture shows and that are
            gone.
    """
    found = await read_brokers(context, names)
    known: Mapping[BrokerId, Broker] = context.picture.brokers
    if names is not None:
        looked_at = [id for name in names if (id := broker_named(name)) is not None]
        known = {id: known[id] for id in looked_at if id in known}
    difference = compare(known, found, context.fenced)
    if difference.is_empty:
        return False
    await react(context, difference)
    return True


async def fence_broker(context: ControllerContext, event: BrokerDead) -> bool:
    """Take a dead broker's registration away (safety rule S2), then as for any failure; returns whether it was live."""
    known = context.picture.brokers.get(event.broker)
    if known is None or known.epoch != event.epoch or known.registration != event.registration:
        return False
    trace = _begin_trace(context, event)
    try:
        with tracing.span(conventions.FENCE, parent=trace.context if trace else ""):
            await context.store.multi(
                (
                    Set(paths.broker_epoch(known.id), FENCED_CONTENT, known.registration),
                    Delete(paths.broker_id(known.id), known.node_version),
                )
            )
    except NodeFailure as error:
        # It went, or came back, by itself: the registrations say which.
        if trace is not None:
            trace.reached(conventions.FENCED_UNIX_NANO)
            trace.seal()
        context.log.info("fence not needed", broker=known.id, reason=str(error), moved=isinstance(error, BadVersion))
        return await look_at_brokers(context, (str(known.id),))
    context.log.warning("broker fenced", broker=known.id, broker_epoch=known.epoch, evidence=event.evidence)
    context.fenced[known.id] = known.epoch
    if trace is not None:
        trace.reached(conventions.FENCED_UNIX_NANO)
    await react(context, Difference(gone=frozenset({known.id}), arrived=(), rewritten=()), trace, busy=event.busy)
    return True


def _begin_trace(context: ControllerContext, event: BrokerDead) -> FailoverTrace | None:
    """The trace of a failover that begins with the decision to fence; None when nothing is traced."""
    now_unix_nano = tracing.now_unix_nano()
    trace = context.begin_trace(
        event.broker,
        cause=event.cause,
        evidence=event.evidence,
        noticed_unix_nano=event.noticed_unix_nano or now_unix_nano,
        heard_unix_nano=event.heard_unix_nano,
    )
    if trace is not None:
        trace.reached(conventions.DETECTED_UNIX_NANO, now_unix_nano)
        trace.since("", conventions.DETECTION, {conventions.EVIDENCE: event.evidence})
    return trace


async def react(
    context: ControllerContext,
    difference: Difference,
    trace: FailoverTrace | None = None,
    *,
    busy: Iterable[PartitionKey] = (),
) -> None:
    """Act on changed registrations.

    Args:
        context: the reign.
        difference: what changed.
        trace: the failover it belongs to; a new one begins when there is none and a leader is gone.
        busy: partitions that are settled before all others, if they were assigned to what is gone.
    """
    changed = difference.gone | {broker.id for broker in difference.arrived}
    lost = changed & frozenset(context.picture.brokers)
    _redraw(context, difference)
    rest: list[PartitionKey] = []
    assigned = await _assigned(context.picture, changed)
    first = [key for key in dict.fromkeys(busy) if key in assigned]
    for key in first:
        del assigned[key]
    with context.traced(trace):
        await settle_some(context, first)
    async with aclosing(_urgent_parts(context, assigned, changed, rest)) as parts:
        async for urgent in parts:
            if trace is None and any(_leader(context, key) in lost for key in urgent):
                trace = context.begin_trace(
                    min(lost),
                    cause=conventions.CAUSE_NODE,
                    evidence="registration gone or renewed",
                    noticed_unix_nano=tracing.now_unix_nano(),
                )
            with context.traced(trace):
                # The first leaders need not wait for the last to be found and written.
                await settle_some(context, urgent)
    if trace is not None:
        trace.seal()
    with tracing.within("" if trace is None else trace.context):
        if difference.arrived:
            # A broker that bounced is out of the ISRs before it is told anything.
            await settle_some(context, rest)
        elif rest:
            context.defer("settle followed partitions", settle_in_steps(context, rest))
        await context.publish(brokers_changed=True)
        for broker in difference.arrived:
            context.dispatch.begin(broker)
    for id in changed:
        async for topics in slices(context.deletions.of_broker(id), DELETIONS_PER_TURN):
            context.deletions.away(id, topics)
    await tell_deletions(context)


def _redraw(context: ControllerContext, difference: Difference) -> None:
    """Put the difference into the picture; former lives of the brokers are told nothing more."""
    picture = context.picture
    for id in difference.gone:
        picture = picture.without_broker(id)
        context.dispatch.end(id)
    for broker in difference.arrived:
        picture = picture.with_broker(broker)
        context.dispatch.end(broker.id)
    for broker in difference.rewritten:
        picture = picture.with_broker(broker)
    context.picture = picture
    context.log.info(
        "brokers changed",
        gone=sorted(difference.gone),
        arrived=[f"{broker.id}@{broker.epoch}" for broker in difference.arrived],
        live=sorted(picture.brokers),
    )


async def _assigned(picture: Cluster, ids: Iterable[BrokerId]) -> dict[PartitionKey, None]:
    """Keys of all partitions assigned to any of some brokers."""
    keys: dict[PartitionKey, None] = {}
    for id in ids:
        keys.update(dict.fromkeys(picture.of_broker(id)))
        await asyncio.sleep(0)
    return keys


async def settle(context: ControllerContext, keys: Iterable[PartitionKey], changed: Collection[BrokerId]) -> None:
    """Fit partitions to the live brokers: those that need a leader first."""
    urgent, rest = await by_urgency(context, keys, changed)
    await settle_some(context, urgent)
    await settle_some(context, rest)


async def by_urgency(
    context: ControllerContext, keys: Iterable[PartitionKey], changed: Collection[BrokerId]
) -> tuple[list[PartitionKey], list[PartitionKey]]:
    """Partitions that may need a leader or acknowledge nothing until they are settled, and the others.

    Args:
        context: the reign.
        keys: partitions to divide.
        changed: brokers that came, went or bounced.
    """
    urgent: list[PartitionKey] = []
    rest: list[PartitionKey] = []
    async with aclosing(_urgent_parts(context, keys, changed, rest)) as parts:
        async for part in parts:
            urgent.extend(part)
    return urgent, rest


async def _urgent_parts(
    context: ControllerContext, keys: Iterable[PartitionKey], changed: Collection[BrokerId], rest: list[PartitionKey]
) -> AsyncGenerator[list[PartitionKey], None]:
    """As ``by_urgency``, as soon as enough for a write are found; ``rest`` takes the others and is whole at the end."""
    urgent: list[PartitionKey] = []
    size = FIRST_PARTITIONS_PER_WRITE
    async for some in slices(keys, PARTITIONS_PER_TURN):
        for key in some:
            (urgent if _is_urgent(context, key, changed) else rest).append(key)
        while len(urgent) >= size:
            part, urgent = urgent[:size], urgent[size:]
            size = min(2 * size, PARTITIONS_PER_WRITE)
            yield part
    if urgent:
        yield urgent


def _is_urgent(context: ControllerContext, key: PartitionKey, changed: Collection[BrokerId]) -> bool:
    partition = context.picture.partitions[key]
    if partition.held is None:
        return True
    state = partition.held.state
    return (
        state.leader == NO_LEADER or state.leader in changed or (bool(state.elr) and context.is_held_up(key, partition))
    )


async def settle_in_steps(context: ControllerContext, keys: Sequence[PartitionKey]) -> AsyncGenerator[None, None]:
    """Partitions whose leader stands: in steps, so that the next failure waits for one of them at most."""
    for start in range(0, len(keys), PARTITIONS_PER_STEP):
        await settle_some(
            context, [key for key in keys[start : start + PARTITIONS_PER_STEP] if _is_known(context, key)]
        )
        yield


def _is_known(context: ControllerContext, key: PartitionKey) -> bool:
    return key in context.picture.partitions


async def settle_some(context: ControllerContext, keys: Sequence[PartitionKey]) -> None:
    """One round: decide, write, tell, and finish creations that get their first states."""
    if not keys:
        return
    creating = {key.topic_id for key in keys if context.picture.partitions[key].creating}
    applied = await context.change(keys, context.settle)
    await context.tell(applied)
    if creating:
        await finish_creation(context, creating)
    context.log.info(
        "partitions settled",
        partitions=len(keys),
        new_state=len(applied.everywhere),
        new_isr=len(applied.leaders),
        unfinished=len(applied.unfinished),
    )


async def take_up_isrs(context: ControllerContext, reports: Mapping[PartitionKey, ReportedNode | None]) -> None:
    """Leaders wrote new ISRs: believe or read them, and settle what no longer fits."""
    applied = Applied()
    news: dict[PartitionKey, HeldState] = {}
    unread: list[PartitionKey] = []
    async for part in slices(reports.items(), DECISIONS_PER_SLICE):
        for key, report in part:
            partition = context.picture.partitions.get(key)
            if partition is None:
                continue
            if key in context.unverified:
                # What the report goes on from is itself a memory: the predecessor may have written since.
                unread.append(key)
                continue
            match judge_report(key, partition, report, context.picture, context.reign.epoch):
                case HeldState() as said:
                    news[key] = said
                case Unbelieved.READ:
                    unread.append(key)
                case Unbelieved.KNOWN:
                    pass
    context.picture = context.picture.with_states(news)
    applied.everywhere.update(news)
    usable = [*news, *(await context.reread(unread, applied) if unread else ())]
    # The writers have these states; only clients' metadata changes, and what the decision below adds.
    await context.publish(tuple(applied.everywhere))
    further = await context.change(usable, context.settle)
    await context.tell(further)


async def controlled_shutdown(
    context: ControllerContext, id: BrokerId, *, check: Callable[[], None], done: Callable[[int], None]
) -> AsyncGenerator[None, None]:
    """Move leadership away from a live broker, in steps, so that a failure waits for one of them at most.

    Args:
        context: the reign.
        id: the broker.
        check: raises when the broker is no longer the one that asked; called before each step.
        done: takes how many partitions it still leads, at the end.
    """
    check()
    context.picture = context.picture.with_leaving(id)

    def decide(picture: Cluster, key: PartitionKey, partition: Partition) -> Decision:
        if partition.held is None:
            raise AssertionError("partitions without state are left out below")
        return hand_over(
            partition.held.state,
            partition.replicas,
            context.surroundings_of(key),
            min_insync=picture.min_insync(key, partition),
        )

    keys: list[PartitionKey] = []
    async for part in slices(tuple(context.picture.of_broker(id)), PARTITIONS_PER_TURN):
        keys.extend(key for key in part if context.picture.partitions[key].held is not None)
    moved = 0
    for led in (True, False):
        chosen = [key for key in keys if (_leader(context, key) == id) is led]
        for start in range(0, len(chosen), PARTITIONS_PER_WRITE):
            check()
            some = [key for key in chosen[start : start + PARTITIONS_PER_WRITE] if _is_known(context, key)]
            applied = await context.change(some, decide)
            await context.tell(applied)
            moved += len(applied.everywhere)
            if not led:
                context.dispatch.order_stops(id, _stops(context, id, some))
            yield
    check()
    remaining = sum(1 for key in keys if _leader(context, key) == id)
    context.log.info("controlled shutdown", broker=id, moved=moved, remaining=remaining)
    done(remaining)


def _stops(context: ControllerContext, id: BrokerId, keys: Iterable[PartitionKey]) -> list[Stop]:
    """Orders for a broker to stop following partitions whose ISR it has left."""
    return [
        Stop(
            topic_id=key.topic_id,
            partition=key.partition,
            topic=context.picture.topics[key.topic_id].name,
            leader_epoch=held.state.leader_epoch,
            delete=False,
        )
        for key in keys
        if (partition := context.picture.partitions.get(key)) is not None
        and (held := partition.held) is not None
        and id not in held.state.isr
    ]


async def tell_deletions(context: ControllerContext) -> None:
    """Order live brokers to delete what they have not been told of since they came (safety rule S13)."""
    for id in context.picture.brokers:
        async for topics in slices(context.deletions.untold(id), DELETIONS_PER_TURN):
            deletions = [context.deletions[topic_id] for topic_id in topics]
            context.dispatch.order_stops(id, [_stop(deletion) for deletion in deletions])
            context.deletions.told(id, topics)


def _stop(deletion: Deletion) -> Stop:
    return Stop(
        topic_id=deletion.topic_id,
        partition=-1,
        topic=deletion.topic,
        leader_epoch=TOPIC_DELETED_EPOCH,
        delete=True,
        weight=deletion.weight,
    )


def _leader(context: ControllerContext, key: PartitionKey) -> BrokerId:
    partition = context.picture.partitions.get(key)
    return NO_LEADER if partition is None or partition.held is None else partition.held.state.leader
