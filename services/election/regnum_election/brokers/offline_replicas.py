"""Replicas that a live broker cannot use: its files are damaged, or its disk failed (safety rule S10).

Goals: a partition whose leader cannot lead gets another, if a complete copy is live; if none is, it is Offline and says
why. The next reign knows it too, because the member has left the ISR in the store by then.

Constraints: a refusal concerns the refusing broker's replica and nobody else's, and an ISR is never emptied, so
whoever refuses everything takes only itself out. A broker may refuse ten thousand replicas at once: they are decided
about and written together, those without a leader first.

What is known of a replica ends with its broker's registration: after a restart the broker is told everything again
(safety rule S12), and refuses again what it still cannot use. A log that was renewed is not the recorded one, so it
comes back as a follower, and its leader takes it into the ISR when it has caught up.
"""

from regnum.types.v1 import events_pb2
from regnum_model.ids import NO_LEADER, BrokerEpoch, BrokerId, PartitionKey
from regnum_telemetry import conventions, tracing

from regnum_election.brokers.changes import look_at_brokers
from regnum_election.history.events import Reason
from regnum_election.reign.events import ReplicasOffline, ReplicasUsable
from regnum_election.state.context import ControllerContext
from regnum_election.state.telling import publish
from regnum_election.topics.settling import PARTITIONS_PER_WRITE, by_urgency, settle_in_steps, settle_some


async def take_offline(context: ControllerContext, event: ReplicasOffline) -> None:
    """Do without replicas that their broker cannot use."""
    came_unix_nano = tracing.now_unix_nano()
    if not await _is_of_now(context, event.broker, event.epoch):
        return
    context.dispatch.departing.note_damaged(event.broker, event.keys)
    held = [key for key in event.keys if _holds(context, event.broker, key)]
    news = sorted(key for key in held if event.broker not in context.picture.offline_at(key))
    if not news:
        return
    reason = Reason(events_pb2.EVENT_CAUSE_REPLICA_OFFLINE, f"broker {event.broker} cannot use its replica")
    context.events.broker(events_pb2.EVENT_KIND_REPLICAS_OFFLINE, event.broker, event.epoch, reason, count=len(news))
    context.log.error("replicas offline", broker=event.broker, partitions=len(news), first=news[0])
    context.picture = context.picture.with_offline(event.broker, news)
    context.dispatch.note_offline(event.broker, news)
    urgent, rest = await by_urgency(context, news, {event.broker})
    trace = context.changes.plan(
        conventions.KIND_BROKER_FAILURE,
        asked_unix_nano=came_unix_nano,
        cause=conventions.CAUSE_REPLICAS_OFFLINE,
        victim=event.broker,
    )
    for start in range(0, len(urgent), PARTITIONS_PER_WRITE):
        with context.traced(trace):
            await settle_some(context, urgent[start : start + PARTITIONS_PER_WRITE], reason)
    trace.seal()
    if rest:
        context.defer("settle offline followers", settle_in_steps(context, rest, reason))
    leaderless = [key for key in news if not _is_led(context, key)]
    if leaderless:
        context.log.error(
            "partitions offline",
            partitions=len(leaderless),
            first=leaderless[0],
            reason=f"broker {event.broker} cannot use its replicas, and no other complete one is live",
        )
    await publish(context, news)


async def take_back(context: ControllerContext, event: ReplicasUsable) -> None:
    """Replicas that could not be used can be: they may lead what has no leader."""
    if not await _is_of_now(context, event.broker, event.epoch):
        return
    news = sorted(key for key in event.keys if event.broker in context.picture.offline_at(key))
    if not news:
        return
    context.log.info("replicas can be used again", broker=event.broker, partitions=len(news))
    context.picture = context.picture.with_usable(event.broker, news)
    reason = Reason(events_pb2.EVENT_CAUSE_REPLICA_USABLE, f"broker {event.broker} can use its replica again")
    context.events.broker(events_pb2.EVENT_KIND_REPLICAS_USABLE, event.broker, event.epoch, reason, count=len(news))
    context.defer("settle usable replicas", settle_in_steps(context, news, reason))
    await publish(context, news)


async def _is_of_now(context: ControllerContext, id: BrokerId, epoch: BrokerEpoch) -> bool:
    """Whether the registration is the one that lives; one that the picture lacks is read first."""
    known = context.picture.brokers.get(id)
    if known is None or known.epoch < epoch:
        await look_at_brokers(context, (str(id),))
        known = context.picture.brokers.get(id)
    return known is not None and known.epoch == epoch


def _holds(context: ControllerContext, id: BrokerId, key: PartitionKey) -> bool:
    partition = context.picture.partitions.get(key)
    return partition is not None and id in partition.replicas


def _is_led(context: ControllerContext, key: PartitionKey) -> bool:
    partition = context.picture.partitions.get(key)
    return partition is None or (partition.held is not None and partition.held.state.leader != NO_LEADER)
