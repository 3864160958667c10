"""Partitions that a controller moves, over a store and brokers that do as they are told (seed 001 F, KIP-455)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
from regnum.types.v1 import errors_pb2
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.errors import InvalidRequest
from regnum_coordination.port import Check, Group, Outcome, Refused, Set
from regnum_election.configs.changes import Alteration, Operation, Resource, ResourceType
from regnum_election.controller import Controller
from regnum_election.decisions.rejection import Rejection
from regnum_election.dispatch.refusals import OFFLINE_INTERVAL_S
from regnum_election.partitions.addition import Added
from regnum_election.partitions.requests import AdditionRequest, RemovalRequest
from regnum_election.reassignment.calls import ReassignmentRequest
from regnum_election.reassignment.messages import list_response
from regnum_election.reign.events import IsrsWritten, LogSize, ReplicasMoving
from regnum_election.topics.creation import Created
from regnum_election.topics.deletion import Deleted
from regnum_election.topics.requests import DeletionRequest, TopicRequest
from regnum_model import paths
from regnum_model.configs import FOLLOWER_THROTTLE_RATE, LEADER_THROTTLE_RATE
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_model.insync import with_isr
from regnum_model.nodes import LeaderAndIsr, Membership, TopicNode
from regnum_model.reassignment import Reassignment
from regnum_testing.clock import FakeClock
from regnum_testing.gated_store import gated
from regnum_testing.reigning import ANYBODY, FakeCluster, until
from regnum_testing.standing_by import FakeStandby
from regnum_testing.waiting import DEADLINE_S

WHO = "a test"


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


async def created(controller: Controller, name: str, *assignments: Sequence[int]) -> TopicId:
    request = TopicRequest(
        name=name,
        partitions=0,
        replication_factor=None,
        assignment=tuple((number, ids(*replicas)) for number, replicas in enumerate(assignments)),
        mutation=None,
    )
    answered = await controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    (outcome,) = answered.outcomes
    assert isinstance(outcome, Created)
    return outcome.topic_id


async def ask(
    controller: Controller, topic: str, targets: dict[int, tuple[int, ...] | None], *, validate_only: bool = False
) -> list[Rejection | None]:
    requests = [
        ReassignmentRequest(topic=topic, partition=number, target=None if target is None else ids(*target))
        for number, target in targets.items()
    ]
    return list(await controller.reassignments.alter(requests, validate_only=validate_only, who=WHO, wait_s=DEADLINE_S))


async def catch_up(cluster: FakeCluster, topic: str, partition: int, *joining: int) -> None:
    """The leader lets followers join the ISR, and reports it."""
    path = paths.leader_and_isr(topic, partition)
    node = await cluster.outside.get(path)
    state = LeaderAndIsr.decode(node.data)
    members = {
        BrokerId(id): Membership(broker_epoch=broker.epoch, log_id=broker.log_id)
        for id in joining
        if (broker := cluster.brokers[BrokerId(id)]) and BrokerId(id) not in state.isr
    }
    wider = with_isr(state, (*state.isr, *members), min_insync=2, joining=members)
    await cluster.outside.set(path, wider.encode(), version=node.stat.version)
    if cluster.controller is not None:
        cluster.controller.queue.put(IsrsWritten.unseen({PartitionKey(state.topic_id, partition)}))


async def grown(cluster: FakeCluster, topic: str, partition: int, *replicas: int) -> None:
    async def is_grown() -> bool:
        return (await cluster.topic(topic)).partitions[partition] == ids(*replicas)

    await until(is_grown, what=f"replicas {replicas}")


async def arrived(cluster: FakeCluster, topic: str, partition: int, *replicas: int) -> None:
    async def has() -> bool:
        node = await cluster.topic(topic)
        return node.partitions[partition] == ids(*replicas) and partition not in node.reassigning

    await until(has, what=f"{topic}-{partition} at {replicas}")


def stopped(cluster: FakeCluster, id: int) -> set[tuple[str, int]]:
    stops = cluster.brokers[BrokerId(id)].stops
    assert all(stop.delete and stop.reassigned and stop.leader_epoch >= 0 for stop in stops)
    return {(stop.topic, stop.partition) for stop in stops}


async def test_a_partition_moves_grown_caught_up_switched_and_the_old_replicas_go(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3, 4, 5, 6)
    controller = await cluster.reign()
    key = PartitionKey(await created(controller, "t", (1, 2, 3)), 0)
    assert await ask(controller, "t", {0: (4, 5, 6)}) == [None]
    await grown(cluster, "t", 0, 1, 2, 3, 4, 5, 6)
    node = await cluster.topic("t")
    assert (node.reassigning[0].origin, node.reassigning[0].target) == (ids(1, 2, 3), ids(4, 5, 6))
    await until(lambda: cluster.all_told((1, 2, 3, 4, 5, 6), key, 1))
    assert list(cluster.told(1)[key].adding_replicas) == [4, 5, 6]
    assert list(cluster.told(4)[key].state.replicas) == [1, 2, 3, 4, 5, 6]
    assert cluster.told(1)[key].min_insync_replicas == 2
    await catch_up(cluster, "t", 0, 4, 5)
    (one,) = (await controller.reassignments.ongoing((), page="")).reassignments
    assert one.key == key
    await catch_up(cluster, "t", 0, 6)
    await arrived(cluster, "t", 0, 4, 5, 6)
    state = await cluster.state("t", 0)
    assert (state.leader, state.isr, state.leader_epoch) == (4, ids(4, 5, 6), 1)
    await until(lambda: cluster.all_told((4, 5, 6), key, 4))
    assert list(cluster.told(4)[key].state.replicas) == [4, 5, 6]
    await until(lambda: all(stopped(cluster, id) == {("t", 0)} for id in (1, 2, 3)))
    assert not any(stopped(cluster, id) for id in (4, 5, 6))
    page = await controller.reassignments.ongoing((), page="")
    assert (page.reassignments, page.total) == ((), 0)
    assert controller.picture.partitions[key].replicas == ids(4, 5, 6)
    assert key not in controller.picture.of_broker(BrokerId(1))
    assert key in controller.picture.of_broker(BrokerId(6))


async def test_old_replicas_are_not_deleted_before_the_new_leader_has_taken_over(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    key = PartitionKey(await created(controller, "t", (1, 2)), 0)
    assert await ask(controller, "t", {0: (2, 3)}) == [None]
    await grown(cluster, "t", 0, 1, 2, 3)
    new_leader = cluster.brokers[BrokerId(2)]
    await until(lambda: cluster.all_told((3,), key, 1))
    new_leader.held = asyncio.Event()
    await catch_up(cluster, "t", 0, 3)
    await arrived(cluster, "t", 0, 2, 3)
    await until(lambda: cluster.all_told((3,), key, 2))
    looks = controller._reassigner.looks
    await until(lambda: controller._reassigner.looks > looks + 1)
    assert not cluster.brokers[BrokerId(1)].stops
    new_leader.held.set()
    await until(lambda: stopped(cluster, 1) == {("t", 0)})


async def test_a_bounded_number_moves_and_the_others_follow_in_order(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    controller._reassigner._moving_max = 2  # type: ignore[misc]
    id = await created(controller, "t", *[(1, 2)] * 5)
    assert await ask(controller, "t", dict.fromkeys(range(5), (2, 3))) == [None] * 5
    await until(lambda: sum(3 in controller.picture.partitions[PartitionKey(id, n)].replicas for n in range(5)) == 2)
    for number in range(5):
        await grown(cluster, "t", number, 1, 2, 3)
        assert sum(3 in replicas and 1 in replicas for replicas in (await cluster.topic("t")).partitions.values()) <= 2
        await catch_up(cluster, "t", number, 3)
        await arrived(cluster, "t", number, 2, 3)


async def test_a_move_is_called_back_and_the_new_replicas_go(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3, 4)
    controller = await cluster.reign()
    await created(controller, "t", (1, 2))
    await ask(controller, "t", {0: (3, 4)})
    await grown(cluster, "t", 0, 1, 2, 3, 4)
    await catch_up(cluster, "t", 0, 3)
    assert await ask(controller, "t", {0: None}) == [None]
    await arrived(cluster, "t", 0, 1, 2)
    assert (await cluster.state("t", 0)).isr == ids(1, 2)
    await until(lambda: stopped(cluster, 3) == stopped(cluster, 4) == {("t", 0)})
    assert not stopped(cluster, 1)
    (refused,) = await ask(controller, "t", {0: None})
    assert refused is not None
    assert refused.code == errors_pb2.ERROR_CODE_NO_REASSIGNMENT_IN_PROGRESS


async def test_another_target_replaces_the_open_one_and_what_it_brought_goes(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3, 4)
    controller = await cluster.reign()
    await created(controller, "t", (1, 2))
    await ask(controller, "t", {0: (2, 3)})
    await grown(cluster, "t", 0, 1, 2, 3)
    await ask(controller, "t", {0: (2, 4)})
    await grown(cluster, "t", 0, 1, 2, 4)
    await until(lambda: stopped(cluster, 3) == {("t", 0)})
    await catch_up(cluster, "t", 0, 4)
    await arrived(cluster, "t", 0, 2, 4)


async def test_a_dead_target_is_waited_for_and_named_and_can_be_called_back(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await created(controller, "t", (1, 2))
    await ask(controller, "t", {0: (2, 3)})
    await grown(cluster, "t", 0, 1, 2, 3)
    cluster.kill(3)
    await until(lambda: BrokerId(3) not in controller.picture.brokers)
    (one,) = (await controller.reassignments.ongoing(["t"], page="")).reassignments
    assert one.waits_for == "brokers [3] are not live; start them, or cancel it"
    assert await ask(controller, "t", {0: None}) == [None]
    await arrived(cluster, "t", 0, 1, 2)


async def test_what_is_asked_for_wrongly_is_refused_one_by_one_and_a_check_changes_nothing(
    cluster: FakeCluster,
) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await created(controller, "t", (1, 2), (1, 2))
    before = await cluster.outside.get(paths.topic("t"))
    checked = await ask(controller, "t", {0: (2, 3), 1: (2, 9), 7: (1,)}, validate_only=True)
    assert [None if one is None else one.code for one in checked] == [
        None,
        errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT,
        errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert (await cluster.outside.get(paths.topic("t"))).stat.version == before.stat.version
    (unknown,) = await ask(controller, "nowhere", {0: (1,)})
    assert unknown is not None
    assert unknown.code == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
    twice = [ReassignmentRequest(topic="t", partition=0, target=ids(2))] * 2
    answers = await controller.reassignments.alter(twice, validate_only=False, who=WHO, wait_s=DEADLINE_S)
    assert [one is not None and one.code for one in answers] == [errors_pb2.ERROR_CODE_INVALID_REQUEST] * 2


async def test_a_topic_that_moves_can_be_deleted_and_every_broker_hears_of_it(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    id = await created(controller, "t", (1, 2))
    await ask(controller, "t", {0: (2, 3)})
    await grown(cluster, "t", 0, 1, 2, 3)
    request = DeletionRequest(name="t", topic_id="", mutation=None)
    outcomes = (await controller.topics.delete([request], wait_s=DEADLINE_S, account=ANYBODY)).outcomes
    assert outcomes == (Deleted(name="t", topic_id=id),)
    await until(lambda: all(cluster.brokers[BrokerId(n)].stops for n in (1, 2, 3)))
    assert not controller.picture.reassigning


class Dying(MemoryStore):
    """A session that is over at one of its writes: just before the store takes it, or just after."""

    writes = 0
    dies_at = 10**9
    after = False

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        concerned = any(operation.path == paths.topic("t") for group in groups for operation in group)
        self.writes += concerned
        if not concerned or self.writes < self.dies_at:
            return await super().write_batch(groups, fence=fence)
        if self.after and self.writes == self.dies_at:
            await super().write_batch(groups, fence=fence)
        # It hears of nothing any more, and nothing of it is heard.
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("write", [1, 2, 3])
@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_controller_that_dies_at_any_write_is_carried_on_from(
    cluster: FakeCluster, write: int, after: bool, cancelled: bool
) -> None:
    """Asked for, grown, switched or called back: before or after each of the writes."""
    await cluster.begin(1, 2, 3, 4)
    stores: list[Dying] = []

    def open_dying(server: MemoryServer) -> MemoryStore:
        stores.append(Dying(server))
        return stores[-1]

    cluster.open_store = open_dying
    controller = await cluster.reign()
    key = PartitionKey(await created(controller, "t", (1, 2)), 0)
    await until(lambda: not controller.picture.partitions[key].creating and controller.queue.is_empty)
    stores[0].dies_at, stores[0].after = stores[0].writes + write, after
    working = asyncio.create_task(work(cluster, controller, cancelled=cancelled))
    await until(lambda: stores[0].writes >= stores[0].dies_at, what="the write")
    await asyncio.sleep(0)
    working.cancel()
    await asyncio.wait({working})
    cluster.open_store = MemoryStore
    await cluster.end_reign()
    successor = await cluster.reign(2)
    node = await cluster.topic("t")
    if 0 not in node.reassigning and node.partitions[0] == ids(1, 2) and not cancelled:
        # Nothing had been written yet: the caller asks again.
        assert await ask(successor, "t", {0: (3, 4)}) == [None]
    await finish(cluster, cancelled=cancelled)
    expected = ids(1, 2) if cancelled else ids(3, 4)
    await until(lambda: not successor.picture.reassigning)
    assert (await cluster.topic("t")).partitions[0] == expected
    state = await cluster.state("t", 0)
    assert set(state.isr) <= set(expected)
    assert state.leader in expected
    await until(lambda: key in cluster.told(state.leader))
    await until(lambda: cluster.told(state.leader)[key].state.leader_epoch == state.leader_epoch)
    assert list(cluster.told(state.leader)[key].state.replicas) == list(expected)


async def work(cluster: FakeCluster, controller: Controller, *, cancelled: bool) -> None:
    await ask(controller, "t", {0: (3, 4)})
    await grown(cluster, "t", 0, 1, 2, 3, 4)
    if cancelled:
        await ask(controller, "t", {0: None})
    else:
        await catch_up(cluster, "t", 0, 3, 4)


async def finish(cluster: FakeCluster, *, cancelled: bool) -> None:
    """What callers and leaders do after a change of controller."""
    assert cluster.controller is not None
    node: TopicNode = await cluster.topic("t")
    if cancelled:
        await ask(cluster.controller, "t", {0: None})
        return
    if 0 in node.reassigning:
        await grown(cluster, "t", 0, 1, 2, 3, 4)
        await catch_up(cluster, "t", 0, 3, 4)


async def test_a_partition_that_moves_can_be_removed_and_its_move_ends_with_it(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    id = await created(controller, "t", (1, 2), (1, 2))
    await ask(controller, "t", {1: (2, 3)})
    await grown(cluster, "t", 1, 1, 2, 3)
    request = RemovalRequest(name="t", topic_id="", partitions=(1,), mutation=None)
    answered = await controller.partitions.remove([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    assert not isinstance(answered.outcomes[0], Rejection), answered
    assert not controller.picture.reassigning
    node = await cluster.topic("t")
    assert (set(node.partitions), node.reassigning) == ({0}, {})
    await until(lambda: all(cluster.brokers[BrokerId(n)].stops for n in (1, 2, 3)))
    assert controller.picture.topics[id].partitions == (0,)


SOON_S = 0.05
"""How often the store is looked at in these tests."""


async def wish(cluster: FakeCluster, partition: str, data: bytes, topic: str = "t") -> str:
    path = f"{paths.PARTITIONS_REASSIGNED}/{topic}/{partition}"
    await cluster.outside.create(path, data, make_parents=True)
    return path


async def is_gone(cluster: FakeCluster, path: str) -> None:
    async def gone() -> bool:
        return await cluster.outside.exists(path) is None

    await until(gone, what=f"{path} is deleted")


async def test_a_node_in_the_store_moves_a_partition_and_goes_when_it_has_arrived(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    await created(controller, "t", (1, 2))
    path = await wish(cluster, "0", b"[2,3]")
    await grown(cluster, "t", 0, 1, 2, 3)
    assert await cluster.outside.exists(path) is not None
    await catch_up(cluster, "t", 0, 3)
    await arrived(cluster, "t", 0, 2, 3)
    await is_gone(cluster, path)
    await is_gone(cluster, f"{paths.PARTITIONS_REASSIGNED}/t")


@pytest.mark.parametrize(
    ("partition", "data", "topic"),
    [("0", b"[2,9]", "t"), ("0", b"?", "t"), ("7", b"[1]", "t"), ("x", b"[1]", "t"), ("0", b"[1]", "nowhere")],
)
async def test_a_node_that_cannot_be_followed_changes_nothing_and_goes(
    cluster: FakeCluster, partition: str, data: bytes, topic: str
) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    await created(controller, "t", (1, 2))
    await is_gone(cluster, await wish(cluster, partition, data, topic))
    assert (await cluster.topic("t")).partitions == {0: ids(1, 2)}
    assert not controller.picture.reassigning


async def test_a_move_called_back_by_command_is_not_begun_again_by_its_node(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    await created(controller, "t", (1, 2))
    path = await wish(cluster, "0", b"[2,3]")
    await grown(cluster, "t", 0, 1, 2, 3)
    assert await ask(controller, "t", {0: None}) == [None]
    await is_gone(cluster, path)
    await arrived(cluster, "t", 0, 1, 2)
    assert not controller.picture.reassigning


async def test_how_far_a_move_is_comes_from_what_its_brokers_say(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    key = PartitionKey(await created(controller, "t", (1, 2)), 0)
    await ask(controller, "t", {0: (2, 3)})
    await grown(cluster, "t", 0, 1, 2, 3)
    await until(lambda: len(controller.picture.partitions[key].replicas) == 3)
    (one,) = (await controller.reassignments.ongoing((), page="")).reassignments
    assert (one.moved.total, one.moved.done) == (None, 0)
    for id, size in ((1, 200), (3, 50), (9, 7)):
        said = ReplicasMoving(broker=BrokerId(id), sizes=((key, LogSize(log_end_offset=size, size_bytes=size)),))
        controller.reassignments.heard_of(said)
    (one,) = (await controller.reassignments.ongoing((), page="")).reassignments
    assert (one.moved.total, one.moved.done) == (200, 50)
    assert set(one.sizes) == {1, 3}, "who has no part in it is not heard"
    response = await list_response(await controller.reassignments.ongoing((), page=""), controller.picture)
    (message,) = response.reassignments
    assert (message.bytes_total, message.bytes_done, message.added[0].log_end_offset) == (200, 50, 50)


async def test_brokers_of_partitions_that_move_hear_of_the_throttle_and_of_every_change_of_it(
    cluster: FakeCluster,
) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    key = PartitionKey(await created(controller, "t", (1, 2), (1, 2)), 0)
    await ask(controller, "t", {0: (2, 3)})
    await until(lambda: cluster.all_told((1, 2, 3), key, 1))
    assert (cluster.told(1)[key].leader_throttle_rate, cluster.told(3)[key].follower_throttle_rate) == (0, 0)
    alteration = Alteration(
        resource=Resource(type=ResourceType.CLUSTER),
        operations=(
            Operation(key=LEADER_THROTTLE_RATE, value="5000000"),
            Operation(key=FOLLOWER_THROTTLE_RATE, value="4000000"),
        ),
    )
    assert await controller.configs.alter([alteration], validate_only=False, wait_s=DEADLINE_S) == (None,)
    await until(
        lambda: all(
            (cluster.told(id)[key].leader_throttle_rate, cluster.told(id)[key].follower_throttle_rate)
            == (5_000_000, 4_000_000)
            for id in (1, 3)
        )
    )
    resting = PartitionKey(key.topic_id, 1)
    assert cluster.told(1)[resting].leader_throttle_rate == 0


@pytest.mark.parametrize("stale", [False, True])
async def test_a_standby_that_succeeds_goes_on_with_what_the_store_says(cluster: FakeCluster, stale: bool) -> None:
    """Its picture may be from before the switch: nobody is told of the assignment that was."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    standby = FakeStandby(lambda: cluster.controller, cluster.clock)
    standby.start()
    try:
        key = PartitionKey(await created(controller, "t", (1, 2)), 0)
        await ask(controller, "t", {0: (2, 3)})
        await grown(cluster, "t", 0, 1, 2, 3)
        await until(lambda: key in standby.follower.followed.picture.reassigning and standby.has_all())
        followed_move = standby.follower.followed.picture.partitions[key]
        assert followed_move == controller.picture.partitions[key]
        standby.hold()
        if stale:
            await catch_up(cluster, "t", 0, 3)
            await arrived(cluster, "t", 0, 2, 3)
        await cluster.end_reign()
        followed = await standby.follower.take()
        assert followed is not None
        assert key in followed.picture.reassigning
        successor = await cluster.reign(2, followed=followed)
        if not stale:
            await catch_up(cluster, "t", 0, 3)
        await arrived(cluster, "t", 0, 2, 3)
        await until(lambda: not successor.picture.reassigning and key in cluster.told(3))
        await until(lambda: list(cluster.told(3)[key].state.replicas) == [2, 3])
        told = [
            (broker.id, list(item.state.replicas))
            for broker in cluster.brokers.values()
            for request in broker.requests
            if request.controller_epoch == 2 and stale
            for item in request.partitions
        ]
        assert all(replicas == [2, 3] and id != 1 for id, replicas in told), told
    finally:
        standby.release()
        await standby.close()


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
    assert controller._dispatch.departing.of_partition(key) == {1}
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
    await until(lambda: stopped(cluster, 1) == {("t", 0)} and not controller._dispatch.departing.of_topic(id))


