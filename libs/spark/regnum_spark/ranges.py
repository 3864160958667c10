"""Which offsets are read, by which task, and how many at a time. Pure.

Offsets are spelled as Spark keeps them in a checkpoint: topic, partition as text, offset. It is the form of Spark's own
source for Kafka. Beside them a checkpoint has the ids of topics: offsets of a topic that was deleted mean nothing in
one of its name that was made later.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

Offsets = Mapping[str, Mapping[str, int]]
"""By topic and by partition: the offset of the next record."""
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_IDS: Final = "topic ids"
"""Where a checkpoint has them. No topic can have that name."""
_ALIASES: Final = {-2: EARLIEST, -1: LATEST}
"""Numbers that stand for places, as with Kafka's."""


class OptionError(ValueError):
    """An option makes no sense; the text says which and what it may be."""


class Range(NamedTuple):
    """What one task reads."""

    topic: str
    """Topic name."""
    partition: int
    """Partition number."""
    begin: int
    """First offset."""
    end: int
    """Behind the last."""


@dataclass(slots=True)
class Bounds:
    """What filters of a query leave of the partitions."""

    topics: frozenset[str] | None = None
    """None: all."""
    partitions: frozenset[int] | None = None
    """None: all."""
    begin: int = 0
    """First offset, of each partition."""
    end: int | None = None
    """Behind the last; None: no bound."""
    since_ms: int | None = None
    """Records before this moment, in milliseconds since 1970, are not asked for; None: no bound."""

    def only_topics(self, names: frozenset[str]) -> None:
        """Leave no other topics."""
        self.topics = names if self.topics is None else self.topics & names

    def only_partitions(self, numbers: frozenset[int]) -> None:
        """Leave no other partitions."""
        self.partitions = numbers if self.partitions is None else self.partitions & numbers

    def from_offset(self, offset: int) -> None:
        """Leave no offsets before."""
        self.begin = max(self.begin, offset)

    def before_offset(self, offset: int) -> None:
        """Leave none from there on."""
        self.end = offset if self.end is None else min(self.end, offset)

    def from_moment(self, ms: int) -> None:
        """Leave no records before."""
        self.since_ms = ms if self.since_ms is None else max(self.since_ms, ms)

    def applied(self, part: Range) -> Range:
        """What is left of a range; it may be nothing."""
        wanted = (self.topics is None or part.topic in self.topics) and (
            self.partitions is None or part.partition in self.partitions
        )
        end = part.end if self.end is None else min(part.end, self.end)
        return part._replace(begin=max(part.begin, self.begin), end=end if wanted else part.begin)


def ranges(begin: Offsets, end: Offsets, *, records_max: int | None = None) -> Iterator[Range]:
    """A range for each partition that has anything in between, or several where it is more than ``records_max``."""
    for topic in sorted(end):
        for partition in sorted(end[topic], key=int):
            at, last = begin.get(topic, {}).get(partition, 0), end[topic][partition]
            while at < last:
                until = last if records_max is None else min(last, at + records_max)
                yield Range(topic, int(partition), at, until)
                at = until


def admitted(begin: Offsets, end: Offsets, records_max: int) -> Offsets:
    """How far a step goes that takes so many records at most: each partition its share of what waits.

    A partition with anything waiting goes on by one record at least, so that all of it is read in the end.

    >>> admitted({"t": {"0": 0, "1": 0}}, {"t": {"0": 90, "1": 10}}, 50)
    {'t': {'0': 45, '1': 5}}
    """
    waiting = sum(part.end - part.begin for part in ranges(begin, end))
    if waiting <= records_max:
        return end
    found: dict[str, dict[str, int]] = {}
    for topic, partitions in end.items():
        found[topic] = {}
        for partition, last in partitions.items():
            at = begin.get(topic, {}).get(partition, 0)
            share = (last - at) * records_max // waiting
            found[topic][partition] = min(last, at + max(1, share)) if last > at else last
    return found


def later(first: Offsets, second: Offsets) -> dict[str, dict[str, int]]:
    """For each partition of either the larger offset: a new leader may say less than the one before it did."""
    return {
        topic: {
            partition: max(first.get(topic, {}).get(partition, 0), second.get(topic, {}).get(partition, 0))
            for partition in {**first.get(topic, {}), **second.get(topic, {})}
        }
        for topic in {**first, **second}
    }


def earlier(limit: Offsets, offsets: Offsets) -> dict[str, dict[str, int]]:
    """Offsets of the partitions of ``limit``, none beyond it."""
    return {
        topic: {
            partition: min(last, offsets.get(topic, {}).get(partition, last)) for partition, last in partitions.items()
        }
        for topic, partitions in limit.items()
    }


def checkpoint_of(offsets: Offsets, ids: Mapping[str, str], before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What Spark keeps, after the checkpoint ``before``.

    >>> checkpoint_of({"t": {"0": 5}}, {"t": "x"})
    {'t': {'0': 5}, 'topic ids': {'t': 'x'}}
    """
    return {**later({}, offsets), _IDS: {**(before or {}).get(_IDS, {}), **ids}}


def made_again(checkpoint: Mapping[str, Any], ids: Mapping[str, str]) -> list[str]:
    """Topics with another id than in a checkpoint; one of an earlier release has no ids."""
    known = checkpoint.get(_IDS, {})
    return sorted(topic for topic, id in ids.items() if known.get(topic, id) != id)


def offsets_of(checkpoint: Mapping[str, Any], *, without: Iterable[str] = ()) -> Offsets:
    """Offsets of a checkpoint, but for those of some topics."""
    left_out = {_IDS, *without}
    return {topic: of for topic, of in checkpoint.items() if topic not in left_out}


def between(start: Mapping[str, Any], end: Mapping[str, Any]) -> Iterator[Range]:
    """Ranges between two checkpoints; of a topic that was made again in between all that it has."""
    return ranges(offsets_of(start, without=made_again(start, end.get(_IDS, {}))), offsets_of(end))


def place_of(option: str, text: str) -> str | Mapping[str, Mapping[str, int | str]]:
    """What ``startingOffsets`` or ``endingOffsets`` says: ``earliest``, ``latest``, or JSON by topic and partition.

    In JSON -2 stands for the earliest and -1 for the latest. Raises OptionError.
    """
    plain = text.strip()
    if plain.lower() in (EARLIEST, LATEST):
        return plain.lower()
    try:
        return {
            str(topic): {str(int(partition)): _place(offset) for partition, offset in partitions.items()}
            for topic, partitions in json.loads(plain).items()
        }
    except (ValueError, AttributeError, TypeError):
        raise OptionError(
            f'{option} is {text!r}; write earliest, latest, or {{"TOPIC": {{"0": OFFSET, ...}}}} with -2 for the '
            "earliest and -1 for the latest"
        ) from None


def _place(offset: object) -> int | str:
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < -2:
        raise ValueError(offset)
    return _ALIASES.get(offset, offset)
