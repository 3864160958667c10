"""A test that fails while the machine is taken away is void; one that fails while it is ours has failed."""

from pathlib import Path

import pytest
from regnum_testing.taken_away import Sample, VoidRuns, Watch, sample, worst_ratio

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


class Again:
    """Runs nothing."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.asked: list[list[str]] = []

    def __call__(self, tests: list[str], config: pytest.Config) -> int:
        self.asked.append(tests)
        return self.status


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


def test_a_void_failure_is_run_once_more_and_that_run_counts(
    pytester: pytest.Pytester, capfd: pytest.CaptureFixture[str]
) -> None:
    pytester.makepyfile(TESTS)
    again = Again(0)
    result = pytester.inline_run("-p", "no:asyncio", plugins=[VoidRuns(Watched(0.4), again)])
    ((test,),) = again.asked
    assert test.endswith("::test_fails")
    assert result.ret == 0
    assert "40% of the processors taken away: void: " in capfd.readouterr().out


def test_a_failure_while_the_machine_was_ours_stays_one(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    again = Again(0)
    result = pytester.inline_run("-p", "no:asyncio", plugins=[VoidRuns(Watched(0.29), again)])
    assert again.asked == []
    assert result.ret == pytest.ExitCode.TESTS_FAILED
