"""A series of benchmarks: what fails, what is void, and what there is no time for."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from regnum_bench.benchmarks import Benchmark
from regnum_bench.progress import Progress
from regnum_bench.result import Result
from regnum_bench.running import Runner
from regnum_bench.series import Ended, Series
from regnum_bench.shape import Shape
from regnum_bench.sizes import BUDGETS_S, Job, jobs
from regnum_bench.stand import Measured, Run
from regnum_bench.waiting import MeasureError
from regnum_testing.clock import FakeClock
from rich.console import Console

MEASURED = Measured(rounds=({"taken_s": 1.0},))


async def _fine(run: Run) -> Measured:
    del run
    return MEASURED


async def _void(run: Run) -> Measured:
    del run
    return replace(MEASURED, void=("the machine paused",))


async def _wrong(run: Run) -> Measured:
    del run
    return replace(MEASURED, complaints=("records were harmed",))


async def _fails(run: Run) -> Measured:
    del run
    raise MeasureError("nothing moved")


async def _hangs(run: Run) -> Measured:
    del run
    await asyncio.Event().wait()
    return MEASURED


KINDS: dict[str, Callable[[Run], Awaitable[Measured]]] = {
    "fine": _fine,
    "void": _void,
    "wrong": _wrong,
    "fails": _fails,
    "hangs": _hangs,
}


@pytest.fixture
def results() -> list[Result]:
    return []


async def run(results: list[Result], folder: Path, *names: str, within_s: float | None = None) -> Ended:
    clock = FakeClock()
    progress = Progress(Console(quiet=True), clock)
    runner = Runner(progress=progress, clock=clock, command="regnum-bench all", work=folder)

    def benchmark(name: str) -> Benchmark:
        return Benchmark(
            name=name, what="nothing", measure=KINDS[name], shape=Shape(), options=(), headline=("taken_s",)
        )

    series = Series(lambda _: runner, results.append, within_s=within_s, benchmark=benchmark)
    return await series.run([Job(benchmark=name, shape=Shape()) for name in names])


async def test_a_benchmark_that_fails_stops_no_other(results: list[Result], tmp_path: Path) -> None:
    ended = await run(results, tmp_path, "fails", "wrong", "fine")
    assert [result.benchmark for result in results] == ["wrong", "fine"]
    assert ended.failed == ("fails on etcd: nothing moved", "wrong on etcd: records were harmed")
    assert [title for title, _ in ended.taken_s] == ["fails on etcd", "wrong on etcd", "fine on etcd"]


async def test_a_void_run_is_told_and_kept_and_is_no_failure(results: list[Result], tmp_path: Path) -> None:
    ended = await run(results, tmp_path, "void", "fine")
    assert (ended.failed, ended.void) == ((), ("void on etcd: the machine paused",))
    assert [result.void for result in results] == [("the machine paused",), ()]
    assert Result.from_json(results[0].to_json()).void == ("the machine paused",)


async def test_what_there_is_no_time_for_is_broken_off_or_left_out(results: list[Result], tmp_path: Path) -> None:
    ended = await run(results, tmp_path, "fine", "hangs", "fine", within_s=1.5)
    assert [result.benchmark for result in results] == ["fine"]
    assert ended.failed == (
        "hangs on etcd: broken off, 1.5 s were over",
        "fine on etcd: left out, 1.5 s were over",
    )


def test_the_quick_size_has_every_benchmark_on_both_stores_and_a_time() -> None:
    quick = list(jobs("quick", stores=("etcd", "zookeeper")))
    full = list(jobs("full", stores=("etcd", "zookeeper")))
    assert {(job.benchmark, job.shape.coordination) for job in quick} == {
        (job.benchmark, job.shape.coordination) for job in full
    }
    assert BUDGETS_S["quick"] is not None
    assert BUDGETS_S["quick"] < 15 * 60
