"""A disk or a store that is put back to an earlier copy, with real processes, on both stores (traces T8 and T9)."""

import asyncio
import json
import resource
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from regnum_client import Admin, Producer, ProducerSettings, TopicPartition
from regnum_client.cluster.view import PartitionView
from regnum_coordination import open_store
from regnum_local.cluster import LocalCluster, ProcessState
from regnum_local.demo.workload import read_everything
from regnum_local.plan import Role
from regnum_model import paths
from regnum_model.ids import BrokerId
from regnum_model.nodes.lives import LifeNode
from regnum_testing.etcd_server import EtcdServer
from regnum_testing.replica_files import segments_with
from regnum_testing.under_load import until
from regnum_testing.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(600)]

KEPT, MOVED = "kept", "moved"
"""Topics: one stays on three brokers, the other moves from broker 1 to broker 2 after the copy."""


class StoreFiles:
    """A store of one node whose files a person copies and puts back."""

    def __init__(self, kind: str, tmp_path: Path) -> None:
        self.folder, self.copy = tmp_path / "store", tmp_path / "copy"
        self.folder.mkdir()
        self.server = EtcdServer(self.folder) if kind == "etcd" else ZooKeeperServer(self.folder)
        self.url = f"{kind}://127.0.0.1:{self.server.port}"
        self.server.start()

    def take_copy(self) -> None:
        """What a snapshot of its volume is."""
        self.server.kill()
        shutil.copytree(self.folder, self.copy)
        self.server.start()

    def put_back(self) -> None:
        """What a restored snapshot is, for processes that may run on."""
        self.server.kill()
        shutil.rmtree(self.folder)
        shutil.copytree(self.copy, self.folder)
        self.server.start()


