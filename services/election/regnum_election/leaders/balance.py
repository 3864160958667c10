"""Leadership back to preferred replicas, now and then, so that a cluster that has seen failures does not stay lopsided.

Kafka's rule: a broker is out of balance when more than ``leader.imbalance.per.broker.percentage`` of the partitions
that prefer it are led by others. Only in-sync preferred replicas take over, a few hundred partitions at a time.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Final

from regnum_model.configs import (
    AUTO_LEADER_REBALANCE_ENABLE,
    LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS,
    LEADER_IMBALANCE_PER_BROKER_PERCENTAGE,
)
from regnum_model.ids import BrokerId, PartitionKey
from regnum_telemetry import conventions, tracing

from regnum_election.decisions.cluster import Cluster, Partition
from regnum_election.decisions.configs import Settings
from regnum_election.decisions.leadership import Decision, Refusal, prefer
from regnum_election.history.events import BALANCE
from regnum_election.state.context import ControllerContext
from regnum_election.state.partition_writes import change
from regnum_election.state.telling import tell

FIRST_LOOK_S: Final = 5.0
"""When a reign looks first, as Kafka's does, unless the interval is shorter."""

PARTITIONS_PER_STEP: Final = 300
"""Partitions moved in one step."""


def check_interval_s(settings: Settings, flag_s: float) -> float:
    """Seconds between two looks: what the cluster says, or else the process's flag."""
    told_s = settings.cluster.get(LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS)
    return flag_s if told_s is None else float(told_s)


def is_enabled(settings: Settings) -> bool:
    """Whether anything is balanced by itself."""
    return bool(settings.of_cluster(AUTO_LEADER_REBALANCE_ENABLE))


def misplaced(picture: Cluster) -> tuple[PartitionKey, ...]:
    """Partitions whose preferred replica is live and does not lead, of brokers that are out of balance."""
    percentage = picture.settings.of_cluster(LEADER_IMBALANCE_PER_BROKER_PERCENTAGE)
    preferred: Counter[BrokerId] = Counter()
    elsewhere: dict[BrokerId, list[PartitionKey]] = {}
    for key, partition in picture.partitions.items():
        broker = partition.replicas[0]
        if partition.held is None or broker not in picture.brokers or broker in picture.leaving:
            continue
        preferred[broker] += 1
        if partition.held.state.leader != broker:
            elsewhere.setdefault(broker, []).append(key)
    return tuple(
        key for broker, keys in elsewhere.items() if 100 * len(keys) > preferred[broker] * percentage for key in keys
    )


async def balance_leaders(context: ControllerContext) -> AsyncGenerator[None, None]:
    """The steps of one round."""

    def decide(_picture: Cluster, key: PartitionKey, partition: Partition) -> Decision:
        if partition.held is None:
            # One that conflicted is decided about again later: it may have been removed and added anew since.
            return Refusal.NOTHING_TO_CHANGE
        return prefer(partition.held.state, partition.replicas, context.surroundings_of(key))

    # Beside the loop: it looks at every partition there is (safety rule S22).
    keys = await asyncio.to_thread(misplaced, context.picture)
    moved = 0
    trace = context.changes.plan(
        conventions.KIND_BALANCE, asked_unix_nano=tracing.now_unix_nano(), cause=conventions.CAUSE_DECISION
    )
    try:
        for start in range(0, len(keys), PARTITIONS_PER_STEP):
            known = [key for key in keys[start : start + PARTITIONS_PER_STEP] if _has_state(context.picture, key)]
            with context.traced(trace):
                applied = await change(context, known, decide, BALANCE)
                await tell(context, applied)
            moved += len(applied.leader_changes)
            yield
    finally:
        trace.seal()
    if moved:
        context.log.info("leaders moved to preferred replicas", partitions=moved)


def _has_state(picture: Cluster, key: PartitionKey) -> bool:
    partition = picture.partitions.get(key)
    return partition is not None and partition.held is not None