class Contended(MemoryStore):
    """A leader writes its ISR just before the controller's switch reaches the store."""

    leader_writes: Callable[[], Awaitable[None]] | None = None

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        switching = any(
            {paths.topic("t"), paths.leader_and_isr("t", 0)}
            <= {operation.path for operation in group if isinstance(operation, Set)}
            for group in groups
        )
        if switching and self.leader_writes is not None:
            writes, self.leader_writes = self.leader_writes, None
            await writes()
        return await super().write_batch(groups, fence=fence)


async def test_a_target_that_leaves_the_isr_at_the_last_moment_is_waited_for_again(cluster: FakeCluster) -> None:
    """And another partition that is switched in the same multi arrives all the same."""
    await cluster.begin(1, 2, 3)
    stores: list[Contended] = []

    def open_contended(server: MemoryServer) -> MemoryStore:
        stores.append(Contended(server))
        return stores[-1]

    cluster.open_store = open_contended
    controller = await cluster.reign()
    await created(controller, "t", (1, 2), (1, 2))
    await ask(controller, "t", {0: (2, 3), 1: (2, 3)})
    await grown(cluster, "t", 0, 1, 2, 3)
    await grown(cluster, "t", 1, 1, 2, 3)

    async def three_lags() -> None:
        path = paths.leader_and_isr("t", 0)
        node = await cluster.outside.get(path)
        state = LeaderAndIsr.decode(node.data)
        assert BrokerId(3) in state.isr
        await cluster.outside.set(path, with_isr(state, ids(1, 2), min_insync=2).encode(), version=node.stat.version)

    stores[0].leader_writes = three_lags
    await catch_up(cluster, "t", 1, 3)
    await catch_up(cluster, "t", 0, 3)
    await arrived(cluster, "t", 1, 2, 3)
    await until(lambda: stores[0].leader_writes is None)
    node = await cluster.topic("t")
    assert node.partitions[0] == ids(1, 2, 3)
    assert (await cluster.state("t", 0)).isr == ids(1, 2)
    assert not stopped(cluster, 1) & {("t", 0)}
    await catch_up(cluster, "t", 0, 3)
    await arrived(cluster, "t", 0, 2, 3)


