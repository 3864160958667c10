"""The suite as a whole: which tests run a second time, what the last lines say, and when the run has failed."""

import re
import sys
from pathlib import Path

import pytest
from regnum_testing.suite.__main__ import FLAKY, MEMORY, MEMORY_BYTES_MIN, ROOT, files_of_tests, run
from regnum_testing.suite.outcomes import Outcomes, Told, read
from regnum_testing.suite.verdict import SECOND_RUNS_MAX, Part, judge, known, runs_again

pytest_plugins = ["pytester"]


def part(name: str = "check-units", status: int = 0, /, *, ended: int | None = 0, **tests: str) -> Part:
    """One with these tests by name."""
    return Part(name=name, status=status, outcomes=Outcomes(tests=tests, status=ended))


def failed(name: str = "check-units", /, **tests: str) -> Part:
    """One in which tests failed, and else nothing."""
    return part(name, 2, ended=1, **tests)


LINT = Part(name="lint", status=0, outcomes=None)


def test_what_all_parts_came_to_is_one_line() -> None:
    parts = [part(a="passed", b="skipped"), part("check-stores", c="passed"), LINT]
    assert judge(parts, None, took_s=574.6) == judge(parts, None, took_s=575.4)
    verdict = judge(parts, None, took_s=575.0)
    assert verdict.lines == ("2 passed, 0 failed, 1 skipped in 575 s",)
    assert verdict.status == 0


def test_what_failed_runs_again_from_all_parts() -> None:
    parts = [failed(a="failed", b="passed", c="skipped"), failed("check-clusters", d="failed"), LINT]
    assert runs_again(parts, frozenset()) == ["a", "d"]


def test_what_found_records_harmed_does_not() -> None:
    parts = [failed(a="harmed", b="failed")]
    assert runs_again(parts, frozenset()) == ["b"]
    verdict = judge(parts, part("second runs", b="passed"), took_s=1.0)
    assert verdict.lines == ("flaky: b", "failed: a (records were harmed)", "1 passed, 1 failed, 0 skipped in 1 s")
    assert verdict.status == 1
    alone = [failed(a="harmed")]
    assert runs_again(alone, frozenset()) == []
    assert judge(alone, None, took_s=1.0).lines[-1] == "0 passed, 1 failed, 0 skipped in 1 s"


def test_what_finds_them_harmed_when_it_runs_again_says_so() -> None:
    verdict = judge([failed(a="failed")], failed("second runs", a="harmed"), took_s=1.0)
    assert verdict.lines == ("failed: a (records were harmed)", "0 passed, 1 failed, 0 skipped in 1 s")
    assert verdict.status == 1


def test_what_passes_then_is_flaky_and_counts_as_passed() -> None:
    parts = [failed(a="failed", b="passed"), LINT]
    verdict = judge(parts, part("second runs", a="passed"), took_s=1.0)
    assert verdict.lines == ("flaky: a", "2 passed, 0 failed, 0 skipped in 1 s")
    assert verdict.status == 0


@pytest.mark.parametrize("again", ["failed", "skipped"])
def test_what_does_not_pass_then_has_failed(again: str) -> None:
    verdict = judge([failed(a="failed", b="failed")], failed("second runs", a=again, b="passed"), took_s=1.0)
    assert "flaky: b" in verdict.lines
    assert "failed: a" in verdict.lines
    assert verdict.lines[-1].startswith("1 passed, 1 failed, 0 skipped")
    assert verdict.status == 1


def test_a_known_one_gets_no_second_run() -> None:
    flaky = known(["# names", "", "tests/x.py::test_a  0123abcd\n", "tests/x.py::test_b[a b] 0123abcd"])
    assert flaky == {"tests/x.py::test_a", "tests/x.py::test_b[a b]"}
    names = ["tests/x.py::test_a", "tests/x.py::test_a[1]", "tests/x.py::test_b[a b]", "tests/x.py::test_b[c]"]
    parts = [failed(**dict.fromkeys(names, "failed"))]
    assert runs_again(parts, flaky) == ["tests/x.py::test_b[c]"]


