"""``python -m regnum_bench write_batch --store etcd``: a table, or JSON with ``-o json``.

Exit status 1 when a limit is not kept. ``--save DIRECTORY`` leaves the figures with command, machine and commit.
"""

import argparse
import asyncio
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from regnum_service.collector import short_collections
from rich.console import Console
from rich.table import Table

from regnum_bench.rounds import Comparison, as_json, rows
from regnum_bench.write_batch import STORES, compare


def main(arguments: Sequence[str]) -> int:
    """Run one benchmark."""
    parser = argparse.ArgumentParser(prog="python -m regnum_bench", description="Benchmarks of Regnum.")
    parser.add_argument("benchmark", choices=["write_batch"], help="which one")
    parser.add_argument("--store", choices=STORES, action="append", help="store to work on; default: etcd")
    parser.add_argument("--writes", type=int, default=10_000, help="conditional writes of a round")
    parser.add_argument("--rounds", type=int, default=9, help="rounds that count; one more is for warming up")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    parser.add_argument("--save", type=Path, help="folder for a file with the figures")
    given = parser.parse_args(arguments)
    load, _, _ = os.getloadavg()
    found = [_measure(store, given.writes, given.rounds) for store in given.store or ["etcd"]]
    report = {
        "benchmark": given.benchmark,
        "command": shlex.join(["python", "-m", "regnum_bench", *arguments]),
        "machine": _machine(),
        "load_average_before": round(load, 2),
        "commit": _commit(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "results": [as_json(one) for one in found],
    }
    console = Console()
    if given.output == "json":
        console.print_json(json.dumps(report))
    else:
        for one in found:
            console.print(_table(one))
    if given.save is not None:
        given.save.mkdir(parents=True, exist_ok=True)
        file = given.save / f"{given.benchmark}-{'-'.join(one.store for one in found)}.json"
        file.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0 if all(one.holds for one in found) else 1


def _measure(store: str, writes: int, rounds: int) -> Comparison:
    # Garbage collections as every service has them.
    with tempfile.TemporaryDirectory(prefix="regnum-bench-") as directory, short_collections():
        return asyncio.run(compare(Path(directory), store=store, writes=writes, rounds=rounds))


def _table(one: Comparison) -> Table:
    table = Table(
        title=f"{one.writes:,} conditional writes on {one.store}, {len(one.ours.seconds)} rounds in turns",
        caption=f"ratio {one.ratio:.2f} (limit {one.limit}); outcomes that one conflict changed: {one.conflicts}",
    )
    table.add_column("contender")
    for heading in ("median s", "worst s", "writes/s", "ratio"):
        table.add_column(heading, justify="right")
    for row in rows(one):
        table.add_row(*row)
    return table


def _machine() -> str:
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def _commit() -> str:
    git = shutil.which("git")
    if git is None:
        return "unknown"
    command = [git, "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
