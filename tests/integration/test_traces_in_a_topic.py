"""Traces through the log itself: the job reads a failover of the topic's own leader out of the topic."""

import asyncio
import json
import os
import pickle
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from regnum_client import Admin, TopicPartition
from regnum_console.publishing.folder import TraceFiles
from regnum_failover.changes import changes_of
from regnum_failover.following import follow
from regnum_failover.traces.source import records_of, stream_of
from regnum_insight.attribution.changes import Change
from regnum_insight.engine import analyse
from regnum_local.cluster import LocalCluster
from regnum_local.plan import TRACES
from regnum_model.topics import TRACES_TOPIC
from regnum_telemetry import conventions, setup, tracing
from regnum_testing.small_spark import small_spark
from regnum_testing.under_load import under_load, until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="module"),
]


@asynccontextmanager
async def published(cluster: LocalCluster, folder: Path) -> AsyncIterator[Process]:
    """`regnum failovers publish` over a folder, as a process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", "import sys; from regnum_client.command import main; sys.exit(main())", "failovers", "publish"),
        *("--traces", str(folder), "--bootstrap", ",".join(cluster.bootstrap), "-o", "json"),
        stdout=PIPE,
        env={**os.environ, "REGNUM_TRACES_DIR": str(folder)},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def led_by(admin: Admin, topic: str) -> dict[int, int]:
    """The leader of each partition; nothing where there is no such topic."""
    found = [one for one in await admin.list_topics() if one.name == topic]
    return {number: state.leader for one in found for number, state in one.partitions.items()}


def failovers(changes: list[Change]) -> dict[str, Change]:
    """Those that a killed broker is the cause of."""
    return {change.trace_id: change for change in changes if change.kind == conventions.KIND_BROKER_FAILURE}


def of_batch(spark: SparkSession, options: dict[str, str]) -> list[Change]:
    rows = changes_of(records_of(spark, f"topic:{TRACES_TOPIC}", **options)).where("of.change is not null")
    return [pickle.loads(row["change"]) for row in rows.select("of.change").collect()]  # noqa: S301 - of this test


def of_stream(spark: SparkSession, options: dict[str, str], folder: Path) -> list[Change]:
    told: list[Change] = []
    records = stream_of(spark, f"topic:{TRACES_TOPIC}", tick_s="30", **options)
    query = follow(records, f"{folder}/tables", f"{folder}/checkpoint", told.extend, gap_s=5, late_s=5, once=True)
    assert query.awaitTermination(400)
    return told


async def test_a_killed_leader_of_the_topic_itself_is_read_out_of_it(cluster: LocalCluster, tmp_path: Path) -> None:
    folder = cluster.data_dir / TRACES
    before = tracing.tracer()
    async with Admin(cluster.bootstrap, tls=cluster.tls) as admin, published(cluster, folder) as process:

        async def is_there() -> bool:
            assert process.returncode is None
            return bool(await led_by(admin, TRACES_TOPIC))

        await until(is_there, within_s=120)
        telemetry = setup.start("regnum-load", "1", traces_dir=folder)
        try:
            async with under_load(cluster, "traced", partitions=6) as running:
                (leader,) = (await led_by(admin, TRACES_TOPIC)).values()
                led = [number for number, one in (await led_by(admin, "traced")).items() if one == leader]
                await running.stage.kill_leader(TopicPartition("traced", led[0]))
                assert (await running.judged()).clean
        finally:
            telemetry.close()
            tracing.use(before)

        async def all_is_published() -> bool:
            return failovers(analyse(folder).changes) != {} and TraceFiles(folder).next() is None

        await until(all_is_published, within_s=120)
        process.send_signal(signal.SIGTERM)
        told, _ = await process.communicate()
        assert json.loads(told)["lost_bytes"] == 0
        assert [*folder.glob("regnum-traces*")] == [], "the publisher records no spans, which it would publish"
        of_files = failovers(analyse(folder).changes)
        options = {"bootstrap": ",".join(cluster.bootstrap)}
        with small_spark(cores=2) as spark:
            assert failovers(await asyncio.to_thread(of_batch, spark, options)) == of_files
            assert failovers(await asyncio.to_thread(of_stream, spark, options, tmp_path)) == of_files
