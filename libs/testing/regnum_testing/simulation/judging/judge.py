"""What must hold of a run: of records, leaders and high watermarks. Pure.

The names are those of Jepsen's Kafka workload: *lost* and *moved* (an acknowledged record is not where it was said to
be), *doubled*, *reordered*, *aborted read* in a log that producers number (a consumer saw what no log has). Beside them
the invariants of ``docs/invariants.md`` that can be seen from outside of a process.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

NUMBERS: Final = 1_000_000
"""Of each producer: those of the second one begin there."""
STALE_S: Final = 10.0
"""How long a leader may serve beside one of a later epoch: a session, and the silence of followers (safety rule S8)."""


@dataclass(slots=True, kw_only=True)
class History:
    """What clients did and saw, and what was seen of brokers while it went on."""

    acknowledged: dict[tuple[str, int], int] = field(default_factory=dict)
    """By partition and value: the offset that the producer was told."""
    sent: int = 0
    """Records that the producer took."""
    read: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """By partition that a consumer follows: offset and value as it was given them, in that order."""
    leaders: dict[tuple[str, int], dict[str, str]] = field(default_factory=dict)
    """By partition and leader epoch: the brokers that led in it, each with its life that did."""
    shown: dict[str, int] = field(default_factory=dict)
    """By partition: the highest high watermark that a leader had."""
    awaited: dict[tuple[str, int], None] = field(default_factory=dict)
    """Partition and value of records that have to be acknowledged once the cluster is left in peace."""
    gone: dict[str, dict[int, None]] = field(default_factory=dict)
    """By partition: values of a life of it that was removed."""
    doubtful: dict[tuple[str, int], None] = field(default_factory=dict)
    """Partition and value of which a removal without an answer leaves open whether they are gone."""
    removals: dict[str, int] = field(default_factory=dict)
    """By partition: how often it was about to be removed."""
    resized: dict[str, None] = field(default_factory=dict)
    """Partitions that were removed, or may have been: another life of one begins at 0."""
    handed: dict[str, dict[int, None]] = field(default_factory=dict)
    """By partition: offsets that a member of the group was given."""
    committed: dict[str, int] = field(default_factory=dict)
    """By partition that the group reads: the highest offset that it was told is committed."""
    admitted: list[tuple[float, float]] = field(default_factory=list)
    """Mutations of the client that has a quota: when each was asked for, and when it was answered."""
    changes: int = 0
    """Topics that were asked for besides."""
    problems: list[str] = field(default_factory=list)
    """What was seen to be wrong at once."""
    _marks: dict[tuple[str, str], int] = field(default_factory=dict)
    _newest: dict[str, int] = field(default_factory=dict)
    _outlived_s: dict[tuple[str, str], float] = field(default_factory=dict)
    _strange: dict[tuple[str, str, int], None] = field(default_factory=dict)

    def commit(self, partition: str, offset: int, *, known: Mapping[str, int]) -> None:
        """A member was told that an offset is committed; ``known``: what had been committed before it asked."""
        if offset < known.get(partition, 0):
            self.problems.append(f"group offset went back: partition {partition} from {known[partition]} to {offset}")
        self.committed[partition] = max(self.committed.get(partition, 0), offset)

    def acknowledge(self, partition: str, value: int, offset: int, *, removals: int) -> None:
        """A producer was told; ``removals``: how many there had been when it sent the record.

        If there were more since, the record may be of a former life of the partition.
        """
        self.acknowledged[partition, value] = offset
        if removals != self.removals.get(partition, 0):
            self.doubtful[partition, value] = None

    def removing(self, partition: str) -> Callable[[], None]:
        """A partition is about to be removed; returns what to call once it is: what it had is gone for good then."""

        def had() -> list[tuple[str, int]]:
            return [one for one in self.acknowledged if one[0] == partition]

        self.doubtful.update(dict.fromkeys(had()))
        self.resized[partition] = None
        self.removals[partition] = self.removals.get(partition, 0) + 1

        def removed() -> None:
            # What was acknowledged meanwhile is of that life, too: the next one begins when the partition is added.
            self.doubtful.update(dict.fromkeys(had()))
            self.gone.setdefault(partition, {}).update((value, None) for _, value in had())

        return removed

    def see(
        self,
        life: str,
        broker: str,
        partition: str,
        *,
        epoch: int,
        leads: bool,
        high_watermark: int,
        serves: bool = False,
        at_s: float = 0.0,
    ) -> None:
        """A replica as it is now; ``life`` names one life of its broker, ``serves``: clients are served."""
        key = (life, partition)
        before = self._marks.get(key, 0)
        if high_watermark < before and partition not in self.resized:
            self.problems.append(
                f"high watermark went back: {broker} partition {partition} from {before} to {high_watermark}"
            )
        self._marks[key] = high_watermark
        if not serves or epoch >= self._newest.get(partition, -1):
            self._outlived_s.pop(key, None)
        elif at_s - self._outlived_s.setdefault(key, at_s) > STALE_S:
            self.problems.append(f"S8: {broker} serves partition {partition} in epoch {epoch}, long after a later one")
            self._outlived_s[key] = at_s
        if leads:
            self._newest[partition] = max(self._newest.get(partition, -1), epoch)
            brokers = self.leaders.setdefault((partition, epoch), {})
            if broker not in brokers:
                brokers[broker] = life
                if len(brokers) > 1:
                    self.problems.append(f"two leaders in epoch {epoch} of partition {partition}: {', '.join(brokers)}")
            elif brokers[broker] != life:
                brokers[broker] = life
                self.problems.append(f"S11: {broker} leads {partition} in epoch {epoch} again, in another life")
            self.shown[partition] = max(self.shown.get(partition, 0), high_watermark)

    def see_log(self, broker: str, partition: str, *, epoch: int, recorded: str, log_id: str) -> None:
        """The log that a leader has, and the one that its order named."""
        if recorded != log_id and (broker, partition, epoch) not in self._strange:
            self._strange[broker, partition, epoch] = None
            self.problems.append(f"S10: {broker} leads {partition} in epoch {epoch} with another log than is recorded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One replica at the end."""

    start: int
    """Its first offset."""
    records: tuple[tuple[int, int], ...]
    """Offset and value of each record."""
    high_watermark: int


