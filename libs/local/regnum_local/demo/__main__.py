"""The whole story on this machine, with real processes, files and kills. Exit status 1 if a record was harmed."""

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from regnum_client import CLUSTER_CONFIG, Admin, ConfigAlteration, Consumer, Producer, ProducerSettings, TopicPartition
from regnum_console.serving import Options as ConsoleOptions
from regnum_console.serving import serving
from regnum_model.configs import AUTO_LEADER_REBALANCE_ENABLE
from regnum_service.clock import Clock, SystemClock
from regnum_service.errors import RegnumError, StartRefusedError
from regnum_telemetry import setup
from rich.console import Console

from regnum_local.cluster import LocalCluster
from regnum_local.demo.burst import CLIENT_ID, Burst, BurstOutcome, BurstPlan, burst_table
from regnum_local.demo.replicas import folders, replica_logs
from regnum_local.demo.report import Narrator, outage_table, timeline_tables, verdict_table
from regnum_local.demo.scenes import SceneError, Stage
from regnum_local.demo.timeline import Outage, match
from regnum_local.demo.traces import TABLES, analyse
from regnum_local.demo.verdict import unequal_replicas
from regnum_local.demo.workload import Load, read_everything
from regnum_local.plan import STORES, TRACES

TOPICS = {"orders": 6, "payments": 3}
"""Topics of the demo and their partitions; three replicas each."""
HELPERS = ("metadata-1",)
"""Processes that are killed besides the leaders."""
BURST = BurstPlan(topics=60, rate=5.0, burst=25.0)
"""Topic creations against a quota, in one call."""
QUOTA = "quota-1"
"""Process that is killed in the middle of them."""


async def _set_up(admin: Admin) -> list[str]:
    """Topics, and no leader balance: the planned move is the demo's own, and shown beside the kills.

    (The first round of a new controller's balance comes some seconds after its beginning, whatever its interval is.)
    Returns the names of the partitions' folders.
    """
    off = ConfigAlteration(resource=CLUSTER_CONFIG, set={AUTO_LEADER_REBALANCE_ENABLE: "false"})
    await admin.alter_config(off)
    for name, count in TOPICS.items():
        await admin.create_topic(name, partitions=count, replication_factor=3)
    return await folders(admin, TOPICS)


