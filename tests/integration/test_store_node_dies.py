"""A store of three nodes loses its leader: no session ends, and a broker that dies at that moment is succeeded."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import pytest
from regnum_client import TopicPartition
from regnum_coordination import open_store
from regnum_coordination.port import Store
from regnum_local.cluster import LocalCluster
from regnum_model.paths import BROKER_IDS, ELECTION_IDS, METADATA_IDS
from regnum_testing.etcd_ensemble import EtcdEnsemble
from regnum_testing.under_load import under_load
from regnum_testing.zookeeper_server import ZooKeeperEnsemble

pytestmark = [pytest.mark.integration, pytest.mark.full]

OUTAGE_S_MAX = 10.0
"""On a quiet machine 1 s on ZooKeeper and 2 s on etcd, which is longer without a leader."""


class ThreeNodes(ABC):
    url: str

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def kill_leader(self) -> None: ...

    @abstractmethod
    def stop(self) -> None: ...


class ThreeEtcd(ThreeNodes):
    def __init__(self, directory: Path) -> None:
        self._nodes = EtcdEnsemble(directory, max_txn_ops=2_000)
        self.url = self._nodes.url("/cluster?max_txn_ops=2000")

    def start(self) -> None:
        self._nodes.start()

    def kill_leader(self) -> None:
        self._nodes.kill(self._nodes.leader())

    def stop(self) -> None:
        self._nodes.stop()


class ThreeZooKeeper(ThreeNodes):
    def __init__(self, directory: Path) -> None:
        self._nodes = ZooKeeperEnsemble(directory)
        self.url = f"zookeeper://{self._nodes.endpoints}/cluster"

    def start(self) -> None:
        self._nodes.start()

    def kill_leader(self) -> None:
        self._nodes.leader().kill()

    def stop(self) -> None:
        self._nodes.kill()


async def owners(store: Store) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for folder in (BROKER_IDS, ELECTION_IDS, METADATA_IDS):
        for name in (await store.children(folder, current=True)).names:
            stat = await store.exists(f"{folder}/{name}", current=True)
            found[f"{folder}/{name}"] = None if stat is None else stat.ephemeral_owner
    return found


@pytest.mark.parametrize("make", [ThreeEtcd, ThreeZooKeeper], ids=["etcd", "zookeeper"])
async def test_the_leader_of_the_store_dies_and_a_leading_broker_with_it(
    tmp_path: Path, make: Callable[[Path], ThreeNodes]
) -> None:
    (tmp_path / "store").mkdir()
    nodes = make(tmp_path / "store")
    await asyncio.to_thread(nodes.start)
    try:
        async with (
            LocalCluster(tmp_path / "data", coordination=nodes.url) as cluster,
            under_load(cluster, "both-die") as running,
        ):
            store = await open_store(nodes.url, session_timeout_s=60.0)
            try:
                before = await owners(store)
                assert len(before) == 8
                await asyncio.to_thread(nodes.kill_leader)
                outage = await running.stage.kill_leader(TopicPartition("both-die", 0))
                assert outage.client_s < OUTAGE_S_MAX
                victims = {f"{BROKER_IDS}/{name.removeprefix('broker-')}" for name in running.stage.killed}
                for name in tuple(running.stage.killed):
                    await running.stage.restart(name)
                await running.stage.all_in_sync(within_s=60.0)
                after = await owners(store)
            finally:
                await store.close()
            verdict = await running.judged()
    finally:
        await asyncio.to_thread(nodes.stop)
    assert verdict.clean, verdict
    assert {path for path in before if after.get(path) != before[path]} == victims