async def test_a_wish_that_replaces_one_that_was_taken_back_by_hand_is_heard(cluster: FakeCluster) -> None:
    """A node made anew begins at version 0 again (safety rule S2)."""
    await cluster.begin(1, 2, 3, 4)
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    await created(controller, "t", (1, 2))
    path = await wish(cluster, "0", b"[2,3]")
    await grown(cluster, "t", 0, 1, 2, 3)
    node = await cluster.outside.get(path)
    await cluster.outside.delete(path, version=node.stat.version)
    await wish(cluster, "0", b"[2,4]")
    await grown(cluster, "t", 0, 1, 2, 4)


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
    await arrived(cluster, "t", 0, 1, 3, 4)

    async def is_told_to_delete() -> bool:
        # What follows a switch is looked after by the clock.
        await clock.advance(0.1)
        return stopped(cluster, 2) == {("t", 0)}

    await until(is_told_to_delete)
    await clock.advance(OFFLINE_INTERVAL_S)
    assert delivery._unusable.next_s is None
    await cluster.close()


@pytest.mark.parametrize("target", [(1, 2), (3, 2, 1)])
async def test_a_failover_waits_for_one_write_of_a_topic_at_most(cluster: FakeCluster, target: tuple[int, ...]) -> None:
    stores = gated(cluster)
    await cluster.begin(1, 2, 3, 4, 5)
    controller = await cluster.reign()
    each = 1_200
    await created(controller, "t", *[(1, 2, 3)] * each)
    other = PartitionKey(await created(controller, "other", (4, 5)), 0)
    (store,) = stores
    # What is asked for is one write; what follows waits.
    store.gate, store.topic_writes = asyncio.Semaphore(1), -1
    assert await ask(controller, "t", dict.fromkeys(range(each), target)) == [None] * each
    await until(lambda: store.topic_writes == 1, what="the first switch is under way")
    cluster.kill(4)
    await until(lambda: not controller.queue.is_empty, what="the death is heard of")
    store.gate.release()

    def is_led_again() -> bool:
        held = controller.picture.partitions[other].held
        return held is not None and held.state.leader == 5

    await until(is_led_again)
    assert store.topic_writes <= 2, "one was under way, and the next may wait at the store"
    assert len(controller.picture.reassigning) >= each - 500
    store.gate = None
    for gate in stores:
        gate.gate = None


