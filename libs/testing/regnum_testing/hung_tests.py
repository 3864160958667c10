"""A test that hangs where its time-out does not reach ends its process, and tells where everything stood.

pytest-timeout raises in the main thread, once for each test, and not any more once a phase of the test has failed: what
is torn down after a failure may wait for ever, and so may a callback in which the raised exception was lost, or a
library that waits in C. Nothing would be told then but that the whole run took too long.
"""

import asyncio
import faulthandler
import gc
import os
import sys
import threading
from collections.abc import Generator
from typing import Final, TextIO

import pytest

GRACE_S: Final = "hung_grace_s"
"""Setting of pytest: seconds beyond a test's own limit, for the report of its time-out."""
LAST_S: Final = 30.0
"""Time beyond that for what is told from within the interpreter; after it the faulthandler does it from outside."""


class HungTests:
    """The plugin: a thread for each test, which no failure calls off before the end."""

    def __init__(self, told: TextIO, grace_s: float) -> None:
        """Only assigns; ``told``: a file with a descriptor that no capture takes."""
        self._told: Final = told
        self._grace_s: Final = grace_s
        self._watch: threading.Timer | None = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Set-up, test and what is torn down behind it, together."""
        limit_s = self._limit_s(item)
        if limit_s > 0:
            after_s = limit_s + self._grace_s
            self._watch = threading.Timer(after_s, self._tell, (f"{item.nodeid} is not over after {after_s:g} s",))
            self._watch.daemon = True
            self._watch.start()
            faulthandler.dump_traceback_later(after_s + LAST_S, file=self._told, exit=True)
        try:
            return (yield)
        finally:
            self._call_off()

    def pytest_enter_pdb(self) -> None:
        """Somebody looks at the test, for as long as it takes."""
        self._call_off()

    def _call_off(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
            faulthandler.cancel_dump_traceback_later()

    def _tell(self, what: str) -> None:
        print(f"\nhung: {what}", file=self._told, flush=True)
        faulthandler.dump_traceback(file=self._told)
        for loop in [one for one in gc.get_objects() if isinstance(one, asyncio.AbstractEventLoop)]:
            for task in asyncio.all_tasks(loop):
                task.print_stack(file=self._told)
        self._told.flush()
        os._exit(1)

    @staticmethod
    def _limit_s(item: pytest.Item) -> float:
        """As pytest-timeout finds it: the test's own, that of the command, that of the settings; 0: none."""
        mark = item.get_closest_marker("timeout")
        if mark is not None and mark.args:
            return float(mark.args[0])
        asked = item.config.getoption("timeout", None)
        return float((item.config.getini("timeout") if asked is None else asked) or 0)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one setting."""
    parser.addini(GRACE_S, "seconds beyond its time-out after which a test counts as hung", default="60")


def pytest_configure(config: pytest.Config) -> None:
    """Watch from now on."""
    # A copy of the descriptor: while a test runs, its output is captured.
    told = os.fdopen(os.dup((sys.__stderr__ or sys.stderr).fileno()), "w", encoding="utf-8")
    config.add_cleanup(told.close)
    config.pluginmanager.register(HungTests(told, float(config.getini(GRACE_S))), "hung-tests")
