"""Hurt a real cluster of this machine and compare its traces with its acknowledgements.

    python -m regnum_testing.outages kill freeze --repeats 5

Each scenario: what is done, how long each partition's acknowledgements paused by this program's own record, and the
chain that the traces tell of it. Exit status 1 if a change is not listed, a chain differs from its pause by more than
5 ms, or more of it than 5 % (3 ms at least) is unexplained. The record of acknowledgements is left beside the traces.
"""

import argparse
import asyncio
import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from regnum_client import Admin, Producer, ProducerSettings, TopicPartition
from regnum_insight.engine import analyse
from regnum_insight.reporting.text import chain_lines
from regnum_local.cluster import LocalCluster
from regnum_local.demo.report import Narrator
from regnum_local.demo.scenes import Stage
from regnum_local.demo.workload import Load
from regnum_local.plan import TRACES, Role
from regnum_service.clock import SystemClock
from regnum_telemetry import setup
from rich.console import Console

from regnum_testing.outages.scenarios import BALANCE_S, SCENARIOS, Scene
from regnum_testing.outages.verdict import Outcome, compared, longest_pauses, within

TOPIC: Final = "orders"
REPLICAS: Final = 3
"""Replicas of each partition: with one broker away, enough are in sync."""
QUIET_S: Final = 3.0
"""How long a cluster is looked at before each scenario."""
WRITTEN_S: Final = 12.0
"""So long after a scenario its traces are written: a root ends at most 5 s after its orders, and is exported then."""


async def play(wanted: list[str], *, data_dir: Path, partitions: int, interval_s: float) -> list[Outcome]:
    """Run the scenarios one after the other on one cluster."""
    clock = SystemClock()
    cluster = LocalCluster(
        data_dir,
        # One more than replicas, so that a replica has somewhere to go.
        brokers=REPLICAS + 1,
        elections=3,
        report=lambda _line: None,
        extra={Role.ELECTION: ("--leader-balance-interval-s", str(BALANCE_S))},
    )
    narrator = Narrator(Console(stderr=True))
    telemetry = setup.start("regnum-load", "1", traces_dir=data_dir / TRACES)
    # Moments of acknowledgements are monotonic; spans are not.
    ahead_ns = time.time_ns() - round(clock.monotonic() * 1e9)
    outcomes: list[Outcome] = []
    await cluster.start()
    try:
        keys = [TopicPartition(TOPIC, number) for number in range(partitions)]
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC, partitions=partitions, replication_factor=REPLICAS)
            async with Producer(cluster.bootstrap, settings=ProducerSettings(linger_ms=0)) as producer:
                load = Load(producer=producer, consumer=None, partitions=keys, interval_s=interval_s, clock=clock)
                stage = Stage(cluster=cluster, admin=admin, load=load, topics=[TOPIC], clock=clock, narrator=narrator)
                await load.start()
                try:
                    for name in wanted:
                        narrator.step(name)
                        outcomes.append(
                            await _once(name, cluster, stage, admin, load, _wall(clock, ahead_ns), ahead_ns=ahead_ns)
                        )
                    await stage.run_for(WRITTEN_S)
                finally:
                    await load.abandon()
                moments = _moments(load, ahead_ns)
    finally:
        await cluster.stop()
        await asyncio.to_thread(telemetry.close)
    (data_dir / "acknowledgements.json").write_text(json.dumps(moments), encoding="utf-8")
    return _judged(outcomes, moments, data_dir)


def _wall(clock: SystemClock, ahead_ns: int) -> Callable[[], int]:
    return lambda: round(clock.monotonic() * 1e9) + ahead_ns


