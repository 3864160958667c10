"""Nodes that are damaged by hand while a controller reigns: it is said within a look, and nothing is lost by it."""

from collections.abc import AsyncIterator, Sequence

import pytest
from regnum.admin.v1 import admin_pb2
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Node
from regnum_election.controller import Controller
from regnum_election.health.messages import describe_health
from regnum_election.partitions.inspection import Inspection
from regnum_election.partitions.removal import Removed
from regnum_election.partitions.requests import RemovalRequest
from regnum_model import paths
from regnum_model.ids import PartitionKey, TopicId
from regnum_testing.creating import create, wanted
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

GARBAGE = b"{bad"
SOON_S = 0.02


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    await cluster.begin(1, 2, 3)
    yield cluster
    await cluster.close()


async def listed(controller: Controller, count: int) -> list[admin_pb2.DamagedPartition]:
    """So many, once there are: what is counted is counted before it is listed, and may change in between."""
    found: list[admin_pb2.DamagedPartition] = []

    async def so_many() -> bool:
        response = await describe_health(controller.health, most=100)
        found[:] = response.damaged
        return response.damaged_count == len(found) == count

    await until(so_many)
    return found


async def remove(controller: Controller, name: str, *numbers: int) -> None:
    request = RemovalRequest(name=name, topic_id="", partitions=numbers, mutation=None)
    answered = await controller.partitions.remove([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    assert isinstance(answered.outcomes[0], Removed)


def led_by(controller: Controller, id: TopicId, number: int = 0) -> int:
    held = controller.picture.partitions[PartitionKey(id, number)].held
    assert held is not None
    return held.state.leader


async def test_a_topic_node_that_is_damaged_is_listed_while_its_partitions_are_led_on(cluster: FakeCluster) -> None:
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    (id,) = await create(controller, wanted("v", factor=3))
    whole = (await cluster.outside.get(paths.topic("v"))).data
    before = await cluster.state("v", 0)
    cluster.server.overwrite(paths.topic("v"), GARBAGE)
    (one,) = await listed(controller, 1)
    assert (one.topic, one.partition, one.damage) == ("v", -1, admin_pb2.PARTITION_DAMAGE_TOPIC_NODE)
    assert "led on" in one.advice
    await controller.health.turn()
    assert controller.health.damaged == 1
    assert paths.topic("v") in one.advice
    assert led_by(controller, id) == before.leader
    assert await cluster.state("v", 0) == before
    # A failure meanwhile is taken up as any other is.
    cluster.kill(before.leader)
    await until(lambda: led_by(controller, id) not in {before.leader, -1})
    assert (await cluster.state("v", 0)).leader_epoch > before.leader_epoch
    cluster.server.overwrite(paths.topic("v"), whole)
    assert await listed(controller, 0) == []
    await controller.health.turn()
    assert controller.health.damaged == 0


async def test_a_topic_node_that_names_another_life_of_the_topic_is_listed(cluster: FakeCluster) -> None:
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    (id,) = await create(controller, wanted("v", factor=3))
    data = (await cluster.outside.get(paths.topic("v"))).data
    cluster.server.overwrite(paths.topic("v"), data.replace(id.encode(), b"AAAAAAAAAAAAAAAAAAAAAA"))
    (one,) = await listed(controller, 1)
    assert f"where {id} was" in one.reason


async def test_a_node_that_a_person_writes_in_other_words_is_no_damage(cluster: FakeCluster) -> None:
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    await create(controller, wanted("v", partitions=2))
    for path in (paths.topic("v"), paths.leader_and_isr("v", 0)):
        data = (await cluster.outside.get(path)).data
        cluster.server.overwrite(path, b" " + data)
    cluster.server.overwrite(paths.leader_and_isr("v", 1), GARBAGE)
    (one,) = await listed(controller, 1)
    assert one.partition == 1


async def test_a_damaged_topic_can_be_deleted_and_is_listed_no_more(cluster: FakeCluster) -> None:
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    (id,) = await create(controller, wanted("v", factor=3))
    cluster.server.overwrite(paths.topic("v"), GARBAGE)
    await listed(controller, 1)
    for path in (paths.leader_and_isr("v", 0), paths.partition("v", 0), paths.topic("v")):
        await cluster.outside.delete(path, version=None)
    await until(lambda: id not in controller.picture.topics)
    assert await listed(controller, 0) == []


@pytest.mark.parametrize("gone", [False, True])
async def test_a_state_that_is_damaged_is_listed_before_anything_has_to_change(
    cluster: FakeCluster, gone: bool
) -> None:
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    (id,) = await create(controller, wanted("v", factor=3))
    path, before = paths.leader_and_isr("v", 0), await cluster.state("v", 0)
    if gone:
        await cluster.outside.delete(path, version=None)
    else:
        cluster.server.overwrite(path, GARBAGE)
    (one,) = await listed(controller, 1)
    assert (one.topic, one.partition, one.damage) == ("v", 0, admin_pb2.PARTITION_DAMAGE_STATE)
    assert "regnum partitions recover" in one.advice
    assert led_by(controller, id) == before.leader
    node = None if gone else (await cluster.outside.get(path)).data
    assert node in {None, GARBAGE}, "nothing is written over it, nor anew"
    if gone:
        await cluster.outside.create(path, before.encode())
    else:
        cluster.server.overwrite(path, before.encode())
    assert await listed(controller, 0) == []


async def test_a_damaged_state_whose_partition_goes_offline_is_listed_as_that_alone(cluster: FakeCluster) -> None:
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    (id,) = await create(controller, wanted("v", factor=3))
    leader = led_by(controller, id)
    cluster.server.overwrite(paths.leader_and_isr("v", 0), GARBAGE)
    await listed(controller, 1)
    cluster.kill(leader)
    await until(lambda: controller.picture.partitions[PartitionKey(id, 0)].trouble is not None)
    assert await listed(controller, 0) == []


async def test_a_tombstone_that_is_damaged_is_listed_wherever_it_stands_behind_the_topic(cluster: FakeCluster) -> None:
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    await create(controller, wanted("w", partitions=9))
    await remove(controller, "w", *range(2, 9))
    path = paths.leader_and_isr("w", 7)
    whole = (await cluster.outside.get(path)).data
    cluster.server.overwrite(path, GARBAGE)
    (one,) = await listed(controller, 1)
    assert (one.topic, one.partition, one.damage) == ("w", 7, admin_pb2.PARTITION_DAMAGE_TOMBSTONE)
    assert "regnum partitions remove-damaged" in one.advice
    cluster.server.overwrite(path, whole)
    assert await listed(controller, 0) == []


class CountingStore(MemoryStore):
    """Notes which nodes are read."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.reads: list[str] = []

    async def get_many(self, paths: Sequence[str], *, current: bool = False) -> tuple[Node | None, ...]:
        """See Store."""
        self.reads.extend(paths)
        return await super().get_many(paths, current=current)


async def test_a_look_costs_the_same_whatever_there_is_and_a_round_reads_each_node_once(cluster: FakeCluster) -> None:
    stores: list[CountingStore] = []

    def open_store(server: MemoryServer) -> MemoryStore:
        stores.append(CountingStore(server))
        return stores[-1]

    cluster.open_store = open_store
    controller = await cluster.reign()
    await create(controller, *(wanted(f"t{number}", partitions=3) for number in range(40)))
    await create(controller, wanted("large", partitions=67))
    inspection, reads = Inspection(controller._context, topics_max=10, states_max=20), stores[0].reads
    seen: list[str] = []
    for _ in range(12):
        reads.clear()
        await inspection.look()
        assert len(reads) <= 10 + 20
        seen += reads
    states = [path for path in seen if path.endswith("leaderAndISR")]
    assert len(set(states)) == 40 * 4 + 68, "of each topic its partitions, and whether a tombstone follows"
    assert len(states) == len(set(states)), "in twelve looks, as many as the round needs"
    assert {path for path in seen if path not in states} == {paths.topic(name) for name in controller.picture.names}
