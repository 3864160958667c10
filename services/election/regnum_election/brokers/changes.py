"""Brokers that come, go, bounce, are fenced, or ask to stop.

A failure is handled in rounds: first the partitions that are busy, as the dead broker said while it lived: somebody
waits for those, whether it led or only followed them; then those that need a leader, written and told at once; then
those that it only followed, whose ISR shrinks so that acks=all does not wait for the lag limit. A bounce is a failure
and then a start (safety rule S10).
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from contextlib import aclosing
from itertools import chain
from typing import Final

from regnum.types.v1 import events_pb2
from regnum_coordination.errors import BadVersion, NodeFailure
from regnum_coordination.port import Delete, Set
from regnum_model import paths
from regnum_model.ids import BrokerEpoch, BrokerId, PartitionKey
from regnum_model.nodes import BrokerNode, MalformedNodeError
from regnum_model.protocols import refusal
from regnum_service.slices import Turns, slices
from regnum_telemetry import conventions, tracing

from regnum_election.decisions.cluster import Broker, Cluster, HeldState
from regnum_election.decisions.isr_reports import ReportedNode, Unbelieved, judge_report
from regnum_election.decisions.registrations import (
    Difference,
    at_addresses_of,
    broker_named,
    compare,
    newest,
    without_own_address,
)
from regnum_election.history.events import Cause, PartitionRow, Reason
from regnum_election.reign.events import BrokerDead
from regnum_election.reign.witnesses import Sign
from regnum_election.state.context import ControllerContext
from regnum_election.state.partition_writes import DECISIONS_PER_SLICE, Applied, change, found_row, reread
from regnum_election.state.telling import publish, tell
from regnum_election.topics.deletion_orders import DELETIONS_PER_TURN, tell_deletions
from regnum_election.topics.settling import leader_of, settle_in_steps, settle_some, urgent_parts
from regnum_election.traces.change_trace import ChangeTrace

REGISTRATIONS_PER_TURN: Final = 200
"""Registrations decoded between two turns of the event loop (safety rule S22)."""

CAUSES: Final[Mapping[str, Cause]] = {
    conventions.CAUSE_LIFELINE: events_pb2.EVENT_CAUSE_LIFELINE_BROKEN,
    conventions.CAUSE_SILENCE: events_pb2.EVENT_CAUSE_SILENCE,
}
"""Causes of deaths as the event log names them."""

REGISTRATIONS: Final = Reason(events_pb2.EVENT_CAUSE_REGISTRATION_CHANGED, "registration gone, new or renewed")
"""Why partitions are settled when only the store says that brokers came or went."""

REPORTED: Final = Reason(events_pb2.EVENT_CAUSE_LEADER_ISR, "reported by its leader")
"""Why in-sync replicas changed that a leader wrote (safety rule S16)."""

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


def is_stranger(context: ControllerContext, broker: Broker) -> bool:
    """Whether a registered broker takes no part, because it does not speak the protocol in force; says so once.

    For once the settings of the reign are read.
    """
    reason = refusal(context.picture.settings.inter_broker_protocol, broker.build)
    if not reason:
        context.strangers.pop(broker.id, None)
    elif context.strangers.get(broker.id) != reason:
        context.strangers[broker.id] = reason
        context.log.error("registration refused", broker=broker.id, reason=reason)
        context.events.refused(broker.id, broker.epoch, reason)
    return bool(reason)


def leave_strangers_out(context: ControllerContext) -> None:
    """At the beginning of a reign: of the brokers that were read, only those stay that may take part."""
    for broker in tuple(context.picture.brokers.values()):
        if is_stranger(context, broker):
            context.picture = context.picture.without_broker(broker.id)
    for id in _share_addresses(context, context.picture.brokers.values()):
        context.picture = context.picture.without_broker(id)


def _share_addresses(context: ControllerContext, brokers: Iterable[Broker]) -> Collection[BrokerId]:
    """Those of the registered brokers that take no part, because another one has their address; says so once."""
    before, context.sharing = context.sharing, without_own_address(brokers)
    for id, shared in context.sharing.items():
        if before.get(id) != shared:
            context.log.error("registration refused", broker=id, reason=str(shared))
            context.events.refused(id, shared.broker.epoch, str(shared))
    return context.sharing.keys()


async def look_at_brokers(context: ControllerContext, names: Collection[str] | None = None) -> bool:
    """Read registrations and act on what changed; returns whether anything did.

    Args:
        context: the reign.
        names: names of the nodes that may have changed; None: all, also of those that the picture shows and that are
            gone.
    """
    read = await read_brokers(context, names)
    for stranger in tuple(context.strangers):
        if stranger not in read and (names is None or str(stranger) in names):
            del context.strangers[stranger]
    found = {id: broker for id, broker in read.items() if not is_stranger(context, broker)}
    known: Mapping[BrokerId, Broker] = context.picture.brokers
    if names is not None:
        looked_at = {id for name in names if (id := broker_named(name)) is not None}
        sharing = [shared.broker for shared in context.sharing.values()]
        others = (one for one in chain(known.values(), sharing) if one.id not in looked_at)
        # Where an address is waited for, whatever broker is gone may have had it.
        concerned = tuple(others if sharing else at_addresses_of(found.values(), others))
        found |= {one.id: one for one in concerned}
        known = {id: known[id] for id in found.keys() | looked_at if id in known}
    difference = _difference(context, known, found)
    if difference.is_empty:
        return False
    await react(context, difference, REGISTRATIONS)
    return True


def _difference(
    context: ControllerContext, known: Mapping[BrokerId, Broker], found: Mapping[BrokerId, Broker]
) -> Difference:
    """What changed among the brokers that take part."""
    valid = newest(known, found, context.fenced)
    left_out = _share_addresses(context, valid.values())
    return compare(known, {id: broker for id, broker in valid.items() if id not in left_out}, context.fenced)


async def fence_broker(context: ControllerContext, event: BrokerDead) -> bool:
    """Take a dead broker's registration away (safety rule S2), then as for any failure; returns whether it was live."""
    known = context.picture.brokers.get(event.broker)
    if known is None or known.epoch != event.epoch or known.registration != event.registration:
        return False
    trace = _begin_trace(context, event)
    try:
        with tracing.span(conventions.FENCE, parent=trace.context):
            await context.store.multi(
                (
                    Set(paths.broker_epoch(known.id), FENCED_CONTENT, known.registration),
                    Delete(paths.broker_id(known.id), known.node_version),
                )
            )
    except NodeFailure as error:
        # It went, or came back, by itself: the registrations say which.
        trace.reached(conventions.FENCED_UNIX_NANO)
        trace.seal()
        context.log.info("fence not needed", broker=known.id, reason=str(error), moved=isinstance(error, BadVersion))
        return await look_at_brokers(context, (str(known.id),))
    context.log.warning("broker fenced", broker=known.id, broker_epoch=known.epoch, evidence=event.evidence)
    context.fenced[known.id] = known.epoch
    trace.reached(conventions.FENCED_UNIX_NANO)
    reason = Reason(CAUSES.get(event.cause, REGISTRATIONS.cause), event.evidence, trace.context)
    context.events.broker(events_pb2.EVENT_KIND_BROKER_FENCED, known.id, known.epoch, reason)
    difference = Difference(gone=frozenset({known.id}), arrived=(), rewritten=())
    await react(context, difference, reason, trace, busy=event.busy)
    return True


