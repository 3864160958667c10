"""Run the suite: ``python -m regnum_testing.suite "PART PART ..." "PART ..."``; ``make test`` does.

Each argument is a round of targets of the Makefile, which run five at once; a round begins when the one before has
ended. Then the tests that failed run once more, by themselves (see ``verdict``). Results are kept in a folder of their
own until then: nothing is written into the checkout. The last lines say what came of it all, and so does the exit
status.
"""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from asyncio.subprocess import Process, create_subprocess_exec
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from regnum_testing.suite.outcomes import OPTION, Outcomes, read
from regnum_testing.suite.verdict import Part, judge, known, runs_again

ROOT: Final = Path(__file__).resolve().parents[4]
"""The checkout."""
FLAKY: Final = Path("tests/flaky.txt")
"""The list of known flaky tests, in the checkout."""
AT_ONCE: Final = 5
MEMORY: Final = Path("/dev/shm")  # noqa: S108 - pytest makes a folder there that only this user reads
"""A file system in memory, where the machine has one."""
MEMORY_BYTES_MIN: Final = 8 * 1024**3
"""Tests write there if so much is free, of the file system and of the memory: most of the time of those of logs is an
fsync of a disk, and no test is about how long that takes."""


async def status_of(*command: str, root: Path) -> int:
    """Exit status of a command, which is ended when the wait for it is."""
    process = await create_subprocess_exec(*command, cwd=root)
    try:
        return await process.wait()
    except asyncio.CancelledError:
        await _end(process)
        raise


async def _end(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    await process.wait()


def found(file: Path) -> Outcomes | None:
    """What was told in a file; None: there is none."""
    return read(file.read_text(encoding="utf-8").splitlines()) if file.exists() else None


async def run(rounds: Sequence[Sequence[str]], folder: Path, root: Path = ROOT) -> int:
    """Run all rounds and say what came of them; returns the exit status."""
    began_s = time.monotonic()
    free = asyncio.Semaphore(AT_ONCE)

    async def part(name: str) -> Part:
        async with free:
            status = await status_of("make", "--no-print-directory", name, f"OUTCOMES={folder}", root=root)
        return Part(name=name, status=status, outcomes=found(folder / name))

    parts: list[Part] = []
    for names in rounds:
        async with asyncio.TaskGroup() as running:
            tasks = [running.create_task(part(name)) for name in names]
        parts += [task.result() for task in tasks]
    tests = runs_again(parts, known((root / FLAKY).read_text(encoding="utf-8").splitlines()))
    second = None
    if tests:
        file = folder / "second"
        status = await status_of(sys.executable, "-m", "pytest", f"{OPTION}={file}", *tests, root=root)
        second = Part(name="second runs", status=status, outcomes=found(file))
    verdict = judge(parts, second, took_s=time.monotonic() - began_s)
    # A part that died has left a line without its end.
    sys.stdout.write("\n" + "".join(f"{line}\n" for line in verdict.lines))
    return verdict.status


def files_of_tests(environ: Mapping[str, str], *, free_bytes: int) -> dict[str, str]:
    """The environment of the parts: temporary files in memory, if there is room and nothing else was said."""
    if environ.get("TMPDIR") or free_bytes < MEMORY_BYTES_MIN:
        return dict(environ)
    return {**environ, "TMPDIR": str(MEMORY)}


def _free_bytes() -> int:
    if not os.access(MEMORY, os.W_OK):
        return 0
    memory = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    return min(shutil.disk_usage(MEMORY).free, int(memory["MemAvailable"].split()[0]) * 1024)


async def _main(rounds: Sequence[Sequence[str]]) -> int:
    main = asyncio.current_task()
    if main is None:
        raise AssertionError("no task runs")
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, main.cancel)
    os.environ.update(files_of_tests(os.environ, free_bytes=_free_bytes()))
    with tempfile.TemporaryDirectory(prefix="regnum-suite-") as folder:
        return await run(rounds, Path(folder))


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(_main([names.split() for names in sys.argv[1:]])))
    except (asyncio.CancelledError, KeyboardInterrupt):
        sys.exit("ended before its time: no result")
