"""A reign over a store that went back to an earlier state: it shows what there is, and changes nothing (trace T9)."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import events_pb2 as words
from regnum_coordination.drivers.memory import MemoryStore
from regnum_election.candidacy.whole_tree import proof_that_it_went_back
from regnum_election.health.messages import describe_health
from regnum_election.history.events import OtherEntry
from regnum_election.recovery.calls import RecoveryRequest
from regnum_election.reign.events import LeadershipsFenced
from regnum_election.reign.reign import DeposedError
from regnum_model import paths
from regnum_model.ids import BrokerId, LeaderEpoch, PartitionKey
from regnum_model.nodes import LeaderAndIsr, TopicNode
from regnum_model.nodes.lives import WentBackNode
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_testing.creating import assigned, create, wanted
from regnum_testing.reigning import FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

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


async def test_a_leadership_that_the_log_contradicts_is_offline_and_not_repeated(cluster: FakeCluster) -> None:
    """1 the store says that broker 1 leads. 2 its log knows that epoch, and it refuses. 3 the store still says so."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    id, other = await create(controller, assigned("t", 1, 2, 3), assigned("other", 2, 3, 1))
    await cluster.end_reign()
    key = PartitionKey(id, 0)
    cluster.brokers[BrokerId(1)].fenced.add(key)
    before = await cluster.state("t", 0)
    controller = await cluster.reign(2, corrections_interval_s=0.05)
    await until(lambda: controller.picture.partitions[key].trouble is not None)
    reason = controller.picture.partitions[key].trouble
    assert reason is not None
    assert "knows the leader epoch already" in reason
    # What a person may have corrected is read again and again; this is as it was.
    looks = controller.upkeep.looks_for_corrections
    await until(lambda: controller.upkeep.looks_for_corrections > looks + 3)
    assert controller.picture.partitions[key].trouble == reason
    assert await cluster.state("t", 0) == before
    assert controller.picture.partitions[PartitionKey(other, 0)].trouble is None
    (event,) = [
        one
        for one in cluster.recorded
        if isinstance(one, OtherEntry) and one.kind == words.EVENT_KIND_PARTITION_OUT_OF_REACH
    ]
    assert event.detail == reason
    told = cluster.brokers[BrokerId(1)].told_of(key)
    looks = controller.upkeep.looks_for_corrections
    await until(lambda: controller.upkeep.looks_for_corrections > looks + 3)
    assert cluster.brokers[BrokerId(1)].told_of(key) == told
    for broker in (1, 2, 3):
        cluster.brokers[BrokerId(broker)].logs[key] = control_pb2.ReplicaLogInfo(
            last_written_leader_epoch=broker + 3,
            current_leader_epoch=broker + 3,
            log_end_offset=broker,
            high_watermark=broker,
        )
    wish = RecoveryRequest(topic="t", partitions=(), first_partition=0, accept_loss=True, who="a person")
    found = await controller.recoveries.recover(wish, wait_s=DEADLINE_S)
    assert found.recoveries[0].rejection is None
    state = await cluster.state("t", 0)
    assert (state.leader, state.leader_epoch > 6) == (3, True)
    await until(lambda: cluster.all_told((1, 2, 3), key, 3))


async def test_a_refusal_of_an_order_that_is_over_is_no_evidence(cluster: FakeCluster) -> None:
    """1 the broker refuses. 2 before the controller reads the state again another leader stands in it."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (id,) = await create(controller, assigned("t", 1, 2, 3))
    key = PartitionKey(id, 0)
    path = paths.leader_and_isr("t", 0)
    node = await cluster.outside.get(path)
    state = LeaderAndIsr.decode(node.data)
    later = replace(state, leader=BrokerId(2), leader_epoch=LeaderEpoch(1))
    await cluster.outside.set(path, later.encode(), version=node.stat.version)
    epoch = cluster.brokers[BrokerId(1)].epoch
    controller.queue.put(LeadershipsFenced(broker=BrokerId(1), epoch=epoch, keys=frozenset({key})))
    await until(lambda: cluster.all_told((2,), key, 2))
    assert controller.picture.partitions[key].trouble is None