def _begin_trace(context: ControllerContext, event: BrokerDead) -> ChangeTrace:
    """The trace of a failover that begins with the decision to fence."""
    now_unix_nano = tracing.now_unix_nano()
    trace = context.changes.failure(
        event.broker,
        event.epoch,
        cause=event.cause,
        evidence=event.evidence,
        noticed=Sign(event.noticed_unix_nano or now_unix_nano, f"lifeline {context.reign.controller_id}"),
        heard_unix_nano=event.heard_unix_nano,
    )
    if event.probe_sent_unix_nano:
        missed = {conventions.BROKER: event.broker}
        tracing.between(
            conventions.PROBE_MISSED,
            event.probe_sent_unix_nano,
            now_unix_nano,
            parent=trace.context,
            attributes=missed,
        )
    trace.reached(conventions.DETECTED_UNIX_NANO, now_unix_nano)
    trace.since("", conventions.DETECTION, {conventions.EVIDENCE: event.evidence})
    return trace


async def react(
    context: ControllerContext,
    difference: Difference,
    reason: Reason,
    trace: ChangeTrace | None = None,
    *,
    busy: Iterable[PartitionKey] = (),
) -> None:
    """Act on changed registrations.

    Args:
        context: the reign.
        difference: what changed.
        reason: how that is known.
        trace: the failover it belongs to; a new one begins when there is none and a leader is gone.
        busy: partitions that are settled before all others, if they were assigned to what is gone.
    """
    changed = difference.gone | {broker.id for broker in difference.arrived}
    lost = {id: broker.epoch for id, broker in context.picture.brokers.items() if id in changed}
    _note(context, difference, reason)
    _redraw(context, difference)
    holds_full_sets = context.dispatch.holds_full_sets
    if holds_full_sets:
        # Only single orders go out, and none is repeated: who arrived has to be there for what is settled below.
        _begin_dispatch(context, difference)
    rest: list[PartitionKey] = []
    assigned = await _assigned(context.picture, changed)
    first = [key for key in dict.fromkeys(busy) if key in assigned]
    for key in first:
        del assigned[key]
    with context.traced(trace):
        await settle_some(context, first, reason)
    parts = urgent_parts(context, assigned, changed, rest)
    trace, reason = await _settle_urgent(context, parts, lost, trace, reason, returns=bool(difference.arrived))
    if trace is not None:
        trace.seal()
    place = "" if trace is None else trace.context
    with tracing.within(place):
        if difference.arrived:
            # A broker that bounced is out of the ISRs before it is told anything.
            await settle_some(context, rest, reason)
        elif rest:
            # Producers may wait for the replica that is gone: what frees them says what it belongs to.
            steps = tracing.each_within(place, settle_in_steps(context, rest, reason))
            context.defer("settle followed partitions", steps)
        await publish(context, brokers_changed=True)
        if not holds_full_sets:
            _begin_dispatch(context, difference)
    await _tell_of_deletions_again(context, changed)


