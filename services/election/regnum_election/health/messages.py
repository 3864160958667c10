"""What is wrong with the cluster, in the words of the wire. Costs what is wrong, and an entry for each broker."""

import asyncio
from collections.abc import Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Final

from regnum.admin.v1 import admin_pb2
from regnum.metadata.v1 import metadata_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerId
from regnum_model.protocols import refusal
from regnum_model.topic_filter import Trouble
from regnum_model.wire_times import duration_of
from regnum_service.errors import RegnumError
from regnum_service.slices import slices

from regnum_election.decisions.cluster import Cluster
from regnum_election.dispatch.broker_dispatch import BrokerOrders
from regnum_election.dispatch.control_requests import partition_state
from regnum_election.health.damage import REASON_MAX, damaged, damaged_count
from regnum_election.health.troubles import WORST_FIRST, Troubled
from regnum_election.health.watch import HealthWatch, OverdueOrders
from regnum_election.health.writability import Writability
from regnum_election.reign.reign import DeposedError
from regnum_election.state.releases import highest_spoken, registered

PARTITIONS_NAMED: Final = 20
"""Unhealthy partitions that are named when the caller does not say how many."""
PARTITIONS_NAMED_MAX: Final = 1_000
"""Partitions that are named at most."""
ORDERS_NAMED: Final = 5
"""Partitions that are named of the overdue orders of a broker."""
STORE_S: Final = 1.0
"""Seconds that the registrations are waited for."""
NAMED_AT_ONCE: Final = 200
"""Partitions, or brokers, put into words between two turns of the event loop (safety rule S22)."""

TROUBLES: Final[Mapping[Trouble, metadata_pb2.PartitionTrouble.ValueType]] = MappingProxyType(
    {
        Trouble.OFFLINE: metadata_pb2.PARTITION_TROUBLE_OFFLINE,
        Trouble.UNDER_MIN_ISR: metadata_pb2.PARTITION_TROUBLE_UNDER_MIN_ISR,
        Trouble.NOT_WRITABLE: metadata_pb2.PARTITION_TROUBLE_NOT_WRITABLE,
        Trouble.UNDER_REPLICATED: metadata_pb2.PARTITION_TROUBLE_UNDER_REPLICATED,
    }
)


def partitions_named(request: admin_pb2.DescribeHealthRequest) -> int:
    """How many partitions to name. Raises RegnumError."""
    if not 0 <= request.partitions_max <= PARTITIONS_NAMED_MAX:
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REQUEST,
            f"partitions_max is {request.partitions_max}; give at most {PARTITIONS_NAMED_MAX}, or 0 for the default",
        )
    return request.partitions_max or PARTITIONS_NAMED


async def describe_health(health: HealthWatch, *, most: int) -> admin_pb2.DescribeHealthResponse:
    """What is wrong now, naming at most so many unhealthy partitions."""
    context = health.context
    reign, picture, metadata, now_s = context.reign, context.picture, context.metadata, context.clock.monotonic()
    response = admin_pb2.DescribeHealthResponse(
        controller_id=reign.controller_id,
        controller_epoch=reign.epoch,
        metadata_version=metadata.version,
        complete=health.looked_at_all,
        topics=len(picture.topics),
        partitions=len(picture.partitions),
        metadata_processes=[
            admin_pb2.MetadataProcessHealth(
                metadata_id=id,
                versions_behind=-1 if behind is None else behind,
                takes_no_changes_because=health.metadata_failing.get(id, "")[:REASON_MAX],
            )
            for id, behind in metadata.positions
        ],
        troubles=[
            admin_pb2.TroubleCount(
                trouble=TROUBLES[trouble],
                partitions=health.book.count(trouble),
                for_long=health.book.count_long(trouble),
            )
            for trouble in WORST_FIRST
        ],
        overdue_orders=[_overdue(picture, one) for one in health.overdue],
        store_went_back=reign.went_back,
        store_trouble="" if health.store is None else health.store.trouble[:REASON_MAX],
        access_warnings=reign.access_warnings,
        store_warnings=[warning[:REASON_MAX] for warning in reign.store_warnings],
        order_overdue=duration_of(health.limits.order_s),
        trouble_overdue=duration_of(health.limits.trouble_s),
        controller_wall_clock_ms=context.clock.wall_ms(),
    )
    orders = {one.broker: one for one in health.orders}
    async for ids in slices(sorted({*picture.brokers, *picture.assigned, *picture.draining}), NAMED_AT_ONCE):
        response.brokers.extend(_broker(health, id, orders.get(id), now_s) for id in ids)
    response.damaged.extend(islice(damaged(context), most))
    response.damaged_count = damaged_count(context)
    await _name_releases(health, response)
    async for troubled in slices(health.book.first(most), NAMED_AT_ONCE):
        response.troubled_partitions.extend(_named(picture, troubled, health.writability, now_s))
    return response


