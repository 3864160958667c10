"""The smallest schedule that still fails, and the test that it makes."""

from collections.abc import Callable, Sequence
from pprint import pformat

from regnum_testing.simulation.schedules.faults import Fault


def smallest(schedule: Sequence[Fault], fails: Callable[[Sequence[Fault]], bool]) -> tuple[Fault, ...]:
    """Leave faults out, halves first, for as long as it still fails (delta debugging).

    Args:
        schedule: one that fails.
        fails: runs a schedule.
    """
    kept, parts = tuple(schedule), 2
    while kept:
        size = max(1, len(kept) // parts)
        for start in range(0, len(kept), size):
            shorter = kept[:start] + kept[start + size :]
            if fails(shorter):
                kept, parts = shorter, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(kept), 2 * parts)
    return kept


def as_test(seed: int, schedule: Sequence[Fault]) -> str:
    """What to put into ``tests/simulation``."""
    return (
        f"SCHEDULE = {pformat(tuple(schedule), width=118)}\n\n\n"
        f"def test_seed_{seed}_with_its_smallest_schedule() -> None:\n"
        f"    assert forked({seed}, schedule=SCHEDULE).found == []\n"
    )
