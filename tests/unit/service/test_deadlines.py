"""How much of a caller's time a call may wait."""

import math

import pytest
from regnum_service.deadlines import waitable_s


class Caller:
    def __init__(self, remaining_s: float | None) -> None:
        self._remaining_s = remaining_s

    def time_remaining(self) -> float | None:
        return self._remaining_s


@pytest.mark.parametrize(
    ("remaining_s", "wait_s"),
    [(None, math.inf), (60.0, 59.0), (5.0, 4.5), (0.5, 0.4), (0.1, 0.05), (0.0, 0.0), (-1.0, 0.0)],
)
def test_time_for_the_answer_is_kept_back(remaining_s: float | None, wait_s: float) -> None:
    assert waitable_s(Caller(remaining_s)) == pytest.approx(wait_s)
