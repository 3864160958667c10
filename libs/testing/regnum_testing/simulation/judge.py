"""What must hold of a run: of records, leaders and high watermarks. Pure.

The names are those of Jepsen's Kafka workload: *lost* and *moved* (an acknowledged record is not where it was said to
be), *doubled*, *reordered*, *aborted read* in a log that producers number (a consumer saw what no log has). Beside them
the invariants of ``docs/invariants.md`` that can be seen from outside of a process.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(slots=True, kw_only=True)
class History:
    """What clients did and saw, and what was seen of brokers while it went on. Partitions are by number."""

    acknowledged: dict[tuple[int, int], int] = field(default_factory=dict)
    """By partition and value: the offset that the producer was told."""
    sent: int = 0
    """Records that the producer took."""
    read: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """By partition: offset and value as a consumer was given them, in that order."""
    leaders: dict[tuple[int, int], dict[str, None]] = field(default_factory=dict)
    """By partition and leader epoch: the brokers that led in it."""
    shown: dict[int, int] = field(default_factory=dict)
    """By partition: the highest high watermark that a leader had."""
    problems: list[str] = field(default_factory=list)
    """What was seen to be wrong at once."""
    _marks: dict[tuple[str, int], int] = field(default_factory=dict)

    def see(self, life: str, broker: str, partition: int, *, epoch: int, leads: bool, high_watermark: int) -> None:
        """A replica as it is now; ``life`` names one life of its broker."""
        key = (life, partition)
        before = self._marks.get(key, 0)
        if high_watermark < before:
            self.problems.append(
                f"high watermark went back: {broker} partition {partition} from {before} to {high_watermark}"
            )
        self._marks[key] = high_watermark
        if leads:
            brokers = self.leaders.setdefault((partition, epoch), {})
            if broker not in brokers:
                brokers[broker] = None
                if len(brokers) > 1:
                    self.problems.append(f"two leaders in epoch {epoch} of partition {partition}: {', '.join(brokers)}")
            self.shown[partition] = max(self.shown.get(partition, 0), high_watermark)


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One replica at the end."""

    start: int
    """Its first offset."""
    records: tuple[tuple[int, int], ...]
    """Offset and value of each record."""
    high_watermark: int


def judged(history: History, logs: Mapping[int, Mapping[str, Log]], *, replicas: int) -> list[str]:
    """What is wrong, a sentence each; empty: nothing.

    Args:
        history: of the run.
        logs: by partition: all its replicas by broker, after the cluster was left in peace.
        replicas: how many each partition has to have.
    """
    found = list(history.problems)
    for partition, by_broker in logs.items():
        found += _of_partition(history, partition, by_broker, replicas)
    return found


def _of_partition(history: History, partition: int, logs: Mapping[str, Log], replicas: int) -> list[str]:
    found: list[str] = []
    if len(logs) < replicas:
        found.append(f"partition {partition} has only the replicas {sorted(logs)}")
    if not logs:
        return found
    longest = max(logs.values(), key=lambda log: len(log.records))
    ends = {broker: (len(log.records), log.high_watermark) for broker, log in logs.items()}
    if any(log.records != longest.records for log in logs.values()):
        found.append(f"logs differ: partition {partition}, records and high watermark {ends}")
    end = longest.records[-1][0] + 1 if longest.records else longest.start
    if any(log.high_watermark != end for log in logs.values()):
        found.append(f"not all is committed: partition {partition} ends at {end}, records and high watermark {ends}")
    if history.shown.get(partition, 0) > end:
        found.append(
            f"committed records are gone: partition {partition} ends at {end}, and a leader had a high watermark of"
            f" {history.shown[partition]}"
        )
    place = {value: offset for offset, value in longest.records}
    values = [value for _, value in longest.records]
    if len(place) < len(values):
        found.append(f"doubled: {len(values) - len(place)} records of partition {partition}")
    of_it = {value: offset for (at, value), offset in history.acknowledged.items() if at == partition}
    lost = sorted(value for value in of_it if value not in place)
    moved = sorted(value for value, offset in of_it.items() if value in place and place[value] != offset)
    for name, wrong in (("lost", lost), ("moved", moved)):
        if wrong:
            found.append(f"{name}: {len(wrong)} acknowledged records of partition {partition}, as {wrong[:5]}")
    if _is_out_of_order([value for value in values if value in of_it]):
        found.append(f"reordered: acknowledged records of partition {partition}")
    found += _of_reader(partition, history.read.get(partition, []), dict(longest.records))
    return found


def _of_reader(partition: int, read: Sequence[tuple[int, int]], records: Mapping[int, int]) -> list[str]:
    found: list[str] = []
    if _is_out_of_order([offset for offset, _ in read]):
        found.append(f"a consumer of partition {partition} went back")
    ghosts = [(offset, value) for offset, value in read if records.get(offset) != value]
    if ghosts:
        found.append(f"aborted read: partition {partition}, offset and value {ghosts[:5]} of {len(ghosts)}")
    offsets = [offset for offset, _ in read]
    if offsets and (skipped := len(set(records) & set(range(offsets[0], offsets[-1]))) - len(set(offsets)) + 1) > 0:
        found.append(f"a consumer of partition {partition} was not given {skipped} records")
    return found


def _is_out_of_order(numbers: Sequence[int]) -> bool:
    return any(after <= before for before, after in pairwise(numbers))
