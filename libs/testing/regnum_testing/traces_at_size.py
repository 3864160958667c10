"""Traces of any size, and what each engine pays for them: processor time of all its processes, and memory.

    python -m regnum_testing.traces_at_size --spans 1000000 [--changes 5] [--engines plain,tables,spark]
    python -m regnum_testing.traces_at_size --spans 10000000 --engines tables --workers 2 --bucket s3://BUCKET/PREFIX

Without ``--changes`` every span is of a change, some thirty in each; else the others are of produced batches. A change
is ten seconds after the one before, so that 10,000,000 spans are a month. With ``--workers`` Spark's own standalone
master and so many workers of one core are started for the run; with ``--bucket`` traces and tables are there (AWS_*
says where that is). A driver has 1 GiB of heap at most. One JSON line for each engine.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import pyspark
import regnum_failover
from regnum_failover.objects.address import is_bucket, parse
from regnum_failover.session import LOCAL_SETTINGS
from regnum_failover.traces.listing import store_of

from regnum_testing.change_traces import FullChangeTrace
from regnum_testing.otlp_lines import BASE_NS, Spans, line
from regnum_testing.ports import unused_port

GAP_S: Final = 10
AGE_S: Final = 10**8
"""The first change began so long before the template's, which is of a year to come."""
FILE_SPANS: Final = 100_000
"""Spans of a file."""
BATCHES: Final = 100
"""Spans of produced batches in a line."""
HEAP: Final = "1g"
ENGINES: Final = ("plain", "spark", "tables")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_LOOK_S: Final = 0.2
_OPTIONS: Final = "spark.driver.extraJavaOptions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one engine over one recording."""

    engine: str
    spans: int
    changes: int
    cpu_s: float
    """Processor time of the command and all that it started, workers and master included."""
    wall_s: float
    memory_mib: float
    """Most that the processes had at once, resident; pages that several share count for each."""
    status: int


