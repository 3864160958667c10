"""Judges what a producer was told against what the log holds. Pure.

The names of the findings are those of the Jepsen Kafka workload:

lost         an acknowledged value that no read of the whole log finds
duplicated   a value at two offsets
reordered    a value at a lower offset than one that its producer sent earlier
moved        an acknowledged value that lies at another offset than the acknowledgement said
invented     a value that nobody sent

and of a reader beside it

misread      a value that the reader was given in a place where a read of the whole log finds another one, or none
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest


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
    misread: tuple[int, ...] = ()
    """Numbers that a reader was given where the log has no such record."""

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.lost or self.duplicated or self.reordered or self.moved or self.invented or self.misread)

    def __add__(self, other: "Verdict") -> "Verdict":
        return Verdict(
            acknowledged=self.acknowledged + other.acknowledged,
            found=self.found + other.found,
            lost=self.lost + other.lost,
            duplicated=self.duplicated + other.duplicated,
            reordered=self.reordered + other.reordered,
            moved=self.moved + other.moved,
            invented=self.invented + other.invented,
            misread=self.misread + other.misread,
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


def judge_reader(
    *, sent: int, acknowledged: Sequence[Acknowledged], log: Sequence[tuple[int, int]], read: Sequence[tuple[int, int]]
) -> Verdict:
    """Judge who read one partition from its beginning while it was written, and had time for all of it.

    It has to have read a prefix of the log, in which every acknowledged record is.

    Args:
        sent: how many numbers were sent.
        acknowledged: what the producer was told; ``lost`` are those that the reader was not given.
        log: (offset, number) of every record, of a read of the whole log.
        read: (offset, number) as the reader was given them.
    """
    beside = zip_longest(read, log[: len(read)])
    misread = tuple(number for (offset, number), there in beside if (offset, number) != there)
    return replace(judge(sent=sent, acknowledged=acknowledged, log=read), misread=misread)


def longest_gap_s(moments: Sequence[float], *, begin: float, end: float) -> float:
    """Longest time without an acknowledgement, in seconds, of the gaps that overlap [begin, end].

    Args:
        moments: when acknowledgements came, ascending, on one monotonic clock.
        begin: start of the window, e.g. the moment of a kill.
        end: end of the window.
    """
    gaps = (after - before for before, after in pairwise(moments) if after >= begin and before <= end)
    return max(gaps, default=end - begin)


def unequal_replicas(
    logs: Mapping[str, Mapping[str, bytes]], partitions: Collection[str], *, replicas: int = 3
) -> tuple[str, ...]:
    """Partitions whose replicas are not byte-equal, or are too few.

    Args:
        logs: partition -> replica -> whole log; of others than ``partitions``, as those of a deleted topic, any number.
        partitions: those that have to have all their replicas.
        replicas: how many each of them has to have.
    """
    few = {partition for partition in partitions if len(logs.get(partition, ())) < replicas}
    return tuple(sorted(few | {partition for partition, of_it in logs.items() if len(set(of_it.values())) > 1}))
