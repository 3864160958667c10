"""One process that the launcher started."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from regnum_service.programs import service_environment

from regnum_local import tether
from regnum_local.identity import ProcessIdentity

TAIL_BYTES: Final = 4_000
"""How much of a log is shown when its process ends unasked."""
TAIL_LINES: Final = 15
TAIL_COLUMNS: Final = 300
"""Longer lines are cut: a stack trace is one line of JSON."""


class Child:
    """A started process, in a session of its own so that Ctrl-C in a terminal reaches the launcher alone.

    Output goes to a log file; nobody has to read it for the process to go on.
    """

    def __init__(self, name: str, process: asyncio.subprocess.Process, log_path: Path) -> None:
        self._name = name
        self._process = process
        self._log_path = log_path
        self._identity = ProcessIdentity.of(process.pid)
        self.expected_to_end = False
        """Set by whoever ends it, so that its exit is no news."""

    @classmethod
    async def start(cls, name: str, command: Sequence[str], log_path: Path, *, tethered: bool) -> "Child":
        """Start it; with ``tethered`` it gets SIGTERM when this process dies, however that happens."""
        log_path.parent.mkdir(parents=True, exist_ok=True)
        arguments = list(command)
        if tethered:
            # Bare Python (-S -E: no site packages) that becomes the program within some milliseconds.
            arguments = [sys.executable, "-S", "-E", "-P", tether.__file__, str(os.getpid()), *arguments]
        environment = service_environment(os.environ)
        with log_path.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is whose the cluster is. Not a session of its own: Linux schedules sessions by turns
                # (autogroups), so that a process would wait for tens of milliseconds while others are busy.
                process_group=0,
                env=environment,
            )
        return cls(name, process, log_path)

    @property
    def name(self) -> str:
        """Name in the cluster."""
        return self._name

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def identity(self) -> ProcessIdentity | None:
        """For the record; None when it ended before it could be looked at."""
        return self._identity

    @property
    def exit_status(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        return self._process.returncode

    @property
    def running(self) -> bool:
        """Whether it has not ended; a paused process runs."""
        return self._process.returncode is None

    @property
    def paused(self) -> bool:
        """Whether it was stopped, by whoever that was: `regnum pause` is another process."""
        return self._identity is not None and self._identity.state() == "T"

    def send(self, signum: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        # asyncio reaps it and knows the exit before the pid can be used again.
        if self.running:
            self._process.send_signal(signum)

    def pause(self) -> None:
        """SIGSTOP: alive for the machine, silent for everybody else."""
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.send(signal.SIGCONT)

    async def wait(self) -> int:
        """Wait for the end; returns the exit status."""
        return await self._process.wait()

    async def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self.expected_to_end = True
        self.send(signal.SIGKILL)
        await self.wait()

    async def terminate(self, timeout_s: float) -> bool:
        """SIGTERM, and SIGKILL when that does not end it in time; returns whether SIGTERM sufficed."""
        self.expected_to_end = True
        self.send(signal.SIGTERM)
        # A stopped process ends only when it goes on.
        self.resume()
        try:
            async with asyncio.timeout(timeout_s):
                await self.wait()
        except TimeoutError:
            await self.kill()
            return False
        return True

    def log_tail(self) -> str:
        """The last lines of its log, for a person who wonders why it ended; empty where it cannot be read."""
        try:
            with self._log_path.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL_BYTES))
                lines = log.read().decode("utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(_cut(line) for line in lines[-TAIL_LINES:])


def _cut(line: str) -> str:
    return line if len(line) <= TAIL_COLUMNS else f"{line[:TAIL_COLUMNS]} ..."
