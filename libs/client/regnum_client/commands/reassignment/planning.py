"""Plans from what the cluster says of itself."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from regnum.types.v1 import errors_pb2
from regnum_model.configs import DEFAULT_REPLICATION_FACTOR
from regnum_service.errors import RegnumError

from regnum_client.admin.configs import ConfigResource
from regnum_client.admin.reassignment.plan import Place, PlanError, PlannedMove, drain_plan, even_plan
from regnum_client.admin.reassignment.removal import Emptiness, cannot_leave, on_fewer_racks, why_not_removed
from regnum_client.cluster.view import ClusterView
from regnum_client.commands.invocation import conflict

if TYPE_CHECKING:
    from regnum_client.admin.admin import Admin
    from regnum_client.admin.reassignment.values import OngoingReassignment


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
    known = await _assigned(admin, targets)
    return tuple(
        PlannedMove(topic=name, partition=number, before=known[name, number].settled, after=after)
        for (name, number), after in sorted(targets.items())
    )


async def saved_moves(admin: "Admin", saved: Sequence[PlannedMove]) -> tuple[PlannedMove, ...]:
    """What is left of a saved plan.

    Raises:
        RegnumError: the cluster cannot say where the partitions are.
        CommandFailedError: one is neither where the plan found it nor where it brings it; somebody else moved it.
    """
    known = await _assigned(admin, {(move.topic, move.partition) for move in saved})
    moves: list[PlannedMove] = []
    for move in saved:
        one = known[move.topic, move.partition]
        if not {one.replicas, one.settled, one.target} & {move.before, move.after}:
            raise conflict(
                "PLAN_OUTDATED",
                f"{move.topic}/{move.partition} is on brokers {list(one.target)}, and the plan knows it on "
                f"{list(move.before)} or {list(move.after)}: somebody has moved it since; make a new plan, or take it "
                "out of the file",
            )
        if one.target != move.after:
            moves.append(replace(move, before=one.settled))
    return tuple(moves)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assigned:
    """Where a partition is."""

    replicas: tuple[int, ...]
    """At present; old and new ones while it moves."""
    settled: tuple[int, ...]
    """Where it was before it moved."""
    target: tuple[int, ...]
    """Where it will be."""


async def _assigned(admin: "Admin", places: Collection[Place]) -> dict[Place, _Assigned]:
    """Where some partitions are. Raises RegnumError."""
    names = sorted({name for name, _ in places})
    topics = {name: await admin.describe_topic(name) for name in names}
    moving = {(one.topic, one.partition): one for one in await admin.list_partition_reassignments(names)}
    found: dict[Place, _Assigned] = {}
    for name, number in sorted(places):
        known = topics[name].partitions.get(number)
        if known is None:
            raise RegnumError(
                errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {name} has no partition {number}; describe it to see those that it has",
            )
        one, replicas = moving.get((name, number)), tuple(known.replicas)
        found[name, number] = _Assigned(
            replicas=replicas,
            settled=replicas if one is None else one.origin,
            target=replicas if one is None else one.target,
        )
    return found


async def evened(admin: "Admin") -> tuple[PlannedMove, ...]:
    """The moves after which all brokers that are not drained share all topics evenly. Raises RegnumError."""
    partitions = await _all_partitions(admin)
    if not partitions:
        return ()
    known = await admin.describe_brokers()
    if away := sorted(one.id for one in known if one.replicas and not one.live and not one.draining):
        # One that restarts at this moment would lose all that it has to the others.
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT,
            f"brokers {away} are away and have replicas, all of which would move to the others; start them first, or "
            f"say with `regnum brokers drain {away[0]}` that a broker does not come back",
        )
    drained = {one.id for one in known if one.draining}
    racks = {id: rack for id, rack in _racks(await admin.describe_cluster()).items() if id not in drained}
    await _as_they_will_be(admin, partitions, ())
    return _plan_or_error(lambda: even_plan(partitions, racks))


async def removable(admin: "Admin", brokers: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Why each of some brokers may not be taken away, if all of them are; none: it may. Raises RegnumError."""
    known = {one.id: one for one in await admin.describe_brokers()}
    coming = Counter(id for one in await admin.list_partition_reassignments() for id in one.target)
    entries = await admin.describe_config(ConfigResource())
    factor = next(int(entry.value) for entry in entries if entry.name == DEFAULT_REPLICATION_FACTOR)
    left = [one.id for one in known.values() if one.live and not one.draining and one.id not in brokers]
    found: dict[int, tuple[str, ...]] = {}
    for id in dict.fromkeys(brokers):
        one = known.get(id)
        emptiness = Emptiness(
            known=one is not None,
            draining=one is not None and one.draining,
            replicas=0 if one is None else one.replicas,
            leaders=0 if one is None else one.leaders,
            coming=coming[id],
        )
        found[id] = why_not_removed(id, emptiness, left=left, default_replication_factor=factor)
    return found


