"""Brokers at one address, and an address that leads to another broker than it is meant to, with real processes."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum_client import Admin, NewTopic, Producer, TopicPartition
from regnum_client.cluster.view import PartitionView
from regnum_coordination import open_store
from regnum_local.cluster import LocalCluster
from regnum_local.demo.workload import read_everything
from regnum_local.plan import Launch, Member, command
from regnum_model import paths
from regnum_model.ids import BrokerId, DirectoryId, LogId, Registration
from regnum_model.nodes import BrokerNode
from regnum_testing.proxy import TcpProxy
from regnum_testing.under_load import until

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(600)]

WRITTEN = 50


class Cluster:
    """Three brokers, one of which may be told to advertise something else."""

    def __init__(self, folder: Path) -> None:
        self.advertised: dict[str, tuple[str, ...]] = {}
        self.local = LocalCluster(
            folder, brokers=3, elections=1, metadata=1, report=lambda _text: None, make_command=self._command
        )
        self.folder = folder

    def _command(self, member: Member, launch: Launch) -> list[str]:
        return [*command(member, launch), *self.advertised.get(member.name, ())]

    def internal(self, id: int) -> str:
        """Internal address that a broker listens at."""
        (row,) = [row for row in self.local.status() if row.name == f"broker-{id}"]
        return str(row.addresses["internal"])

    async def partition(self, topic: str, number: int = 0) -> PartitionView:
        async with Admin(self.local.bootstrap) as admin:
            return (await admin.describe_topic(topic)).partitions[number]

    async def problems(self) -> str:
        async with Admin(self.local.bootstrap) as admin:
            return "; ".join((await admin.describe_health()).problems)

    async def status(self) -> tuple[int | None, str]:
        """The command: its exit status, and what it says is wrong."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "import sys; from regnum_client.command import main; sys.exit(main())"),
            *("status", "--data-dir", str(self.folder)),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, error = await process.communicate()
        return process.returncode, error.decode()

    async def kinds(self) -> set[str]:
        async with Admin(self.local.bootstrap) as admin:
            return {event.kind.value for event in await admin.last_events(limit=100)}

    async def read(self, topic: str) -> int:
        place = TopicPartition(topic, 0)
        return len((await read_everything(self.local.bootstrap, [place]))[place])


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    made = Cluster(tmp_path / "data")
    async with made.local:
        yield made


async def test_no_order_for_one_broker_is_ever_carried_out_by_another(cluster: Cluster) -> None:
    """One cluster for all of it, since a start takes a while: a newcomer, a hand, and a way that leads astray."""
    local = cluster.local
    async with Admin(local.bootstrap) as admin:
        await admin.create_topics([NewTopic(name="t", partitions=1, replication_factor=3)])

    async def all_in_sync() -> bool:
        return set((await cluster.partition("t")).isr) == {1, 2, 3}

    await until(all_in_sync)
    async with Producer(local.bootstrap) as producer:
        for number in range(WRITTEN):
            await (await producer.send("t", b"%d" % number, partition=0))

    # A newcomer with the address of another: waits for a session, and ends with words.
    await local.terminate("broker-3")
    cluster.advertised["broker-3"] = ("--internal-advertised", cluster.internal(1))
    await local.restart("broker-3")

    async def ended() -> bool:
        (row,) = [row for row in local.status() if row.name == "broker-3"]
        return row.pid is None

    await until(ended, within_s=60.0)
    said = (cluster.folder / "logs" / "broker-3.log").read_text()
    assert f"broker-1 advertises {cluster.internal(1)} as its internal listener, and so does broker-3" in said
    assert set((await cluster.partition("t")).isr) == {1, 2}

    # Kill -9 and a start at once, with the address that its own session still holds.
    cluster.advertised.clear()
    await local.restart("broker-3")
    await until(all_in_sync)
    await local.kill("broker-3")
    await local.restart("broker-3")
    await local.wait_healthy("broker-3")
    await until(all_in_sync, within_s=60.0)

    # Brokers that do not look: a registration of an earlier release, or by hand.
    store = await open_store(local.coordination, session_timeout_s=60.0)
    one = BrokerNode.decode((await store.get(paths.broker_id(BrokerId(1)))).data)
    await store.create(paths.broker_epoch(BrokerId(9)), b"")
    node = BrokerNode(
        incarnation="by hand",
        registration=Registration(0),
        rack=None,
        directories={DirectoryId("d" * 22): LogId("l" * 22)},
        listeners={"client": one.listeners["client"], "internal": one.listeners["internal"]},
    )
    await store.create(paths.broker_id(BrokerId(9)), node.encode(), ephemeral=True)

    async def refused() -> bool:
        return "broker 9 is refused" in await cluster.problems()

    await until(refused)
    problems = await cluster.problems()
    assert "so does broker 1" in problems
    exit_status, words = await cluster.status()
    assert (exit_status, "broker 9 is refused" in words) == (5, True)
    async with Admin(local.bootstrap) as admin:
        await admin.create_topics([NewTopic(name="u", partitions=6, replication_factor=1)])
    assert {(await cluster.partition("u", number)).leader for number in range(6)} <= {1, 2, 3}
    assert "broker-refused" in await cluster.kinds()
    await store.close()

    async def well() -> bool:
        return await cluster.problems() == ""

    await until(well, within_s=60.0)

    # An address that leads to another broker: broker 1 gets what is meant for broker 3, and does none of it.
    astray = TcpProxy(upstream_port=int(cluster.internal(1).rpartition(":")[2]))
    await astray.start()
    try:
        await local.terminate("broker-3")
        cluster.advertised["broker-3"] = ("--internal-advertised", f"127.0.0.1:{astray.port}")
        await local.restart("broker-3")

        async def shown() -> bool:
            return "answers as broker-1" in await cluster.problems()

        await until(shown, within_s=60.0)
        exit_status, words = await cluster.status()
        assert (exit_status, "broker 3 is refused" in words) == (5, True)
        async with Admin(local.bootstrap) as admin:
            await admin.alter_partition_reassignments({TopicPartition("t", 0): [1, 2]})

        async def moved() -> bool:
            now = await cluster.partition("t")
            return set(now.replicas) == {1, 2} and not now.adding_replicas

        await until(moved, within_s=60.0)
        await until(shown)
        assert await cluster.read("t") == WRITTEN
        leader = (await cluster.partition("t")).leader
        assert leader in {1, 2}
        assert list((cluster.folder / "broker-1" / "replicas").glob("*-0")), "broker 1 still has its log"
        assert (await cluster.partition("t")).isr
        # Once it leads to broker 3, that one is told, and deletes.
        astray.lead_to(int(cluster.internal(3).rpartition(":")[2]))
        await until(well, within_s=60.0)
    finally:
        await astray.stop()
