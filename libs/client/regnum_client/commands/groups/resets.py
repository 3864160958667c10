"""Where a group is set to go on: `regnum groups reset-offsets`. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from regnum_client.admin.describing.offset_admin import PartitionOffsets
from regnum_client.records import TopicPartition


class Goal(Enum):
    """In which way."""

    EARLIEST = "earliest"
    """At the first record."""
    LATEST = "latest"
    """To the log end offset."""
    OFFSET = "offset"
    """At an offset."""
    SHIFT = "shift"
    """So many records on, or back."""
    TIME = "time"
    """At the first record at or after a moment; behind the last record, where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """What is to become of one partition."""

    partition: TopicPartition
    """Which."""
    committed: int | None
    """What is committed now."""
    offset: int | None
    """What would be; None: it is left as it is."""
    log_start: int
    """First offset of the log."""
    log_end: int
    """High watermark."""
    remark: str = ""
    """Why it is not what was asked for."""


def resets(
    goal: Goal,
    value: int,
    *,
    partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, int],
    logs: Mapping[TopicPartition, PartitionOffsets],
    at_time: Mapping[TopicPartition, int | None],
) -> list[Reset]:
    """What becomes of each partition whose log is known, in their order; offsets beyond a log are its nearest end.

    Args:
        goal: in which way.
        value: the offset, or by how many records; of no concern otherwise.
        partitions: which.
        committed: what is committed, by partition.
        logs: where logs begin and end.
        at_time: first offsets at or after the moment, for ``Goal.TIME``.
    """
    found: list[Reset] = []
    for partition in sorted(partitions):
        log = logs.get(partition)
        if log is None:
            continue
        present = committed.get(partition)
        wanted = _wanted(goal, value, log, present, at_time.get(partition))
        offset = None if wanted is None else min(max(wanted, log.log_start), log.high_watermark)
        remark = NOTHING if wanted is None else BEYOND.format(wanted) if wanted != offset else ""
        found.append(
            Reset(
                partition=partition,
                committed=present,
                offset=offset,
                log_start=log.log_start,
                log_end=log.high_watermark,
                remark=remark,
            )
        )
    return found


NOTHING: Final = "nothing is committed, so there is nothing to shift"
BEYOND: Final = "{} is not in the log"


def _wanted(goal: Goal, value: int, log: PartitionOffsets, present: int | None, found: int | None) -> int | None:
    match goal:
        case Goal.EARLIEST:
            return log.log_start
        case Goal.LATEST:
            return log.high_watermark
        case Goal.OFFSET:
            return value
        case Goal.SHIFT:
            return None if present is None else present + value
        case Goal.TIME:
            return log.high_watermark if found is None else found
