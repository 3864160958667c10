"""A failure is told with the share of the processors that was taken away meanwhile."""

from pathlib import Path

import pytest
from regnum_testing.taken_away import Sample, TakenAway, Watch, sample, worst_ratio

pytest_plugins = ["pytester"]

TESTS = """
def test_passes():
    pass

def test_fails():
    assert False
"""


class Watched(Watch):
    """Says what it is told."""

    def __init__(self, ratio: float) -> None:
        super().__init__()
        self.ratio = ratio

    def taken(self, since_s: float) -> float:
        return self.ratio


def history(*ours_s: float) -> list[Sample]:
    """One sample a second."""
    return [Sample(at_s=float(second), ours_s=ours) for second, ours in enumerate(ours_s)]


def test_processors_that_are_idle_are_ours() -> None:
    assert worst_ratio(history(0, 2, 4, 6, 8, 10, 12), 2, since_s=0) == 0.0


def test_what_is_taken_is_found_in_the_span_where_it_was_taken() -> None:
    """Half of two processors for five seconds of twenty."""
    ours = [2.0 * second for second in range(11)]
    ours += [20.0 + second for second in range(1, 6)]
    ours += [25.0 + 2.0 * second for second in range(1, 6)]
    assert worst_ratio(history(*ours), 2, since_s=0) == pytest.approx(0.5)
    assert worst_ratio(history(*ours), 2, since_s=19) < 0.5


def test_less_than_a_span_says_nothing() -> None:
    assert worst_ratio(history(0, 0, 0), 2, since_s=0) == 0.0


def test_a_machine_that_stood_still_was_taken_away() -> None:
    """Nothing is booked for the time in which nobody kept books."""
    assert worst_ratio([Sample(0, 0), Sample(1, 2), Sample(9, 4)], 2, since_s=0) == pytest.approx(14 / 16)


def test_what_was_stolen_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  100 100 100 500 100 50 50 900 7 7\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    assert sample(tmp_path).ours_s == pytest.approx(10.0)


def test_a_failure_is_told_with_the_share_that_was_taken_away(
    pytester: pytest.Pytester, capfd: pytest.CaptureFixture[str]
) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.inline_run("-p", "no:asyncio", plugins=[TakenAway(Watched(0.4))])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    told = capfd.readouterr().out
    assert "40% of the processors taken away: " in told
    assert told.count("taken away") == 1
