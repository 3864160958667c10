"""The `regnum` command in the process of its test: what it prints and how it ends, without the start of a process.

What is about streams, signals and the end of a process needs one of its own.
"""

import asyncio
import io
import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from regnum_client.command import main


class Ran(NamedTuple):
    """A command that has ended."""

    status: int
    """Its exit status."""
    out: str
    """All that went to stdout."""
    err: str
    """All that went to stderr."""

    @property
    def error(self) -> dict[str, object]:
        """The failure as JSON; the last line of stderr."""
        failure: dict[str, object] = json.loads(self.err.strip().splitlines()[-1])["error"]
        return failure


class CommandHere:
    """Runs the command in this process, on a thread of its own: it has an event loop of its own."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    async def __call__(self, *arguments: str) -> Ran:
        """Run it to its end, one at a time: stdout and stderr are the process's."""
        return await asyncio.to_thread(self._run, [*arguments, "--bootstrap", self._bootstrap])

    async def alone(self, *arguments: str) -> Ran:
        """Run a command that knows no ``--bootstrap``."""
        return await asyncio.to_thread(self._run, arguments)

    def _run(self, arguments: Sequence[str]) -> Ran:
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        # The command takes the hook of its process for itself; this one is the tests'.
        hook = sys.excepthook
        try:
            with redirect_stdout(out), redirect_stderr(err):
                status = main(arguments)
        finally:
            sys.excepthook = hook
        out.seek(0)
        err.seek(0)
        return Ran(status, out.read(), err.read())