async def test_a_whole_topic_is_switched_with_few_writes_of_its_node(cluster: FakeCluster) -> None:
    """Each write repeats the node: its size, and not the replicas, says how much a switch costs."""
    stores = gated(cluster)
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    each = 1_000
    await created(controller, "t", *[(1, 2, 3)] * each)
    for target, most in (((3, 2, 1), 3), ((1, 2), 11)):
        before = sum(store.topic_writes for store in stores)
        assert await ask(controller, "t", dict.fromkeys(range(each), target)) == [None] * each
        await until(lambda: not controller.picture.reassigning)
        assert sum(store.topic_writes for store in stores) - before <= 1 + most
        assert set((await cluster.topic("t")).partitions.values()) == {ids(*target)}


async def test_a_place_is_not_held_by_one_that_waits_for_a_dead_broker(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3, 4)
    controller = await cluster.reign()
    controller._reassigner._moving_max = 1  # type: ignore[misc]
    await created(controller, "t", (1, 2), (1, 2), (1, 2))
    assert await ask(controller, "t", {0: (1, 3)}) == [None]
    await grown(cluster, "t", 0, 1, 2, 3)
    assert await ask(controller, "t", {1: (2, 3), 2: (2, 4)}) == [None, None]
    cluster.kill(3)
    await grown(cluster, "t", 2, 1, 2, 4)
    waiting = {
        one.key.partition: one.waits_for for one in (await controller.reassignments.ongoing((), page="")).reassignments
    }
    assert waiting[0] == waiting[1] == "brokers [3] are not live; start them, or cancel it"
    assert (await cluster.topic("t")).partitions[1] == ids(1, 2), "it would be filled by nobody"
    assert await ask(controller, "t", {0: None, 1: None}) == [None, None]
    await arrived(cluster, "t", 0, 1, 2)
    await arrived(cluster, "t", 1, 1, 2)


async def test_what_the_store_cannot_take_at_once_goes_in_smaller_writes(cluster: FakeCluster) -> None:
    class Small(MemoryStore):
        async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
            if any(sum(isinstance(one, Set) for one in group) > 4 for group in groups):
                return tuple(Refused(InvalidRequest("too large")) for _ in groups)
            return await super().write_batch(groups, fence=fence)

    cluster.open_store = Small
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await created(controller, "t", *[(1, 2, 3)] * 20)
    assert await ask(controller, "t", dict.fromkeys(range(20), (1, 2))) == [None] * 20
    await until(lambda: not controller.picture.reassigning)
    assert controller._reassigner.looks <= 3


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
