"""A reign: what it writes, whom it tells, and how it ends."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from regnum.types.v1 import errors_pb2
from regnum_coordination.port import Check
from regnum_election.reign.events import IsrsWritten, Superseded
from regnum_election.reign.reign import DeposedError, Reign
from regnum_model import paths
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, ElectionId, PartitionKey
from regnum_model.nodes import LeaderAndIsr
from regnum_service.errors import RegnumError
from regnum_testing.creating import assigned, create, wanted
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


async def test_create_topic_writes_and_tells(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (id,) = await create(controller, wanted("orders", partitions=4))
    node = await cluster.topic("orders")
    assert node.topic_id == id
    assert not node.creating
    for number in range(4):
        state = await cluster.state("orders", number)
        assert state.leader == node.partitions[number][0]
        assert state.isr == node.partitions[number]
        assert state.leader_epoch == 0
        key = PartitionKey(id, number)
        await until(lambda key=key, state=state: cluster.all_told((1, 2, 3), key, state.leader))
        for broker in (1, 2, 3):
            assert cluster.told(broker)[key].is_new
            assert cluster.told(broker)[key].min_insync_replicas == 2
    leaders = {number: replicas[0] for number, replicas in node.partitions.items()}
    await until(lambda: cluster.metadata.topics == {"orders": leaders})


async def test_next_controller_sends_init_to_all(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await create(controller, wanted("a", partitions=700), wanted("b", partitions=2))
    await cluster.end_reign()
    for broker in cluster.brokers.values():
        broker.requests.clear()
    cluster.kill(3)
    following = await cluster.reign(2)
    assert following.reign.epoch == 2
    for id in (1, 2):
        broker = cluster.brokers[BrokerId(id)]
        await until(lambda broker=broker: sum(len(r.partitions) for r in broker.requests if r.init) == 702)
        parts = [(r.part, r.parts) for r in broker.requests if r.init]
        assert parts == [(0, 2), (1, 2)]
        assert all(p.state.leader != 3 for r in broker.requests for p in r.partitions)

    async def shrunk() -> bool:
        paths_ = [paths.leader_and_isr("a", number) for number in range(700)]
        nodes = await cluster.outside.get_many(paths_)
        return all(node is not None and 3 not in LeaderAndIsr.decode(node.data).isr for node in nodes)

    await until(shrunk)


async def test_unknown_outcome_is_resolved_by_repeating(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (id,) = await create(controller, assigned("t", 1, 2, 3))
    cluster.server.lose_reply(touching=paths.leader_and_isr("t", 0))
    cluster.kill(1)
    await until(lambda: cluster.all_told((2, 3), PartitionKey(id, 0), 2))
    assert (await cluster.state("t", 0)).leader_epoch == 1


async def test_conflict_with_a_leaders_own_write_goes_round_again(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (id,) = await create(controller, assigned("t", 1, 2, 3))
    path = paths.leader_and_isr("t", 0)
    node = await cluster.outside.get(path)
    state = LeaderAndIsr.decode(node.data)
    shrunk = LeaderAndIsr.encode(
        LeaderAndIsr(
            topic_id=state.topic_id,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=(BrokerId(1), BrokerId(3)),
            elr=(),
            members={id: state.members[id] for id in (BrokerId(1), BrokerId(3))},
            controller_epoch=state.controller_epoch,
        )
    )
    await cluster.outside.set(path, shrunk, version=node.stat.version)
    cluster.kill(1)
    await until(lambda: cluster.all_told((2, 3), PartitionKey(id, 0), 3))
    after = await cluster.state("t", 0)
    assert (after.leader, after.isr) == (3, (3,))


async def test_isr_reports_update_the_picture(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (id,) = await create(controller, assigned("t", 1, 2, 3))
    path = paths.leader_and_isr("t", 0)
    node = await cluster.outside.get(path)
    state = LeaderAndIsr.decode(node.data)
    members = {id: state.members[id] for id in (BrokerId(1), BrokerId(2))}
    shrunk = LeaderAndIsr(
        topic_id=state.topic_id,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=(BrokerId(1), BrokerId(2)),
        elr=(),
        members=members,
        controller_epoch=state.controller_epoch,
    )
    await cluster.outside.set(path, shrunk.encode(), version=node.stat.version)
    controller.queue.put(IsrsWritten.unseen({PartitionKey(id, 0)}))

    def known() -> bool:
        held = controller.picture.partitions[PartitionKey(id, 0)].held
        return held is not None and held.state.isr == (1, 2) and held.version == 1

    await until(known)
    assert (await cluster.outside.get(path)).stat.version == 1, "taken up, and not written again"


async def test_a_fenced_write_deposes(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    await cluster.reign()
    stat = await cluster.outside.exists(paths.CONTROLLER_EPOCH)
    assert stat is not None
    await cluster.outside.set(paths.CONTROLLER_EPOCH, b"9", version=stat.version)
    assert cluster.controller is not None
    with pytest.raises(Exception, match="controller changed"):
        await cluster.controller.topics.create((wanted("t"),), validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    assert cluster.running is not None
    with pytest.raises(DeposedError):
        await cluster.running
    assert await cluster.outside.exists(paths.topic("t")) is None


async def test_a_broker_that_has_seen_a_later_epoch_deposes(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    cluster.brokers[BrokerId(2)].controller_epoch = 41
    await cluster.reign()
    assert cluster.running is not None
    with pytest.raises(DeposedError) as deposed:
        await cluster.running
    assert deposed.value.seen == 41


async def test_a_broker_that_shows_an_epoch_out_of_nowhere_deposes_nobody(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    controller.queue.put(Superseded(seen=ControllerEpoch(2**31 - 1)))
    await create(controller, wanted("orders", partitions=1))
    assert cluster.running is not None
    assert not cluster.running.done()


async def test_producer_ids_never_repeat(cluster: FakeCluster) -> None:
    await cluster.begin(1)
    controller = await cluster.reign()
    broker = cluster.brokers[BrokerId(1)]
    first = await controller.brokers.allocate_producer_ids(broker.id, broker.epoch, wait_s=DEADLINE_S)
    await cluster.end_reign()
    following = await cluster.reign(2)
    second = await following.brokers.allocate_producer_ids(broker.id, broker.epoch, wait_s=DEADLINE_S)
    assert first == (0, 1000)
    assert second == (1000, 1000)


async def test_a_slow_broker_does_not_hold_others_up(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    cluster.brokers[BrokerId(3)].held = asyncio.Event()
    controller = await cluster.reign()
    (id,) = await create(controller, assigned("t", 1, 2, 3))
    cluster.kill(1)
    await until(lambda: cluster.all_told((2,), PartitionKey(id, 0), 2))
    held = cluster.brokers[BrokerId(3)].held
    assert held is not None
    held.set()
    await until(lambda: cluster.all_told((3,), PartitionKey(id, 0), 2))


def test_every_write_of_a_reign_is_fenced() -> None:
    reign = Reign(controller_id=ElectionId(1), epoch=ControllerEpoch(3), epoch_version=2)
    assert reign.fence == Check(paths.CONTROLLER_EPOCH, 2)


@pytest.mark.parametrize("call", ["controlled_shutdown", "allocate_producer_ids"])
async def test_a_refusal_that_nobody_waits_for_any_more_does_not_end_the_reign(cluster: FakeCluster, call: str) -> None:
    await cluster.begin(1)
    controller = await cluster.reign()
    assert cluster.controller_store is not None
    session_id = cluster.controller_store.session_id
    cluster.server.disconnect(session_id)
    with pytest.raises(RegnumError) as caught:
        await getattr(controller.brokers, call)(BrokerId(1), BrokerEpoch(1), wait_s=0.05)
    assert caught.value.code == errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT
    cluster.server.reconnect(session_id)
    await create(controller, wanted("later", factor=1))