async def _once(
    name: str,
    cluster: LocalCluster,
    stage: Stage,
    admin: Admin,
    load: Load,
    now_ns: Callable[[], int],
    *,
    ahead_ns: int,
) -> Outcome:
    """One scenario, until what it took away is back and in sync."""
    await stage.all_in_sync(within_s=90.0)
    calm_ns = now_ns()
    await stage.run_for(QUIET_S)
    begins: list[int] = []
    store = next(row.name for row in cluster.status() if row.role in {Role.ETCD, Role.ZOOKEEPER})
    scene = Scene(
        cluster=cluster,
        stage=stage,
        admin=admin,
        busy=TopicPartition(TOPIC, 0),
        begun=lambda: begins.append(now_ns()),
        store=store,
    )
    do, kinds = SCENARIOS[name]
    before = await stage.look()
    away = await do(scene)
    end_ns = now_ns()
    after = await stage.look()
    stayed = frozenset(
        f"{one.topic}/{one.partition}" for one, epoch in before.epochs.items() if after.epochs.get(one) == epoch
    )
    quiet = longest_pauses(_moments(load, ahead_ns), calm_ns, begins[0] - 50_000_000)
    for process in away:
        await cluster.restart(process)
        await cluster.wait_healthy(process)
    quiet_ms = quiet[0].ms if quiet else 0.0
    return Outcome(name=name, begin_ns=begins[0], end_ns=end_ns, quiet_ms=quiet_ms, kinds=kinds, stayed=stayed)


def _moments(load: Load, ahead_ns: int) -> dict[str, list[int]]:
    return {
        f"{partition.topic}/{partition.partition}": [round(at * 1e9) + ahead_ns for at in history.moments]
        for partition, history in load.histories.items()
    }


def _judged(outcomes: list[Outcome], moments: dict[str, list[int]], data_dir: Path) -> list[Outcome]:
    changes = analyse(data_dir / TRACES).changes
    found = []
    for one in outcomes:
        listed = within(changes, one.begin_ns - 1_000_000_000, one.end_ns)
        pauses = longest_pauses(moments, one.begin_ns, one.end_ns)
        beside = compared(pauses, listed, quiet_ms=one.quiet_ms, stayed=one.stayed)
        found.append(dataclasses.replace(one, changes=listed, compared=beside))
    return found


def told(outcome: Outcome, *, moved_only: bool) -> str:
    """One scenario, for people."""
    kinds = ", ".join(f"{change.kind} ({change.cause or '-'})" for change in outcome.changes) or "no change"
    lines = [f"{outcome.name}: {kinds}; in quiet {outcome.quiet_ms:.1f} ms at most"]
    for one in outcome.compared:
        difference = "-" if one.difference_ms is None else f"{one.difference_ms:+.2f} ms"
        unexplained = "-" if one.chain is None else f"{one.chain.unexplained_ms:.1f} ms"
        lines.append(
            f"  {one.pause.partition:<12} paused {one.pause.ms:9.1f} ms, chain {difference}, unexplained {unexplained}"
        )
    worst = outcome.compared[0].chain if outcome.compared else None
    if worst is not None:
        lines += ["  " + line for line in chain_lines(worst)]
    lines += [f"  ! {complaint}" for complaint in outcome.complaints(moved_only=moved_only)]
    return "\n".join(lines)


def main() -> int:
    """Run what is named; returns the exit status."""
    parser = argparse.ArgumentParser(prog="regnum_testing.outages", description=__doc__)
    parser.add_argument("scenario", nargs="*", choices=[*SCENARIOS, []], help="default: all of them")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--interval-ms", type=float, default=10.0)
    parser.add_argument(
        "--moved-only",
        action="store_true",
        help="leave partitions out whose leader stayed, and whose producers waited for a replica that was gone",
    )
    parser.add_argument("--data-dir", type=Path, help="default: a temporary folder, which is kept")
    arguments = parser.parse_args()
    data_dir = arguments.data_dir or Path(tempfile.mkdtemp(prefix="regnum-outages-"))
    wanted = [name for name in arguments.scenario or SCENARIOS for _ in range(arguments.repeats)]
    outcomes = asyncio.run(
        play(wanted, data_dir=data_dir, partitions=arguments.partitions, interval_s=arguments.interval_ms / 1000)
    )
    for outcome in outcomes:
        sys.stdout.write(f"{told(outcome, moved_only=arguments.moved_only)}\n\n")
    failed = sum(bool(outcome.complaints(moved_only=arguments.moved_only)) for outcome in outcomes)
    sys.stdout.write(f"{len(outcomes) - failed} of {len(outcomes)} hold; traces and acknowledgements: {data_dir}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