def judged(
    history: History, logs: Mapping[str, Mapping[str, Log]], *, assigned: Mapping[str, Sequence[str]]
) -> list[str]:
    """What is wrong, a sentence each; empty: nothing.

    Args:
        history: of the run.
        logs: by partition: all its replicas by broker, after the cluster was left in peace.
        assigned: by partition: the brokers that have to have it, and no others.
    """
    found = list(history.problems)
    if history.awaited:
        found.append(f"{len(history.awaited)} records are not acknowledged, as {next(iter(history.awaited))}")
    for partition, by_broker in logs.items():
        found += _of_partition(history, partition, by_broker, assigned[partition])
    for partition in sorted({at for at, _ in history.acknowledged} - logs.keys() - history.resized.keys()):
        count = sum(at == partition for at, _ in history.acknowledged)
        found.append(f"lost: {count} acknowledged records of partition {partition}, which the store does not know")
    return found


def of_quota(admitted: Sequence[tuple[float, float]], *, rate: float, burst: float) -> list[str]:
    """Whether more was admitted than the quota allows, in any time, whichever processes died in it (safety rule S21).

    Args:
        admitted: when each mutation was asked for, and when answered: it was charged in between.
        rate: tokens a second.
        burst: tokens in a full bucket, of which the last may be overdrawn by one mutation.
    """
    for begin_s in sorted({asked_s for asked_s, _ in admitted}):
        ends = sorted(done_s for asked_s, done_s in admitted if asked_s >= begin_s)
        for count, end_s in enumerate(ends, 1):
            if count > burst + 1 + rate * (end_s - begin_s):
                took = f"{count} mutations in {end_s - begin_s:.1f} s"
                return [f"S21: {took}, with {rate:g} a second and a burst of {burst:g}"]
    return []


Image = Mapping[tuple[str, int], tuple[int, int, tuple[int, ...]]]
"""By topic and partition: leader, leader epoch and ISR."""


def of_images(store: Image, images: Mapping[str, Image]) -> list[str]:
    """Where the metadata of brokers is not what the store says, though nothing happens any more."""
    found: list[str] = []
    for broker, image in images.items():
        wrong = [key for key in {**store, **image} if store.get(key) != image.get(key)]
        if wrong:
            key = min(wrong)
            found.append(
                f"metadata of {broker} differs from the store in {len(wrong)} partitions, as {key}:"
                f" {image.get(key)} and not {store.get(key)}"
            )
    return found


