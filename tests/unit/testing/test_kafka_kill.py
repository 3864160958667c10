"""What is read back after a kill, judged."""

import pytest
from regnum_testing.kafka_kill.killing import judge


@pytest.mark.parametrize(
    ("numbers", "failed", "found"),
    [
        ([0, 1, 2, 3], 0, (0, 0, 0)),
        ([0, 1, 3], 0, (1, 0, 0)),
        ([0, 1, 1, 2, 3], 0, (0, 1, 0)),
        ([0, 2, 1, 3], 0, (0, 0, 1)),
        ([0, 1, 2, 3], 1, (0, 0, 0)),
    ],
)
def test_what_is_missing_doubled_or_behind_is_counted(
    numbers: list[int], failed: int, found: tuple[int, int, int]
) -> None:
    verdict = judge(numbers, {"acked": 4, "failed": failed})
    assert (verdict.lost, verdict.doubled, verdict.out_of_order) == found
    assert verdict.clean == (found == (0, 0, 0) and not failed)
