"""``regnum-bench``: the benchmarks as a command.

regnum-bench failover --coordination zookeeper --topics 1500 --partitions 10
regnum-bench storm --beside 'peer storm --topics {topics} --rf {replication_factor}'
regnum-bench growth failover --over affected --sizes 1000,5000,20000 --topics 2000
regnum-bench all --size quick
regnum-bench table
regnum-bench storm --profile election --save profiles && regnum-bench hottest profiles/*.stacks

Exit status 0 when all was measured, 1 when something could not be, or a limit was not kept, 2 for wrong use.
"""

import argparse
import asyncio
import json
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from regnum_local.plan import STORES as PROGRAMS
from regnum_local.plan import Role
from regnum_service.clock import SystemClock
from regnum_telemetry.build import this_build
from rich.console import Console

from regnum_bench.benchmarks import ALL, BY_NAME, EVERY, HEADLINES, Benchmark
from regnum_bench.data_path import places_markdown
from regnum_bench.plot import PlotError, draw
from regnum_bench.profiling import hottest_markdown
from regnum_bench.progress import Progress
from regnum_bench.result import Result, ResultError, file_name, joined, load, save
from regnum_bench.running import PeerCommand, Runner
from regnum_bench.series import FAILURES, Series, in_words
from regnum_bench.shape import STORES, Shape, ShapeError
from regnum_bench.sizes import BUDGETS_S, SIZES, Job, jobs
from regnum_bench.tables import figures_table, markdown, read_folder, with_figures
from regnum_bench.ten import PEERS, Released, ten_table