def test_more_than_three_get_none_and_the_run_has_failed() -> None:
    names = [f"t{number}" for number in range(SECOND_RUNS_MAX + 1)]
    parts = [failed(**dict.fromkeys(names, "failed"))]
    assert runs_again(parts, frozenset()) == []
    assert runs_again(parts, frozenset({"t0"})) == names[1:]
    verdict = judge(parts, None, took_s=1.0)
    assert verdict.lines[0] == "more than 3 tests failed: none ran a second time"
    assert verdict.lines[1:-1] == tuple(f"failed: {name}" for name in names)
    assert verdict.status == 1


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (Part(name="lint", status=2, outcomes=None), "lint (exit status 2, and no results)"),
        (part("check-units", 2, ended=3), "check-units (exit status 3 of pytest)"),
        (part("check-units", 2, ended=5), "check-units (exit status 5 of pytest)"),
        (part("check-units", 2, ended=1, a="passed"), "check-units (exit status 1 of pytest)"),
        (part("check-units", 2, ended=0, a="passed"), "check-units (exit status 0 of pytest)"),
        (part("check-units", 2, ended=None), "check-units (died in its first test)"),
        (
            Part(name="check-units", status=2, outcomes=read(["began a", "passed a", "began b"])),
            "check-units (died in b)",
        ),
    ],
)
def test_a_part_that_failed_without_failed_tests_is_named(broken: Part, why: str) -> None:
    verdict = judge([broken, part("check-stores", c="passed")], None, took_s=1.0)
    assert f"failed: {why}" in verdict.lines
    assert verdict.lines[-1].endswith("passed, 0 failed, 0 skipped, 1 error in 1 s")
    assert verdict.status == 1


def test_second_runs_that_die_have_failed() -> None:
    died = Part(name="second runs", status=-9, outcomes=read(["began a", "passed a", "began b"]))
    verdict = judge([failed(a="failed", b="failed"), Part(name="lint", status=2, outcomes=None)], died, took_s=1.0)
    assert verdict.lines == (
        "flaky: a",
        "failed: b",
        "failed: lint (exit status 2, and no results)",
        "failed: second runs (died in b)",
        "1 passed, 1 failed, 0 skipped, 2 errors in 1 s",
    )
    assert verdict.status == 1


def test_a_test_that_fails_in_any_phase_has_failed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def torn_down():
            yield
            raise ValueError

        @pytest.fixture
        def not_set_up():
            raise ValueError

        def test_passes(): pass
        def test_fails(): assert False
        def test_is_skipped(): pytest.skip("why not")
        def test_is_not_set_up(not_set_up): pass
        def test_is_not_torn_down(torn_down): pass
        """
    )
    file = pytester.path / "told"
    pytester.inline_run("-p", "no:asyncio", plugins=[Told(file)])
    outcomes = read(file.read_text().splitlines())
    assert {name.rsplit("::", 1)[1]: outcome for name, outcome in outcomes.tests.items()} == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_is_skipped": "skipped",
        "test_is_not_set_up": "failed",
        "test_is_not_torn_down": "failed",
    }
    assert (outcomes.status, outcomes.unfinished) == (1, "")


def test_what_a_judge_of_records_raises_is_told_apart_however_it_comes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from regnum_testing.suite.harm import HarmedError, unharmed

        @pytest.fixture
        def torn_down():
            yield
            unharmed([], "lost: 2")

        def test_plain(): assert False
        def test_good(): unharmed([1], "nothing")
        def test_harmed(): unharmed([], "lost: 1")
        def test_beside_others():
            raise ExceptionGroup("tasks", [ValueError(), ExceptionGroup("tasks", [HarmedError("lost: 1")])])
        def test_cleaned_up_badly():
            try:
                unharmed([], "lost: 1")
            finally:
                raise ValueError
        def test_expected():
            with pytest.raises(HarmedError):
                unharmed([], "lost: 1")
            assert False
        def test_fails_and_is_harmed_after(torn_down): assert False
        """
    )
    file = pytester.path / "told"
    pytester.inline_run("-p", "no:asyncio", plugins=[Told(file)])
    outcomes = read(file.read_text().splitlines())
    assert {name.rsplit("::", 1)[1]: outcome for name, outcome in outcomes.tests.items()} == {
        "test_plain": "failed",
        "test_good": "passed",
        "test_harmed": "harmed",
        "test_beside_others": "harmed",
        "test_cleaned_up_badly": "harmed",
        "test_expected": "failed",
        "test_fails_and_is_harmed_after": "harmed",
    }
    assert len(outcomes.failed) == 6


