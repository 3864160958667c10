"""Judges what a producer was told against what the log holds. Pure.

The names of the findings are those of the Jepsen Kafka workload:

lost         an acknowledged value that no read of the whole log finds
duplicated   a value at two offsets
reordered    a value at a lower offset than one that its producer sent earlier
moved        an acknowledged value that lies at another offset than the acknowledgement said
invented     a value that nobody sent
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """One acknowledged record."""

    number: int
    """The value: numbers of a partition grow in the order in which its only producer sent them."""
    offset: int
    """Offset that the acknowledgement named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found in one partition, or in all of them added up."""

    acknowledged: int = 0
    """Records acknowledged."""
    found: int = 0
    """Records in the log."""
    lost: tuple[int, ...] = ()
    """Acknowledged numbers that are not in the log."""
    duplicated: tuple[int, ...] = ()
    """Numbers that are in the log more than once."""
    reordered: tuple[int, ...] = ()
    """Numbers that follow a higher one."""
    moved: tuple[int, ...] = ()
    """Acknowledged numbers at another offset than was said."""
    invented: tuple[int, ...] = ()
    """Numbers in the log that were never sent."""

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.lost or self.duplicated or self.reordered or self.moved or self.invented)

    def __add__(self, other: "Verdict") -> "Verdict":
        return Verdict(
            acknowledged=self.acknowledged + other.acknowledged,
            found=self.found + other.found,
            lost=self.lost + other.lost,
            duplicated=self.duplicated + other.duplicated,
            reordered=self.reordered + other.reordered,
            moved=self.moved + other.moved,
            invented=self.invented + other.invented,
        )


def judge(*, sent: int, acknowledged: Sequence[Acknowledged], log: Sequence[tuple[int, int]]) -> Verdict:
    """Judge one partition.

    Args:
        sent: how many numbers were sent: 0 .. sent-1.
        acknowledged: what the producer was told.
        log: (offset, number) of every record, in the order of a read from the beginning.
    """
    offsets: dict[int, list[int]] = {}
    for offset, number in log:
        offsets.setdefault(number, []).append(offset)
    highest = -1
    reordered = []
    for _, number in log:
        if number < highest:
            reordered.append(number)
        highest = max(highest, number)
    return Verdict(
        acknowledged=len(acknowledged),
        found=len(log),
        lost=tuple(ack.number for ack in acknowledged if ack.number not in offsets),
        duplicated=tuple(number for number, places in offsets.items() if len(places) > 1),
        reordered=tuple(reordered),
        moved=tuple(
            ack.number for ack in acknowledged if ack.number in offsets and ack.offset not in offsets[ack.number]
        ),
        invented=tuple(number for number in offsets if not 0 <= number < sent),
    )


def longest_gap_s(moments: Sequence[float], *, begin: float, end: float) -> float:
    """Longest time without an acknowledgement, in seconds, of the gaps that overlap [begin, end].

    Args:
        moments: when acknowledgements came, ascending, on one monotonic clock.
        begin: start of the window, e.g. the moment of a kill.
        end: end of the window.
    """
    gaps = (after - before for before, after in pairwise(moments) if after >= begin and before <= end)
    return max(gaps, default=end - begin)


def unequal_replicas(replicas: Mapping[str, Mapping[str, bytes]]) -> tuple[str, ...]:
    """Partitions whose replicas are not byte-equal: partition -> replica -> whole log."""
    return tuple(partition for partition, logs in sorted(replicas.items()) if len(set(logs.values())) > 1)
