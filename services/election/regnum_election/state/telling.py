"""Telling of what was applied: brokers by orders, everybody else by the publication."""

import asyncio
from collections.abc import Iterable, Sequence

from regnum_model.ids import NO_LEADER, BrokerId, LeaderEpoch, PartitionKey

from regnum_election.decisions.cluster import Cluster
from regnum_election.state.context import ControllerContext
from regnum_election.state.partition_writes import PARTITIONS_PER_WRITE, Applied


async def tell(context: ControllerContext, applied: Applied, *, can_wait: bool = False) -> None:
    """Send what changed to those who must know, and publish it; ``can_wait`` as for ``publish``."""
    context.dispatch.show(context.picture)
    everywhere = tuple(applied.leader_changes)
    replicas = tuple(applied.settings - applied.leader_changes)
    leaders = tuple(applied.isr_changes - applied.leader_changes - applied.settings)
    isr_changes = tuple(applied.isr_changes - applied.leader_changes)
    if context.change is not None:
        context.change.expect_leaders(_led(context, applied.leader_changes), partitions=len(applied.leader_changes))
    for start in range(0, len(everywhere), PARTITIONS_PER_WRITE):
        _tell_replicas(context, everywhere[start : start + PARTITIONS_PER_WRITE])
        await asyncio.sleep(0)
    for start in range(0, len(replicas), PARTITIONS_PER_WRITE):
        _tell_replicas(context, replicas[start : start + PARTITIONS_PER_WRITE])
        await asyncio.sleep(0)
    for start in range(0, len(leaders), PARTITIONS_PER_WRITE):
        _tell_leaders(context, leaders[start : start + PARTITIONS_PER_WRITE])
        await asyncio.sleep(0)
    await publish(context, (*everywhere, *isr_changes), can_wait=can_wait)


def orders_for(picture: Cluster, keys: Iterable[PartitionKey]) -> dict[BrokerId, list[PartitionKey]]:
    """Who has to hear of which of these partitions, because it has a replica or is in an ISR."""
    orders: dict[BrokerId, list[PartitionKey]] = {}
    for key in keys:
        partition = picture.partitions.get(key)
        if partition is None or partition.held is None:
            continue
        for broker in dict.fromkeys((*partition.replicas, *partition.held.state.isr)):
            orders.setdefault(broker, []).append(key)
    return orders


def _tell_replicas(context: ControllerContext, keys: Sequence[PartitionKey]) -> None:
    context.dispatch.order_states(orders_for(context.picture, keys).items())


def _tell_leaders(context: ControllerContext, keys: Sequence[PartitionKey]) -> None:
    orders: dict[BrokerId, list[PartitionKey]] = {}
    for key in keys:
        partition = context.picture.partitions.get(key)
        if partition is not None and partition.held is not None:
            orders.setdefault(partition.held.state.leader, []).append(key)
    context.dispatch.order_states(orders.items())


def _led(context: ControllerContext, keys: Iterable[PartitionKey]) -> dict[PartitionKey, LeaderEpoch]:
    """Those that have a leader, with its leader epoch."""
    partitions = context.picture.partitions
    held = {key: partition.held for key in keys if (partition := partitions.get(key)) is not None}
    return {
        key: one.state.leader_epoch for key, one in held.items() if one is not None and one.state.leader != NO_LEADER
    }


async def publish(
    context: ControllerContext,
    changed: Sequence[PartitionKey] = (),
    *,
    brokers_changed: bool = False,
    can_wait: bool = False,
) -> None:
    """Publish metadata, in changes that do not hold the loop for long (safety rule S22).

    Args:
        context: the reign.
        changed: partitions with news.
        brokers_changed: whether brokers came, changed or went.
        can_wait: whether it may be sent a little later, with other news: nobody acts on it.
    """
    context.dispatch.show(context.picture)
    if not changed and not brokers_changed:
        return
    if not changed:
        context.metadata.publish(context.picture)
    for portion in context.unpublished.portions(changed, context.picture.of_topic, PARTITIONS_PER_WRITE):
        context.metadata.publish(context.picture, portion, can_wait=can_wait)
        await asyncio.sleep(0)
