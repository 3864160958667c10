"""How far groups are behind the ends of the partitions that they have committed something of."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from regnum_client.admin.admin import Admin
from regnum_client.admin.describing.offset_admin import PartitionOffsets
from regnum_client.records import TopicPartition
from regnum_client.tasks import together

ASKED_AT_ONCE: Final = 16
"""Groups whose offsets are asked for at once."""

Committed: TypeAlias = Mapping[str, Mapping[TopicPartition, int]]
"""Group -> partition -> offset of the next record to be processed."""
Ends: TypeAlias = Mapping[TopicPartition, int]
"""High watermarks of partitions whose leaders say them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far a group is behind, in all."""

    records: int
    """Sum over the partitions whose ends are known."""
    partitions: int
    """Partitions of which it has committed something."""
    unknown: int
    """Those of them whose leaders do not answer: ``records`` is without these."""


def lag_of(committed: Mapping[TopicPartition, int], ends: Ends) -> Lag:
    """How far a group is behind.

    >>> lag_of({TopicPartition("t", 0): 3, TopicPartition("t", 1): 1}, {TopicPartition("t", 0): 5})
    Lag(records=2, partitions=2, unknown=1)
    """
    behind = [max(0, ends[where] - offset) for where, offset in committed.items() if where in ends]
    return Lag(records=sum(behind), partitions=len(committed), unknown=len(committed) - len(behind))


def lag_row(lag: Lag) -> dict[str, int]:
    """As programs are told."""
    return {"lag": lag.records, "partitions": lag.partitions, "unknown_partitions": lag.unknown}


def lags_of_topics(committed: Committed, ends: Ends) -> dict[str, int]:
    """How far the groups of each topic are behind in it, all added up."""
    lags: dict[str, int] = {}
    for offsets in committed.values():
        for where, offset in offsets.items():
            if where in ends:
                lags[where.topic] = lags.get(where.topic, 0) + max(0, ends[where] - offset)
    return lags


async def read_lags(admin: Admin, groups: Iterable[str]) -> tuple[Committed, Ends]:
    """What groups have committed, and where those partitions end: a call for each group, and two for each leader."""
    names = list(groups)
    committed: dict[str, dict[TopicPartition, int]] = {}
    for first in range(0, len(names), ASKED_AT_ONCE):
        some = names[first : first + ASKED_AT_ONCE]
        found = await together("group-offsets", *(admin.list_group_offsets(name) for name in some))
        for name, offsets in zip(some, found, strict=True):
            committed[name] = {where: one.offset for where, one in offsets.items()}
    partitions = {where for offsets in committed.values() for where in offsets}
    said = await admin.list_offsets(partitions) if partitions else {}
    return committed, {where: one.high_watermark for where, one in said.items() if isinstance(one, PartitionOffsets)}


async def lags_by_group(admin: Admin) -> dict[str, Lag]:
    """How far every group is behind. Raises RegnumError."""
    committed, ends = await read_lags(admin, [one.group_id for one in await admin.list_groups()])
    return {name: lag_of(offsets, ends) for name, offsets in committed.items()}