async def check_drain(admin: "Admin", broker: int, *, fewer_racks: bool) -> None:
    """Raise RegnumError where a broker cannot be emptied, or partitions would be worse off."""
    replicas: dict[Place, Sequence[int]] = {}
    leaders: dict[Place, int] = {}
    for topic in await admin.list_topics():
        for number, one in topic.partitions.items():
            replicas[topic.name, number], leaders[topic.name, number] = one.replicas, one.leader
    refused = cannot_leave(broker, leaders, replicas)
    moves = await drained(admin, broker)
    if not refused and not fewer_racks:
        refused = on_fewer_racks(moves, _racks(await admin.describe_cluster()))
    if refused:
        raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT, refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLoad:
    """What stands between a broker and having nothing."""

    moves: tuple[PlannedMove, ...]
    """What has to be asked for."""
    leaving: frozenset[Place]
    """Partitions that are on their way off it."""
    places: frozenset[Place]
    """Partitions that it has, as brokers know it."""


async def drained(admin: "Admin", broker: int) -> tuple[PlannedMove, ...]:
    """The moves after which a broker has nothing. Raises RegnumError."""
    return (await load_of(admin, broker)).moves


async def load_of(admin: "Admin", broker: int) -> BrokerLoad:
    """What a broker has. Raises RegnumError where it cannot be emptied."""
    racks = _racks(await admin.describe_cluster())
    # What is being drained gets nothing; the broker itself stays, as one that has something to give.
    drained = {one.id for one in await admin.describe_brokers() if one.draining and one.id != broker}
    racks = {id: rack for id, rack in racks.items() if id not in drained}
    partitions = await _all_partitions(admin)
    places = frozenset(place for place, ids in partitions.items() if broker in ids)
    ongoing = await admin.list_partition_reassignments()
    _will_be(partitions, ongoing)
    moves = _plan_or_error(lambda: drain_plan(partitions, racks, broker=broker))
    return BrokerLoad(moves=moves, leaving=_leaving(ongoing, broker), places=places)


async def leaving_of(admin: "Admin", broker: int) -> frozenset[Place]:
    """Partitions that are on their way off a broker. Raises RegnumError."""
    return _leaving(await admin.list_partition_reassignments(), broker)


def _leaving(ongoing: "Sequence[OngoingReassignment]", broker: int) -> frozenset[Place]:
    return frozenset(
        (one.topic, one.partition) for one in ongoing if broker in one.replicas and broker not in one.target
    )


async def _all_partitions(admin: "Admin") -> dict[Place, tuple[int, ...]]:
    return {
        (topic.name, number): tuple(one.replicas)
        for topic in await admin.list_topics()
        for number, one in topic.partitions.items()
    }


async def _as_they_will_be(admin: "Admin", partitions: dict[Place, tuple[int, ...]], topics: Sequence[str]) -> None:
    """A partition that moves counts where it goes: until it is there it has both."""
    _will_be(partitions, await admin.list_partition_reassignments(topics))


def _will_be(partitions: dict[Place, tuple[int, ...]], ongoing: "Sequence[OngoingReassignment]") -> None:
    for one in ongoing:
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
