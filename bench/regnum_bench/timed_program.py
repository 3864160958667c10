"""A program as a user runs it, in a process of its own: how long it took, and what it cost."""

import asyncio
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from regnum_bench.waiting import MeasureError

REGNUM: Final = "regnum"
"""Name of the command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a program ran."""

    wall_s: float
    """From just before its process was made until it had ended, in seconds."""
    cpu_s: float
    """Processor time of it and of those that it waited for, in seconds."""
    memory_bytes: int
    """Most of its memory that was resident at a time."""
    output: str
    """What it printed."""


def regnum(*words: str) -> tuple[str, ...]:
    """The command of this environment, with arguments."""
    beside = Path(sys.executable).with_name(REGNUM)
    return (str(beside), *words)


async def ran(command: Sequence[str], *, within_s: float, environment: Mapping[str, str] | None = None) -> Ran:
    """Run a program to its end.

    Args:
        command: its words.
        within_s: it is killed after so many seconds.
        environment: None: that of this process.

    Raises:
        MeasureError: it failed, or took too long.
    """
    return await asyncio.to_thread(_ran, command, within_s, environment)


def compiled_into(folder: Path) -> dict[str, str]:
    """An environment in which Python keeps what it compiles, there: an installed program is not compiled at each start.

    A checkout is where PYTHONDONTWRITEBYTECODE is set; so the first run in such an environment says nothing.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(folder)}


def _ran(command: Sequence[str], within_s: float, environment: Mapping[str, str] | None) -> Ran:
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as complaints:
        began_s = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=complaints, env=environment)
        # wait4 says what this very child has used, and takes no time-out.
        end = threading.Timer(within_s, process.kill)
        end.start()
        try:
            _, status, used = os.wait4(process.pid, 0)
        finally:
            end.cancel()
        wall_s = time.perf_counter() - began_s
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        complaints.seek(0)
        if process.returncode:
            said = complaints.read().decode("utf-8", "replace").strip()[-500:]
            raise MeasureError(f"{shlex.join(command)} ended with {process.returncode} after {wall_s:.1f} s: {said}")
        return Ran(
            wall_s=wall_s,
            cpu_s=used.ru_utime + used.ru_stime,
            memory_bytes=used.ru_maxrss * 1024,
            output=output.read().decode("utf-8"),
        )