def write(folder: Path, spans: int, changes: int | None) -> tuple[int, int]:
    """Write compressed files of about so many spans. Returns how many spans, and changes, there are."""
    folder.mkdir(parents=True)
    template = "".join(
        f"{line(of, service=f'regnum-{process.split()[0]}', instance=process.split()[1])}\n"
        for process, of in FullChangeTrace(1).documents().items()
    )
    each = sum(len(of) for of in FullChangeTrace(1).documents().values())
    wanted = max(1, spans // each) if changes is None else changes
    file, rows = 0, 0
    for begin in range(0, wanted, step := max(1, FILE_SPANS // each)):
        text = "".join(_change(template, number) for number in range(begin, min(begin + step, wanted)))
        _file(folder, file, text)
        file += 1
    rows = wanted * each
    while rows < spans - BATCHES:
        many = min(FILE_SPANS, spans - rows) // BATCHES
        _file(folder, file, "".join(_batches(rows // BATCHES + number) for number in range(many)))
        rows, file = rows + many * BATCHES, file + 1
    return rows, wanted


def _change(template: str, number: int) -> str:
    """The template's change, moved by its age and so many gaps, under ids of its own."""
    second = BASE_NS // 10**9
    moved = template.replace(f'"{1:032x}"', f'"{number + 1:032x}"').replace(f'"{1:08x}', f'"{number + 1:08x}')
    for base in (second, second - 1):
        moved = moved.replace(f'"{base}', f'"{base - AGE_S + GAP_S * number}!')
    return moved.replace("!", "")


def _batches(number: int) -> str:
    """Spans of batches, each a trace of its own."""
    made = []
    for trace in range(BATCHES):
        spans = Spans((1 << 60) + number * BATCHES + trace)
        spans.add("append", number * 10.0, number * 10.0 + 3.0, partition=str(trace % 12))
        made += spans.made
    return f"{line(made)}\n"


def _file(folder: Path, number: int, text: str) -> None:
    with gzip.open(folder / f"traces-{number:05d}.jsonl.gz", "wt", compresslevel=1, encoding="utf-8") as file:
        file.write(text)


def upload(folder: Path, bucket: str) -> None:
    """Bring the files into a bucket."""
    address = parse(bucket)
    store = store_of(address, os.environ, 60.0)
    for path in sorted(folder.iterdir()):
        store.write(address.key(path.name), path)


def commands(engine: str, traces: str, out: Path | str, master: str) -> list[str]:
    """The command of an engine."""
    python = sys.executable
    if engine == "plain":
        main = "import sys; from regnum_client.command import main; sys.exit(main())"
        return [python, "-c", main, "failovers", "report", "--traces", traces, "--out", str(out)]
    job = Path(regnum_failover.__file__).parent / "__main__.py"
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", master, "--driver-memory", HEAP]
    submit += ["--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"]
    if master.startswith("local"):
        # The job gives itself this option where it starts its own driver.
        submit += ["--conf", f"{_OPTIONS}={LOCAL_SETTINGS[_OPTIONS]}"]
    return [*submit, str(job), traces, str(out), *(["--tables"] if engine == "tables" else [])]


@contextmanager
def standalone(workers: int, folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Spark's own master and workers of one core. Yields the master's address and the ids of all processes."""
    port, spark_class = unused_port(), str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    address = f"spark://127.0.0.1:{port}"
    parts = "org.apache.spark.deploy"
    calls = [[f"{parts}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]]
    worker = ["--host", "127.0.0.1", "--cores", "1", "--memory", "2g", "--webui-port", "0", "--work-dir", str(folder)]
    calls += [[f"{parts}.worker.Worker", *worker, address] for _ in range(workers)]
    with (folder / "standalone.log").open("w") as log:
        started = [
            subprocess.Popen([spark_class, *call], stdout=log, stderr=log, start_new_session=True) for call in calls
        ]
        try:
            yield address, [one.pid for one in started]
        finally:
            for one in started:
                one.terminate()
            for one in started:
                one.wait(30)


def measure(engine: str, command: Sequence[str], beside: Sequence[int], log: Path) -> tuple[float, float, float, int]:
    """Run a command. Returns processor seconds, wall seconds, most memory in MiB, and its status."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    spent: dict[int, float] = {}
    began_s, most = time.monotonic(), 0.0
    with log.open("w") as said:
        running = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True, env=environment)
        sessions = {running.pid, *beside}
        before = _spent(sessions)
        while running.poll() is None:
            spent |= _spent(sessions)
            most = max(most, sum(_resident(pid) for pid in spent))
            sys.stderr.write(
                f"\r{engine}: {time.monotonic() - began_s:4.0f} s, {sum(spent.values()):6.0f} s of processors"
            )
            time.sleep(_LOOK_S)
    sys.stderr.write("\n")
    cpu_s = sum(seconds - before.get(pid, 0.0) for pid, seconds in spent.items())
    return cpu_s, time.monotonic() - began_s, most / 2**20, running.returncode


def _spent(sessions: set[int]) -> dict[int, float]:
    """Processor seconds by process, of all processes of sessions; what ended children of a process took is its own."""
    found = {}
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) in sessions:
            found[int(path.name)] = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    return found


def _resident(pid: int) -> float:
    """Bytes in memory; of a process that has ended none."""
    try:
        return float((Path("/proc") / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0.0


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, help="default: all spans are of changes")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--workers", type=int, default=0, help="of a standalone master; default: local[2]")
    parser.add_argument("--bucket", help="where traces and tables are; default: a folder")
    told = parser.parse_args()
    if told.bucket and not is_bucket(told.bucket):
        parser.error("a bucket is s3://BUCKET/PREFIX")
    status = 0
    with tempfile.TemporaryDirectory(prefix="traces-at-size-") as name:
        folder = Path(name)
        sys.stderr.write("writing spans\n")
        spans, changes = write(folder / "traces", told.spans, told.changes)
        traces = str(folder / "traces")
        if told.bucket:
            sys.stderr.write("into the bucket\n")
            upload(folder / "traces", f"{told.bucket}/traces")
            traces = f"{told.bucket}/traces"
        for engine in told.engines.split(","):
            out: Path | str = f"{told.bucket}/{engine}" if told.bucket else folder / engine
            log = folder / f"{engine}.log"
            if engine != "plain" and told.workers:
                with standalone(told.workers, folder) as (master, beside):
                    took = measure(engine, commands(engine, traces, out, master), beside, log)
            else:
                took = measure(engine, commands(engine, traces, out, "local[2]"), (), log)
            cpu_s, wall_s, memory_mib, ended = took
            cost = Cost(
                engine=engine, spans=spans, changes=changes, cpu_s=round(cpu_s, 1), wall_s=round(wall_s, 1),
                memory_mib=round(memory_mib), status=ended,
            )  # fmt: skip
            sys.stdout.write(f"{json.dumps(asdict(cost))}\n")
            sys.stdout.flush()
            if ended:
                sys.stderr.write(log.read_text()[-3000:])
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
