"""kill -9 of a leader again and again: how long clients wait, and whether anything is harmed.

``python -m regnum_local.demo.campaign --kills 10``. Every other victim is started again at once, faster than its
session expires; the others after their partitions have new leaders. One line for each kill, then a table, or JSON
with ``-o json``. Exit status 1 if a record was harmed.
"""

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from regnum_client import Admin, Consumer, Producer, ProducerSettings, TopicPartition
from regnum_service.clock import Clock, SystemClock
from regnum_service.errors import RegnumError, StartRefusedError
from rich.console import Console
from rich.table import Table

from regnum_local.cluster import LocalCluster
from regnum_local.demo.replicas import folders, replica_logs
from regnum_local.demo.report import Narrator
from regnum_local.demo.scenes import SceneError, Stage
from regnum_local.demo.timeline import Outage
from regnum_local.demo.verdict import Verdict, judge, unequal_replicas
from regnum_local.demo.workload import Load, read_everything
from regnum_local.plan import STORES

TOPIC = "campaign"


async def run(
    data_dir: Path,
    *,
    coordination: str,
    kills: int,
    partitions: int,
    interval_s: float,
    clock: Clock,
    narrator: Narrator,
) -> tuple[list[Outage], Verdict, Sequence[str]]:
    """Run the campaign; returns the outages, the verdict over all partitions, and partitions whose replicas differ."""
    keys = [TopicPartition(TOPIC, number) for number in range(partitions)]
    async with LocalCluster(
        data_dir, brokers=3, elections=3, coordination=coordination, report=narrator.detail
    ) as cluster:
        settings = ProducerSettings(linger_ms=2)
        async with (
            Admin(cluster.bootstrap) as admin,
            Producer(cluster.bootstrap, settings=settings) as producer,
            Consumer(cluster.bootstrap) as consumer,
        ):
            await admin.create_topic(TOPIC, partitions=partitions, replication_factor=3)
            names = await folders(admin, [TOPIC])
            load = Load(producer=producer, consumer=consumer, partitions=keys, interval_s=interval_s, clock=clock)
            stage = Stage(cluster=cluster, admin=admin, load=load, topics=[TOPIC], clock=clock, narrator=narrator)
            try:
                await load.start()
                await stage.run_for(2.0)
                outages = [await _kill_and_restart(stage, at_once=number % 2 == 1) for number in range(kills)]
                await load.finish()
            finally:
                await load.abandon()
        logs = await read_everything(cluster.bootstrap, keys)
    verdict = Verdict()
    for partition, history in load.histories.items():
        verdict += judge(sent=history.sent, acknowledged=history.acknowledged, log=logs[partition])
        for failure in history.failures[:5]:
            narrator.complaint(f"given up by the producer: {failure}")
    return outages, verdict, unequal_replicas(replica_logs(data_dir), names)


async def _kill_and_restart(stage: Stage, *, at_once: bool) -> Outage:
    now = await stage.look()
    # Whoever returned leads nothing until leaders are moved back: the victim is chosen among those that lead (D35).
    busiest, _ = Counter(now.leaders.values()).most_common(1)[0]
    outage = await stage.kill_leader(now.led_by(busiest)[0], restart_at_once=at_once)
    for name in tuple(stage.killed):
        await stage.restart(name)
    await stage.all_in_sync()
    await stage.run_for(1.0)
    return outage


def summary(outages: Sequence[Outage], verdict: Verdict, unequal: Sequence[str]) -> dict[str, object]:
    """What machines read; seconds."""
    waits = [outage.client_s for outage in outages]
    return {
        "kills": len(outages),
        "outage_median_s": round(statistics.median(waits), 3),
        "outage_worst_s": round(max(waits), 3),
        "outages_s": [round(wait, 3) for wait in waits],
        "acknowledged": verdict.acknowledged,
        "lost": len(verdict.lost),
        "duplicated": len(verdict.duplicated),
        "reordered": len(verdict.reordered),
        "moved": len(verdict.moved),
        "unequal_replicas": list(unequal),
    }


def main() -> int:
    """Run the campaign; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m regnum_local.demo.campaign", description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--interval-s", type=float, default=0.02, help="between two records of a partition")
    parser.add_argument("--coordination", choices=[role.value for role in STORES], default="etcd")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    arguments = parser.parse_args()
    narrator, out = Narrator(Console(stderr=True)), Console()
    data_dir = Path(tempfile.mkdtemp(prefix="regnum-campaign-"))
    try:
        outages, verdict, unequal = asyncio.run(
            run(
                data_dir,
                coordination=arguments.coordination,
                kills=arguments.kills,
                partitions=arguments.partitions,
                interval_s=arguments.interval_s,
                clock=SystemClock(),
                narrator=narrator,
            )
        )
    except (RegnumError, SceneError, StartRefusedError) as error:
        narrator.complaint(f"{error}; logs and data are kept below {data_dir}")
        return 1
    figures = summary(outages, verdict, unequal)
    if arguments.output == "json":
        out.print_json(json.dumps(figures))
    else:
        table = Table(title=f"{len(outages)} kills of a leader", title_justify="left", show_header=False)
        for name, figure in figures.items():
            table.add_row(name.replace("_", " "), str(figure))
        out.print(table)
    if not verdict.clean or unequal:
        narrator.complaint(f"records were harmed; logs and data are kept below {data_dir}")
        return 1
    shutil.rmtree(data_dir)
    return 0


if __name__ == "__main__":
    sys.exit(main())