async def _name_releases(health: HealthWatch, response: admin_pb2.DescribeHealthResponse) -> None:
    """Who runs which release, as the store says it now; who asks must have the rest of the answer without the store."""
    context = health.context
    left_out = {id: str(shared) for id, shared in context.sharing.items()} | dict(health.misdirected)
    in_force = context.picture.settings.inter_broker_protocol
    response.inter_broker_protocol = in_force
    try:
        async with asyncio.timeout(STORE_S):
            processes = await registered(context)
    except (TimeoutError, DeposedError):
        return
    response.inter_broker_protocol_max = highest_spoken(processes)
    for one in processes:
        protocols = one.build.protocols
        response.releases.add(
            role=one.role,
            id=one.id,
            release=one.build.release,
            protocol_min=protocols.low,
            protocol_max=protocols.high,
            refused=(
                one.problem
                or refusal(in_force, one.build)
                or (left_out.get(BrokerId(one.id), "") if one.role == "broker" else "")
            )[:REASON_MAX],
        )


def _broker(health: HealthWatch, id: BrokerId, orders: BrokerOrders | None, now_s: float) -> admin_pb2.BrokerHealth:
    picture, clock, disk = health.context.picture, health.clock_of(id), health.writability.disk_of(id)
    return admin_pb2.BrokerHealth(
        broker_id=id,
        registered=id in picture.brokers,
        stopping=id in picture.leaving,
        draining=id in picture.draining,
        replicas=len(picture.assigned.get(id, ())),
        offline_replicas=len(picture.offline.get(id, ())),
        orders_outstanding=0 if orders is None else orders.count,
        oldest_order_age=None if orders is None else duration_of(now_s - orders.oldest_s),
        clock_ahead_ms=None if clock is None else clock.ahead_ms,
        expiry_held_back=clock is not None and clock.expiry_held_back,
        disk_free_bytes=None if disk is None else disk.free_bytes,
        disk_size_bytes=None if disk is None else disk.size_bytes,
        refuses_writes_because="" if disk is None else disk.refuses_because,
        turns_away_because=health.turns_away.get(id, ""),
    )


def _named(
    picture: Cluster, found: tuple[Troubled, ...], writability: Writability, now_s: float
) -> Iterator[admin_pb2.TroubledPartition]:
    for one in found:
        topic, partition = picture.topics.get(one.key.topic_id), picture.partitions.get(one.key)
        if topic is not None and partition is not None:
            yield admin_pb2.TroubledPartition(
                topic=topic.name,
                state=partition_state(
                    one.key.partition, partition, picture.offline_at(one.key), adding=partition.adding
                ),
                troubles=[TROUBLES[trouble] for trouble in one.troubles],
                age=duration_of(now_s - one.since_s),
                not_writable_because=writability.because(one.key)[:REASON_MAX]
                if Trouble.NOT_WRITABLE in one.troubles
                else "",
            )


def _overdue(picture: Cluster, overdue: OverdueOrders) -> admin_pb2.OverdueOrders:
    message = admin_pb2.OverdueOrders(
        broker_id=overdue.broker, orders=overdue.count, oldest_age=duration_of(overdue.oldest_age_s)
    )
    for key in overdue.keys[:ORDERS_NAMED]:
        topic, partition = picture.topics.get(key.topic_id), picture.partitions.get(key)
        if topic is not None and partition is not None:
            leads = partition.held is not None and partition.held.state.leader == overdue.broker
            message.partitions.add(topic=topic.name, partition=key.partition, leader=leads)
    return message