async def play(
    data_dir: Path, *, coordination: str, clock: Clock, out: Console, narrator: Narrator, tls: bool = False
) -> tuple[str, ...]:
    """Start, hurt, judge, stop, look where the time went; returns what is wrong."""
    cluster = LocalCluster(
        data_dir,
        brokers=3,
        elections=3,
        metadata=2,
        quotas=1,
        coordination=coordination,
        report=narrator.detail,
        tls=tls,
    )
    telemetry = setup.start("regnum-demo", "1", traces_dir=data_dir / TRACES)
    narrator.step(
        f"starting {coordination}, 3 election processes, 2 metadata processes, a quota process and 3 brokers "
        f"below {data_dir}{', all connections over TLS' if tls else ''}"
    )
    begin = clock.monotonic()
    await cluster.start()
    try:
        narrator.detail(f"healthy after {clock.monotonic() - begin:.1f} s")
        bootstrap = cluster.bootstrap
        partitions = [TopicPartition(topic, number) for topic, count in TOPICS.items() for number in range(count)]
        console = ConsoleOptions(bootstrap=bootstrap, tls=cluster.tls, traces=data_dir / TRACES)
        async with serving(console, clock) as pages, Admin(bootstrap, tls=cluster.tls) as admin:
            narrator.step(f"pages of the cluster, while it is hurt: {pages.address}changes")
            narrator.step(f"creating topics {', '.join(TOPICS)}: {len(partitions)} partitions, 3 replicas each")
            names = await _set_up(admin)
            async with (
                Producer(bootstrap, settings=ProducerSettings(linger_ms=2), tls=cluster.tls) as producer,
                Consumer(bootstrap, tls=cluster.tls) as consumer,
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
                    burst = await _burst(stage, cluster, clock=clock, narrator=narrator)
                    await load.finish()
                finally:
                    ticker.cancel()
                    await load.abandon()
        narrator.step("reading everything from the beginning")
        logs = await read_everything(bootstrap, partitions, tls=cluster.tls)
        narrator.detail("stopping the cluster, then comparing the replicas' files")
    finally:
        await cluster.stop()
        await asyncio.to_thread(telemetry.close)
    unequal = unequal_replicas(replica_logs(data_dir), names)
    verdict, reader = load.judged(logs)
    failures = [failure for history in load.histories.values() for failure in history.failures]
    out.print(outage_table(outages, usual_s=usual_s))
    out.print(verdict_table(verdict, partitions=len(partitions), unequal=unequal, reader=reader))
    out.print(burst_table(burst))
    complaints = [f"given up by the producer: {failure}" for failure in failures[:5]]
    complaints += burst.complaints
    if not (verdict.clean and reader.clean and not unequal and verdict.acknowledged > 0):
        complaints.append("records were harmed")
    complaints += await _where_the_time_went(data_dir / TRACES, outages, clock=clock, out=out, narrator=narrator)
    return tuple(complaints)


async def _where_the_time_went(
    traces: Path, outages: list[Outage], *, clock: Clock, out: Console, narrator: Narrator
) -> list[str]:
    """Print it; returns what does not fit together."""
    analysed = await analyse(traces, clock=clock, narrator=narrator)
    timelines = match(outages, analysed.failovers)
    for table in timeline_tables(timelines):
        out.print(table)
    out.print(analysed.worst, highlight=False, markup=False)
    out.print(f"\nthe report, with pictures: {analysed.page}", highlight=False, soft_wrap=True)
    return [complaint for timeline in timelines for complaint in timeline.complaints]


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
    outages.append(await stage.elect_preferred())
    for name in HELPERS:
        await stage.kill_helper(name)
    await stage.run_for(2.0)
    for name in HELPERS:
        await stage.restart(name)
    await stage.all_in_sync()
    await stage.run_for(2.0)
    return outages, usual_s


async def _burst(stage: Stage, cluster: LocalCluster, *, clock: Clock, narrator: Narrator) -> BurstOutcome:
    """Many topics at once against a quota, whose process dies in the middle; nothing of it stays."""
    async with Admin(cluster.bootstrap, client_id=CLIENT_ID, tls=cluster.tls) as admin:
        burst = Burst(admin, BURST, clock=clock, narrator=narrator)
        narrator.step(
            f"creating {BURST.topics} topics at once; the quota is {BURST.rate:g} a second, {BURST.burst:g} at once"
        )
        await burst.set_quota()
        creating = asyncio.create_task(burst.create(), name="burst")
        try:

            async def refused() -> bool:
                return burst.refusals > 0 or creating.done()

            await stage.until("the quota refuses a topic", refused, within_s=15.0)
            await stage.run_for(1.0)
            await stage.kill_helper(QUOTA)
            await stage.run_for(2.0)
            await stage.restart(QUOTA)
            outcome = await creating
        finally:
            creating.cancel()
            await asyncio.gather(creating, return_exceptions=True)
        narrator.step("removing the quota, and the topics of the burst")
        await burst.remove_quota()
        await burst.delete()
    await stage.all_in_sync()
    return outcome


async def _tick(load: Load, clock: Clock, narrator: Narrator) -> None:
    while True:
        await clock.sleep(2.0)
        narrator.detail(f"{load.acknowledged:,} records acknowledged, {load.read:,} read back")


def _remove_data(data_dir: Path) -> None:
    """Remove what the processes kept; what can be read stays."""
    for path in data_dir.iterdir():
        if path.is_dir() and path.name not in {TRACES, TABLES, "logs"}:
            shutil.rmtree(path)


def main() -> int:
    """Run the demo; returns the exit status."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--data-dir", type=Path, help="keep everything below this folder (default: a temporary one)")
    parser.add_argument(
        "--coordination", choices=[role.value for role in STORES], default="etcd", help="the store that is started"
    )
    parser.add_argument("--tls", action="store_true", help="protect every connection")
    arguments = parser.parse_args()
    out, narrator = Console(), Narrator(Console(stderr=True))
    data_dir = arguments.data_dir or Path(tempfile.mkdtemp(prefix="regnum-demo-"))
    try:
        complaints = asyncio.run(
            play(
                data_dir,
                coordination=arguments.coordination,
                clock=SystemClock(),
                out=out,
                narrator=narrator,
                tls=arguments.tls,
            )
        )
    except (RegnumError, SceneError, StartRefusedError, OSError) as error:
        narrator.complaint(str(error))
        narrator.complaint(f"logs and data are kept below {data_dir}")
        return 1
    for complaint in complaints:
        narrator.complaint(complaint)
    if complaints:
        narrator.complaint(f"logs and data are kept below {data_dir}")
        return 1
    if arguments.data_dir is None:
        _remove_data(data_dir)
    out.print(f"{data_dir}: {TRACES}/ (OTLP JSON lines), {TABLES}/ (report.html, JSON, CSV), logs/", soft_wrap=True)
    out.print("[bold green]No acknowledged record was lost, doubled or moved.[/]")
    return 0


if __name__ == "__main__":
    sys.exit(main())
