"""The whole story on this machine, with real processes, files and kills. Exit status 1 if a record was harmed."""

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from regnum_client import Admin, Consumer, Producer, ProducerSettings, TopicPartition
from regnum_service.clock import Clock, SystemClock
from regnum_service.errors import RegnumError, StartRefusedError
from rich.console import Console

from regnum_local.cluster import LocalCluster
from regnum_local.demo.replicas import replica_logs
from regnum_local.demo.report import Narrator, Outage, outage_table, verdict_table
from regnum_local.demo.scenes import SceneError, Stage
from regnum_local.demo.verdict import Verdict, judge, unequal_replicas
from regnum_local.demo.workload import Load, read_everything

TOPICS = {"orders": 6, "payments": 3}
"""Topics of the demo and their partitions; three replicas each."""


async def play(data_dir: Path, *, clock: Clock, out: Console, narrator: Narrator) -> bool:
    """Start, hurt, judge, stop; returns whether every record is as it should be."""
    cluster = LocalCluster(data_dir, brokers=3, elections=3, report=narrator.detail)
    narrator.step(f"starting etcd, 3 election processes and 3 brokers below {data_dir}")
    begin = clock.monotonic()
    await cluster.start()
    try:
        narrator.detail(f"healthy after {clock.monotonic() - begin:.1f} s")
        bootstrap = cluster.bootstrap
        partitions = [TopicPartition(topic, number) for topic, count in TOPICS.items() for number in range(count)]
        async with Admin(bootstrap) as admin:
            narrator.step(f"creating topics {', '.join(TOPICS)}: {len(partitions)} partitions, 3 replicas each")
            for name, count in TOPICS.items():
                await admin.create_topic(name, partitions=count, replication_factor=3)
            async with (
                Producer(bootstrap, settings=ProducerSettings(linger_ms=2)) as producer,
                Consumer(bootstrap) as consumer,
            ):
                load = Load(producer=producer, consumer=consumer, partitions=partitions, interval_s=0.02, clock=clock)
                stage = Stage(
                    cluster=cluster, admin=admin, load=load, topics=list(TOPICS), clock=clock, narrator=narrator
                )
                narrator.step("writing to every partition, and reading along")
                ticker = asyncio.create_task(_tick(load, clock, narrator), name="progress")
                try:
                    await load.start()
                    outages, usual_s = await _hurt(stage, clock)
                    await load.finish()
                finally:
                    ticker.cancel()
                    await load.abandon()
        narrator.step("reading everything from the beginning")
        logs = await read_everything(bootstrap, partitions)
        narrator.detail("stopping the cluster, then comparing the replicas' files")
    finally:
        await cluster.stop()
    unequal = unequal_replicas(replica_logs(data_dir))
    verdict, reader = Verdict(), Verdict()
    failures: list[str] = []
    for partition, history in load.histories.items():
        verdict += judge(sent=history.sent, acknowledged=history.acknowledged, log=logs[partition])
        reader += judge(sent=history.sent, acknowledged=(), log=load.consumed[partition])
        failures += history.failures
    out.print(outage_table(outages, usual_s=usual_s))
    out.print(verdict_table(verdict, partitions=len(partitions), unequal=unequal, reader=reader))
    for failure in failures[:5]:
        narrator.complaint(f"given up by the producer: {failure}")
    return verdict.clean and reader.clean and not unequal and not failures and verdict.acknowledged > 0


async def _hurt(stage: Stage, clock: Clock) -> tuple[list[Outage], float]:
    await stage.run_for(1.0)
    calm = clock.monotonic()
    await stage.run_for(4.0)
    usual_s = stage.usual_gap_s(calm)
    outages = [await stage.kill_leader(TopicPartition("orders", 0))]
    await stage.run_for(2.0)
    outages.append(await stage.kill_controller())
    await stage.run_for(2.0)
    for name in tuple(stage.killed):
        await stage.restart(name)
    await stage.all_in_sync()
    await stage.run_for(2.0)
    return outages, usual_s


async def _tick(load: Load, clock: Clock, narrator: Narrator) -> None:
    while True:
        await clock.sleep(2.0)
        narrator.detail(f"{load.acknowledged:,} records acknowledged, {load.read:,} read back")


def main() -> int:
    """Run the demo; returns the exit status."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--data-dir", type=Path, help="keep everything below this folder (default: a temporary one)")
    arguments = parser.parse_args()
    out, narrator = Console(), Narrator(Console(stderr=True))
    data_dir = arguments.data_dir or Path(tempfile.mkdtemp(prefix="regnum-demo-"))
    try:
        unharmed = asyncio.run(play(data_dir, clock=SystemClock(), out=out, narrator=narrator))
    except (RegnumError, SceneError, StartRefusedError) as error:
        narrator.complaint(str(error))
        narrator.complaint(f"logs and data are kept below {data_dir}")
        return 1
    if not unharmed:
        narrator.complaint(f"records were harmed; logs and data are kept below {data_dir}")
        return 1
    if arguments.data_dir is None:
        shutil.rmtree(data_dir)
    out.print("[bold green]No acknowledged record was lost, doubled or moved.[/]")
    return 0


if __name__ == "__main__":
    sys.exit(main())