@pytest.fixture(params=["etcd", "zookeeper"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreFiles]:
    made = StoreFiles(request.param, tmp_path)
    yield made
    made.server.kill()


def cluster_of(tmp_path: Path, store: StoreFiles) -> LocalCluster:
    return LocalCluster(
        tmp_path / "data",
        brokers=3,
        elections=1,
        metadata=1,
        coordination=store.url,
        report=lambda _text: None,
        extra={Role.BROKER: ("--stray-grace-s", "3")},
    )


async def regnum(*arguments: str) -> tuple[int | None, Any, str]:
    """The command: its exit status, what it says in JSON, and what it says to people."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "import sys; from regnum_client.command import main; sys.exit(main())"),
        *arguments,
        *("-o", "json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await process.communicate()
    return process.returncode, json.loads(out) if out else None, error.decode()


async def write(cluster: LocalCluster, topic: str, numbers: range, *, timeout_s: float = 120.0) -> None:
    async with Producer(cluster.bootstrap, settings=ProducerSettings(delivery_timeout_s=timeout_s)) as producer:
        for number in numbers:
            await (await producer.send(topic, b"%d %s" % (number, topic.encode()), partition=0))


async def partition(cluster: LocalCluster, topic: str) -> PartitionView:
    async with Admin(cluster.bootstrap) as admin:
        return (await admin.describe_topic(topic)).partitions[0]


async def in_sync(cluster: LocalCluster, topic: str, *ids: int) -> None:
    async def are() -> bool:
        return set((await partition(cluster, topic)).isr) == set(ids)

    await until(are, within_s=90.0)


async def numbers_in(cluster: LocalCluster, topic: str) -> list[int]:
    place = TopicPartition(topic, 0)
    return [number for _, number in (await read_everything(cluster.bootstrap, [place]))[place]]


async def says(cluster: LocalCluster, words: str) -> None:
    async def does() -> bool:
        status, said, error = await regnum("status", "--bootstrap", ",".join(cluster.bootstrap))
        return status != 0 and words in json.dumps(said) + error

    await until(does, within_s=120.0)


async def begin(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic(KEPT, partitions=0, assignment={0: [1, 2, 3]})
        await admin.create_topic(MOVED, partitions=0, assignment={0: [1]})
    await in_sync(cluster, KEPT, 1, 2, 3)
    for topic in (KEPT, MOVED):
        await write(cluster, topic, range(5))


async def live_on(cluster: LocalCluster, tmp_path: Path) -> None:
    """One partition moves and its former log is deleted; the other gets a later leader epoch; both get records."""
    async with Admin(cluster.bootstrap) as admin:
        await admin.alter_partition_reassignments({TopicPartition(MOVED, 0): [2]})

    async def moved() -> bool:
        gone = not segments_with(tmp_path / "data" / "broker-1", b"4 moved")
        return gone and tuple((await partition(cluster, MOVED)).replicas) == (2,)

    await until(moved, within_s=60.0)
    await write(cluster, MOVED, range(5, 10))
    await cluster.kill("broker-1")
    await in_sync(cluster, KEPT, 2, 3)
    await write(cluster, KEPT, range(5, 10))


async def restore_in_place(tmp_path: Path, store: StoreFiles, waits_for: Sequence[int] = (1, 2, 3)) -> None:
    file = tmp_path / "before.backup"
    command = ("restore", str(file), "--in-place", "--coordination", store.url)

    async def tried() -> bool:
        # Sessions of processes that were killed end by themselves.
        status, told, error = await regnum(*command)
        assert status in {0, 4}, error
        assert not file.exists()
        return status == 0 and told["waits_for_brokers"] == list(waits_for)

    await until(tried, within_s=60.0)
    status, told, error = await regnum(*command, "--execute")
    assert (status, told["restored"]) == (0, True), error


async def move_as_status_says(cluster: LocalCluster) -> None:
    """The tree has the assignment of then: a person assigns the broker that has the newest log, and elects that."""
    await says(cluster, "broker 2, which is not assigned to it, has a newer log")
    place = ("--bootstrap", ",".join(cluster.bootstrap))
    status, _, error = await regnum("partitions", "reassign", "--to", f"{MOVED}/0=2", "--execute", *place)
    assert status == 0, error
    await says(cluster, "broker 1 has no log of it, and may have had the newest records")
    bootstrap = ("--bootstrap", ",".join(cluster.bootstrap))
    status, (found,), error = await regnum("partitions", "recover", "--all", *bootstrap)
    assert (status, found["topic"], found["chosen"], found["known_end_offset"]) == (0, MOVED, 2, 10), error
    assert found["lost_from_offset"] == 10
    status, (found,), error = await regnum("partitions", "recover", "--all", "--accept-loss", *bootstrap)
    assert (status, found["recovered"]) == (0, True), error


async def lives_in(store: StoreFiles) -> dict[int, int]:
    """How many lives the log directory of each broker has had, as the store knows it."""
    session = await open_store(store.url)
    try:
        nodes = await session.get_many([paths.broker_life(BrokerId(id)) for id in (1, 2, 3)], current=True)
        return {id: LifeNode.decode(node.data).life.count for id, node in enumerate(nodes, 1) if node is not None}
    finally:
        await session.close()


async def all_is_there(cluster: LocalCluster) -> None:
    for topic in (KEPT, MOVED):

        async def led(topic: str = topic) -> bool:
            return (await partition(cluster, topic)).leader >= 0

        await until(led, within_s=120.0)
        assert await numbers_in(cluster, topic) == list(range(10))


async def test_t9_the_store_goes_back_while_everything_is_stopped(tmp_path: Path, store: StoreFiles) -> None:
    """Every process starts anew over a store from before. No log goes, nothing is led, and a restore brings it back."""
    async with cluster_of(tmp_path, store) as cluster:
        await begin(cluster)
    store.take_copy()
    async with cluster_of(tmp_path, store) as cluster:
        await live_on(cluster, tmp_path)
        await cluster.kill_all()
    store.put_back()
    async with cluster_of(tmp_path, store) as cluster:
        await says(cluster, "the store went back to an earlier state")
        _, events, _ = await regnum("events", "--bootstrap", ",".join(cluster.bootstrap))
        assert "store-went-back" in json.dumps(events)
        await cluster.kill("broker-2")
        log = tmp_path / "data" / "logs" / "broker-2.log"
        before = len(log.read_bytes())
        await cluster.restart("broker-2")

        async def orders_nothing() -> bool:
            """Nor does it say what is assigned to others: nothing is looked for that could be deleted."""
            return b'"event": "the store went back"' in log.read_bytes()[before:]

        await until(orders_nothing, within_s=60.0)
        await cluster.wait_healthy("broker-2")
        assert segments_with(tmp_path / "data" / "broker-2", b"9 moved")
        for topic in (KEPT, MOVED):
            assert (await partition(cluster, topic)).leader == -1
        await cluster.kill_all()
    await restore_in_place(tmp_path, store)
    async with cluster_of(tmp_path, store) as cluster:
        await move_as_status_says(cluster)
        await all_is_there(cluster)
        await write(cluster, KEPT, range(10, 12))
        assert await numbers_in(cluster, KEPT) == list(range(12))


async def test_t9_the_store_goes_back_under_processes_that_run(tmp_path: Path, store: StoreFiles) -> None:
    """What leads goes on leading, nothing is deleted, and it is found within a life of a minute."""
    async with cluster_of(tmp_path, store) as cluster:
        await begin(cluster)
        store.take_copy()
        await in_sync(cluster, KEPT, 1, 2, 3)
        await live_on(cluster, tmp_path)
        # Lives of the brokers that wrote begin each minute.
        before = await lives_in(store)

        async def begun() -> bool:
            now = await lives_in(store)
            return now[2] > before[2] and now[3] > before[3]

        await until(begun, within_s=180.0)
        store.put_back()
        await says(cluster, "the store went back to an earlier state")
        assert segments_with(tmp_path / "data" / "broker-2", b"9 moved")
        assert segments_with(tmp_path / "data" / "broker-3", b"9 kept")
        await cluster.kill_all()
    await restore_in_place(tmp_path, store)
    async with cluster_of(tmp_path, store) as cluster:
        await move_as_status_says(cluster)
        await all_is_there(cluster)


async def put_back_and_alone(cluster: LocalCluster, copy: Path, directory: Path) -> None:
    """1, which has ended, comes back alone with a copy of its directory: it leads nothing; the others bring all."""
    await in_sync(cluster, KEPT, 2)
    shutil.rmtree(directory)
    shutil.copytree(copy, directory)
    await cluster.kill("broker-2")
    await cluster.restart("broker-1")
    await cluster.wait_healthy("broker-1")
    await says(cluster, "1 partitions are without a leader")
    assert (await partition(cluster, KEPT)).leader == -1
    for name in ("broker-2", "broker-3"):
        await cluster.restart(name)
        await cluster.wait_healthy(name)
    await in_sync(cluster, KEPT, 1, 2, 3)


async def test_t8_a_volume_that_goes_back_leads_nothing(tmp_path: Path, store: StoreFiles) -> None:
    """1 stops in order and is copied; it runs on; [1, 2] acknowledge more; the copy is put back, and 2 is killed."""
    data = tmp_path / "data"
    async with cluster_of(tmp_path, store) as cluster:
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic(KEPT, partitions=0, assignment={0: [1, 2, 3]})
        await in_sync(cluster, KEPT, 1, 2, 3)
        await write(cluster, KEPT, range(5))
        await cluster.terminate("broker-1")
        shutil.copytree(data / "broker-1", tmp_path / "volume")
        await cluster.restart("broker-1")
        await in_sync(cluster, KEPT, 1, 2, 3)
        await cluster.kill("broker-3")
        await in_sync(cluster, KEPT, 1, 2)
        await write(cluster, KEPT, range(5, 10))
        await cluster.kill("broker-1")
        await put_back_and_alone(cluster, tmp_path / "volume", data / "broker-1")
        assert await numbers_in(cluster, KEPT) == list(range(10))


async def test_a_disk_that_failed_and_forgot_leads_nothing(tmp_path: Path, store: StoreFiles) -> None:
    """The disk of 1 refuses every write, and has lost, when it comes back, what [1, 2] acknowledged before.

    The broker may write past a length of 0 in no file: the note that its disk failed does not reach it either, nor does
    a line its log. What comes back is an earlier copy, of the same boot; 2, which has everything, is gone by then.
    """
    data = tmp_path / "data"
    async with cluster_of(tmp_path, store) as cluster:
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic(KEPT, partitions=0, assignment={0: [1, 2, 3]})
        await in_sync(cluster, KEPT, 1, 2, 3)
        await write(cluster, KEPT, range(5))
        shutil.copytree(data / "broker-1", tmp_path / "device")
        await cluster.kill("broker-3")
        await in_sync(cluster, KEPT, 1, 2)
        await write(cluster, KEPT, range(5, 10))
        (pid,) = (row.pid for row in cluster.status() if row.name == "broker-1")
        assert pid is not None
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        # Waits for a second replica from here on.
        writing = asyncio.create_task(write(cluster, KEPT, range(10, 11), timeout_s=500.0))

        async def has_ended() -> bool:
            return [row.state for row in cluster.status() if row.name == "broker-1"] == [ProcessState.EXITED]

        await until(has_ended, within_s=60.0)
        await put_back_and_alone(cluster, tmp_path / "device", data / "broker-1")
        await writing
        assert await numbers_in(cluster, KEPT) == list(range(11))
