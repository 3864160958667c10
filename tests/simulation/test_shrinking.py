"""A failing schedule becomes the smallest that still fails."""

import random
from collections.abc import Sequence

import pytest
from regnum_testing.simulation.schedules.faults import Fault, planned
from regnum_testing.simulation.schedules.shrinking import as_test, smallest

NAMES = ("broker-1", "broker-2", "election-1")


@pytest.mark.parametrize("needed", [1, 2, 3])
def test_only_what_is_needed_stays(needed: int) -> None:
    schedule = planned(3, NAMES, 60.0)
    wanted = tuple(sorted(random.Random(needed).sample(range(len(schedule)), needed)))
    faults = tuple(schedule[place] for place in wanted)
    runs = 0

    def fails(some: Sequence[Fault]) -> bool:
        nonlocal runs
        runs += 1
        return set(faults) <= set(some)

    assert smallest(schedule, fails) == faults
    assert runs < len(schedule) ** 2


def test_what_fails_without_any_fault_needs_none() -> None:
    assert smallest(planned(3, NAMES, 20.0), lambda _: True) == ()


def test_a_schedule_is_printed_as_a_test() -> None:
    schedule = planned(3, NAMES, 5.0)
    said = as_test(7, schedule)
    scope: dict[str, object] = {"Fault": Fault, "forked": None}
    exec(said, scope)  # noqa: S102 - what is printed is Python
    assert scope["SCHEDULE"] == schedule
    assert "test_seed_7_with_its_smallest_schedule" in scope
