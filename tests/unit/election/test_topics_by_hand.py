"""Topics that people write into the store and take out of it (safety rule S14)."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from regnum.types.v1 import events_pb2 as words
from regnum_coordination.port import Delete
from regnum_election.health.messages import describe_health
from regnum_election.history.events import OtherEntry
from regnum_model import paths
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_model.nodes import TopicIdNode
from regnum_testing.creating import create, wanted
from regnum_testing.interrupted_store import Act, interrupted
from regnum_testing.reigning import FakeCluster
from regnum_testing.standing_by import FakeStandby
from regnum_testing.waiting import until

SOON_S = 0.02
"""How often corrections are looked for in some of these tests."""


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


async def test_a_new_topic_with_a_gap_in_its_numbers_is_damaged_until_it_is_corrected(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    await cluster.outside.create(paths.topic("gap"), b'{"1":[1,2]}')
    await until(lambda: "gap" in controller._context.refused)
    (damaged,) = (await describe_health(controller.health, most=5)).damaged
    assert (damaged.topic, damaged.partition) == ("gap", -1)
    assert "misses [0]" in damaged.reason
    assert "gap" not in controller.picture.names
    assert (await cluster.outside.get(paths.topic("gap"))).data == b'{"1":[1,2]}'
    cluster.server.overwrite(paths.topic("gap"), b'{"0":[1,2],"1":[1,2]}')
    await until(lambda: "gap" in controller.picture.names)
    await until(lambda: cluster.metadata.topics == {"gap": {0: 1, 1: 1}})
    assert not (await describe_health(controller.health, most=5)).damaged


@pytest.mark.parametrize("successor", ["from nothing", "from a standby"])
async def test_a_topic_that_runs_keeps_its_leaders_and_is_damaged_while_its_node_misses_a_partition(
    cluster: FakeCluster, successor: str
) -> None:
    """It may have records. What a reign before this rule had taken up runs on, too."""
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    (id,) = await create(controller, wanted("t", partitions=2, factor=2))
    whole = await cluster.topic("t")
    gap = replace(whole, partitions={1: whole.partitions[1]})
    await cluster.end_reign()
    cluster.server.overwrite(paths.topic("t"), gap.encode())
    # As release 0.1.0 wrote it: nothing says what was accepted.
    cluster.server.overwrite(paths.topic_id(id), TopicIdNode(topic="t").encode())
    controller = await cluster.reign(2)
    leader = (await cluster.state("t", 1)).leader
    if successor == "from a standby":
        standby = FakeStandby(lambda: cluster.controller, cluster.clock)
        standby.start()
        await until(standby.has_all)
        followed = await standby.follower.take()
        await cluster.end_reign()
        await standby.close()
        controller = await cluster.reign(3, followed=followed, corrections_interval_s=SOON_S)
    else:
        await cluster.end_reign()
        controller = await cluster.reign(3, corrections_interval_s=SOON_S)
    await until(lambda: "t" in controller._context.incomplete)
    (damaged,) = (await describe_health(controller.health, most=5)).damaged
    assert (damaged.topic, damaged.partition) == ("t", -1)
    assert "misses [0]" in damaged.reason
    assert controller.picture.partitions[PartitionKey(id, 1)].is_led
    await until(lambda: cluster.metadata.topics == {"t": {1: leader}})
    cluster.server.overwrite(paths.topic("t"), whole.encode())
    await until(lambda: PartitionKey(id, 0) in controller.picture.partitions)
    await until(lambda: set(cluster.metadata.topics["t"]) == {0, 1})
    assert controller.picture.partitions[PartitionKey(id, 0)].is_led
    assert not (await describe_health(controller.health, most=5)).damaged


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


async def test_a_topic_whose_guard_went_with_it_is_deleted_nowhere_and_told_of(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    (id,) = await create(controller, wanted("t", factor=2))
    for path in (paths.leader_and_isr("t", 0), paths.partition("t", 0)):
        await cluster.outside.delete(path, version=None)
    both = [Delete(path, None) for path in (paths.topic("t"), paths.topic_id(id))]
    await cluster.outside.multi(both)
    key = PartitionKey(id, 0)
    await until(lambda: "both gone" in (controller.picture.partitions[key].trouble or ""))
    kind = words.EVENT_KIND_PARTITION_OUT_OF_REACH
    (told,) = [one for one in cluster.recorded if isinstance(one, OtherEntry) and one.kind == kind]
    assert (told.topic, told.partition, "both gone" in told.detail) == ("t", 0, True)

    async def listed() -> bool:
        return [one.topic for one in (await describe_health(controller.health, most=9)).troubled_partitions] == ["t"]

    await until(listed)
    assert not any(stop.delete for broker in cluster.brokers.values() for stop in broker.stops)


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


async def remove(cluster: FakeCluster, name: str) -> Act:
    """Remove a topic of one partition by hand; what restores it as it was."""
    nodes = (paths.topic(name), paths.partition(name, 0), paths.leader_and_isr(name, 0))
    kept = [(path, (await cluster.outside.get(path)).data) for path in nodes]

    async def restore() -> None:
        for path, data in kept:
            await cluster.outside.create(path, data)

    for path in reversed(nodes):
        await cluster.outside.delete(path, version=None)
    return restore


async def nothing_is_deleted(cluster: FakeCluster, id: TopicId) -> None:
    assert await cluster.outside.exists(paths.deletion(id)) is None
    assert await cluster.outside.exists(paths.topic_id(id)) is not None
    assert (await cluster.topic("t")).topic_id == id
    assert not any(stop.delete for broker in cluster.brokers.values() for stop in broker.stops)


async def test_a_topic_that_is_there_again_before_its_deletion_is_recorded_stays(cluster: FakeCluster) -> None:
    """Step 1: the controller finds topic node gone and guard standing. Step 2: restored. Step 3: the record."""
    await cluster.begin(1, 2)
    acts: dict[str, Act] = {}
    interrupted(cluster, acts)
    controller = await cluster.reign()
    (id,) = await create(controller, wanted("t", factor=2))
    before = controller.picture.topics[id].creation_id
    cluster.server.hold_watches()
    acts[paths.deletion(id)] = await remove(cluster, "t")
    cluster.server.release_watches()
    await until(lambda: id not in controller.picture.topics or controller.picture.topics[id].creation_id != before)
    await create(controller, wanted("later", factor=2))
    assert not acts, "the deletion was about to be recorded"
    assert controller.picture.partitions[PartitionKey(id, 0)].trouble is None
    assert controller.picture.partitions[PartitionKey(id, 0)].is_led
    assert controller.picture.topics[id].creation_id == (await cluster.outside.get(paths.topic("t"))).stat.creation_id
    await nothing_is_deleted(cluster, id)


async def test_a_topic_that_is_there_again_before_a_reign_records_its_deletion_stays(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    (id,) = await create(controller, wanted("t", factor=2))
    await cluster.end_reign()
    acts = {paths.deletion(id): await remove(cluster, "t")}
    interrupted(cluster, acts)
    following = await cluster.reign(2)
    await until(lambda: id in following.picture.topics and following.picture.partitions[PartitionKey(id, 0)].is_led)
    assert not acts, "the deletion was about to be recorded"
    assert following.picture.partitions[PartitionKey(id, 0)].trouble is None
    await nothing_is_deleted(cluster, id)


async def test_a_guard_that_goes_before_a_reign_records_a_deletion_means_none(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    (id,) = await create(controller, wanted("t", factor=2))
    await cluster.end_reign()
    await remove(cluster, "t")
    acts: dict[str, Act] = {paths.deletion(id): lambda: cluster.outside.delete(paths.topic_id(id), version=None)}
    interrupted(cluster, acts)
    following = await cluster.reign(2)
    assert not acts, "the deletion was about to be recorded"
    await create(following, wanted("other", factor=2))
    assert await cluster.outside.exists(paths.deletion(id)) is None
    assert not any(stop.delete for broker in cluster.brokers.values() for stop in broker.stops)


async def test_a_topic_node_that_comes_back_while_the_topic_is_deleted_goes_with_its_guard(
    cluster: FakeCluster,
) -> None:
    """The record stands, so it is a deletion; a node left without its guard would be damage for ever."""
    await cluster.begin(1, 2)
    acts: dict[str, Act] = {}
    interrupted(cluster, acts)
    controller = await cluster.reign()
    (id,) = await create(controller, wanted("t", factor=2))
    data = (await cluster.outside.get(paths.topic("t"))).data

    async def write_back() -> None:
        await cluster.outside.create(paths.topic("t"), data)

    async def the_last_write_is_next() -> None:
        acts[paths.topic_id(id)] = write_back

    acts[paths.deletion(id)] = the_last_write_is_next
    await remove(cluster, "t")
    await until(lambda: id not in controller.picture.topics)

    async def gone() -> bool:
        return await cluster.outside.exists(paths.deletion(id)) is None

    await until(gone)
    assert not acts, "it was written back before the guard went"
    assert await cluster.outside.exists(paths.topic_id(id)) is None
    assert await cluster.outside.exists(paths.topic("t")) is None
    (again,) = await create(controller, wanted("t", factor=2))
    assert again != id


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


@pytest.mark.parametrize("recorded", [True, False])
async def test_a_mistyped_topic_id_deletes_nothing(cluster: FakeCluster, recorded: bool) -> None:
    """Where the guard records the assignment, the topic even runs on; release 0.1.0 did not record it."""
    await cluster.begin(1, 2, 3)
    (id,) = await create(await cluster.reign(), wanted("t"))
    await cluster.end_reign()
    mistyped = TopicId("B" * 22)
    cluster.server.overwrite(paths.topic("t"), replace(await cluster.topic("t"), topic_id=mistyped).encode())
    if not recorded:
        cluster.server.overwrite(paths.topic_id(id), TopicIdNode(topic="t").encode())
    controller = await cluster.reign(2)
    if recorded:
        assert controller.picture.partitions[PartitionKey(id, 0)].is_led
        assert f"where {id} was" in controller._context.incomplete["t"]
    else:
        assert controller.picture.partitions[PartitionKey(mistyped, 0)].trouble is not None
    await create(controller, wanted("other"))
    assert await cluster.outside.exists(paths.topic_id(id)) is not None
    assert await cluster.outside.exists(paths.deletion(id)) is None
    assert (await cluster.state("t", 0)).topic_id == id
    assert not any(broker.stops for broker in cluster.brokers.values())
