"""A cluster on the store that was chosen: started here or running elsewhere, and killed under load."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from regnum_client import Admin, TopicPartition
from regnum_coordination import open_store
from regnum_local.cluster import LocalCluster
from regnum_local.plan import Role
from regnum_local.store_choice import StoreRefusedError
from regnum_model import paths
from regnum_model.ids import BrokerId
from regnum_model.nodes import BrokerNode
from regnum_service.clock import SystemClock
from regnum_testing.under_load import under_load
from regnum_testing.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

CLOCK = SystemClock()
SESSION_TIMEOUT_S = 60.0
"""Long enough to be outrun also on a busy machine; the longest that both stores grant."""
SMALL: dict[str, Any] = {
    "brokers": 1,
    "elections": 1,
    "metadata": 1,
    "extra": {
        Role.ELECTION: ("--lifeline-detection", "false"),
        Role.BROKER: ("--session-timeout-s", f"{SESSION_TIMEOUT_S:g}"),
    },
}
NODE = paths.broker_id(BrokerId(1))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    """A cluster on ZooKeeper; every other test of a whole cluster has etcd."""
    folder = tmp_path_factory.mktemp("cluster") / "data"
    async with LocalCluster(folder, brokers=3, elections=3, coordination="zookeeper") as started:
        yield started


async def test_kills_of_a_leader_and_of_the_controller_lose_nothing_on_zookeeper(cluster: LocalCluster) -> None:
    async with under_load(cluster, "killed") as running:
        outage = await running.stage.kill_leader(TopicPartition("killed", 0))
        assert outage.partitions > 0
        await running.stage.kill_controller()
        for name in tuple(running.stage.killed):
            await running.stage.restart(name)
        await running.stage.all_in_sync()
        verdict = await running.judged()
    assert verdict.clean, verdict


@pytest.mark.full
async def test_a_running_store_is_used_below_its_prefix(cluster: LocalCluster, tmp_path: Path) -> None:
    """Two clusters share a store: each below a path of its own."""
    url = f"{cluster.coordination}/another/cluster"
    async with LocalCluster(tmp_path / "other", brokers=1, elections=1, metadata=1, coordination=url) as other:
        assert other.coordination == url
        assert other.plan.store is None
        async with Admin(other.bootstrap) as admin:
            await admin.create_topic("over-there", partitions=1)
        async with Admin(cluster.bootstrap) as admin:
            assert "over-there" not in {topic.name for topic in await admin.list_topics()}
        store = await open_store(cluster.coordination)
        try:
            assert "over-there" in (await store.children("/another/cluster/brokers/topics")).names
        finally:
            await store.close()


@pytest.mark.full
@pytest.mark.parametrize("name", ["zookeeper", "etcd"])
async def test_a_cluster_comes_back_with_its_store(tmp_path: Path, name: str) -> None:
    """Its broker too: killed and restarted before its session expires, it takes its own node over (safety rule S5).

    Nobody else removes that node: detection by lifeline is off. Another store than its own is refused.
    """
    folder = tmp_path / "data"
    async with LocalCluster(folder, coordination=name, **SMALL) as cluster, Admin(cluster.bootstrap) as admin:
        await admin.create_topic("kept", partitions=1)
        await restart_faster_than_its_session(cluster, admin)
    other = "etcd" if name == "zookeeper" else "zookeeper"
    with pytest.raises(StoreRefusedError, match=f"go on with --coordination {name}"):
        await LocalCluster(folder, coordination=other, **SMALL).start()
    async with LocalCluster(folder, **SMALL) as cluster, Admin(cluster.bootstrap) as admin:
        assert cluster.plan.store is not None
        assert cluster.plan.store.name == name
        assert {topic.name for topic in await admin.list_topics()} == {"kept"}


async def restart_faster_than_its_session(cluster: LocalCluster, admin: Admin) -> None:
    store = await open_store(cluster.coordination, session_timeout_s=60.0)
    try:
        before = await store.get(NODE, current=True)
        killed_s = CLOCK.monotonic()
        await cluster.kill("broker-1")
        await cluster.restart("broker-1")

        async def registered_anew() -> bool:
            stat = await store.exists(NODE, current=True)
            return stat is not None and stat.ephemeral_owner != before.stat.ephemeral_owner

        await eventually(registered_anew, within_s=SESSION_TIMEOUT_S)
        took_s = CLOCK.monotonic() - killed_s
        after = await store.get(NODE, current=True)
    finally:
        await store.close()
    # Waiting for the old session to expire would take all of it.
    assert took_s < SESSION_TIMEOUT_S - 5.0
    assert after.stat.creation_id > before.stat.creation_id
    assert after.stat.version == 0, "a new node, not a put over the old one"
    assert BrokerNode.decode(after.data).registration > BrokerNode.decode(before.data).registration

    async def seen() -> bool:
        brokers = (await admin.describe_cluster()).brokers
        return BrokerId(1) in brokers and brokers[BrokerId(1)].epoch == after.stat.creation_id

    await eventually(seen, what="broker 1 with its new epoch")