async def test_a_whole_run_with_parts_that_pass_fail_at_first_and_die(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Processes as in `make test`, in a checkout of its own, into which nothing is written."""
    root, folder = tmp_path / "checkout", tmp_path / "results"
    (root / "tests").mkdir(parents=True)
    folder.mkdir()
    (root / FLAKY).write_text("")
    (root / "pytest.ini").write_text("[pytest]\naddopts = -p regnum_testing.suite.outcomes -p no:cacheprovider\n")
    (root / "Makefile").write_text(
        f"""fails: ; {sys.executable} -B -m pytest --outcomes=$(OUTCOMES)/$@ tests/test_fails_at_first.py
dies: ; {sys.executable} -B -m pytest --outcomes=$(OUTCOMES)/$@ tests/test_dies.py
checks: ; true
"""
    )
    (root / "tests/test_fails_at_first.py").write_text(
        f"""
from pathlib import Path
import pytest

@pytest.mark.parametrize("what", ["a b"])
def test_is_there(what):
    there = Path({str(tmp_path / "there")!r})
    was, _ = there.exists(), there.touch()
    assert was
"""
    )
    (root / "tests/test_dies.py").write_text("import os\n\ndef test_it():\n    os._exit(1)\n")
    before = sorted(root.rglob("*"))
    assert await run([["fails", "checks"]], folder, root) == 0
    *_, flaky, totals = capfd.readouterr().out.splitlines()
    assert flaky == "flaky: tests/test_fails_at_first.py::test_is_there[a b]"
    assert re.fullmatch(r"1 passed, 0 failed, 0 skipped in \d+ s", totals)
    assert await run([["checks"], ["dies"]], folder, root) == 1
    *_, broken, totals = capfd.readouterr().out.splitlines()
    assert broken == "failed: dies (died in tests/test_dies.py::test_it)"
    assert re.fullmatch(r"0 passed, 0 failed, 0 skipped, 1 error in \d+ s", totals)
    assert [path for path in sorted(root.rglob("*")) if "__pycache__" not in path.parts] == before


def test_files_of_tests_are_in_memory_where_there_is_room_and_nothing_else_was_said() -> None:
    assert files_of_tests({"A": "a"}, free_bytes=MEMORY_BYTES_MIN) == {"A": "a", "TMPDIR": str(MEMORY)}
    assert files_of_tests({"A": "a"}, free_bytes=MEMORY_BYTES_MIN - 1) == {"A": "a"}
    assert files_of_tests({"TMPDIR": "/disk"}, free_bytes=MEMORY_BYTES_MIN) == {"TMPDIR": "/disk"}


def test_the_list_of_known_ones_names_tests_and_commits() -> None:
    for line in (ROOT / FLAKY).read_text().splitlines():
        if line and not line.startswith("#"):
            name, commit = line.rsplit(maxsplit=1)
            assert re.fullmatch("[0-9a-f]{8,40}", commit), line
            file, _, test = name.partition("::")
            assert f"def {test.split('[', 1)[0].rsplit('::', 1)[-1]}(" in (ROOT / file).read_text(), line