RESULTS: Final = Path("bench") / "results"
"""Where ``table`` looks."""
FOLDERS: Final = {"quick": RESULTS / "quick", "full": RESULTS}
"""Where results of ``all`` go: small ones never take the place of those that the documentation shows."""
RELEASED: Final = Path("bench") / "released.json"
"""The ten figures of the last release."""
PEER_S: Final = 1800.0
"""Seconds that a series may take longer where another program does the work as well."""
INTERRUPTED: Final = 130
"""Exit status after Ctrl-C or SIGTERM, as shells have it."""
_HELP: Final = {
    "coordination": "the store, started for the run",
    "brokers": "brokers; for propagate the receivers that are played",
    "elections": "election processes",
    "metadata": "metadata processes",
    "topics": "topics",
    "partitions": "partitions of each topic",
    "replication_factor": "replicas of each partition",
    "affected": "partitions that the victim leads, placed by hand; 0: its share",
    "with_controller": "1: the controller is killed at the same moment",
    "batch": "topics, or admissions, in one call",
    "rate": "calls (of reassignment: records) offered in a second; 0: the next when the last is answered",
    "quota": "of storm: partitions a second that callers who ignore throttle times may create; 0: no quota",
    "kill": "of storm with a quota: 1: a broker is killed in the middle, and beside that on a quiet cluster",
    "kills": "kills of a leader under load",
    "loaded": "partitions that are written to, of a topic of their own",
    "told": "0: the producer asks for new leaders, and no broker tells it",
    "shared": "0: a payload for each receiver, as before seed 003",
    "silent": "receivers that take the connection and never read",
    "interval_ms": "between two records of one partition, milliseconds",
    "in_flight": "calls under way at once",
    "batch_grows_to": "bytes to which a batch that waits grows (default of the SDK: 1000000); 0: none does",
    "tasks": "tasks of which each waits for one record at a time",
    "changes": "changes of one partition",
    "applying": "receivers that read every byte; the others look at heads only",
    "records": "records, admissions or writes of a repetition",
    "size": "bytes of a record's value",
    "tls": "1: besides in plaintext, over TLS with access rules, with a second cluster and a second hop",
    "batch_bytes": "bytes of a producer's batch",
    "size_mb": "megabytes in all partitions together; for retention the limit of each",
    "seconds": "so long it is written, seconds",
    "throttle_mb_s": "throttle of what is moved, megabytes a second; 0: none",
    "repetitions": "repetitions that count, in each pass",
    "warm_up": "repetitions before them that do not",
    "passes": "times that everything is started anew; a peer takes its turn after each",
    "settle_s": "quiet time before each repetition, seconds",
    "deadline_s": "longest time that anything is waited for, seconds",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    # As Ctrl-C: whatever was started is ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    words = list(sys.argv[1:] if arguments is None else arguments)
    given = _parser().parse_args(words)
    clock = SystemClock()
    progress = Progress(Console(stderr=True), clock)
    runner = Runner(
        progress=progress,
        clock=clock,
        command=shlex.join(["regnum-bench", *words]),
        work=getattr(given, "work", None),
        keep=getattr(given, "keep", False),
        label=getattr(given, "label", ""),
        extra=_extra(getattr(given, "flag", None) or []),
        profile=tuple(Role(name) for name in getattr(given, "profile", None) or ()),
        profile_folder=getattr(given, "save", None) or Path(),
    )
    try:
        return _run(given, runner)
    except (ShapeError, ResultError, PlotError) as error:
        progress.complaint(str(error))
        return 2
    except FAILURES as error:
        progress.complaint(in_words(error))
        return 1
    except KeyboardInterrupt:
        progress.complaint("stopped; nothing of it was kept")
        return INTERRUPTED


def _run(given: argparse.Namespace, runner: Runner) -> int:
    match given.benchmark:
        case "table":
            return _tell(read_folder(given.folder), given.into)
        case "places":
            sys.stdout.write(places_markdown(load(given.file).details))
            return 0
        case "hottest":
            sys.stdout.write("\n".join(hottest_markdown(file, count=given.count) for file in given.files))
            return 0
        case "all":
            return _all(given, runner)
        case "ten":
            return _ten(read_folder(given.folder), release=given.release)
    before = _before(given)
    result = _measure(given, runner)
    if before is not None:
        result = joined(before, result, BY_NAME[result.benchmark].complaints)
    _show(result, given.output)
    if given.save is not None:
        _keep(result, given.save, runner.progress)
    for complaint in (*(f"void: {reason}" for reason in result.void), *result.complaints):
        runner.progress.complaint(complaint)
    return 1 if result.complaints or result.void else 0


def _before(given: argparse.Namespace) -> Result | None:
    """What a run in pieces has measured so far; None: this is the first of them. Raises ResultError, ShapeError."""
    if not getattr(given, "join", False):
        return None
    if given.save is None:
        raise ShapeError("--join adds to a file of results: give its folder with --save too")
    shape = _shape(BY_NAME[given.benchmark], given)
    path = given.save / file_name(given.benchmark, shape.coordination, given.label)
    return load(path) if path.exists() else None


def _measure(given: argparse.Namespace, runner: Runner) -> Result:
    if given.benchmark == "growth":
        benchmark = BY_NAME[given.of]
        shape = _shape(benchmark, given)
        return asyncio.run(
            runner.grow(benchmark, shape, over=given.over, sizes=given.sizes, figures=given.figure or ())
        )
    benchmark = BY_NAME[given.benchmark]
    peer = None
    if given.beside is not None:
        peer = PeerCommand(template=given.beside, pairs=dict(given.match or []), within_s=given.beside_deadline_s)
    return asyncio.run(runner.run(benchmark, _shape(benchmark, given), peer))


def _all(given: argparse.Namespace, runner: Runner) -> int:
    """Every benchmark at a size; one that fails does not stop the others."""
    folder, within_s = FOLDERS[given.size], BUDGETS_S[given.size]
    if given.save is not None:
        folder = given.save
    if within_s is not None and given.peer:
        within_s += PEER_S
    kept: list[Result] = []

    def keep(result: Result) -> None:
        kept.append(result)
        _keep(result, folder, runner.progress)

    def peer(job: Job) -> PeerCommand | None:
        asked = PEERS.get(job.benchmark) if given.peer and job.shape.coordination == "etcd" else None
        return (
            PeerCommand(template=f"{given.peer} {asked.words}", pairs=asked.pairs, within_s=PEER_S) if asked else None
        )

    series = Series(lambda job: replace(runner, label=job.label), keep, within_s=given.within_s or within_s, peer=peer)
    ended = asyncio.run(series.run(list(jobs(given.size, stores=given.coordination or STORES, only=given.only or ()))))
    sys.stdout.write(markdown(read_folder(folder)))
    _ten(kept)
    for title, taken_s in ended.taken_s:
        runner.progress.detail(f"{taken_s:.0f} s: {title}")
    for reason in ended.void:
        runner.progress.complaint(f"void: {reason}")
    for complaint in ended.failed:
        runner.progress.complaint(complaint)
    return 1 if ended.failed else 0


def _ten(results: Sequence[Result], *, release: bool = False) -> int:
    Console().print(ten_table(results, Released.read(RELEASED)))
    if release:
        RELEASED.write_text(Released.of(results, this_build().version).to_text(), encoding="utf-8")
    return 0


def _tell(results: Sequence[Result], page: Path | None) -> int:
    if page is None:
        sys.stdout.write(markdown(results))
    else:
        page.write_text(with_figures(page.read_text(encoding="utf-8"), results, HEADLINES), encoding="utf-8")
    return 0


def _keep(result: Result, folder: Path, progress: Progress) -> None:
    path = save(result, folder)
    progress.detail(f"written: {path}")
    try:
        progress.detail(f"drawn: {draw(result, path.with_suffix('.svg'))}")
    except PlotError as error:
        progress.complaint(str(error))


def _show(result: Result, output: str) -> None:
    console = Console()
    if output == "json":
        sys.stdout.write(json.dumps(result.to_json()) + "\n")
        return
    console.print(figures_table(result))
    for one in result.growth:
        console.print(
            f"{one.figure} over {one.size}: {one.verdict} (slope {one.slope:.2f}, at the end {one.last_slope:.2f})"
        )
    for note in result.notes:
        console.print(f"note: {note}", highlight=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="regnum-bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="benchmark", required=True, metavar="COMMAND")
    for benchmark in ALL:
        one = commands.add_parser(benchmark.name, help=benchmark.what, description=benchmark.what)
        _shape_options(one, benchmark)
        _common_options(one)
        one.add_argument(
            "--join", action="store_true", help="add the repetitions to those of the file in the folder of --save"
        )
        one.add_argument("--beside", metavar="COMMAND", help="also run this; {topics} and the like come from the shape")
        one.add_argument(
            "--match", type=_pair, action="append", metavar="OURS=THEIRS", help="figures with different names"
        )
        one.add_argument("--beside-deadline-s", type=float, default=3600.0, help="time for each turn of the peer")
    growth = commands.add_parser("growth", help="one benchmark over a list of sizes")
    kinds = growth.add_subparsers(dest="of", required=True, metavar="BENCHMARK")
    for benchmark in ALL:
        one = kinds.add_parser(benchmark.name, help=benchmark.what)
        _shape_options(one, benchmark)
        _common_options(one)
        grown = [name for name in benchmark.options if name not in {"settle_s", "rate"}]
        one.add_argument("--over", required=True, choices=["partitions_total", *grown], help="what grows")
        one.add_argument("--sizes", required=True, type=_sizes, help="how large it is: 1000,5000,20000")
        one.add_argument("--figure", action="append", help="figure whose growth is judged; default: the headline ones")
    everything = commands.add_parser("all", help="every benchmark, into the folder of results")
    everything.add_argument("--size", choices=list(SIZES), default="quick")
    everything.add_argument("--coordination", choices=STORES, action="append", help="store; default: both")
    everything.add_argument(
        "--only", choices=list(BY_NAME), action="append", help="only this benchmark; may be repeated"
    )
    everything.add_argument("--save", type=Path, help="folder of results (default: by the size, below bench/results)")
    everything.add_argument(
        "--within-s", type=float, help=f"seconds that all of it may take (default: quick {BUDGETS_S['quick']:g})"
    )
    everything.add_argument(
        "--peer", metavar="COMMAND", help=f"also have this do the work on etcd's turn: {', '.join(PEERS)}"
    )
    _work_options(everything)
    ten = commands.add_parser("ten", help="ten figures of a series, beside the last release's")
    ten.add_argument("folder", type=Path, nargs="?", default=FOLDERS["quick"])
    ten.add_argument("--release", action="store_true", help=f"make them those of the last release ({RELEASED})")
    hot = commands.add_parser("hottest", help="the hottest functions of profiles, as Markdown")
    hot.add_argument("files", type=Path, nargs="+", help="files that --profile has written")
    hot.add_argument("--count", type=int, default=15, help="functions of each")
    places = commands.add_parser("places", help="what data_path has found, by place, as Markdown")
    places.add_argument("file", type=Path, help="its result")
    table = commands.add_parser("table", help="what the folder of results holds, as Markdown")
    table.add_argument("folder", type=Path, nargs="?", default=RESULTS)
    table.add_argument("--into", type=Path, metavar="PAGE", help="replace the figures of this page with them")
    return parser


def _shape_options(parser: argparse.ArgumentParser, benchmark: Benchmark) -> None:
    for field in fields(Shape):
        if field.name not in (*EVERY, *benchmark.options):
            continue
        default = getattr(benchmark.shape, field.name)
        option: dict[str, Any] = {"help": f"{_HELP[field.name]} (default {default})", "dest": field.name}
        if field.name == "coordination":
            option["choices"] = STORES
        else:
            option["type"] = type(default)
        parser.add_argument(f"--{field.name.replace('_', '-')}", **option)


def _common_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    parser.add_argument("--save", type=Path, help="folder for a file with the figures and a plot")
    parser.add_argument("--label", default="", help="part of the name of that file")
    _work_options(parser)


def _work_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--work", type=Path, help="folder for data of clusters; default: that for temporary files")
    parser.add_argument("--keep", action="store_true", help="leave data, logs and traces there")
    parser.add_argument(
        "--profile",
        choices=[role.value for role in Role if role not in PROGRAMS],
        action="append",
        help="sample the processes of this role with py-spy, into the folder of --save or this one",
    )
    parser.add_argument(
        "--flag", type=_flag, action="append", metavar="ROLE:FLAG", help="further flag of election, metadata, broker"
    )


def _shape(benchmark: Benchmark, given: argparse.Namespace) -> Shape:
    told = vars(given)
    return benchmark.shape.changed({name: told[name] for name in (*EVERY, *benchmark.options) if name in told})


def _pair(text: str) -> tuple[str, str]:
    ours, equals, theirs = text.partition("=")
    if not (ours and equals and theirs):
        raise argparse.ArgumentTypeError(f"{text!r} is not OURS=THEIRS")
    return ours, theirs


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(int(part) for part in text.split(","))
    if len(set(sizes)) < 2 or min(sizes) < 1:
        raise argparse.ArgumentTypeError("give at least two different sizes above 0")
    return tuple(sorted(set(sizes)))


def _flag(text: str) -> tuple[Role, str]:
    role, colon, flag = text.partition(":")
    if not colon or role not in {one.value for one in Role}:
        raise argparse.ArgumentTypeError(f"{text!r} is not ROLE:FLAG, for example election:--log-level=debug")
    return Role(role), flag


def _extra(flags: Sequence[tuple[Role, str]]) -> dict[Role, tuple[str, ...]]:
    found: dict[Role, tuple[str, ...]] = {}
    for role, flag in flags:
        found[role] = (*found.get(role, ()), flag)
    return found
