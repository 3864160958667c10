"""Whether a group processed what it should: from what its members wrote down, the dead ones too. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from regnum_testing.group_member import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What became of a group's records."""

    processed: int
    """Records that somebody processed."""
    repeated: int
    """How many more times than once, all together."""
    skipped: tuple[str, ...]
    """Where reading jumped over records."""
    missing: int
    """Records that nobody processed."""


def judge_runs(runs: Iterable[Run], ends: Mapping[int, int]) -> Judged:
    """Judge runs of all members by time.

    Whoever takes a partition over begins where something was committed, so at or before the end of what was processed;
    a run that begins behind that has skipped records, even if somebody else reads them later.
    """
    reached = dict.fromkeys(ends, 0)
    skipped: list[str] = []
    repeated = 0
    for run in sorted(runs):
        at = reached[run.partition]
        if run.first > at:
            skipped.append(f"partition {run.partition}: from {at} to {run.first}")
        repeated += max(0, min(at, run.last + 1) - run.first)
        reached[run.partition] = max(at, run.last + 1)
    return Judged(
        processed=sum(reached.values()),
        repeated=repeated,
        skipped=tuple(skipped),
        missing=sum(max(0, end - reached[partition]) for partition, end in ends.items()),
    )
