"""Of the places of those that move none is kept by what cannot go on."""

from collections.abc import AsyncIterator

import pytest
from regnum_election.controller import Controller
from regnum_election.reign.events import ReplicasOffline
from regnum_election.reign.writability import DiskSaid
from regnum_model import paths
from regnum_model.ids import BrokerId, PartitionKey
from regnum_testing.moving import arrived, ask, catch_up, created, grown, ids
from regnum_testing.reigning import FakeCluster
from regnum_testing.waiting import until

FULL = BrokerId(3)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    await cluster.begin(1, 2, 3, 4)
    yield cluster
    await cluster.close()


async def with_one_place(cluster: FakeCluster) -> Controller:
    controller = await cluster.reign()
    controller._reassigner._moving_max = 1  # type: ignore[misc]
    return controller


async def says_of_its_disk(cluster: FakeCluster, controller: Controller, because: str) -> None:
    said = DiskSaid(
        broker=FULL,
        epoch=cluster.brokers[FULL].epoch,
        free_bytes=0,
        size_bytes=1,
        refuses_because=because,
    )
    controller.health.heard_of(said)
    await until(lambda: (FULL in controller.health.writability.refusing) is bool(because))


async def test_a_place_is_not_held_by_one_whose_new_replica_cannot_be_used(cluster: FakeCluster) -> None:
    controller = await with_one_place(cluster)
    id = await created(controller, "t", (1, 2), (1, 2))
    assert await ask(controller, "t", {0: (1, 3)}) == [None]
    await grown(cluster, "t", 0, 1, 2, 3)
    assert await ask(controller, "t", {1: (2, 4)}) == [None]
    offline = ReplicasOffline(broker=FULL, epoch=cluster.brokers[FULL].epoch, keys=frozenset({PartitionKey(id, 0)}))
    controller.queue.put(offline)
    await grown(cluster, "t", 1, 1, 2, 4)
    waiting = {one.key.partition: one.waits_for for one in (await controller.reassignments.ongoing(())).reassignments}
    assert waiting[0].startswith("brokers [3] cannot use their replicas")


async def test_a_broker_that_appends_no_records_holds_no_places_and_gets_none_until_it_does(
    cluster: FakeCluster,
) -> None:
    controller = await with_one_place(cluster)
    await created(controller, "t", (1, 2), (1, 2), (1, 2))
    assert await ask(controller, "t", {0: (1, 3)}) == [None]
    await grown(cluster, "t", 0, 1, 2, 3)
    assert await ask(controller, "t", {1: (2, 3), 2: (2, 4)}) == [None, None]
    await says_of_its_disk(cluster, controller, "its disk is full")
    await grown(cluster, "t", 2, 1, 2, 4)
    assert (await cluster.topic("t")).partitions[1] == ids(1, 2), "it would be filled by nobody"
    await catch_up(cluster, "t", 2, 4)
    await arrived(cluster, "t", 2, 2, 4)
    await says_of_its_disk(cluster, controller, "")
    await catch_up(cluster, "t", 0, 3)
    await arrived(cluster, "t", 0, 1, 3)
    await grown(cluster, "t", 1, 1, 2, 3)


async def test_partitions_of_a_topic_that_cannot_be_written_are_not_tried_before_all_others_for_ever(
    cluster: FakeCluster,
) -> None:
    controller = await with_one_place(cluster)
    for name in ("moving", "damaged", "sound"):
        await created(controller, name, (1, 2), (1, 2))
    assert await ask(controller, "moving", {0: (1, 3)}) == [None]
    await grown(cluster, "moving", 0, 1, 2, 3)
    assert await ask(controller, "damaged", {0: (1, 3), 1: (1, 3)}) == [None, None]
    assert await ask(controller, "sound", {0: (1, 4)}) == [None]
    await cluster.outside.set(paths.topic("damaged"), b"{", version=None)
    agent = controller._reassigner
    looks = agent.looks
    await catch_up(cluster, "moving", 0, 3)
    await grown(cluster, "sound", 0, 1, 2, 4)
    assert agent.looks - looks < 15, "it begins with the next looks, and not with the next scan"
