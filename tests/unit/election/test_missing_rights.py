"""A controller whom the store refuses everything, or one node, until a person gives rights back."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from regnum.types.v1 import events_pb2 as words
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.errors import NoAuth
from regnum_coordination.port import Check, Children, Group, Node, Outcome, Set, Unknown
from regnum_election.controller import Controller
from regnum_election.health.gauges import show_controller
from regnum_election.health.messages import describe_health
from regnum_election.history.events import OtherEntry
from regnum_election.topics.requests import TopicRequest
from regnum_model import paths
from regnum_model.ids import BrokerId, PartitionKey
from regnum_service.errors import RegnumError
from regnum_telemetry.instruments import election as instruments
from regnum_telemetry.metrics import Metrics
from regnum_testing.clock import SkippingClock
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until, within

DENIED = "etcd: PERMISSION_DENIED: etcdserver: permission denied"


class ClosedStore(MemoryStore):
    """Refuses its user everything, or some nodes."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.denies_all = False
        self.closed: set[str] = set()
        """Paths that may be neither written nor read."""
        self.refused = 0

    def _check(self, *paths: str) -> None:
        if self.denies_all or self.closed & set(paths):
            self.refused += 1
            raise NoAuth(DENIED)

    async def get(self, path: str, *, current: bool = False) -> Node:
        """See Store."""
        self._check(path)
        return await super().get(path, current=current)

    async def get_many(self, paths: Sequence[str], *, current: bool = False) -> tuple[Node | None, ...]:
        """See Store."""
        await asyncio.sleep(0)
        self._check(*paths)
        return await super().get_many(paths, current=current)

    async def children(self, path: str, *, current: bool = False) -> Children:
        """See Store."""
        await asyncio.sleep(0)
        self._check(path)
        return await super().children(path, current=current)

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        """See Store."""
        await asyncio.sleep(0)
        try:
            self._check(*(operation.path for group in groups for operation in group if isinstance(operation, Set)))
        except NoAuth as error:
            return (Unknown(error),) * len(groups)
        return await super().write_batch(groups, fence=fence)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster(SkippingClock())
    yield cluster
    await cluster.close()


async def begun(cluster: FakeCluster) -> tuple[Controller, ClosedStore]:
    """A reign over three brokers and two topics of one partition each."""
    stores: list[ClosedStore] = []

    def open_store(server: MemoryServer) -> MemoryStore:
        stores.append(ClosedStore(server))
        return stores[-1]

    cluster.open_store = open_store
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign(watches_store=True)
    await create(controller, "t", 1, 2, 3)
    await create(controller, "u", 1, 2, 3)
    return controller, stores[0]


async def create(controller: Controller, name: str, *replicas: int) -> None:
    request = TopicRequest(
        name=name,
        partitions=0,
        replication_factor=None,
        assignment=((0, tuple(map(BrokerId, replicas))),),
        mutation=None,
    )
    await controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)


def leader(controller: Controller, name: str) -> int:
    held = controller.picture.partitions[PartitionKey(controller.picture.names[name], 0)].held
    return -1 if held is None else held.state.leader


def told(cluster: FakeCluster) -> list[int]:
    """Kinds of events about the store."""
    kinds = (words.EVENT_KIND_STORE_WRITES_REFUSED, words.EVENT_KIND_STORE_WRITES_TAKEN)
    return [one.kind for one in cluster.recorded if isinstance(one, OtherEntry) and one.kind in kinds]


async def test_a_store_that_refuses_its_user_is_told_of_and_what_waits_goes_on_later(cluster: FakeCluster) -> None:
    controller, store = await begun(cluster)
    watch, metrics = controller.health.store, Metrics()
    assert watch is not None
    show_controller(metrics, lambda: controller, cluster.clock)
    store.denies_all = True
    cluster.kill(1)
    await until(lambda: store.refused > 3)
    await watch.look()
    # Health is answered, though it asks the store for registrations.
    health = await within(describe_health(controller.health, most=1))
    assert health.store_trouble.endswith(DENIED)
    shown = {one.instrument: list(one.numbers) for one in metrics.read()}
    assert shown[instruments.STORE_WRITES_REFUSED] == [((), 1)]
    with pytest.raises(RegnumError, match=r"permission denied.*nothing was changed"):
        await create(controller, "during", 1, 2, 3)
    broker = cluster.brokers[BrokerId(2)]
    with pytest.raises(RegnumError, match="permission denied") as refused:
        await within(controller.brokers.allocate_producer_ids(broker.id, broker.epoch, wait_s=DEADLINE_S))
    assert refused.value.traits.retriable
    assert told(cluster) == [words.EVENT_KIND_STORE_WRITES_REFUSED]

    store.denies_all = False
    await until(lambda: {leader(controller, "t"), leader(controller, "u")} == {2})
    await watch.look()
    await create(controller, "after", 2, 3)
    assert told(cluster) == [words.EVENT_KIND_STORE_WRITES_REFUSED, words.EVENT_KIND_STORE_WRITES_TAKEN]
    assert cluster.running is not None
    assert not cluster.running.done()


async def test_a_closed_node_holds_up_no_other_partition_and_is_written_once_it_is_open(cluster: FakeCluster) -> None:
    controller, store = await begun(cluster)
    watch = controller.health.store
    assert watch is not None
    store.closed = {paths.leader_and_isr("t", 0)}
    cluster.kill(1)
    await until(lambda: leader(controller, "u") == 2)
    await watch.look()
    assert watch.trouble == f"refuses the controller a part of the tree: {DENIED}"
    assert watch.refuses_because == "", "requests are taken"
    assert told(cluster) == [words.EVENT_KIND_STORE_WRITES_REFUSED]
    assert controller.picture.partitions[PartitionKey(controller.picture.names["t"], 0)].trouble is None

    store.closed = set()
    await until(lambda: leader(controller, "t") == 2)
    await watch.look()
    assert watch.trouble == ""
    assert told(cluster) == [words.EVENT_KIND_STORE_WRITES_REFUSED, words.EVENT_KIND_STORE_WRITES_TAKEN]
