"""Brokers that a partition went away from: told to delete it, and named until they have (safety rules S2, S13)."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from regnum_election.controller import Controller
from regnum_election.dispatch.refusals import OFFLINE_INTERVAL_S
from regnum_election.partitions.addition import Added
from regnum_election.partitions.requests import AdditionRequest, RemovalRequest
from regnum_election.topics.requests import DeletionRequest
from regnum_model import paths
from regnum_model.ids import BrokerId, PartitionKey
from regnum_model.reassignment import Reassignment
from regnum_testing.clock import FakeClock
from regnum_testing.moving import WHO, arrived, ask, catch_up, created, grown, ids, stopped
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.standing_by import FakeStandby
from regnum_testing.waiting import DEADLINE_S, until


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


async def test_no_broker_is_told_of_a_partition_that_went_to_others(cluster: FakeCluster) -> None:
    """An order that was put down before the switch is not sent after it: it would make the replica anew."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    key = PartitionKey(await created(controller, "t", (1, 2)), 0)
    await ask(controller, "t", {0: (2, 3)})
    await grown(cluster, "t", 0, 1, 2, 3)
    await until(lambda: cluster.all_told((3,), key, 1))
    away = cluster.brokers[BrokerId(1)]
    away.held = asyncio.Event()
    controller._dispatch.order_states([(BrokerId(1), [key]), (BrokerId(1), [key])])
    await catch_up(cluster, "t", 0, 3)
    await arrived(cluster, "t", 0, 2, 3)
    controller._dispatch.order_states([(BrokerId(1), [key])])
    before = len(away.requests)
    away.held.set()
    await until(lambda: stopped(cluster, 1) == {("t", 0)})
    late = [item for request in away.requests[before:] for item in request.partitions]
    assert all(1 in item.state.replicas for item in late), "only what was under way already"


@pytest.mark.parametrize("what", ["topic", "partition"])
async def test_a_broker_that_lost_a_replica_and_has_it_still_is_named_when_all_of_it_goes(
    cluster: FakeCluster, what: str
) -> None:
    """Without a topic node nobody could tell it any more that its files are not needed (safety rule S13)."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    id = await created(controller, "t", (2, 3), (1, 2))
    key = PartitionKey(id, 1)
    await ask(controller, "t", {1: (2, 3)})
    await grown(cluster, "t", 1, 1, 2, 3)
    await until(lambda: cluster.all_told((3,), key, 1))
    cluster.brokers[BrokerId(1)].down = True
    await catch_up(cluster, "t", 1, 3)
    await arrived(cluster, "t", 1, 2, 3)
    await until(lambda: controller._dispatch.departing.of_partition(key) == {1})
    if what == "topic":
        request = DeletionRequest(name="t", topic_id="", mutation=None)
        await controller.topics.delete([request], wait_s=DEADLINE_S, account=ANYBODY)
        assert BrokerId(1) in controller._context.deletions[id].recorded
    else:
        removal = RemovalRequest(name="t", topic_id="", partitions=(1,), mutation=None)
        await controller.partitions.remove([removal], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
        cluster.brokers[BrokerId(1)].down = False
        await until(
            lambda: any(stop.partition == 1 and not stop.reassigned for stop in cluster.brokers[BrokerId(1)].stops)
        )


async def test_a_broker_that_has_confirmed_is_not_named(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    id = await created(controller, "t", (1, 2))
    await ask(controller, "t", {0: (2, 3)})
    await grown(cluster, "t", 0, 1, 2, 3)
    await catch_up(cluster, "t", 0, 3)
    await arrived(cluster, "t", 0, 2, 3)
    await until(lambda: stopped(cluster, 1) == {("t", 0)})
    await until(lambda: not controller._dispatch.departing.of_topic(id))
    assert stopped(cluster, 1) == {("t", 0)}, "once"


async def test_a_broker_is_asked_no_more_about_a_damaged_replica_that_went_to_others() -> None:
    clock = FakeClock()
    cluster = FakeCluster(clock)
    await cluster.begin(1, 2, 3, 4)
    controller = await cluster.reign()
    key = PartitionKey(await created(controller, "t", (1, 2, 3)), 0)
    await until(lambda: key in cluster.told(2))
    cluster.brokers[BrokerId(2)].offline.add(key)
    controller._context.dispatch.order_states([(BrokerId(2), [key])])

    async def out() -> bool:
        return (await cluster.state("t", 0)).isr == ids(1, 3)

    await until(out)
    delivery = controller._dispatch._brokers[BrokerId(2)]
    assert delivery._unusable.next_s is not None
    assert await ask(controller, "t", {0: (1, 3, 4)}) == [None]
    await grown(cluster, "t", 0, 1, 2, 3, 4)
    await catch_up(cluster, "t", 0, 4)

    async def is_told_to_delete() -> bool:
        # What arrives one after another, and what follows a switch, is looked after by the clock.
        await clock.advance(0.1)
        return stopped(cluster, 2) == {("t", 0)}

    await until(is_told_to_delete)
    await arrived(cluster, "t", 0, 1, 3, 4)
    await clock.advance(OFFLINE_INTERVAL_S)
    assert delivery._unusable.next_s is None
    await cluster.close()


@pytest.mark.parametrize("known", ["before", "after"])
async def test_a_damaged_replica_is_given_back_once_it_is_deleted(cluster: FakeCluster, known: str) -> None:
    """Its broker keeps what a reassignment brings back to it, so it would be the damaged one again."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    key = PartitionKey(await created(controller, "t", (1, 2)), 0)
    await until(lambda: cluster.all_told((1, 2), key, 1))
    damaged = cluster.brokers[BrokerId(2)]

    def tell() -> None:
        registered = controller._context.picture.brokers[BrokerId(2)]
        controller._dispatch._desk.listener.replicas_offline(BrokerId(2), registered.epoch, frozenset({key}))

    if known == "before":
        damaged.offline.add(key)
        tell()
        await until(lambda: controller._context.picture.offline_at(key) == {2})
    await ask(controller, "t", {0: (1, 3)})
    await grown(cluster, "t", 0, 1, 2, 3)
    await until(lambda: cluster.all_told((3,), key, 1))
    damaged.down = True
    await catch_up(cluster, "t", 0, 3)
    await arrived(cluster, "t", 0, 1, 3)
    if known == "after":
        tell()
    departing = controller._dispatch.departing
    await until(lambda: departing.damaged(key) == {2})
    (refused,) = await ask(controller, "t", {0: (1, 2, 3)})
    assert refused is not None
    assert "have still to delete" in refused.message
    damaged.down = False
    await until(lambda: not departing.of_partition(key))
    assert await ask(controller, "t", {0: (1, 2, 3)}) == [None]


