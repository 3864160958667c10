"""Brokers that die, bounce, are fenced or stop: who leads then, and who is told."""

from collections.abc import AsyncIterator

import pytest
from regnum_election.controller import Controller
from regnum_election.decisions.relief import CutOff
from regnum_election.reign.events import BrokerDead, IsrsWritten, LeaderCutOff
from regnum_model import paths
from regnum_model.ids import BrokerId, PartitionKey
from regnum_model.insync import with_isr
from regnum_model.nodes import LeaderAndIsr, Membership
from regnum_testing.creating import assigned, create
from regnum_testing.reigning import FakeCluster
from regnum_testing.waiting import DEADLINE_S, until
from structlog.testing import capture_logs


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


async def test_broker_death_moves_leadership(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (id,) = await create(controller, assigned("t", 1, 2, 3))
    key = PartitionKey(id, 0)
    cluster.kill(1)
    await until(lambda: cluster.all_told((2, 3), key, 2))
    state = await cluster.state("t", 0)
    assert (state.leader, state.leader_epoch, state.isr) == (2, 1, (2, 3))


async def test_follower_death_shrinks_the_isr_and_tells_the_leader_alone(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (id,) = await create(controller, assigned("t", 1, 2, 3))
    key = PartitionKey(id, 0)
    before = len(cluster.brokers[BrokerId(2)].requests)
    cluster.kill(3)
    await until(lambda: list(cluster.told(1)[key].state.isr) == [1, 2])
    state = await cluster.state("t", 0)
    assert (state.leader, state.leader_epoch, state.isr) == (1, 0, (1, 2))
    assert len(cluster.brokers[BrokerId(2)].requests) == before


async def test_last_member_is_kept_and_leads_again_when_back(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    (id,) = await create(controller, assigned("t", 1, 2))
    cluster.kill(1)
    await until(lambda: cluster.all_told((2,), PartitionKey(id, 0), 2))
    cluster.kill(2)

    async def offline() -> bool:
        return (await cluster.state("t", 0)).leader == -1

    await until(offline)
    state = await cluster.state("t", 0)
    assert state.isr == (2,)
    assert state.elr == (1,)
    back = await cluster.register(1)
    await until(lambda: back.leaders().get(PartitionKey(id, 0)) == 1, what="the eligible replica leads")
    state = await cluster.state("t", 0)
    assert state.members[BrokerId(1)].broker_epoch == back.epoch


async def test_bounce_gets_a_new_epoch_before_init(cluster: FakeCluster) -> None:
    """A leader that comes back faster than anybody notices has failed first (safety rule S10)."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (id,) = await create(controller, assigned("t", 1, 2, 3))
    cluster.server.hold_watches()
    old = cluster.brokers[BrokerId(1)]
    back = await cluster.register(1)
    assert back.epoch > old.epoch
    cluster.server.release_watches()
    key = PartitionKey(id, 0)
    await until(lambda: key in back.states)
    first = back.requests[0]
    assert first.init
    assert first.broker_epoch == back.epoch
    assert first.partitions[0].state.leader == 2
    assert first.partitions[0].state.leader_epoch == 1
    assert 1 not in first.partitions[0].state.isr


async def test_fence_by_lifeline(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (id,) = await create(controller, assigned("t", 1, 2, 3))
    dead = cluster.brokers[BrokerId(1)]
    controller.queue.put(BrokerDead(broker=dead.id, epoch=dead.epoch, registration=dead.registration, evidence="test"))
    await until(lambda: cluster.all_told((2, 3), PartitionKey(id, 0), 2))
    assert await cluster.outside.exists(paths.broker_id(dead.id)) is None
    guard = await cluster.outside.exists(paths.broker_epoch(dead.id))
    assert guard is not None
    assert guard.version == dead.registration + 1


async def test_fence_of_an_earlier_registration_changes_nothing(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (id,) = await create(controller, assigned("t", 1, 2, 3))
    old = cluster.brokers[BrokerId(1)]
    back = await cluster.register(1)
    controller.queue.put(BrokerDead(broker=old.id, epoch=old.epoch, registration=old.registration, evidence="test"))
    await until(lambda: PartitionKey(id, 0) in back.states)
    assert await cluster.outside.exists(paths.broker_id(old.id)) is not None


async def test_controlled_shutdown_moves_leaders_and_isrs(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (led, followed, alone) = await create(controller, assigned("a", 1, 2), assigned("b", 2, 1), assigned("c", 1))
    broker = cluster.brokers[BrokerId(1)]
    departure = await controller.brokers.controlled_shutdown(broker.id, broker.epoch, wait_s=DEADLINE_S)
    assert departure.remaining == 1
    assert (await cluster.state("a", 0)).leader == 2
    assert (await cluster.state("a", 0)).isr == (2,)
    assert (await cluster.state("b", 0)).isr == (2,)
    assert (await cluster.state("c", 0)).leader == 1
    await until(lambda: cluster.all_told((1, 2), PartitionKey(led, 0), 2))
    await until(lambda: any(stop.topic_id == followed and not stop.delete for stop in broker.stops))
    assert not any(stop.topic_id == alone for stop in broker.stops)


async def test_controlled_shutdown_of_an_earlier_registration_is_refused(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    old = cluster.brokers[BrokerId(1)].epoch
    await cluster.register(1)
    controller = await cluster.reign()
    with pytest.raises(Exception, match="registered again"):
        await controller.brokers.controlled_shutdown(BrokerId(1), old, wait_s=DEADLINE_S)


async def test_leaders_go_back_to_preferred_replicas(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign(balance_interval_s=0.05)
    (id,) = await create(controller, assigned("t", 1, 2))
    key = PartitionKey(id, 0)
    cluster.kill(1)
    await until(lambda: cluster.all_told((2,), key, 2))
    back = await cluster.register(1)
    path = paths.leader_and_isr("t", 0)
    node = await cluster.outside.get(path)
    joined = with_isr(
        LeaderAndIsr.decode(node.data),
        (BrokerId(2), BrokerId(1)),
        min_insync=2,
        joining={BrokerId(1): Membership(broker_epoch=back.epoch, log_id=back.log_id)},
    )
    await cluster.outside.set(path, joined.encode(), version=node.stat.version)
    controller.queue.put(IsrsWritten.unseen({key}))
    await until(lambda: cluster.all_told((1, 2), key, 1))
    assert (await cluster.state("t", 0)).leader_epoch == 2


async def cut_off(cluster: FakeCluster, controller: Controller, leader: int, *followers: int) -> None:
    event = LeaderCutOff(
        leader=BrokerId(leader),
        epoch=cluster.brokers[BrokerId(leader)].epoch,
        cut_off=CutOff(followers=frozenset(BrokerId(id) for id in followers), isolated=frozenset()),
    )
    controller.queue.put(event)
    # The queue is empty, and what came after the event has been done.
    await controller.brokers.controlled_shutdown(BrokerId(4), cluster.brokers[BrokerId(4)].epoch, wait_s=DEADLINE_S)


async def test_a_leader_cut_off_from_its_followers_hands_over_once_in_a_while(cluster: FakeCluster) -> None:
    """Each partition on its own: followers that reach the leader keep it."""
    await cluster.begin(1, 2, 3, 4)
    controller = await cluster.reign()
    moved, _ = await create(controller, assigned("moved", 1, 2, 3), assigned("kept", 1, 2, 4))
    await cut_off(cluster, controller, 1, 2)
    assert (await cluster.state("moved", 0)).leader == 1
    await cut_off(cluster, controller, 1, 2, 3)
    state = await cluster.state("moved", 0)
    assert (state.leader, state.leader_epoch, state.isr, state.elr) == (2, 1, (2, 3), ())
    await until(lambda: cluster.all_told((1, 2, 3), PartitionKey(moved, 0), 2))
    state = await cluster.state("kept", 0)
    assert (state.leader, state.leader_epoch) == (1, 0)

    # Now the other way round: the partition has moved a moment ago.
    path = paths.leader_and_isr("moved", 0)
    node = await cluster.outside.get(path)
    found = LeaderAndIsr.decode(node.data)
    epoch = cluster.brokers[BrokerId(1)].epoch
    joined = {BrokerId(1): Membership(broker_epoch=epoch, log_id=cluster.brokers[BrokerId(1)].log_id)}
    grown = with_isr(found, (*found.isr, BrokerId(1)), min_insync=2, joining=joined)
    await cluster.outside.set(path, grown.encode(), version=node.stat.version)
    controller.queue.put(IsrsWritten.unseen({PartitionKey(moved, 0)}))

    def known() -> bool:
        held = controller.picture.partitions[PartitionKey(moved, 0)].held
        return held is not None and held.state == grown

    await until(known)
    await cut_off(cluster, controller, 2, 1, 3)
    assert (await cluster.state("moved", 0)).leader == 2


async def test_a_cut_is_judged_by_the_isr_that_the_write_checks(cluster: FakeCluster) -> None:
    """The leader has shrunk its ISR to itself, and the controller has not heard of it yet."""
    await cluster.begin(1, 2, 3, 4)
    controller = await cluster.reign()
    await create(controller, assigned("t", 1, 2, 3))
    path = paths.leader_and_isr("t", 0)
    node = await cluster.outside.get(path)
    shrunk = with_isr(LeaderAndIsr.decode(node.data), (BrokerId(1),), min_insync=2)
    await cluster.outside.set(path, shrunk.encode(), version=node.stat.version)
    await cut_off(cluster, controller, 1, 2, 3)
    state = await cluster.state("t", 0)
    assert (state.leader, state.leader_epoch, state.isr, state.elr) == (1, 0, (1,), (2, 3))


@pytest.mark.parametrize("name", ["nobody", str(2**31), "9" * 5_000])
async def test_a_node_whose_name_is_no_id_is_nobodys_registration(cluster: FakeCluster, name: str) -> None:
    """No message carries such an id: each controller would end with it, one after another."""
    await cluster.begin(1)
    registration = await cluster.outside.get(paths.broker_id(BrokerId(1)))
    elsewhere = registration.data.replace(b"0001", b"0009")
    for folder in (paths.BROKER_IDS, paths.BROKER_EPOCHS, paths.DRAINING):
        await cluster.outside.create(f"{folder}/{name}", elsewhere)
    with capture_logs() as logs:
        controller = await cluster.reign()
        await create(controller, assigned("t", 1))
        await until(lambda: cluster.metadata.topics == {"t": {0: 1}})
    assert list(controller.picture.brokers) == [1]
    assert not controller.picture.draining
    ignored = {entry["path"] for entry in logs if entry["event"] == "registration ignored"}
    assert ignored == {f"{paths.BROKER_IDS}/{name}"}
