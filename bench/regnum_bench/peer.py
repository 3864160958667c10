"""Another program that does the same work in the same run: any command that prints one JSON line of figures.

It gets its turn while nothing of ours runs. The last line on its stdout that is a JSON object holds its figures:
numbers are figures (those in an object within it get its name as a prefix), except what only repeats the shape; the
rest is kept as it is. A line of Kafka's performance tools among the rest is read as well (``perf_lines``).
"""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any, Final

from regnum_bench.perf_lines import read_perf_lines
from regnum_bench.waiting import MeasureError

KILL_WAIT_S: Final = 10.0
"""Time to end after SIGTERM; a peer has processes of its own to end."""


def read_figures(printed: str, shape: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, Any]]:
    """Figures, and what else was said. Raises MeasureError when there is no JSON object."""
    value = next((found for line in reversed(printed.splitlines()) if (found := _object(line)) is not None), None)
    if value is None:
        raise MeasureError("the command beside ours printed no line with a JSON object")
    figures: dict[str, float] = {}
    said: dict[str, Any] = {}
    for name, item in _flat(value):
        if isinstance(item, int | float) and not isinstance(item, bool) and name not in shape:
            figures[name] = float(item)
        else:
            said[name] = item
            figures.update({f"{name}_{what}": value for what, value in read_perf_lines(item).items()})
    if not figures:
        raise MeasureError(f"the command beside ours printed no figures: {', '.join(said) or 'an empty object'}")
    return figures, said


async def run_peer(command: Sequence[str], *, within_s: float) -> str:
    """Run it to its end; what it printed on stdout. Raises MeasureError. Its stderr is ours."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, start_new_session=True
        )
    except OSError as error:
        raise MeasureError(f"cannot run {command[0]}: {error.strerror}") from error
    try:
        async with asyncio.timeout(within_s):
            printed, _ = await process.communicate()
    except TimeoutError:
        raise MeasureError(f"{command[0]} did not end within {within_s:g} s") from None
    finally:
        await _end(process)
    if process.returncode:
        raise MeasureError(f"{command[0]} ended with status {process.returncode}")
    return printed.decode("utf-8", "replace")


async def _end(process: asyncio.subprocess.Process) -> None:
    """SIGTERM to the whole session, and SIGKILL when that does not end it in time."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signum)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KILL_WAIT_S):
                await process.wait()


def _object(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _flat(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, item in value.items():
        found.extend(_flat(item, f"{prefix}{name}_") if isinstance(item, dict) else [(f"{prefix}{name}", item)])
    return found