def _of_partition(history: History, partition: str, logs: Mapping[str, Log], assigned: Sequence[str]) -> list[str]:
    found: list[str] = []
    if sorted(logs) != sorted(assigned):
        found.append(f"partition {partition} has the replicas {sorted(logs)} and not {sorted(assigned)}")
    if not logs:
        return found
    longest = max(logs.values(), key=lambda log: len(log.records))
    ends = {broker: (len(log.records), log.high_watermark) for broker, log in logs.items()}
    if any(log.records != longest.records for log in logs.values()):
        found.append(f"logs differ: partition {partition}, records and high watermark {ends}")
    end = longest.records[-1][0] + 1 if longest.records else longest.start
    if any(log.high_watermark != end for log in logs.values()):
        found.append(f"not all is committed: partition {partition} ends at {end}, records and high watermark {ends}")
    if partition not in history.resized and history.shown.get(partition, 0) > end:
        found.append(
            f"committed records are gone: partition {partition} ends at {end}, and a leader had a high watermark of"
            f" {history.shown[partition]}"
        )
    found += _of_records(history, partition, longest.records)
    found += _of_group(history, partition, longest.records, end)
    if (read := history.read.get(partition)) is not None:
        found += _of_reader(partition, read, dict(longest.records))
    return found


def _of_records(history: History, partition: str, records: Sequence[tuple[int, int]]) -> list[str]:
    found: list[str] = []
    place = {value: offset for offset, value in records}
    values = [value for _, value in records]
    if len(place) < len(values):
        found.append(f"doubled: {len(values) - len(place)} records of partition {partition}")
    of_it = {
        value: offset
        for (at, value), offset in history.acknowledged.items()
        if at == partition and (at, value) not in history.doubtful
    }
    if back := [value for value in values if value in history.gone.get(partition, {})]:
        found.append(f"records of a removed partition are back: {len(back)} of {partition}, as {back[:5]}")
    lost = sorted(value for value in of_it if value not in place)
    moved = sorted(value for value, offset in of_it.items() if value in place and place[value] != offset)
    for name, wrong in (("lost", lost), ("moved", moved)):
        if wrong:
            found.append(f"{name}: {len(wrong)} acknowledged records of partition {partition}, as {wrong[:5]}")
    producers = {value // NUMBERS for value in of_it}
    if any(_is_out_of_order([one for one in values if one in of_it and one // NUMBERS == by]) for by in producers):
        found.append(f"reordered: acknowledged records of partition {partition}")
    return found


def _of_group(history: History, partition: str, records: Sequence[tuple[int, int]], end: int) -> list[str]:
    found: list[str] = []
    committed, handed = history.committed.get(partition, 0), history.handed.get(partition, {})
    unread = [offset for offset, _ in records if offset < committed and offset not in handed]
    if unread:
        found.append(f"a group was not given {len(unread)} records of partition {partition} that it has committed")
    if partition in history.committed and committed != end:
        found.append(f"a group has committed {committed} of partition {partition}, which ends at {end}")
    return found


def _of_reader(partition: str, read: Sequence[tuple[int, int]], records: Mapping[int, int]) -> list[str]:
    found: list[str] = []
    if _is_out_of_order([offset for offset, _ in read]):
        found.append(f"a consumer of partition {partition} went back")
    ghosts = [(offset, value) for offset, value in read if records.get(offset) != value]
    if ghosts:
        found.append(f"aborted read: partition {partition}, offset and value {ghosts[:5]} of {len(ghosts)}")
    offsets = [offset for offset, _ in read]
    if offsets and (skipped := len(set(records) & set(range(offsets[0], offsets[-1]))) - len(set(offsets)) + 1) > 0:
        found.append(f"a consumer of partition {partition} was not given {skipped} records")
    at, last = offsets[-1] if offsets else -1, max(records, default=-1)
    if at < last:
        found.append(f"a consumer of partition {partition} has come to offset {at} and not to the last one, {last}")
    return found


def _is_out_of_order(numbers: Sequence[int]) -> bool:
    return any(after <= before for before, after in pairwise(numbers))
