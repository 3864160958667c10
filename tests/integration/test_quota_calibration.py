"""`regnum quotas calibrate` on a real cluster: it proposes, refuses under load, and leaves nothing, however it ends."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from regnum_client import Admin
from regnum_client.commands.quotas.janitor import PREFIX
from regnum_local.cluster import LocalCluster
from regnum_testing.waiting import eventually

COMMAND = "import sys; from regnum_client.command import main; sys.exit(main())"

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("cluster") / "data"
    async with LocalCluster(folder, brokers=3, elections=1, metadata=1, quotas=1) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def admin(cluster: LocalCluster) -> AsyncIterator[Admin]:
    async with Admin(cluster.bootstrap) as opened:
        yield opened


async def calibrate(cluster: LocalCluster, *options: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", COMMAND, "quotas", "calibrate", "--bootstrap", ",".join(cluster.bootstrap)),
        *options,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )


async def left(admin: Admin) -> list[str]:
    return [topic.name for topic in await admin.list_topics() if topic.name.startswith(PREFIX)]


async def test_it_measures_proposes_draws_and_leaves_nothing(
    cluster: LocalCluster, admin: Admin, tmp_path: Path
) -> None:
    picture = tmp_path / "plot.png"
    # How long events wait is the machine's matter here, and no promise.
    options = ("--from", "20", "--to", "30", "--step", "2", "--max-wait", "100000", "--png", str(picture), "--force")
    process = await calibrate(cluster, *options, "-o", "json")
    out, err = await process.communicate()
    assert process.returncode == 0, err
    document = json.loads(out)
    assert document["steps"][0]["offered_rate"] == 20.0
    assert document["steps"][0]["done_rate"] > 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert await left(admin) == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
async def test_its_topics_are_deleted_also_when_it_is_interrupted_or_killed(
    cluster: LocalCluster, admin: Admin, how: signal.Signals
) -> None:
    process = await calibrate(cluster, "--from", "20", "--step", "60", "--max-wait", "100000", "--force")

    async def has_begun() -> bool:
        return len(await left(admin)) >= 2

    async def nothing_is_left() -> bool:
        return await left(admin) == []

    await eventually(has_begun, what="topics are there")
    refused = await calibrate(cluster)
    _, err = await refused.communicate()
    assert refused.returncode == 4
    assert b"another calibration" in err
    os.kill(process.pid, how)
    await process.wait()
    await eventually(nothing_is_left, what="nothing is left")
