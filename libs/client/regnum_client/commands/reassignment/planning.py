"""Plans from what the cluster says of itself."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from regnum.types.v1 import errors_pb2
from regnum_service.errors import RegnumError

from regnum_client.admin.reassignment.plan import Place, PlanError, PlannedMove, drain_plan, even_plan
from regnum_client.cluster.view import ClusterView

if TYPE_CHECKING:
    from regnum_client.admin.admin import Admin


async def planned(admin: "Admin", topics: Sequence[str], brokers: Sequence[int]) -> tuple[PlannedMove, ...]:
    """The moves after which these brokers share these topics evenly. Raises RegnumError."""
    racks = _racks(await admin.describe_cluster())
    if unknown := [id for id in brokers if id not in racks]:
        raise _not_live(unknown, racks)
    partitions: dict[Place, tuple[int, ...]] = {}
    for name in dict.fromkeys(topics):
        topic = await admin.describe_topic(name)
        partitions.update({(name, number): one.replicas for number, one in topic.partitions.items()})
    await _as_they_will_be(admin, partitions, topics)
    return _plan_or_error(lambda: even_plan(partitions, {id: racks[id] for id in brokers}))


async def explicit_moves(admin: "Admin", targets: Mapping[Place, tuple[int, ...]]) -> tuple[PlannedMove, ...]:
    """Moves that somebody named one by one. Raises RegnumError."""
    moves: list[PlannedMove] = []
    for (name, number), after in sorted(targets.items()):
        topic = await admin.describe_topic(name)
        known = topic.partitions.get(number)
        if known is None:
            raise RegnumError(
                errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {name} has no partition {number}; describe it to see those that it has",
            )
        moves.append(PlannedMove(topic=name, partition=number, before=tuple(known.replicas), after=after))
    return tuple(moves)


async def drained(admin: "Admin", broker: int) -> tuple[PlannedMove, ...]:
    """The moves after which a broker has nothing. Raises RegnumError."""
    racks = _racks(await admin.describe_cluster())
    # What is being drained gets nothing; the broker itself stays, as one that has something to give.
    drained = {one.id for one in await admin.describe_brokers() if one.draining and one.id != broker}
    racks = {id: rack for id, rack in racks.items() if id not in drained}
    partitions: dict[Place, tuple[int, ...]] = {
        (topic.name, number): tuple(one.replicas)
        for topic in await admin.list_topics()
        for number, one in topic.partitions.items()
    }
    await _as_they_will_be(admin, partitions, ())
    return _plan_or_error(lambda: drain_plan(partitions, racks, broker=broker))


async def _as_they_will_be(admin: "Admin", partitions: dict[Place, tuple[int, ...]], topics: Sequence[str]) -> None:
    """A partition that moves counts where it goes: until it is there it has both."""
    for one in await admin.list_partition_reassignments(topics):
        if (one.topic, one.partition) in partitions:
            partitions[one.topic, one.partition] = one.target


def _racks(view: ClusterView) -> dict[int, str | None]:
    return {id: broker.rack or None for id, broker in view.brokers.items()}


def _not_live(unknown: Sequence[int], racks: Mapping[int, str | None]) -> RegnumError:
    return RegnumError(
        errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT,
        f"brokers {sorted(unknown)} are not live; choose from {sorted(racks)}, or start them",
    )


def _plan_or_error(plan: Callable[[], tuple[PlannedMove, ...]]) -> tuple[PlannedMove, ...]:
    try:
        return plan()
    except PlanError as error:
        raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REPLICATION_FACTOR, str(error)) from None
