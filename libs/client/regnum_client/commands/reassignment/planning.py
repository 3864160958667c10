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
from regnum_client.commands.reassignment.assignments import Assignments, all_assignments, assignments_of

if TYPE_CHECKING:
    from regnum_client.admin.admin import Admin
    from regnum_client.admin.reassignment.values import OngoingReassignment


async def planned(admin: "Admin", topics: Sequence[str], brokers: Sequence[int]) -> tuple[PlannedMove, ...]:
    """The moves after which these brokers share these topics evenly. Raises RegnumError and CommandFailedError."""
    racks = _racks(await admin.describe_cluster())
    if unknown := [id for id in brokers if id not in racks]:
        raise _not_live(unknown, racks)
    partitions = (await assignments_of(admin, topics)).to_come()
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
                f"{list(move.before)} or {list(move.after)}: it has been moved since; make a new plan, or take it "
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
    """Where some partitions are. Raises RegnumError and CommandFailedError."""
    seen = await assignments_of(admin, (name for name, _ in places))
    moving = {(one.topic, one.partition): one for one in seen.ongoing}
    found: dict[Place, _Assigned] = {}
    for name, number in sorted(places):
        known = seen.partitions.get((name, number))
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
    """The moves after which all brokers that are not drained share all topics evenly.

    Raises RegnumError and CommandFailedError.
    """
    seen = await all_assignments(admin)
    if not seen.partitions:
        return ()
    known = seen.brokers or ()
    if away := sorted(one.id for one in known if one.replicas and not one.live and not one.draining):
        # One that restarts at this moment would lose all that it has to the others.
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT,
            f"brokers {away} are away and have replicas, all of which would move to the others; start them first, or "
            f"say with `regnum brokers drain {away[0]}` that a broker does not come back",
        )
    drained = {one.id for one in known if one.draining}
    racks = {id: rack for id, rack in _racks(await admin.describe_cluster()).items() if id not in drained}
    return _plan_or_error(lambda: even_plan(seen.to_come(), racks))


async def removable(admin: "Admin", brokers: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Why each of some brokers may not be taken away, if all of them are; none: it may. Raises RegnumError."""
    # In this order: what arrives in between counts among the replicas, and the mark refuses what begins later.
    coming = Counter(id for one in await admin.list_partition_reassignments() for id in one.target)
    known = {one.id: one for one in await admin.describe_brokers()}
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
    """Raise RegnumError where a broker cannot be emptied, or partitions would be worse off; CommandFailedError too."""
    # Raises BROKER_ID_NOT_REGISTERED where nobody knows it.
    await admin.describe_broker(broker)
    seen = await all_assignments(admin)
    replicas = {place: one.replicas for place, one in seen.partitions.items()}
    leaders = {place: int(one.leader) for place, one in seen.partitions.items()}
    refused = cannot_leave(broker, leaders, replicas)
    racks = _racks(await admin.describe_cluster())
    moves = _load(seen, racks, broker).moves
    if not refused and not fewer_racks:
        refused = on_fewer_racks(moves, racks)
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
    """Partitions that it has."""
    draining: bool
    """Whether it is given no new replicas."""


async def load_of(admin: "Admin", broker: int) -> BrokerLoad:
    """What a broker has. Raises RegnumError where it cannot be emptied, and CommandFailedError."""
    return _load(await all_assignments(admin), _racks(await admin.describe_cluster()), broker)


def _load(seen: Assignments, racks: Mapping[int, str | None], broker: int) -> BrokerLoad:
    # What is being drained gets nothing; the broker itself stays, as one that has something to give.
    draining = {one.id for one in seen.brokers or () if one.draining}
    usable = {id: rack for id, rack in racks.items() if id == broker or id not in draining}
    return BrokerLoad(
        moves=_plan_or_error(lambda: drain_plan(seen.to_come(), usable, broker=broker)),
        leaving=_leaving(seen.ongoing, broker),
        places=frozenset(place for place, one in seen.partitions.items() if broker in one.replicas),
        draining=broker in draining,
    )


async def leaving_of(admin: "Admin", broker: int) -> frozenset[Place]:
    """Partitions that are on their way off a broker. Raises RegnumError."""
    return _leaving(await admin.list_partition_reassignments(), broker)


def _leaving(ongoing: "Sequence[OngoingReassignment]", broker: int) -> frozenset[Place]:
    return frozenset(
        (one.topic, one.partition) for one in ongoing if broker in one.replicas and broker not in one.target
    )


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
