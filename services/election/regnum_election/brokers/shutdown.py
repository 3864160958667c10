"""A broker that wants to stop: what it leads is handed over first, then it leaves what it follows."""

from collections.abc import AsyncGenerator, Callable, Iterable

from regnum.types.v1 import events_pb2
from regnum_model.ids import BrokerId, PartitionKey
from regnum_service.slices import slices

from regnum_election.decisions.cluster import Cluster, Partition
from regnum_election.decisions.leadership import Decision, Refusal, hand_over
from regnum_election.dispatch.outbox import Stop
from regnum_election.history.events import Reason
from regnum_election.state.context import ControllerContext
from regnum_election.state.partition_writes import change
from regnum_election.state.telling import tell
from regnum_election.topics.settling import PARTITIONS_PER_TURN, PARTITIONS_PER_WRITE, is_known, leader_of


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
    reason = Reason(events_pb2.EVENT_CAUSE_CONTROLLED_SHUTDOWN, f"broker {id} asked to stop")
    epoch = context.picture.brokers[id].epoch
    context.events.broker(events_pb2.EVENT_KIND_BROKER_STOPPING, id, epoch, reason)

    def decide(picture: Cluster, key: PartitionKey, partition: Partition) -> Decision:
        if partition.held is None:
            # One that conflicted is decided about again later: it may have been removed and added anew since.
            return Refusal.NOTHING_TO_CHANGE
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
        chosen = [key for key in keys if (leader_of(context, key) == id) is led]
        for start in range(0, len(chosen), PARTITIONS_PER_WRITE):
            check()
            some = [key for key in chosen[start : start + PARTITIONS_PER_WRITE] if is_known(context, key)]
            applied = await change(context, some, decide, reason)
            await tell(context, applied)
            moved += len(applied.leader_changes)
            if not led:
                context.dispatch.order_stops(id, _stops(context, id, some))
            yield
    check()
    remaining = sum(1 for key in keys if leader_of(context, key) == id)
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
