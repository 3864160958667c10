"""A run: passes in turns with a peer, growth over sizes, and what a failure leaves."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from regnum_bench.benchmarks import Benchmark
from regnum_bench.progress import Progress
from regnum_bench.running import PeerCommand, Runner
from regnum_bench.shape import Shape
from regnum_bench.stand import Measured, Run
from regnum_bench.waiting import Deadline, MeasureError, NotInTimeError
from regnum_testing.clock import FakeClock
from rich.console import Console


def benchmark(figure: Callable[[Shape], float], calls: list[Path] | None = None) -> Benchmark:
    """One that measures nothing and takes no time."""

    async def measure(run: Run) -> Measured:
        if calls is not None:
            calls.append(run.directory)
        value = figure(run.shape)
        return Measured(rounds=({"taken_s": value}, {"taken_s": 2 * value}), notes=("a note",))

    return Benchmark(
        name="fake",
        what="nothing",
        measure=measure,
        shape=Shape(),
        options=("brokers", "topics", "partitions"),
        headline=("taken_s",),
    )


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    clock = FakeClock()
    return Runner(
        progress=Progress(Console(quiet=True), clock), clock=clock, command="regnum-bench fake", work=tmp_path
    )


def peer(code: str) -> PeerCommand:
    return PeerCommand(template=shlex.join([sys.executable, "-c", code.replace("{", "{{").replace("}", "}}")]))


async def test_every_pass_starts_anew_and_its_values_are_kept(runner: Runner, tmp_path: Path) -> None:
    folders: list[Path] = []
    result = await runner.run(benchmark(lambda _: 1.5, folders), Shape(passes=2))
    assert result.figures["taken_s"].values == (1.5, 3.0, 1.5, 3.0)
    assert len(set(folders)) == len(result.pass_s) == 2
    # What was measured leaves nothing behind.
    assert not list(tmp_path.iterdir())


async def test_a_result_names_what_the_benchmark_reads_and_nothing_else(runner: Runner) -> None:
    shape = (await runner.run(benchmark(lambda _: 1.0), Shape(topics=7))).shape
    assert (shape["topics"], shape["partitions_total"], shape["coordination"]) == (7, 70, "etcd")
    assert not {"kills", "records", "batch_bytes"} & shape.keys()


async def test_the_peer_takes_a_turn_after_each_pass(runner: Runner) -> None:
    result = await runner.run(benchmark(lambda _: 1.0), Shape(passes=3), peer("print('{\"taken_s\": 3.0}')"))
    assert result.beside is not None
    assert result.beside.figures["taken_s"].values == (3.0, 3.0, 3.0)
    assert len(result.beside.pass_s) == 3
    assert result.beside.ratios == {"taken_s": 0.5}
    assert result.complaints == ()


async def test_a_peer_that_fails_costs_none_of_our_figures(runner: Runner) -> None:
    result = await runner.run(benchmark(lambda _: 1.0), Shape(), peer("raise SystemExit(3)"))
    assert result.figures["taken_s"].median == 1.5
    assert result.beside is None
    (complaint,) = result.complaints
    assert "status 3" in complaint


async def test_a_failed_pass_keeps_its_folder(runner: Runner, tmp_path: Path) -> None:
    def fails(_: Shape) -> float:
        raise MeasureError("nothing moved")

    with pytest.raises(MeasureError, match="nothing moved"):
        await runner.run(benchmark(fails), Shape())
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(("power", "verdict"), [(0, "flat"), (1, "linear"), (2, "worse than linear")])
async def test_growth_is_measured_size_by_size(runner: Runner, power: int, verdict: str) -> None:
    one = benchmark(lambda shape: float(shape.partitions_total) ** power)
    result = await runner.grow(one, Shape(), over="partitions_total", sizes=(4_000, 1_000))
    (growth,) = result.growth
    assert (growth.sizes, growth.verdict) == ((1_000, 4_000), verdict)
    assert [point["shape"]["topics"] for point in result.details["points"]] == [100, 400]
    assert result.shape["topics"] == 400


async def test_growth_of_a_figure_that_is_not_there_is_refused(runner: Runner) -> None:
    with pytest.raises(MeasureError, match="none of other_s"):
        await runner.grow(benchmark(lambda _: 1.0), Shape(), over="topics", sizes=(1, 2), figures=("other_s",))


async def test_a_deadline_says_what_was_waited_for_and_how_far_it_came() -> None:
    clock = FakeClock()
    deadline = Deadline(clock, 5.0, "creating 15,000 partitions")
    clock.skip(5.0)
    deadline.check("not yet")
    clock.skip(0.1)
    with pytest.raises(NotInTimeError, match=r"creating 15,000 partitions: not within 5 s \(900 of 1,500 topics\)"):
        deadline.check("900 of 1,500 topics")
