"""One benchmark after another, within a time: what fails is told and stops nothing else.

A run that is void is told as void and is no failure: the machine was too busy for its figures, and the next one may be
lucky. What there was no time for is a failure, since the sizes were chosen to leave time.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from regnum_service.errors import RegnumError, StartRefusedError

from regnum_bench.benchmarks import BY_NAME, Benchmark
from regnum_bench.result import Result
from regnum_bench.running import PeerCommand, Runner
from regnum_bench.shape import ShapeError
from regnum_bench.sizes import Job
from regnum_bench.waiting import MeasureError, NotInTimeError

FAILURES: Final = (MeasureError, NotInTimeError, RegnumError, StartRefusedError, ExceptionGroup, OSError)
"""Why a measurement may end without figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a series ended."""

    failed: tuple[str, ...]
    """What is wrong, each with the benchmark that it is about."""
    void: tuple[str, ...]
    """What was measured in vain, and why."""
    taken_s: tuple[tuple[str, float], ...]
    """How long each benchmark took, in seconds, its clusters' start and end included."""


class Series:
    """Carries jobs out."""

    def __init__(
        self,
        runner: Callable[[Job], Runner],
        keep: Callable[[Result], None],
        *,
        within_s: float | None,
        benchmark: Callable[[str], Benchmark] = BY_NAME.__getitem__,
        peer: Callable[[Job], PeerCommand | None] = lambda _: None,
    ) -> None:
        """Make it.

        Args:
            runner: what carries a job out.
            keep: what becomes of each result.
            within_s: seconds that all of it may take; None: as long as it takes.
            benchmark: a benchmark by its name.
            peer: what does the work of a job beside us; None: nothing.
        """
        self._runner = runner
        self._keep = keep
        self._within_s = within_s
        self._benchmark = benchmark
        self._peer = peer

    async def run(self, jobs: Sequence[Job]) -> Ended:
        """All of them, in order."""
        failed: list[str] = []
        void: list[str] = []
        taken_s: list[tuple[str, float]] = []
        loop = asyncio.get_running_loop()
        until_s = None if self._within_s is None else loop.time() + self._within_s
        for job in jobs:
            runner = self._runner(job)
            if until_s is not None and loop.time() >= until_s:
                failed.append(f"{job.title}: left out, {self._within_s:g} s were over")
                continue
            runner.progress.step(f"[bold]{job.title}[/]")
            begun_s, limit = runner.clock.monotonic(), asyncio.timeout_at(until_s)
            try:
                async with limit:
                    result = await self._measure(job, runner)
            except (ShapeError, *FAILURES) as error:
                reason = f"broken off, {self._within_s:g} s were over" if limit.expired() else in_words(error)
                failed.append(f"{job.title}: {reason}")
                runner.progress.complaint(failed[-1])
                continue
            finally:
                taken_s.append((job.title, runner.clock.monotonic() - begun_s))
            failed.extend(f"{job.title}: {complaint}" for complaint in result.complaints)
            void.extend(f"{job.title}: {reason}" for reason in result.void)
            self._keep(result)
        return Ended(failed=tuple(failed), void=tuple(void), taken_s=tuple(taken_s))

    async def _measure(self, job: Job, runner: Runner) -> Result:
        benchmark = self._benchmark(job.benchmark)
        if job.over is None:
            return await runner.run(benchmark, job.shape, self._peer(job))
        return await runner.grow(benchmark, job.shape, over=job.over, sizes=job.sizes)


def in_words(error: BaseException) -> str:
    """What an error says, and every error of a group."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(in_words(one) for one in error.exceptions)
    return str(error) or repr(error)
