"""Where `regnum consume` begins and ends in each partition. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from regnum_client.commands.moments import moment_ms
from regnum_client.consumer.positions import EARLIEST, LATEST, OFFSET_MAX, AtTime, Start
from regnum_client.records import ConsumedRecord, TopicPartition

_BEGINNINGS: Final = frozenset({"earliest", "begin", "beginning", "start", "oldest"})
_ENDS: Final = frozenset({"latest", "end", "newest"})
_BEFORE_END: Final = re.compile(r"-([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class BeforeEnd:
    """So many records before the end of each partition, or at its first where it has fewer."""

    count: int
    """How many, at least 1."""


Place: TypeAlias = Start | BeforeEnd
"""Where `regnum consume` may begin."""


def place_of(text: str, now_unix_ms: int) -> Place:
    """A place as people write it. Raises ValueError that says what is allowed."""
    if text in _BEGINNINGS:
        return EARLIEST
    if text in _ENDS:
        return LATEST
    if text.isascii() and text.isdigit():
        if int(text) <= OFFSET_MAX:
            return int(text)
    elif (before := _BEFORE_END.fullmatch(text)) and int(before[1]):
        return BeforeEnd(int(before[1]))
    elif (at_ms := moment_ms(text, now_unix_ms)) is not None:
        return AtTime(at_ms)
    raise ValueError(
        f"{text!r} is no place in a log: give begin, end, an offset such as 1500, -5 for five records "
        "before the end, an age such as -1h, -15m or -2d, or a time such as 2026-01-31T12:00:00Z"
    )


class Span:
    """Which records of the assigned partitions are wanted, as they come in their order.

    Brokers of before answer where a batch begins, so the records of the first batch that are older are left out; an
    end by time is the first record that is not older, or the end of the partition.
    """

    def __init__(
        self,
        *,
        not_before_ms: int | None = None,
        before_ms: int | None = None,
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Only assigns.

        Args:
            not_before_ms: the first record of each partition is not older; None: it may be.
            before_ms: records of each partition are wanted up to the first that is not older; None: all.
            ends: offset before which each partition ends; None: they have no end.
        """
        self._not_before_ms: Final = not_before_ms
        self._before_ms: Final = before_ms
        self._ends: Final = None if ends is None else dict(ends)
        self._begun: Final = set[TopicPartition]()

    @property
    def is_over(self) -> bool:
        """No partition has anything wanted left."""
        return self._ends is not None and not self._ends

    def wants(self, record: ConsumedRecord) -> bool:
        """Whether it is wanted; asked once for each record."""
        partition = TopicPartition(record.topic, record.partition)
        if self._ends is not None:
            end = self._ends.get(partition)
            if end is None or record.offset >= end:
                return False
            if self._before_ms is not None and record.timestamp_ms >= self._before_ms:
                self._ends[partition] = record.offset
                return False
        if self._not_before_ms is None or partition in self._begun:
            return True
        if record.timestamp_ms < self._not_before_ms:
            return False
        self._begun.add(partition)
        return True

    def finished(self, positions: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Partitions that were read to their end by now; each is returned once. All partitions have a position."""
        ends = self._ends or {}
        over = [partition for partition, end in ends.items() if positions[partition] >= end]
        for partition in over:
            del ends[partition]
        return over

    @property
    def open(self) -> list[TopicPartition]:
        """Partitions that have an end and were not read to it yet."""
        return list(self._ends or ())
