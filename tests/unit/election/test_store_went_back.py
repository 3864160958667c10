"""A reign over a store that went back to an earlier state: it shows what there is, and changes nothing (trace T9)."""

from collections.abc import AsyncIterator

import pytest
from regnum.types.v1 import events_pb2 as words
from regnum_coordination.drivers.memory import MemoryStore
from regnum_election.candidacy.whole_tree import proof_that_it_went_back
from regnum_election.health.messages import describe_health
from regnum_election.history.events import OtherEntry
from regnum_election.reign.reign import DeposedError
from regnum_model import paths
from regnum_model.ids import BrokerId, PartitionKey
from regnum_model.nodes import TopicNode, WentBackNode
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_testing.creating import create, wanted
from regnum_testing.reigning import FakeCluster
from regnum_testing.waiting import until

PROOF = "broker 2: its log directory knows life 8, the store 5"


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


async def contents(cluster: FakeCluster) -> dict[str, bytes]:
    """All that the store says, but who reigns and who is registered."""
    nodes = cluster.server.reading(current=True).nodes()
    ours = (paths.CONTROLLER, paths.BROKER_IDS, paths.BROKER_EPOCHS)
    return {path: node.data for path, node in nodes.items() if not path.startswith(ours)}


async def test_nothing_is_elected_ordered_deleted_or_created(cluster: FakeCluster) -> None:
    """A leader is away, another came anew, a topic node was removed by hand and another written by hand."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    kept, removed = await create(controller, wanted("kept", partitions=6), wanted("removed", partitions=1))
    await cluster.end_reign()
    cluster.kill(1)
    await cluster.register(2)
    for broker in cluster.brokers.values():
        broker.requests.clear()
        broker.stops.clear()
    await cluster.outside.delete_below(paths.topic("removed"))
    await cluster.outside.delete(paths.topic("removed"), version=None)
    await cluster.outside.create(
        paths.topic("by-hand"), TopicNode(topic_id=None, partitions={0: (BrokerId(2), BrokerId(3))}).encode()
    )
    before = await contents(cluster)

    controller = await cluster.reign(2, went_back=PROOF)
    with pytest.raises(RegnumError, match="put back to an earlier state"):
        await create(controller, wanted("more", partitions=1))
    await cluster.register(3)
    await cluster.register(4)
    await until(lambda: {2, 3, 4} <= set(controller.picture.brokers))
    # It heard of the last one by a look that came after everything else, and it still answers.
    health = await describe_health(controller.health, most=20)
    assert health.store_went_back == PROOF
    assert health.partitions == 6
    assert await contents(cluster) == before
    assert all(not broker.requests and not broker.stops for broker in cluster.brokers.values())
    offline = {
        number for number in range(6) if controller.picture.partitions[PartitionKey(kept, number)].trouble is not None
    }
    led_by_3 = {number for number in range(6) if (await cluster.state("kept", number)).leader == 3}
    assert offline >= set(range(6)) - led_by_3
    assert removed not in controller.picture.topics
    (event,) = [
        one for one in cluster.recorded if isinstance(one, OtherEntry) and one.kind == words.EVENT_KIND_STORE_WENT_BACK
    ]
    assert event.detail == PROOF


async def test_a_proof_ends_the_reign_under_way(cluster: FakeCluster) -> None:
    """What a broker writes with its proof (see ``broker.cluster.went_back``) leaves no write of the reign valid."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    epoch = await cluster.outside.get(paths.CONTROLLER_EPOCH)
    await cluster.outside.set(paths.CONTROLLER_EPOCH, epoch.data, version=epoch.stat.version)
    with pytest.raises((RegnumError, DeposedError)):
        await create(controller, wanted("t", partitions=1))
    assert cluster.running is not None
    await until(cluster.running.done)
    assert isinstance(cluster.running.exception(), DeposedError)


async def test_the_proof_is_read_after_a_win(cluster: FakeCluster) -> None:
    await cluster.begin(1)
    store = MemoryStore(cluster.server)
    assert await proof_that_it_went_back(store, SystemClock()) == ""
    node = WentBackNode(broker=BrokerId(2), proof="it knows life 8", at_ms=1)
    await store.create(paths.WENT_BACK, node.encode(), make_parents=True)
    assert await proof_that_it_went_back(store, SystemClock()) == "broker 2: it knows life 8"
    await store.set(paths.WENT_BACK, b"{", version=0)
    assert "cannot be read" in await proof_that_it_went_back(store, SystemClock())
    await store.close()