async def moved_from_a_dead_broker(cluster: FakeCluster) -> tuple[Controller, PartitionKey]:
    """Partition 1 of topic t went from brokers 1 and 2 to 2 and 3 while 1 was away."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    key = PartitionKey(await created(controller, "t", (2, 3), (1, 2)), 1)
    await until(lambda: cluster.all_told((1, 2), key, 1))
    cluster.kill(1)
    await until(lambda: 1 not in controller.picture.brokers)
    assert await ask(controller, "t", {1: (2, 3)}) == [None]
    await grown(cluster, "t", 1, 1, 2, 3)
    await catch_up(cluster, "t", 1, 3)
    await arrived(cluster, "t", 1, 2, 3)
    assert (await cluster.topic("t")).left == {1: (1,)}
    # The store has it before the controller's picture does.
    await until(lambda: controller._dispatch.departing.of_partition(key) == {1} and not controller.picture.reassigning)
    return controller, key


async def another_reign(cluster: FakeCluster, successor: str) -> Controller:
    standby = FakeStandby(lambda: cluster.controller, cluster.clock)
    standby.start()
    await until(standby.has_all)
    followed = await standby.follower.take() if successor == "from a standby" else None
    await cluster.end_reign()
    await standby.close()
    controller = await cluster.reign(2, followed=followed)
    await until(lambda: controller.queue.is_empty and controller._in_hand is None)
    return controller


async def nobody_left(cluster: FakeCluster, topic: str) -> None:
    async def confirmed() -> bool:
        return not (await cluster.topic(topic)).left

    await until(confirmed, what="everybody has confirmed")


SUCCESSORS = ["the same", "from nothing", "from a standby"]


@pytest.mark.parametrize("successor", SUCCESSORS)
async def test_a_number_is_given_again_when_those_it_was_moved_from_have_deleted_it(
    cluster: FakeCluster, successor: str
) -> None:
    """Or the new partition would begin with records of the old one (safety rules S2 and S13)."""
    controller, key = await moved_from_a_dead_broker(cluster)
    if successor != "the same":
        controller = await another_reign(cluster, successor)
    removal = RemovalRequest(name="t", topic_id="", partitions=(1,), mutation=None)
    await controller.partitions.remove([removal], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    removals = controller._context.removals
    await until(lambda: not removals.begun and removals.waiting_for(key.topic_id, (1,)) == {1})
    assert not (await cluster.topic("t")).left
    await cluster.register(1)
    await until(lambda: not len(removals))
    assert [(stop.partition, stop.reassigned) for stop in cluster.brokers[BrokerId(1)].stops] == [(1, False)]
    addition = AdditionRequest(name="t", total=0, assignment=[(1, ids(1, 2))], mutation=None)
    added = await controller.partitions.add([addition], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    assert added.outcomes == (Added(total=2),)


@pytest.mark.parametrize("successor", SUCCESSORS)
async def test_those_a_partition_was_moved_from_delete_it_with_its_topic(cluster: FakeCluster, successor: str) -> None:
    controller, key = await moved_from_a_dead_broker(cluster)
    if successor != "the same":
        controller = await another_reign(cluster, successor)
    request = DeletionRequest(name="t", topic_id="", mutation=None)
    await controller.topics.delete([request], wait_s=DEADLINE_S, account=ANYBODY)
    await until(lambda: controller._context.deletions[key.topic_id].remaining == {1})
    await cluster.register(1)
    await until(lambda: not len(controller._context.deletions))
    assert [(stop.topic_id, stop.partition) for stop in cluster.brokers[BrokerId(1)].stops] == [(key.topic_id, -1)]


@pytest.mark.parametrize("successor", SUCCESSORS)
async def test_a_broker_that_was_away_when_its_partition_left_is_told_when_it_is_back_and_named_until_then(
    cluster: FakeCluster, successor: str
) -> None:
    controller, key = await moved_from_a_dead_broker(cluster)
    if successor != "the same":
        controller = await another_reign(cluster, successor)
    await cluster.register(1)
    await until(lambda: stopped(cluster, 1) == {("t", 1)})
    await nobody_left(cluster, "t")
    assert not controller._context.dispatch.departing.of_partition(key)
    assert not controller._reassigner.is_open
    assert controller.picture.topics[key.topic_id].version == (await cluster.outside.get(paths.topic("t"))).stat.version


async def test_a_broker_that_has_a_part_in_a_partition_again_has_confirmed_nothing(cluster: FakeCluster) -> None:
    """It deletes nothing then, and a move that is cancelled before it begins leaves its old files."""
    controller, key = await moved_from_a_dead_broker(cluster)
    departing = controller._context.dispatch.departing
    # Asked for and not begun: nobody may be moved while its target is away.
    picture = controller._context.picture
    partition = picture.partitions[key]
    move = Reassignment(origin=partition.replicas, target=ids(1, 2))
    controller._context.picture = picture.with_assignments({key: (partition.replicas, move)})
    controller._context.dispatch.show(controller._context.picture)
    await cluster.register(1)
    await until(lambda: stopped(cluster, 1) == {("t", 1)})
    await until(lambda: controller.queue.is_empty and controller._in_hand is None)
    assert departing.of_partition(key) == {1}


async def test_a_broker_that_is_forgotten_is_named_no_more(cluster: FakeCluster) -> None:
    controller, key = await moved_from_a_dead_broker(cluster)
    await controller.forgetting.forget(BrokerId(1), validate_only=False, who=WHO, wait_s=DEADLINE_S)
    await nobody_left(cluster, "t")
    assert not controller._context.dispatch.departing.of_partition(key)


async def test_a_broker_that_gets_a_partition_back_is_named_no_more(cluster: FakeCluster) -> None:
    controller, key = await moved_from_a_dead_broker(cluster)
    controller._context.dispatch.departing.told(BrokerId(1), [key])
    assert await ask(controller, "t", {1: (3, 1)}, validate_only=True) is not None
    await cluster.register(1)
    await until(lambda: 1 in controller.picture.brokers)
    await ask(controller, "t", {1: (3, 1)})
    await grown(cluster, "t", 1, 2, 3, 1)
    assert 1 not in (await cluster.topic("t")).left.get(1, ())
    assert 1 not in controller._context.dispatch.departing.of_partition(key)
