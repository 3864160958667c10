"""What coordinates consumer groups, and serves calls about them."""

from dataclasses import replace

from regnum_model.broker_configs import (
    GROUP_INITIAL_REBALANCE_DELAY_MS,
    GROUP_MAX_SIZE,
    OFFSETS_RETENTION_MINUTES,
)
from regnum_model.topics import TRANSACTIONS_TOPIC

from regnum_broker.cluster.controller import ControllerCalls
from regnum_broker.composition.parts import BrokerParts
from regnum_broker.figures.consumer_lag import show_committed
from regnum_broker.groups.calls import GroupCalls
from regnum_broker.groups.coordinator import GroupCoordinator
from regnum_broker.groups.decisions.offsets import OffsetLimits
from regnum_broker.groups.decisions.state import GroupLimits
from regnum_broker.groups.offsets_topic import OffsetsTopic
from regnum_broker.groups.places import CoordinatorPlaces
from regnum_broker.groups.seats import CoordinatorLimits
from regnum_broker.groups.topic_lives import TopicLives
from regnum_broker.servicers.group import GroupServicer
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_broker.serving.produce import ProduceHandler


def start_groups(
    parts: BrokerParts,
    *,
    cache: MetadataCache,
    calls: ControllerCalls,
    leaders: CurrentLeaders,
    producing: ProduceHandler,
) -> GroupServicer:
    """Coordinate groups from now on; returns who is asked about them.

    Args:
        parts: of this broker.
        cache: what is known of the cluster, and with it of the offsets topic.
        calls: to the controller, which makes that topic.
        leaders: who leads its partitions.
        producing: appends to them.
    """
    settings, clock = parts.settings, parts.clock
    topic = OffsetsTopic(
        broker=parts.id,
        partitions=settings.offsets_topic_partitions,
        cache=cache,
        fence=parts.fence,
        calls=calls,
        clock=clock,
    )
    transactions = OffsetsTopic(
        broker=parts.id,
        partitions=settings.transaction_topic_partitions,
        cache=cache,
        fence=parts.fence,
        calls=calls,
        clock=clock,
        name=TRANSACTIONS_TOPIC,
        setting="transaction-topic-partitions",
    )
    coordinator = GroupCoordinator(
        replicas=parts.replicas,
        leaders=leaders,
        topic=topic,
        transactions=CoordinatorPlaces(transactions, leaders=leaders, replicas=parts.replicas),
        lives=TopicLives(cache, clock),
        store=lambda: parts.sessions.store,
        storage=parts.storage,
        append=producing.append,
        clock=clock,
        expiry_now_ms=parts.expiry.now_ms,
        spawn=parts.supervisor.start,
        retention_ms=settings.offsets_retention_minutes * 60_000,
        may_forget=lambda: parts.configs.is_known(OFFSETS_RETENTION_MINUTES),
        session_s_min=settings.group_min_session_timeout_ms / 1000,
        limits=CoordinatorLimits(),
        metrics=parts.metrics,
    )
    limits = GroupLimits(
        session_timeout_s_min=settings.group_min_session_timeout_ms / 1000,
        members_max=settings.group_max_size,
        initial_rebalance_delay_s=settings.group_initial_rebalance_delay_ms / 1000,
    )
    show_committed(parts.metrics, coordinator.offset_books, most=settings.metrics_partitions_max)
    parts.supervisor.start("groups", coordinator.run())
    group_calls = GroupCalls(
        coordinator,
        clock=clock,
        limits=limits,
        offset_limits=OffsetLimits(),
        metrics=parts.metrics,
        new_id=lambda: str(parts.machine.new_uuid()),
    )

    def keep_offsets(minutes: int) -> None:
        coordinator.retention_ms = minutes * 60_000

    def delay(milliseconds: int) -> None:
        group_calls.limits = replace(group_calls.limits, initial_rebalance_delay_s=milliseconds / 1000)

    def bound(members: int) -> None:
        group_calls.limits = replace(group_calls.limits, members_max=members)

    parts.configs.on(OFFSETS_RETENTION_MINUTES, keep_offsets)
    parts.configs.on(GROUP_INITIAL_REBALANCE_DELAY_MS, delay)
    parts.configs.on(GROUP_MAX_SIZE, bound)
    return GroupServicer(coordinator=coordinator, calls=group_calls, clock=clock, authorizer=parts.access.authorizer)
