"""The store is lost under a cluster with data: after a restore of an older backup no acknowledged record is missing."""

import asyncio
import json
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from regnum_client import Admin, Producer, TopicPartition
from regnum_coordination import open_store
from regnum_local.cluster import LocalCluster
from regnum_local.demo.workload import read_everything
from regnum_model import paths
from regnum_model.ids import BrokerId, TopicId
from regnum_model.nodes import TopicNode
from regnum_testing.etcd_server import EtcdServer
from regnum_testing.under_load import until
from regnum_testing.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(400)]

TOPIC, LATER = "t", "later"
ONLY = TopicPartition(TOPIC, 0)


@pytest.fixture
def lost(tmp_path: Path) -> Iterator[EtcdServer]:
    """The store that will be lost."""
    (tmp_path / "lost").mkdir()
    server = EtcdServer(tmp_path / "lost")
    server.start()
    yield server
    server.kill()


@pytest.fixture(params=["etcd", "zookeeper"])
def found(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of the empty store that takes its place."""
    folder = tmp_path / "found"
    folder.mkdir()
    server = EtcdServer(folder) if request.param == "etcd" else ZooKeeperServer(folder)
    server.start()
    yield f"{request.param}://127.0.0.1:{server.port}"
    server.kill()


async def regnum(*arguments: str) -> tuple[int | None, Any, str]:
    """The command; what it says in JSON, or nothing; and what it says to people."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "import sys; from regnum_client.command import main; sys.exit(main())"),
        *arguments,
        *("-o", "json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(120):
        out, error = await process.communicate()
    return process.returncode, json.loads(out) if out else None, error.decode()


def cluster_of(tmp_path: Path, url: str) -> LocalCluster:
    return LocalCluster(
        tmp_path / "data", brokers=3, elections=1, metadata=1, coordination=url, report=lambda _text: None
    )


async def write(cluster: LocalCluster, numbers: range, *, topic: str = TOPIC) -> None:
    async with Producer(cluster.bootstrap) as producer:
        deliveries = [await producer.send(topic, str(number).encode(), partition=0) for number in numbers]
        await producer.flush()
        assert all(delivery.exception() is None for delivery in deliveries)


async def in_sync(cluster: LocalCluster, count: int, topic: str = TOPIC) -> None:
    async with Admin(cluster.bootstrap) as admin:

        async def as_many() -> bool:
            return all(len(one.isr) == count for one in (await admin.describe_topic(topic)).partitions.values())

        await until(as_many, within_s=60.0)


async def offline_reason(cluster: LocalCluster, word: str) -> None:
    """Return when status says of the partition that it waits, and for what."""

    async def says() -> bool:
        _, health, error = await regnum("status", "--bootstrap", ",".join(cluster.bootstrap))
        return word in json.dumps(health) + error

    await until(says, within_s=90.0)


async def numbers_in(cluster: LocalCluster) -> list[int]:
    logs = await read_everything(cluster.bootstrap, [ONLY])
    return [number for _, number in logs[ONLY]]


def segments(tmp_path: Path) -> dict[str, int]:
    """Sizes of all segment files of the brokers."""
    return {str(path): path.stat().st_size for path in (tmp_path / "data").rglob("*.log") if "broker-" in str(path)}


async def live_and_lose(tmp_path: Path, lost: EtcdServer) -> tuple[Path, dict[str, int]]:
    """A cluster whose ISR changes twice after the backup, and a topic made after it; then its store is gone.

    Broker 1 led at the backup; the last records are on brokers 1 and 3 alone, under later leader epochs. Returns the
    backup, and the files of the topic that is not in it.
    """
    backup = tmp_path / "backup"
    url = f"etcd://127.0.0.1:{lost.port}"
    async with cluster_of(tmp_path, url) as cluster:
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC, partitions=0, assignment={0: [1, 2, 3]})
        await in_sync(cluster, 3)
        await write(cluster, range(100))
        status, taken, error = await regnum("backup", str(backup), "--coordination", url)
        assert (status, error) == (0, "")
        assert taken["topics"] == 1
        await cluster.kill("broker-1")
        await in_sync(cluster, 2)
        await write(cluster, range(100, 200))
        await cluster.restart("broker-1")
        await in_sync(cluster, 3)
        await cluster.kill("broker-2")
        await in_sync(cluster, 2)
        await write(cluster, range(200, 300))
        before = segments(tmp_path)
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic(LATER, partitions=0, assignment={0: [1, 3]})
        await write(cluster, range(5), topic=LATER)
        later = {path: size for path, size in segments(tmp_path).items() if path not in before}
        assert later
        await cluster.kill_all()
    lost.kill()
    shutil.rmtree(tmp_path / "lost")
    return backup, {path: Path(path).stat().st_size for path in later}


async def restore(backup: Path, url: str) -> None:
    """First dry, which changes nothing, then in earnest, and never twice."""
    command = ("restore", str(backup), "--coordination", url)
    status, told, _ = await regnum(*command)
    assert (status, told["restored"], told["waits_for_brokers"]) == (0, False, [1, 2, 3])
    status, done, error = await regnum(*command, "--execute")
    assert (status, error) == (0, "")
    assert (done["restored"], done["topics"], done["replaces_topics"]) == (True, 1, 0)
    status, _, error = await regnum(*command, "--execute")
    assert status == 4
    assert "Nothing was changed" in error


async def test_the_store_is_lost_and_every_acknowledged_record_is_there_after_a_restore(
    tmp_path: Path, lost: EtcdServer, found: str
) -> None:
    backup, later = await live_and_lose(tmp_path, lost)
    await restore(backup, found)
    async with cluster_of(tmp_path, found) as cluster:
        await in_sync(cluster, 3)
        assert await numbers_in(cluster) == list(range(300))
        await write(cluster, range(300, 350))
        assert await numbers_in(cluster) == list(range(350))
        async with Admin(cluster.bootstrap) as admin:
            assert [one.name for one in await admin.list_topics()] == [TOPIC]
        status, _, error = await regnum("restore", str(backup), "--coordination", found, "--execute", "--replace")
        assert status == 4
        assert "a process runs" in error
    assert {path: Path(path).stat().st_size for path in later} == later


@pytest.mark.parametrize("found", ["etcd"], indirect=True)
async def test_with_one_replica_lost_besides_nobody_leads_until_a_person_says_so(
    tmp_path: Path, lost: EtcdServer, found: str
) -> None:
    backup, _ = await live_and_lose(tmp_path, lost)
    for path in (tmp_path / "data").rglob("broker-2"):
        if path.is_dir():
            shutil.rmtree(path)
    await restore(backup, found)
    async with cluster_of(tmp_path, found) as cluster:
        await offline_reason(cluster, "broker 2 has no log of it")
        command = ("partitions", "recover", TOPIC, "--bootstrap", ",".join(cluster.bootstrap))
        status, shown, error = await regnum(*command, "--accept-loss")
        assert status == 0, error
        assert len(shown) == 1
        await in_sync(cluster, 3)
        assert await numbers_in(cluster) == list(range(300)), "brokers 1 and 3 had everything"


async def strays_of(cluster: LocalCluster) -> Any:
    """What status says of strays."""
    _, document, _ = await regnum("status", "--bootstrap", ",".join(cluster.bootstrap))
    return None if document is None else document["strays"]


@pytest.mark.parametrize("found", ["etcd"], indirect=True)
async def test_a_topic_that_was_made_after_the_backup_is_a_stray_is_kept_and_can_be_had_back_or_deleted(
    tmp_path: Path, lost: EtcdServer, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup, later = await live_and_lose(tmp_path, lost)
    await restore(backup, found)
    monkeypatch.setenv("REGNUM_STRAY_GRACE_S", "2")
    async with cluster_of(tmp_path, found) as cluster:
        await in_sync(cluster, 3)

        async def counted(logs: int) -> bool:
            told = await strays_of(cluster)
            return bool(told and told["logs"] == logs and not told["not_known_of_brokers"])

        await until(partial(counted, 2), within_s=60.0)
        status, strays, error = await regnum("brokers", "strays", "--bootstrap", ",".join(cluster.bootstrap))
        assert (status, error) == (0, "")
        assert [(one["broker"], one["topic"], one["partition"], one["newest_offset"]) for one in strays] == [
            (1, LATER, 0, 4),
            (3, LATER, 0, 4),
        ]
        assert {path: Path(path).stat().st_size for path in later} == later
        # By hand, as the page of operations says: its node under its id.
        node = TopicNode(topic_id=TopicId(strays[0]["topic_id"]), partitions={0: (BrokerId(1), BrokerId(3))})
        store = await open_store(found, session_timeout_s=6.0)
        await store.create(paths.topic(LATER), node.encode())
        await store.close()
        command = ("partitions", "recover", LATER, "--accept-loss", "--bootstrap", ",".join(cluster.bootstrap))

        async def recovered() -> bool:
            return (await regnum(*command))[0] == 0

        await until(recovered, within_s=60.0)
        await in_sync(cluster, 2, LATER)
        logs = await read_everything(cluster.bootstrap, [TopicPartition(LATER, 0)])
        assert [number for _, number in logs[TopicPartition(LATER, 0)]] == list(range(5))
        await until(partial(counted, 0), within_s=60.0)
        async with Admin(cluster.bootstrap) as admin:
            await admin.delete_topic(LATER)

        async def gone() -> bool:
            return not any(Path(path).exists() for path in later)

        await until(gone, within_s=60.0)
