"""Telling brokers to delete replicas of topics, and of single partitions, that are gone (safety rule S13)."""

from typing import Final

from regnum_model.ids import TOPIC_DELETED_EPOCH, PartitionKey
from regnum_service.slices import slices

from regnum_election.decisions.deletion import Deletion, Removal
from regnum_election.dispatch.outbox import Stop
from regnum_election.state.context import ControllerContext

DELETIONS_PER_TURN: Final = 500
"""Open deletions that are told of, or given up as told, between two turns of the event loop (safety rule S22)."""


async def tell_deletions(context: ControllerContext) -> None:
    """Order live brokers to delete what they have not been told of since they came (safety rule S13)."""
    for id in context.picture.brokers:
        async for topics in slices(context.deletions.untold(id), DELETIONS_PER_TURN):
            deletions = [context.deletions[topic_id] for topic_id in topics]
            context.dispatch.order_stops(id, [_stop(deletion) for deletion in deletions])
            context.deletions.told(id, topics)
        async for keys in slices(context.removals.untold(id), DELETIONS_PER_TURN):
            removals = [removal for key in keys if (removal := context.removals.get(key)) is not None]
            context.dispatch.order_stops(id, [_stop_partition(removal) for removal in removals])
            context.removals.told(id, keys)
        departing = context.dispatch.departing
        async for keys in slices(departing.untold(id), DELETIONS_PER_TURN):
            context.dispatch.order_stops(id, [stop for key in keys if (stop := _stop_reassigned(context, key))])
            departing.told(id, keys)


def _stop(deletion: Deletion) -> Stop:
    return Stop(
        topic_id=deletion.topic_id,
        partition=-1,
        topic=deletion.topic,
        leader_epoch=TOPIC_DELETED_EPOCH,
        delete=True,
        weight=deletion.weight,
    )


def _stop_reassigned(context: ControllerContext, key: PartitionKey) -> Stop | None:
    """The receiver looks for itself whether others have the partition and lead it, and is asked again until they do."""
    topic, partition = context.picture.topics.get(key.topic_id), context.picture.partitions.get(key)
    if topic is None or partition is None or partition.held is None:
        return None
    return Stop(
        topic_id=key.topic_id,
        partition=key.partition,
        topic=topic.name,
        leader_epoch=partition.held.state.leader_epoch,
        delete=True,
        reassigned=True,
    )


def _stop_partition(removal: Removal) -> Stop:
    # By its epoch the order leaves a replica alone that was added since under the same number.
    return Stop(
        topic_id=removal.key.topic_id,
        partition=removal.key.partition,
        topic=removal.topic,
        leader_epoch=removal.leader_epoch,
        delete=True,
    )
