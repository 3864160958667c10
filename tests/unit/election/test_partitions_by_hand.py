"""Nodes of ``/admin/partitions_add`` and ``/admin/partitions_remove`` that a person writes (seed 001, H)."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from regnum_election.controller import Controller
from regnum_election.partitions.requests import AdditionRequest
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import TopicRequest
from regnum_model import paths
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.standing_by import FakeStandby
from regnum_testing.waiting import DEADLINE_S, until
from structlog.testing import capture_logs

NEVER_S = 3_600.0
SOON_S = 0.02
REFUSED = "order by hand refused and deleted"


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    await cluster.begin(1, 2, 3)
    yield cluster
    await cluster.close()


async def create(controller: Controller, partitions: int = 2) -> TopicId:
    request = TopicRequest(name="t", partitions=partitions, replication_factor=2, assignment=(), mutation=None)
    answered = await controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    (outcome,) = answered.outcomes
    assert isinstance(outcome, Created)
    return outcome.topic_id


async def order(cluster: FakeCluster, root: str, number: object, content: bytes = b"", topic: str = "t") -> None:
    await cluster.outside.create(f"{root}/{topic}/{number}", content, make_parents=True)


async def numbers_are(cluster: FakeCluster, count: int) -> None:
    async def there() -> bool:
        node = await cluster.topic("t")
        return sorted(node.partitions) == list(range(count)) and not node.creating and not node.removing

    await until(there, what=f"{count} partitions")


async def nothing_waits(cluster: FakeCluster) -> None:
    async def empty() -> bool:
        roots = (paths.PARTITIONS_ADD, paths.PARTITIONS_REMOVE)
        return not any([(await cluster.outside.children(root)).names for root in roots])

    await until(empty, what="no orders left")


async def test_partitions_written_by_hand_are_added_where_they_say_or_where_there_is_room(cluster: FakeCluster) -> None:
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    id = await create(controller)
    await order(cluster, paths.PARTITIONS_ADD, 2, b"[3,1]")
    await order(cluster, paths.PARTITIONS_ADD, 3)
    await order(cluster, paths.PARTITIONS_ADD, 4, b'{"replicas":[2,3]}')
    await numbers_are(cluster, 5)
    await nothing_waits(cluster)
    node = await cluster.topic("t")
    assert (node.partitions[2], node.partitions[4]) == ((3, 1), (2, 3))
    assert len(node.partitions[3]) == 2
    await until(lambda: cluster.all_told((3, 1), PartitionKey(id, 2), 3))


async def test_orders_without_the_folder_of_their_topic_are_carried_out_as_well(cluster: FakeCluster) -> None:
    """`etcdctl put` makes no parents, and a key whose parent is missing is no child of anything."""
    await create(await cluster.reign(corrections_interval_s=SOON_S))
    orders = [f"{paths.PARTITIONS_ADD}/t/2", f"{paths.PARTITIONS_REMOVE}/t/2"]
    for count, order in zip((3, 2), orders, strict=True):
        cluster.server.overwrite(order, b"")
        await numbers_are(cluster, count)
        assert await cluster.outside.exists(order) is None, "it goes in the write that carries it out"


async def test_partitions_named_by_hand_are_removed_from_the_highest_down(cluster: FakeCluster) -> None:
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    await create(controller, 5)
    # Seen one by one, the first leaves a gap until the others are there.
    for number in (2, 3, 4):
        await order(cluster, paths.PARTITIONS_REMOVE, number)
    await numbers_are(cluster, 2)
    await nothing_waits(cluster)
    assert (await cluster.state("t", 3)).removed


@pytest.mark.parametrize("successor", ["from nothing", "from a standby"])
async def test_orders_that_stood_there_before_the_controller_are_carried_out(
    cluster: FakeCluster, successor: str
) -> None:
    """A standby does not judge them by a picture that is behind: here it knows two partitions, and there are three."""
    controller = await cluster.reign()
    await create(controller)
    standby = FakeStandby(lambda: cluster.controller, cluster.clock)
    standby.start()
    await until(standby.has_all)
    standby.hold()
    request = AdditionRequest(name="t", total=3, assignment=(), mutation=None)
    await controller.partitions.add([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    followed = await standby.follower.take() if successor == "from a standby" else None
    await cluster.end_reign()
    await standby.close()
    await order(cluster, paths.PARTITIONS_ADD, 3, b"[1,2]")
    await cluster.reign(2, corrections_interval_s=SOON_S, followed=followed)
    await numbers_are(cluster, 4)
    await nothing_waits(cluster)
    assert (await cluster.topic("t")).partitions[3] == (1, 2)


async def test_orders_wait_for_a_controller_without_harm(cluster: FakeCluster) -> None:
    await create(await cluster.reign())
    await cluster.end_reign()
    await order(cluster, paths.PARTITIONS_ADD, 2, b"[1,2]")
    await cluster.reign(corrections_interval_s=SOON_S)
    await numbers_are(cluster, 3)
    await nothing_waits(cluster)
    assert (await cluster.topic("t")).partitions[2] == (1, 2)


@pytest.mark.parametrize(
    ("root", "number", "content", "reason"),
    [
        (paths.PARTITIONS_ADD, 2, b"not json", "not JSON"),
        (paths.PARTITIONS_ADD, 2, b"[1,1]", "names a broker twice"),
        (paths.PARTITIONS_ADD, 2, b"[1,9]", "not live"),
        (paths.PARTITIONS_ADD, 2, b"[1]", "has 1 replicas"),
        (paths.PARTITIONS_ADD, 2, b'"1,2"', "not a list of broker ids"),
        (paths.PARTITIONS_ADD, 1, b"[1,2]", "there already"),
        (paths.PARTITIONS_ADD, 7, b"[1,2]", "those between are not asked for"),
        (paths.PARTITIONS_ADD, "two", b"[1,2]", "not the number of a partition"),
        (paths.PARTITIONS_ADD, "99999999999999999999", b"", "not the number of a partition"),
        (paths.PARTITIONS_ADD, 2, b"[1,2" + b" " * 20_000 + b"]", "too long"),
        (paths.PARTITIONS_REMOVE, 0, b"", "only the highest"),
        (paths.PARTITIONS_REMOVE, 7, b"", "has no partition 7"),
    ],
)
async def test_what_cannot_be_done_is_said_and_does_not_lie_in_wait(
    cluster: FakeCluster, root: str, number: object, content: bytes, reason: str
) -> None:
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    await create(controller)
    before = (await cluster.outside.get(paths.topic("t"))).data
    with capture_logs() as logs:
        await order(cluster, root, number, content)
        await nothing_waits(cluster)
    (said,) = [entry for entry in logs if entry["event"] == REFUSED]
    assert said["path"] == f"{root}/t/{number}"
    assert reason in said["reason"]
    assert (await cluster.outside.get(paths.topic("t"))).data == before


async def test_the_last_partition_stays_whatever_is_written(cluster: FakeCluster) -> None:
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    await create(controller, 3)
    for number in (2, 1, 0):
        await order(cluster, paths.PARTITIONS_REMOVE, number)
    await nothing_waits(cluster)
    await numbers_are(cluster, 1)
    assert not (await cluster.state("t", 0)).removed


async def test_orders_for_a_topic_that_does_not_exist_go_too(cluster: FakeCluster) -> None:
    await cluster.reign(corrections_interval_s=SOON_S)
    await order(cluster, paths.PARTITIONS_ADD, 0, b"[1]", topic="u")
    await order(cluster, paths.PARTITIONS_REMOVE, "0/deeper", topic="u")
    await nothing_waits(cluster)
    assert await cluster.outside.exists(paths.topic("u")) is None


async def test_a_number_that_some_broker_still_has_waits_for_it_however_long_that_is(cluster: FakeCluster) -> None:
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    await create(controller)
    replicas = (await cluster.topic("t")).partitions[1]
    away = BrokerId(replicas[1])
    cluster.kill(away)
    await until(lambda: away not in controller.picture.brokers)
    await order(cluster, paths.PARTITIONS_REMOVE, 1)
    await numbers_are(cluster, 1)
    await order(cluster, paths.PARTITIONS_ADD, 1)
    looks = controller.upkeep.looks_for_settings
    await until(lambda: controller.upkeep.looks_for_settings > looks + 10)
    assert await cluster.outside.exists(f"{paths.PARTITIONS_ADD}/t/1") is not None
    await cluster.register(away)
    await numbers_are(cluster, 2)
    await nothing_waits(cluster)


@pytest.mark.parametrize("partitions", [1, 700])
async def test_a_partition_ordered_by_hand_while_its_topic_is_being_created_stays(
    cluster: FakeCluster, partitions: int
) -> None:
    """The creation ends with a write of the topic node: not over what was added between two of its steps."""
    controller = await cluster.reign(corrections_interval_s=NEVER_S)
    await order(cluster, paths.PARTITIONS_ADD, partitions, b"[1,2]")
    creation = asyncio.ensure_future(create(controller, partitions))
    await until(lambda: controller.picture.topic_named("t") is not None)
    controller._put_internal("partitions by hand", controller._orders_by_hand.look())
    id = await creation
    await until(lambda: controller.queue.is_empty and controller._in_hand is None)
    assert await cluster.outside.exists(f"{paths.PARTITIONS_ADD}/t/{partitions}") is None
    node = await cluster.topic("t")
    assert sorted(node.partitions) == list(range(partitions + 1))
    assert not node.creating
    assert (await cluster.state("t", partitions)).leader == 1
    await cluster.end_reign()
    controller = await cluster.reign(2)
    assert controller.picture.topics[id].partitions == tuple(range(partitions + 1))
