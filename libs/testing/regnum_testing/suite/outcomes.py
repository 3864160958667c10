"""What the tests of one part came to, as pytest tells it and as the suite reads it: a file of lines.

``began NAME``, and ``passed``, ``failed`` or ``skipped NAME`` for each phase of a test that says so; ``harmed NAME``
where it failed by the word of a judge of records (see ``harm``); at the end ``ended STATUS``, the exit status of
pytest. A process that died leaves the lines up to then.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from regnum_testing.suite.harm import is_harm

OPTION: Final = "--outcomes"
"""Of pytest: the file."""
HARMED: Final = "harmed"
FAILED: Final = frozenset({"failed", HARMED})
"""Outcomes of a test that failed."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The tests of one process of pytest."""

    tests: dict[str, str] = field(default_factory=dict)
    """``passed``, ``failed``, ``harmed`` or ``skipped`` by name, in the order in which they ran."""
    status: int | None = None
    """Exit status of pytest; None: it died."""
    unfinished: str = ""
    """The test in which it died; empty: none."""

    @property
    def failed(self) -> list[str]:
        """Names of the tests that failed, those among them that found records harmed."""
        return [test for test, outcome in self.tests.items() if outcome in FAILED]


def read(lines: Iterable[str]) -> Outcomes:
    """From the lines of the file. A test that failed in any phase has failed, and is harmed if any says so."""
    tests: dict[str, str] = {}
    unfinished = ""
    for line in lines:
        word, _, rest = line.rstrip("\n").partition(" ")
        if word == "ended":
            return Outcomes(tests=tests, status=int(rest))
        if word == "began":
            unfinished = rest
        elif word == HARMED or tests.get(rest) not in FAILED:
            tests[rest] = word
    return Outcomes(tests=tests, unfinished=unfinished)


class Told:
    """The plugin: a line for each outcome, as it comes."""

    def __init__(self, file: Path) -> None:
        """Only assigns; ``file``: begun by its first line."""
        self._file: Final = file

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        self._tell("began", nodeid)

    def pytest_runtest_makereport(self, item: pytest.Item, call: "pytest.CallInfo[None]") -> None:
        """A phase of a test has ended, by whatever it raised."""
        if call.excinfo is not None and is_harm(call.excinfo.value):
            self._tell(HARMED, item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a test is over; what is set up and torn down without trouble says nothing of its own."""
        if report.when == "call" or not report.passed:
            self._tell(report.outcome, report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """All is over."""
        self._tell("ended", str(int(exitstatus)))

    def _tell(self, word: str, rest: str) -> None:
        with self._file.open("a", encoding="utf-8") as told:
            told.write(f"{word} {rest}\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one option."""
    parser.addoption(OPTION, type=Path, default=None, help="file for the outcome of each test, for `make test`")


def pytest_configure(config: pytest.Config) -> None:
    """Tell, where a file is named."""
    file: Path | None = config.getoption(OPTION)
    if file is not None:
        config.pluginmanager.register(Told(file), "outcomes")
