"""Which brokers hold the replicas of new partitions.

Goals: leaders and replicas spread evenly over brokers; the followers of one broker's leaders spread over all others,
so that its failure loads them evenly; with racks, the replicas of a partition on as many racks as there are.

Constraints: deterministic given ``start`` and ``shift``; the same results as Kafka's (``AdminUtils``), which
operators know.

Algorithm: brokers stand in a ring (with racks: one broker of each rack in turn, so neighbours differ in rack).
Partition p is led by the broker at position p + start. Its followers are found by walking from the leader with a jump
of 1 + (shift + j) mod (n - 1), which never lands on the leader itself; ``shift`` grows by one each time the ring has
been walked round. With racks the walk skips a broker whose rack has a replica while some rack has none, and a broker
that holds one while some broker does not. Where the racks are uneven that may be most of the ring: a walk that has
skipped WALKED_MAX brokers goes to the next broker of another rack at once, by a search.

Example: brokers 0 to 4, factor 3, start 0, shift 0: partition 0 gets (0, 1, 2), partition 4 (4, 0, 1), partition 5
(0, 2, 3).
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache, partial
from typing import Final

from regnum_model.ids import BrokerId

RACKED_RING_MAX: Final = 200
"""Brokers with racks among which it is looked how a topic was placed; it takes the square of their number."""

WALKED_MAX: Final = 8
"""Brokers that a walk looks at one after another because of their racks."""

RACKS_KEPT: Final = 64
"""Sets of racks for which it is kept where brokers of other racks are."""

NAMED_MAX: Final = 20
"""Broker ids that a message names."""

Assignment = dict[int, tuple[BrokerId, ...]]
"""Replicas of each partition, the preferred leader first."""


class PlacementError(ValueError):
    """The replicas cannot be placed; the message says why and what would help."""


def alternate_racks(racks: Mapping[BrokerId, str]) -> tuple[BrokerId, ...]:
    """Brokers ordered so that racks take turns; racks by name, brokers by id."""
    by_rack: dict[str, list[BrokerId]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    columns = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max((len(column) for column in columns), default=0)
    return tuple(column[row] for row in range(longest) for column in columns if row < len(column))


def place(
    brokers: Mapping[BrokerId, str | None],
    *,
    partitions: int,
    replication_factor: int,
    start: int,
    shift: int,
    first_partition: int = 0,
) -> Assignment:
    """Replicas of ``partitions`` new partitions.

    Args:
        brokers: rack of each broker that may be used; None for no rack.
        partitions: how many, at least 1.
        replication_factor: replicas of each, 1 to the number of brokers.
        start: position of the first leader in the ring; a random one spreads topics.
        shift: first jump to the followers; a random one spreads topics.
        first_partition: number of the first partition.

    Raises:
        PlacementError: the numbers do not fit, or some brokers have a rack and others none.
    """
    if partitions < 1:
        raise PlacementError("give at least one partition")
    if not 1 <= replication_factor <= len(brokers):
        raise PlacementError(
            f"replication factor {replication_factor} does not fit {len(brokers)} usable brokers: choose 1 to "
            f"{len(brokers)}, or start more brokers"
        )
    racks = {id: rack for id, rack in brokers.items() if rack is not None}
    if racks and len(racks) < len(brokers):
        bare = sorted(brokers.keys() - racks.keys())
        raise PlacementError(f"brokers {bare} have no rack and the others do: give all a rack or none")
    ring = alternate_racks(racks) if racks else tuple(sorted(brokers))
    racked = _RackedRing(ring, racks) if racks else None
    placed: Assignment = {}
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % len(ring) == 0:
            shift += 1
        leader = (partition + start) % len(ring)
        if racked is not None:
            placed[partition] = racked.replicas(leader, shift, replication_factor)
        else:
            followers = (ring[_position(leader, shift, j, len(ring))] for j in range(replication_factor - 1))
            placed[partition] = (ring[leader], *followers)
    return placed


def place_more(
    brokers: Mapping[BrokerId, str | None], first: Sequence[BrokerId], *, existing: int, partitions: int
) -> Assignment:
    """Replicas of partitions that are added to a topic: the spread goes on where it stands.

    On the brokers on which the topic was placed, and without racks, the result is what it would have been had the topic
    been created with all of its partitions. Otherwise it begins, as Kafka does, at the first broker with an id not
    below that of partition 0's preferred leader.

    Args:
        brokers: as for ``place``.
        first: replicas of partition 0.
        existing: partitions that the topic has; numbers go on from there.
        partitions: how many are added, at least 1.

    Raises:
        PlacementError: as for ``place``.
    """
    racks = {id: rack for id, rack in brokers.items() if rack is not None}
    ring = alternate_racks(racks) if racks else tuple(sorted(brokers))
    start = next((ring.index(id) for id in sorted(ring) if id >= first[0]), 0)
    # By then the shift has grown once for every time that the ring was walked round.
    shift = _shift_of(ring, racks, first, start) + max(existing - 1, 0) // max(len(ring), 1)
    return place(
        brokers,
        partitions=partitions,
        replication_factor=len(first),
        start=start,
        shift=shift,
        first_partition=existing,
    )


def refused_by_name(
    wanted: Sequence[BrokerId],
    brokers: Collection[BrokerId],
    *,
    draining: Collection[BrokerId],
    held: Collection[BrokerId] = (),
    kept: Collection[BrokerId] = (),
) -> str | None:
    """Why the brokers that a person names for a partition may not have its replicas; None: they may.

    Args:
        wanted: the brokers as given.
        brokers: live brokers.
        draining: brokers that are given no new replicas.
        held: brokers that have a replica, which need not be live.
        kept: brokers whose replica is no new one, drained or not.
    """
    if len(set(wanted)) != len(wanted):
        return "give each broker once"
    if unknown := sorted(id for id in wanted if id not in held and id not in brokers):
        live = sorted(brokers)
        more = f" and {len(live) - NAMED_MAX} more" if len(live) > NAMED_MAX else ""
        return f"brokers {unknown} are not live; choose from {live[:NAMED_MAX]}{more}, or start them"
    if drained := sorted(id for id in wanted if id in draining and id not in kept):
        return f"brokers {drained} are being drained; choose others, or `regnum brokers drain {drained[0]} --undo`"
    return None


def _shift_of(ring: Sequence[BrokerId], racks: Mapping[BrokerId, str], first: Sequence[BrokerId], start: int) -> int:
    """The shift with which partition 0 got its replicas; ``start``, as Kafka takes it, where none explains them."""
    if len(first) < 2 or not set(first).issubset(ring) or ring[start] != first[0]:
        return start
    if not racks:
        return (ring.index(first[1]) - start - 1) % len(ring)
    if len(racks) < len(ring) or len(ring) > RACKED_RING_MAX:
        return start
    racked = _RackedRing(ring, racks)
    shifts = range(len(ring) - 1)
    return next((s for s in shifts if racked.replicas(start, s, len(first)) == tuple(first)), start)


def _position(leader: int, shift: int, step: int, ring_size: int) -> int:
    return (leader + 1 + (shift + step) % (ring_size - 1)) % ring_size


def _positions_outside(rack_at: Sequence[str], used: frozenset[str]) -> tuple[int, ...]:
    return tuple(position for position, rack in enumerate(rack_at) if rack not in used)


class _RackedRing:
    """A ring of brokers that all have racks, and who follows whom there."""

    def __init__(self, ring: Sequence[BrokerId], racks: Mapping[BrokerId, str]) -> None:
        self._ring: Final = ring
        self._rack_at: Final = tuple(racks[id] for id in ring)
        self._rack_count: Final = len(set(self._rack_at))
        self._outside: Final = lru_cache(RACKS_KEPT)(partial(_positions_outside, self._rack_at))

    def replicas(self, leader: int, shift: int, replication_factor: int) -> tuple[BrokerId, ...]:
        """Replicas of a partition that is led by the broker at a position."""
        first_jump = shift * self._rack_count
        positions = {leader: None}
        used = {self._rack_at[leader]}
        step = skipped = 0
        while len(positions) < replication_factor:
            candidate = _position(leader, first_jump, step, len(self._ring))
            step += 1
            if candidate in positions:
                continue
            if self._rack_at[candidate] in used and len(used) < self._rack_count:
                skipped += 1
                if skipped % WALKED_MAX == 0:
                    step += self._steps_outside(leader, first_jump + step, frozenset(used))
                continue
            positions[candidate] = None
            used.add(self._rack_at[candidate])
        return tuple(self._ring[position] for position in positions)

    def _steps_outside(self, leader: int, jump: int, used: frozenset[str]) -> int:
        """Steps that the walk would take from there to the next broker of another rack than these."""
        size, outside = len(self._ring), self._outside(used)
        here = _position(leader, jump, 0, size)
        next_one = outside[bisect_left(outside, here) % len(outside)]
        # The leader, at which no step ends, may be on the way.
        return ((next_one - leader - 1) % size - (here - leader - 1) % size) % (size - 1)
