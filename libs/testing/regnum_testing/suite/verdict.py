"""Which tests run a second time, and what the whole run came to. Pure.

A test that failed runs once more, by itself, when everything else is over: what passes then failed because of the
machine, and is named in the closing lines for a person to mend. A test that is in the list of known ones
(``tests/flaky.txt``) was named before and gets no second run; nor does one that found records harmed, which no machine
does; and when more than ``SECOND_RUNS_MAX`` failed, it is the change or the machine that is broken, and none does.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from regnum_testing.suite.outcomes import FAILED, HARMED, Outcomes

SECOND_RUNS_MAX: Final = 3
"""Tests that run once more in one run of the suite."""
TESTS_FAILED: Final = 1
"""Exit status of pytest when tests failed and nothing else is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the suite that has ended."""

    name: str
    """Target of the Makefile."""
    status: int
    """Exit status of make."""
    outcomes: Outcomes | None
    """What its tests came to; None: it told nothing, as a part without tests."""

    @property
    def broken(self) -> str:
        """Why it failed, where that is no failure of its tests; empty: it is none."""
        if self.status == 0:
            return ""
        if self.outcomes is None:
            return f"exit status {self.status}, and no results"
        if self.outcomes.status is None:
            return f"died in {self.outcomes.unfinished or 'its first test'}"
        if self.outcomes.status != TESTS_FAILED or not self.outcomes.failed:
            return f"exit status {self.outcomes.status} of pytest"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The end of a run."""

    lines: tuple[str, ...]
    """What is said last, the line of totals at the end."""
    status: int
    """Exit status: 0 or 1."""


def known(lines: Iterable[str]) -> frozenset[str]:
    """Names in the list of known flaky tests: a name and the commit that mends it on each line, ``#`` begins a comment.

    A name without its parameters stands for all of them.
    """
    entries = (line.strip() for line in lines)
    return frozenset(entry.rsplit(maxsplit=1)[0] for entry in entries if entry and not entry.startswith("#"))


def runs_again(parts: Sequence[Part], flaky: Collection[str]) -> list[str]:
    """Names of the tests that run once more; none when they are too many."""
    failed = [test for test, outcome in _tests(parts).items() if outcome == "failed"]
    tests = [test for test in failed if test not in flaky and test.split("[", 1)[0] not in flaky]
    return tests if len(tests) <= SECOND_RUNS_MAX else []


def judge(parts: Sequence[Part], second: Part | None, *, took_s: float) -> Verdict:
    """What it came to.

    Args:
        parts: all of the first run.
        second: the tests that ran once more; None: none did.
        took_s: the whole run.
    """
    first = _tests(parts)
    then = {} if second is None else _tests([second])
    passed_then = [test for test, how in then.items() if how == "passed"]
    last = first | {test: how for test, how in then.items() if how in {"passed", HARMED}}
    failed = [test for test, outcome in last.items() if outcome in FAILED]
    broken = [part for part in (*parts, second) if part is not None and part.broken]
    counts = Counter("failed" if outcome in FAILED else outcome for outcome in last.values())
    totals = ", ".join(f"{counts[word]} {word}" for word in ("passed", "failed", "skipped"))
    errors = f", {len(broken)} error{'s'[: len(broken) - 1]}" if broken else ""
    too_many = second is None and len(failed) > SECOND_RUNS_MAX
    return Verdict(
        lines=(
            *([f"more than {SECOND_RUNS_MAX} tests failed: none ran a second time"] if too_many else []),
            *(f"flaky: {test}" for test in passed_then),
            *(f"failed: {test}{' (records were harmed)' * (last[test] == HARMED)}" for test in failed),
            *(f"failed: {part.name} ({part.broken})" for part in broken),
            f"{totals}{errors} in {took_s:.0f} s",
        ),
        status=int(bool(failed or broken)),
    )


def _tests(parts: Iterable[Part]) -> dict[str, str]:
    """Outcomes by name."""
    return {test: outcome for part in parts if part.outcomes for test, outcome in part.outcomes.tests.items()}
