"""Whether a broker may be emptied, and whether one may be taken away. Pure.

Emptying is safe in itself: a partition keeps its old replicas until every new one is in sync. What is refused is what
could never end (a partition without a leader has nobody to copy from) and what would leave a partition worse off (on
fewer racks). Taking away is safe when nothing is there and nothing can come: no replica, no reassignment on its way to
it, and the mark that keeps new ones away.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from regnum_client.admin.reassignment.plan import Place, PlannedMove
from regnum_client.admin.reassignment.wording import counted, named


@dataclass(frozen=True, slots=True, kw_only=True)
class Emptiness:
    """What is known of a broker that is to go."""

    known: bool
    """Whether anybody knows it."""
    draining: bool
    """Whether it is given no new replicas."""
    replicas: int
    """Partitions that are assigned to it."""
    leaders: int
    """Partitions that it leads."""
    coming: int
    """Open reassignments that would put a replica on it."""


def cannot_leave(broker: int, leaders: Mapping[Place, int], replicas: Mapping[Place, Sequence[int]]) -> str:
    """Why a broker cannot be emptied now; empty: it can. ``leaders``: -1 for none."""
    stuck = sorted(place for place, ids in replicas.items() if broker in ids and leaders.get(place, -1) < 0)
    if not stuck:
        return ""
    return (
        f"{counted(len(stuck), 'partition')} of broker {broker} {'has' if len(stuck) == 1 else 'have'} no leader "
        f"({named(stuck)}), so no replica has what a new one would copy; bring their brokers back, or see "
        "`regnum partitions list --offline`, and try again"
    )


def on_fewer_racks(moves: Sequence[PlannedMove], racks: Mapping[int, str | None]) -> str:
    """Why a plan would leave partitions on fewer racks; empty: it does not, or not all brokers have a rack."""
    if any(rack is None for rack in racks.values()):
        return ""

    def spread(ids: Sequence[int]) -> int:
        # One that is not live counts for itself: nobody knows where it stands.
        return len({racks.get(id, f"broker {id}") for id in ids})

    worse = sorted((move.topic, move.partition) for move in moves if spread(move.after) < spread(move.before))
    if not worse:
        return ""
    return (
        f"{counted(len(worse), 'partition')} would stand on fewer racks ({named(worse)}); start a broker in the rack "
        "that would be missing, or accept it with --fewer-racks"
    )


def why_not_removed(
    broker: int, found: Emptiness, *, left: Collection[int], default_replication_factor: int
) -> tuple[str, ...]:
    """Why a broker may not be taken away now; none: it may.

    Args:
        broker: its id.
        found: what is known of it.
        left: live brokers that take new replicas once all that are to go are gone.
        default_replication_factor: of topics that do not say how many replicas they want.
    """
    if not found.known:
        return (f"broker {broker} is unknown; `regnum brokers list` shows those that there are",)
    reasons: list[str] = []
    if found.replicas:
        led = f", {found.leaders} of which it leads" if found.leaders else ""
        has = counted(found.replicas, "replica")
        reasons.append(f"it has {has}{led}: `regnum brokers drain {broker}` moves them away")
    if found.coming:
        bring = "1 reassignment brings" if found.coming == 1 else f"{found.coming} reassignments bring"
        reasons.append(f"{bring} replicas to it: see `regnum partitions reassignments`")
    if not found.draining:
        reasons.append(f"new replicas may be placed on it at any time: `regnum brokers drain {broker}` marks it first")
    if len(left) < default_replication_factor:
        reasons.append(
            f"{counted(len(left), 'broker')} would be left and default.replication.factor is "
            f"{default_replication_factor}: topics could not be created; keep it, or lower the setting first"
        )
    return tuple(reasons)
