"""Topics that people write into the store and take out of it (safety rule S14)."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from regnum_model import paths
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_testing.creating import create, wanted
from regnum_testing.reigning import FakeCluster
from regnum_testing.waiting import until


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


async def test_hand_written_topic_is_taken_up(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await cluster.outside.create(paths.topic("bare"), b'{"0":[1,2],"1":[3,1]}')
    await until(lambda: "bare" in controller.picture.names)
    id = controller.picture.names["bare"]
    await until(lambda: cluster.all_told((1, 2), PartitionKey(id, 0), 1))
    await until(lambda: cluster.all_told((1, 3), PartitionKey(id, 1), 3))
    node = await cluster.topic("bare")
    assert node.topic_id == id
    assert not node.creating
    assert await cluster.outside.exists(paths.topic_id(id)) is not None


async def test_hand_written_garbage_is_left_alone(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await cluster.outside.create(paths.topic("broken"), b"{not json")
    await create(controller, wanted("fine"))
    assert "broken" not in controller.picture.names
    assert (await cluster.outside.get(paths.topic("broken"))).data == b"{not json"


async def test_topic_removed_by_hand_is_deleted(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    (id,) = await create(controller, wanted("t", factor=2))
    for path in (paths.leader_and_isr("t", 0), paths.partition("t", 0), paths.topic("t")):
        await cluster.outside.delete(path, version=None)
    for number in (1, 2):
        broker = cluster.brokers[BrokerId(number)]
        await until(lambda broker=broker: any(stop.topic_id == id and stop.delete for stop in broker.stops))

    async def gone() -> bool:
        return (
            await cluster.outside.exists(paths.topic_id(id)) is None
            and await cluster.outside.exists(paths.deletion(id)) is None
        )

    await until(gone)
    assert id not in controller.picture.topics


async def test_topic_removed_by_hand_while_no_controller_reigned(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    (id,) = await create(controller, wanted("t", factor=2))
    await cluster.end_reign()
    for path in (paths.leader_and_isr("t", 0), paths.partition("t", 0), paths.topic("t")):
        await cluster.outside.delete(path, version=None)
    await cluster.reign(2)
    broker = cluster.brokers[BrokerId(1)]
    await until(lambda: any(stop.topic_id == id and stop.delete for stop in broker.stops))

    async def gone() -> bool:
        return await cluster.outside.exists(paths.deletion(id)) is None

    await until(gone)
    assert await cluster.outside.exists(paths.topic_id(id)) is None


async def test_missing_state_is_offline_and_never_epoch_zero(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    (id,) = await create(controller, wanted("t", factor=2))
    await cluster.end_reign()
    await cluster.outside.delete(paths.leader_and_isr("t", 0), version=None)
    following = await cluster.reign(2)
    partition = following.picture.partitions[PartitionKey(id, 0)]
    assert partition.trouble is not None
    assert await cluster.outside.exists(paths.leader_and_isr("t", 0)) is None
    await until(lambda: cluster.metadata.topics == {"t": {0: -1}})


async def test_a_mistyped_topic_id_deletes_nothing(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    (id,) = await create(await cluster.reign(), wanted("t"))
    await cluster.end_reign()
    mistyped = TopicId("B" * 22)
    cluster.server.overwrite(paths.topic("t"), replace(await cluster.topic("t"), topic_id=mistyped).encode())
    controller = await cluster.reign(2)
    assert controller.picture.partitions[PartitionKey(mistyped, 0)].trouble is not None
    await create(controller, wanted("other"))
    assert await cluster.outside.exists(paths.topic_id(id)) is not None
    assert await cluster.outside.exists(paths.deletion(id)) is None
    assert (await cluster.state("t", 0)).topic_id == id
    assert not any(broker.stops for broker in cluster.brokers.values())