def _begin_dispatch(context: ControllerContext, difference: Difference) -> None:
    for broker in difference.arrived:
        context.dispatch.begin(broker)


async def _settle_urgent(
    context: ControllerContext,
    parts: AsyncGenerator[list[PartitionKey], None],
    lost: Mapping[BrokerId, BrokerEpoch],
    trace: ChangeTrace | None,
    reason: Reason,
    *,
    returns: bool,
) -> tuple[ChangeTrace | None, Reason]:
    """Give leaders to what needs one; returns the change that it is, and the reason within that.

    Args:
        context: the reign.
        parts: partitions that cannot wait.
        lost: brokers that are gone or came anew, with their former epochs.
        trace: the failure that it belongs to, if that is known.
        reason: how that is known.
        returns: whether a broker came: it may lead what has no leader.
    """
    returned: ChangeTrace | None = None
    if trace is None and returns:
        returned = context.changes.plan(
            conventions.KIND_RETURN, asked_unix_nano=tracing.now_unix_nano(), cause=conventions.CAUSE_REGISTERED
        )
    async with aclosing(parts):
        async for urgent in parts:
            if trace is None and any(leader_of(context, key) in lost for key in urgent):
                trace = context.changes.failure(
                    min(lost), lost[min(lost)], cause=conventions.CAUSE_NODE, evidence="registration gone or renewed"
                )
                reason = reason.within(trace.context)
            with context.traced(trace or returned):
                # The first leaders need not wait for the last to be found and written.
                await settle_some(context, urgent, reason)
    if returned is not None:
        returned.seal()
        if trace is None and returned.is_open:
            return returned, reason.within(returned.context)
    return trace, reason


async def _tell_of_deletions_again(context: ControllerContext, changed: Iterable[BrokerId]) -> None:
    """What brokers that came anew have not confirmed they are told again; those that are gone, when they are back."""
    for id in changed:
        async for topics in slices(context.deletions.of_broker(id), DELETIONS_PER_TURN):
            context.deletions.away(id, topics)
        async for keys in slices(context.removals.of_broker(id), DELETIONS_PER_TURN):
            context.removals.away(id, keys)
        departing = context.dispatch.departing
        async for keys in slices(departing.of_broker(id), DELETIONS_PER_TURN):
            departing.away(id, keys)
    await tell_deletions(context)


def _note(context: ControllerContext, difference: Difference, reason: Reason) -> None:
    known = context.picture.brokers
    for id in sorted(difference.gone):
        if id in known and context.fenced.get(id) != known[id].epoch:
            context.events.broker(events_pb2.EVENT_KIND_BROKER_GONE, id, known[id].epoch, reason)
    for broker in difference.arrived:
        context.events.broker(events_pb2.EVENT_KIND_BROKER_REGISTERED, broker.id, broker.epoch, reason)


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


async def take_up_isrs(context: ControllerContext, reports: Mapping[PartitionKey, ReportedNode | None]) -> None:
    """Leaders wrote new ISRs: believe or read them, and settle what no longer fits."""
    applied = Applied()
    news: dict[PartitionKey, HeldState] = {}
    rows: list[PartitionRow] = []
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
                    rows.append(found_row(key, partition.held, said))
                case Unbelieved.READ:
                    unread.append(key)
                case Unbelieved.KNOWN:
                    pass
    context.events.partitions(rows, context.picture.topics, REPORTED)
    context.picture = context.picture.with_states(news)
    applied.leader_changes.update(news)
    usable = [*news, *(await reread(context, unread, applied) if unread else ())]
    # The writers have these states; only clients' metadata changes, and what the decision below adds.
    await publish(context, tuple(applied.leader_changes), can_wait=applied.leader_changes == news.keys())
    further = await change(context, usable, context.settle)
    await tell(context, further)
