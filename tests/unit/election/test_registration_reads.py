"""What is read when registrations change: those that did, and nothing else."""

from collections.abc import AsyncIterator, Sequence

import pytest
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Children, Node
from regnum_model import paths
from regnum_model.ids import BrokerId
from regnum_testing.reigning import FakeCluster
from regnum_testing.waiting import until

BROKERS = 60


class CountingStore(MemoryStore):
    """Notes what is read of registrations."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.read: list[str] = []
        """Registrations that were read, by path."""
        self.listed = 0
        """How often all of them were listed."""

    async def get_many(self, paths: Sequence[str], *, current: bool = False) -> tuple[Node | None, ...]:
        """Note."""
        self.read.extend(path for path in paths if path.startswith("/brokers/ids/"))
        return await super().get_many(paths, current=current)

    async def children(self, path: str, *, current: bool = False) -> Children:
        """Note."""
        self.listed += path == paths.BROKER_IDS
        return await super().children(path, current=current)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    cluster.open_store = CountingStore
    await cluster.begin(*range(1, BROKERS + 1))
    yield cluster
    await cluster.close()


async def _settled(cluster: FakeCluster) -> CountingStore:
    """The store of a controller that has read everything."""
    await cluster.reign()
    store = cluster.controller_store
    assert isinstance(store, CountingStore)
    # Once for the reign, and once because the watch has begun: what happened between the two is in neither.
    await until(lambda: store.listed == 2 and len(store.read) == 2 * BROKERS)
    store.read.clear()
    store.listed = 0
    return store


def _epoch(cluster: FakeCluster, id: int) -> int | None:
    assert cluster.controller is not None
    broker = cluster.controller.picture.brokers.get(BrokerId(id))
    return None if broker is None else broker.epoch


async def test_a_broker_that_goes_costs_one_read(cluster: FakeCluster) -> None:
    store = await _settled(cluster)
    cluster.kill(7)
    await until(lambda: _epoch(cluster, 7) is None)
    assert (store.read, store.listed) == ([paths.broker_id(BrokerId(7))], 0)


async def test_a_broker_that_comes_costs_one_read(cluster: FakeCluster) -> None:
    store = await _settled(cluster)
    broker = await cluster.register(BROKERS + 1)
    await until(lambda: _epoch(cluster, BROKERS + 1) == broker.epoch)
    assert (store.read, store.listed) == ([paths.broker_id(BrokerId(BROKERS + 1))], 0)


async def test_brokers_that_bounce_unseen_are_read_and_no_others(cluster: FakeCluster) -> None:
    """Safety rule S10: no listing shows it, and yet their epochs are other ones."""
    store = await _settled(cluster)
    before = cluster.server
    before.hold_watches()
    bounced = [await cluster.register(id) for id in (3, 9)]
    before.release_watches()
    await until(lambda: all(_epoch(cluster, broker.id) == broker.epoch for broker in bounced))
    assert set(store.read) == {paths.broker_id(broker.id) for broker in bounced}
    assert len(store.read) <= 4
    assert store.listed == 0


async def test_after_a_compaction_all_are_read(cluster: FakeCluster) -> None:
    store = await _settled(cluster)
    cluster.server.hold_watches()
    broker = await cluster.register(3)
    cluster.server.compact()
    cluster.server.release_watches()
    await until(lambda: _epoch(cluster, 3) == broker.epoch)
    await until(lambda: store.listed == 1)
    assert set(store.read) == {paths.broker_id(BrokerId(id)) for id in range(1, BROKERS + 1)}
