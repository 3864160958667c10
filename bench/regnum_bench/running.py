"""Runs a benchmark, pass by pass, a peer in turns with it, and sums up."""

import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from regnum_local.plan import Role
from regnum_service.clock import Clock

from regnum_bench.benchmarks import EVERY, Benchmark
from regnum_bench.figures import Round, Spread, spreads
from regnum_bench.growth import Growth
from regnum_bench.machine import commit, load_average, machine
from regnum_bench.peer import read_figures, run_peer
from regnum_bench.progress import Progress
from regnum_bench.result import Beside, Result, beside
from regnum_bench.shape import Shape, fill
from regnum_bench.stand import Measured, Profiles, Run
from regnum_bench.waiting import MeasureError


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCommand:
    """A command that runs beside ours."""

    template: str
    """Its words, with fields of the shape in braces."""
    pairs: Mapping[str, str] = field(default_factory=dict)
    """Figures that belong together under different names: ours -> theirs."""
    within_s: float = 3600.0
    """Time that it gets for each turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Everything that is the same for all benchmarks of a command."""

    progress: Progress
    """Where to say how far it is."""
    clock: Clock
    """The machine's."""
    command: str
    """The command line."""
    work: Path | None = None
    """Folder for data of clusters; None: the machine's for temporary files."""
    keep: bool = False
    """Whether data and logs stay."""
    label: str = ""
    """Tells the result from others of the same benchmark and store."""
    extra: Mapping[Role, Sequence[str]] = field(default_factory=dict)
    """Further flags for the processes of a role."""
    profile: tuple[Role, ...] = ()
    """Roles whose processes are profiled."""
    profile_folder: Path = Path()
    """Where profiles go."""

    async def run(self, benchmark: Benchmark, shape: Shape, peer: PeerCommand | None = None) -> Result:
        """All passes; ours first in each. Raises MeasureError, NotInTimeError, RegnumError, StartRefusedError."""
        at, begun_s, before = datetime.now(UTC).isoformat(timespec="seconds"), self.clock.monotonic(), load_average()
        ours: list[Measured] = []
        ours_s: list[float] = []
        turns = None if peer is None else _Turns(peer, fill(peer.template, shape), shape)
        for number in range(shape.passes):
            if shape.passes > 1 or turns is not None:
                self.progress.step(f"{benchmark.name}: pass {number + 1} of {shape.passes}")
            pass_begun_s = self.clock.monotonic()
            ours.append(await self._pass(benchmark, shape))
            ours_s.append(self.clock.monotonic() - pass_begun_s)
            if turns is not None:
                self.progress.step(f"beside it: {' '.join(turns.command)}")
                try:
                    await turns.take(self.clock)
                except MeasureError as error:
                    # What was measured of ours stays: it may have taken an hour.
                    self.progress.complaint(str(error))
                    turns.complaints.append(str(error))
        figures = spreads(one for measured in ours for one in measured.rounds)
        if not figures:
            raise MeasureError(f"{benchmark.name} found no figures")
        return Result(
            benchmark=benchmark.name,
            label=self.label,
            shape=read_by(benchmark, shape),
            figures=figures,
            notes=_each_once([*self._notes, *(note for measured in ours for note in measured.notes)]),
            complaints=_each_once(
                [
                    *(complaint for measured in ours for complaint in measured.complaints),
                    *benchmark.complaints(figures),
                    *([] if turns is None else turns.complaints),
                ]
            ),
            void=_each_once(reason for measured in ours for reason in measured.void),
            pass_s=tuple(ours_s),
            beside=None if turns is None or not turns.took_place else turns.result(figures),
            details=ours[-1].details,
            command=self.command,
            machine=machine(),
            commit=commit(),
            at=at,
            duration_s=self.clock.monotonic() - begun_s,
            load_average={"before": before, "after": load_average()},
        )

    @property
    def _notes(self) -> tuple[str, ...]:
        return ("profiled meanwhile: the figures are not to be compared",) if self.profile else ()

    async def grow(
        self, benchmark: Benchmark, shape: Shape, *, over: str, sizes: Sequence[int], figures: Sequence[str] = ()
    ) -> Result:
        """One run for each size, ascending; how its headline figures (or those given) grow."""
        results = []
        for size in sorted(sizes):
            self.progress.step(f"[bold]{benchmark.name} at {over} {size:,}[/]")
            results.append(await self.run(benchmark, sized(shape, over, size)))
        wanted = figures or benchmark.headline
        growth = tuple(
            Growth(
                figure=figure,
                size=over,
                sizes=tuple(float(size) for size in sorted(sizes)),
                medians=tuple(result.figures[figure].median for result in results),
            )
            for figure in wanted
            if all(figure in result.figures and result.figures[figure].least > 0 for result in results)
            and figure != "leaders_moved"
        )
        if not growth:
            raise MeasureError(f"none of {', '.join(wanted)} was found at every size")
        last = results[-1]
        return replace(
            last,
            growth=growth,
            at=results[0].at,
            duration_s=sum(result.duration_s for result in results),
            load_average={"before": results[0].load_average["before"], "after": last.load_average["after"]},
            details={"points": [result.to_json() for result in results]},
            notes=_each_once(note for result in results for note in result.notes),
            complaints=_each_once(complaint for result in results for complaint in result.complaints),
            void=_each_once(reason for result in results for reason in result.void),
        )

    async def _pass(self, benchmark: Benchmark, shape: Shape) -> Measured:
        directory = Path(tempfile.mkdtemp(prefix=f"regnum-bench-{benchmark.name}-", dir=self.work))
        profiles = None
        if self.profile:
            prefix = "-".join(["profile", shape.coordination, *([self.label] if self.label else [])])
            profiles = Profiles(roles=self.profile, folder=self.profile_folder, prefix=prefix)
        run = Run(
            shape=shape,
            directory=directory,
            progress=self.progress,
            clock=self.clock,
            extra=dict(self.extra),
            profiles=profiles,
        )
        try:
            measured = await benchmark.measure(run)
        except Exception:
            self.progress.complaint(f"logs and data are kept below {directory}")
            raise
        if self.keep:
            self.progress.detail(f"logs and data are kept below {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
        return measured


class _Turns:
    """The peer's turns."""

    def __init__(self, peer: PeerCommand, command: tuple[str, ...], shape: Shape) -> None:
        self.command = command
        self.complaints: list[str] = []
        self._peer = peer
        self._shape = shape.to_json()
        self._rounds: list[Round] = []
        self._pass_s: list[float] = []
        self._said: Mapping[str, Any] = {}

    @property
    def took_place(self) -> bool:
        return bool(self._rounds)

    async def take(self, clock: Clock) -> None:
        begun_s = clock.monotonic()
        printed = await run_peer(self.command, within_s=self._peer.within_s)
        figures, self._said = read_figures(printed, self._shape)
        self._pass_s.append(clock.monotonic() - begun_s)
        self._rounds.append(figures)

    def result(self, ours: Mapping[str, Spread]) -> Beside:
        return beside(
            ours,
            command=self.command,
            theirs=spreads(self._rounds),
            pairs=self._peer.pairs,
            pass_s=self._pass_s,
            said=self._said,
        )


def read_by(benchmark: Benchmark, shape: Shape) -> dict[str, Any]:
    """What of a shape the benchmark reads: the rest says nothing about its figures."""
    read = {*EVERY, *benchmark.options}
    if {"topics", "partitions"} <= read:
        read.add("partitions_total")
    return {name: value for name, value in shape.to_json().items() if name in read}


def sized(shape: Shape, over: str, size: int) -> Shape:
    """The shape at one size; ``partitions_total`` is reached by the number of topics."""
    return shape.with_total(size) if over == "partitions_total" else shape.changed({over: size})


def _each_once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
