"""Brokers as the controller knows them: registrations, and how many partitions they lead and keep."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerId
from regnum_service.errors import RegnumError
from regnum_service.limits.threads import for_caller

from regnum_election.decisions.cluster import Broker, Cluster

BROKERS_MAX: Final = 10_000
"""Brokers that one request names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedBroker:
    """One broker."""

    id: BrokerId
    broker: Broker | None
    """Its registration; None: it has none."""
    known: bool
    """Whether it is registered, or partitions are assigned to it."""
    leaving: bool
    """Whether it is stopping."""
    draining: bool
    """Whether it is given no new replicas."""
    leaders: int
    """Partitions that it leads."""
    replicas: int
    """Partitions that are assigned to it."""
    preferred: int
    """Partitions whose first replica it is."""
    in_sync: int
    """Partitions of which it is in the ISR."""
    offline: int
    """Replicas that it cannot use."""


async def describe_brokers(picture: Cluster, ids: Sequence[BrokerId]) -> tuple[DescribedBroker, ...]:
    """Those that are named, or all that are known, by id. Raises RegnumError: INVALID_REQUEST."""
    if len(ids) > BROKERS_MAX:
        raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, f"more than {BROKERS_MAX} brokers: split the request")
    # Beside the loop: it looks at every partition there is (safety rule S22).
    return await for_caller(partial(_describe, picture, ids))


def _describe(picture: Cluster, ids: Sequence[BrokerId]) -> tuple[DescribedBroker, ...]:
    counted = _count(picture)
    wanted = sorted(set(ids) or {*picture.brokers, *picture.assigned, *picture.draining})
    return tuple(_described(picture, id, counted) for id in wanted)


@dataclass(slots=True)
class _Counts:
    leaders: Counter[BrokerId] = field(default_factory=Counter)
    preferred: Counter[BrokerId] = field(default_factory=Counter)
    in_sync: Counter[BrokerId] = field(default_factory=Counter)


def _count(picture: Cluster) -> _Counts:
    counts = _Counts()
    for partition in picture.partitions.values():
        counts.preferred[partition.replicas[0]] += 1
        if partition.held is not None and partition.trouble is None:
            counts.leaders[partition.held.state.leader] += 1
            counts.in_sync.update(partition.held.state.isr)
    return counts


def _described(picture: Cluster, id: BrokerId, counted: _Counts) -> DescribedBroker:
    replicas = len(picture.assigned.get(id, ()))
    broker = picture.brokers.get(id)
    return DescribedBroker(
        id=id,
        broker=broker,
        known=broker is not None or replicas > 0 or id in picture.draining,
        leaving=id in picture.leaving,
        draining=id in picture.draining,
        leaders=counted.leaders[id],
        replicas=replicas,
        preferred=counted.preferred[id],
        in_sync=counted.in_sync[id],
        offline=len(picture.offline.get(id, ())),
    )
