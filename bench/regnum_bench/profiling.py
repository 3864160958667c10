"""Where the processor time of a process goes while something is measured: py-spy's samples, and what they add up to.

py-spy looks at the stacks of another process from outside, without stopping it: what is profiled is hurt like any other
and ends as it would. Samples are of threads that run, so that a share is a share of processor time.
"""

import asyncio
import contextlib
import shutil
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from regnum_bench.waiting import MeasureError

RATE: Final = 200
"""Samples in a second."""
START_S: Final = 15.0
"""Time in which it must have begun to sample."""
END_S: Final = 15.0
"""Time to write its file."""
IDLE: Final = (
    "EpollSelector.select ",
    "select (selectors.py",
    "_worker (concurrent/futures/thread.py",
    "Condition.wait (threading.py",
    "ThreadedChildWatcher._do_waitpid ",
)
"""Innermost functions of threads that wait: a loop, a pool's thread without work, an exporter, who waits for a child.
py-spy leaves most of such samples out where the kernel says which threads sleep, and none where it does not."""
READY: Final = b"Sampling process"
"""What it prints when it has begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hot:
    """A function in a profile."""

    function: str
    """Name, with its file."""
    own: float
    """Share of the samples that were in the function itself."""
    total: float
    """Share of the samples in it or in what it called."""


def hottest(stacks: Iterable[str]) -> list[Hot]:
    """Functions by their own share, the largest first. Lines are ``outer;inner;innermost COUNT``; others are ignored.

    A function that is twice in a stack counts once. Samples of an event loop that waits are left out.
    """
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for frames, count in busy(stacks):
        own[frames[-1]] += count
        for frame in set(frames):
            total[frame] += count
    all_of_them = own.total()
    ordered = sorted(total, key=lambda function: (-own[function], -total[function], function))
    return [Hot(function=name, own=own[name] / all_of_them, total=total[name] / all_of_them) for name in ordered]


def samples(stacks: Iterable[str]) -> int:
    """Samples of threads that did something."""
    return sum(count for _, count in busy(stacks))


def busy(stacks: Iterable[str]) -> Iterator[tuple[list[str], int]]:
    """Frames of each stack, the outermost first, and its samples; without those of threads that wait."""
    for line in stacks:
        stack, _, count = line.rstrip().rpartition(" ")
        if stack and count.isdigit() and not (frames := stack.split(";"))[-1].startswith(IDLE):
            yield frames, int(count)


def hottest_markdown(file: Path, *, count: int) -> str:
    """The hottest functions of one file as Markdown: those by their own share, and those by all that they called."""
    found = hottest(file.read_text(encoding="utf-8").splitlines())
    by_total = sorted(found, key=lambda one: (-one.total, one.function))[:count]
    busy = samples(file.read_text(encoding="utf-8").splitlines())
    lines = [
        f"`{file.name}`: {busy / RATE:.2f} s of processor time",
        "",
        "| itself | share | | with what it calls | share |",
        "|---|---:|---|---|---:|",
    ]
    lines += [
        f"| `{one.function}` | {one.own:.1%} | | `{other.function}` | {other.total:.1%} |"
        for one, other in zip(found[:count], by_total, strict=True)
    ]
    return "\n".join(lines) + "\n"


def find_profiler() -> str:
    """The program, beside the interpreter or on PATH. Raises MeasureError."""
    program = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if program is None:
        raise MeasureError('no profile without py-spy; install it with: pip install "regnum[bench]"')
    return program


@asynccontextmanager
async def profiled(processes: Mapping[str, int], folder: Path, prefix: str) -> AsyncIterator[None]:
    """Sample processes (name -> pid) as long as the block lasts, into ``<folder>/<prefix>-<name>.stacks``.

    Raises MeasureError when sampling does not begin. A process may end in the block.
    """
    program = find_profiler()
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        for name, pid in processes.items():
            await stack.enter_async_context(_sampled(program, pid, folder / f"{prefix}-{name}.stacks"))
        yield


@asynccontextmanager
async def _sampled(program: str, pid: int, file: Path) -> AsyncIterator[None]:
    options = ("--nonblocking", "--function", "--rate", str(RATE), "--format", "raw", "--output", str(file))
    process = await asyncio.create_subprocess_exec(
        *(program, "record", "--pid", str(pid), *options),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    drain: asyncio.Task[bytes] | None = None
    try:
        if process.stdout is None:
            raise AssertionError("a pipe was asked for")
        try:
            async with asyncio.timeout(START_S):
                said = await process.stdout.readuntil(READY)
        except (TimeoutError, asyncio.IncompleteReadError) as error:
            words = error.partial if isinstance(error, asyncio.IncompleteReadError) else b"nothing"
            raise MeasureError(f"py-spy does not sample process {pid}: {words.decode(errors='replace')}") from error
        del said
        drain = asyncio.create_task(process.stdout.read(), name=f"output of py-spy for {pid}")
        yield
    finally:
        await _finish(process)
        if drain is not None:
            await drain


async def _finish(process: asyncio.subprocess.Process) -> None:
    """As Ctrl-C does: it writes its file and ends."""
    for signum in (signal.SIGINT, signal.SIGKILL):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signum)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await process.wait()
