"""Traces through the log itself: the job reads a failover of the topic's own leader out of the topic."""

import asyncio
import json
import os
import re
import shutil
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pyspark.sql.types import StructType
from regnum_client import Admin, TopicPartition
from regnum_failover.traces.packs import apart
from regnum_failover.traces.source import TracesSource
from regnum_insight.attribution.changes import Change, change_of
from regnum_insight.engine import analyse
from regnum_insight.spans.packing import spans_of_trace
from regnum_local.cluster import LocalCluster
from regnum_local.plan import TRACES
from regnum_model.topics import TRACES_TOPIC
from regnum_telemetry import conventions, setup, tracing
from regnum_testing.under_load import LoadedCluster, under_load, until

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


def of_topic(bootstrap: str) -> list[Change]:
    """What the topic tells, read as a task of Spark reads it."""
    reader = TracesSource({"path": f"topic:{TRACES_TOPIC}", "bootstrap": bootstrap}).reader(StructType())
    packs: dict[str, list[bytes]] = defaultdict(list)
    for part in reader.partitions():
        for batch in reader.read(part):
            for row in batch.to_pylist():
                if row["trace_id"] is not None:
                    packs[row["trace_id"]] += apart(row["span"])
    found = (change_of(spans_of_trace(trace, packs[trace])) for trace in sorted(packs))
    return [change for change in found if change is not None]


async def test_a_killed_leader_of_the_topic_itself_is_read_out_of_it(cluster: LocalCluster) -> None:
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

        async def the_topic_tells_it() -> bool:
            told = await asyncio.to_thread(of_topic, ",".join(cluster.bootstrap))
            return failovers(told) == failovers(analyse(folder).changes) != {}

        await until(the_topic_tells_it, within_s=240)
        process.send_signal(signal.SIGTERM)
        told, _ = await process.communicate()
        assert json.loads(told)["lost_bytes"] == 0
        assert [*folder.glob("regnum-traces*")] == [], "the publisher records no spans, which it would publish"


LATE_S, GAP_S = 5, 5
TOLD_WITHIN_S = LATE_S + GAP_S + 5
"""After the last span of a change: until the watermark is behind its session, and a step of Spark's."""


async def test_the_job_tells_a_kill_out_of_the_topic_within_the_watermark(
    cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17")
    folder, before = cluster.data_dir / TRACES, tracing.tracer()
    telemetry = setup.start("regnum-load", "1", traces_dir=folder)
    try:
        async with published(cluster, folder), Admin(cluster.bootstrap, tls=cluster.tls) as admin:

            async def is_there() -> bool:
                return bool(await led_by(admin, TRACES_TOPIC))

            await until(is_there, within_s=120)
            async with followed(cluster, tmp_path) as lines, under_load(cluster, "followed", partitions=6) as running:
                waited = [await told_after_a_kill(running, number, lines) for number in range(3)]
                assert (await running.judged()).clean
    finally:
        telemetry.close()
        tracing.use(before)
    with capsys.disabled():
        sys.stderr.write(f"told {', '.join(f'{one:.1f}' for one in waited)} s after the change\n")
    assert min(waited) <= TOLD_WITHIN_S


@asynccontextmanager
async def followed(cluster: LocalCluster, folder: Path) -> AsyncIterator[asyncio.StreamReader]:
    """The job over the topic, as a process; what it says."""
    job = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "regnum_failover", f"topic:{TRACES_TOPIC}", str(folder / "tables"), "--follow"),
        *("--gap-s", str(GAP_S), "--late-s", str(LATE_S)),
        stdout=PIPE,
        env={**os.environ, "REGNUM_BOOTSTRAP": ",".join(cluster.bootstrap)},
    )
    assert job.stdout is not None
    try:
        yield job.stdout
    finally:
        if job.returncode is None:
            job.kill()
        await job.wait()


async def told_after_a_kill(running: LoadedCluster, number: int, lines: asyncio.StreamReader) -> float:
    """Kill a leader, and start it again; returns how many seconds after the change the job told of it."""
    partition = TopicPartition("followed", number)
    await running.stage.all_in_sync(within_s=120)
    killed = (await running.stage.look()).leaders[partition]
    await running.stage.kill_leader(partition)
    ended = time.time()
    told = re.compile(rf"lifeline broken.* broker {killed} ").search
    async with asyncio.timeout(120):
        while not told(line := (await lines.readline()).decode()):
            assert line, "the job has ended"
    waited = time.time() - ended
    await running.stage.restart(f"broker-{killed}")
    return waited
