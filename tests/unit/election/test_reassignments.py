"""Partitions that a controller moves, over a store and brokers that do as they are told (seed 001 F, KIP-455)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace

import pytest
from regnum.types.v1 import errors_pb2
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Check, Group, Node, Outcome, Set
from regnum_election.decisions.rejection import Rejection
from regnum_election.partitions.requests import RemovalRequest
from regnum_election.reassignment.calls import ReassignmentRequest
from regnum_election.reassignment.messages import list_response
from regnum_election.reign.events import LogSize, ReplicasMoving
from regnum_election.topics.deletion import Deleted
from regnum_election.topics.requests import DeletionRequest
from regnum_model import paths
from regnum_model.broker_configs import FOLLOWER_THROTTLE_RATE, LEADER_THROTTLE_RATE
from regnum_model.config_changes import Alteration, Operation, Resource, ResourceType
from regnum_model.ids import BrokerId, PartitionKey
from regnum_model.insync import with_isr
from regnum_model.nodes import LeaderAndIsr
from regnum_testing.moving import WHO, arrived, ask, catch_up, created, grown, ids, stopped
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


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
    (one,) = (await controller.reassignments.ongoing(())).reassignments
    assert one.key == key
    await catch_up(cluster, "t", 0, 6)
    await arrived(cluster, "t", 0, 4, 5, 6)
    state = await cluster.state("t", 0)
    assert (state.leader, state.isr, state.leader_epoch) == (4, ids(4, 5, 6), 1)
    await until(lambda: cluster.all_told((4, 5, 6), key, 4))
    assert list(cluster.told(4)[key].state.replicas) == [4, 5, 6]
    await until(lambda: all(stopped(cluster, id) == {("t", 0)} for id in (1, 2, 3)))
    assert not any(stopped(cluster, id) for id in (4, 5, 6))
    page = await controller.reassignments.ongoing(())
    assert (page.reassignments, page.total) == ((), 0)
    assert controller.picture.partitions[key].replicas == ids(4, 5, 6)
    assert key not in controller.picture.of_broker(BrokerId(1))
    assert key in controller.picture.of_broker(BrokerId(6))


async def test_metadata_says_which_replicas_are_being_added_until_the_partition_has_arrived(
    cluster: FakeCluster,
) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await created(controller, "t", (1, 2))
    assert await ask(controller, "t", {0: (1, 2, 3)}) == [None]
    await grown(cluster, "t", 0, 1, 2, 3)

    def published(adding: list[int]) -> bool:
        (*_, state) = (one for said in cluster.metadata.messages for topic in said.topics for one in topic.partitions)
        return list(state.replicas) == [1, 2, 3] and list(state.adding_replicas) == adding

    await until(lambda: published([3]))
    await catch_up(cluster, "t", 0, 3)
    await arrived(cluster, "t", 0, 1, 2, 3)
    await until(lambda: published([]))


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
    assert (await cluster.topic("t")).partitions == {0: ids(2, 4)}


async def test_a_dead_target_is_waited_for_and_named_and_can_be_called_back(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await created(controller, "t", (1, 2))
    await ask(controller, "t", {0: (2, 3)})
    await grown(cluster, "t", 0, 1, 2, 3)
    cluster.kill(3)
    await until(lambda: BrokerId(3) not in controller.picture.brokers)
    (one,) = (await controller.reassignments.ongoing(["t"])).reassignments
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


async def test_how_far_a_move_is_comes_from_what_its_brokers_say(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    key = PartitionKey(await created(controller, "t", (1, 2)), 0)
    await ask(controller, "t", {0: (2, 3)})
    await grown(cluster, "t", 0, 1, 2, 3)
    await until(lambda: len(controller.picture.partitions[key].replicas) == 3)
    (one,) = (await controller.reassignments.ongoing(())).reassignments
    assert (one.moved.total, one.moved.done) == (None, 0)
    for id, size in ((1, 200), (3, 50), (9, 7)):
        said = ReplicasMoving(broker=BrokerId(id), sizes=((key, LogSize(log_end_offset=size, size_bytes=size)),))
        controller.reassignments.heard_of(said)
    (one,) = (await controller.reassignments.ongoing(())).reassignments
    assert (one.moved.total, one.moved.done) == (200, 50)
    assert set(one.sizes) == {1, 3}, "who has no part in it is not heard"
    response = await list_response(await controller.reassignments.ongoing(()), controller.picture)
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
    waiting = {one.key.partition: one.waits_for for one in (await controller.reassignments.ongoing(())).reassignments}
    assert waiting[0] == waiting[1] == "brokers [3] are not live; start them, or cancel it"
    assert (await cluster.topic("t")).partitions[1] == ids(1, 2), "it would be filled by nobody"
    assert await ask(controller, "t", {0: None, 1: None}) == [None, None]
    await arrived(cluster, "t", 0, 1, 2)
    await arrived(cluster, "t", 1, 1, 2)


MOVING = paths.topic("moving-0")


class Arriving(MemoryStore):
    """While the agent looks at a topic that moves, another partition arrives: it is to look again."""

    arrives: Callable[[], None] | None = None

    async def get_many(self, paths: Sequence[str], *, current: bool = False) -> tuple[Node | None, ...]:
        if self.arrives is not None and MOVING in paths:
            self.arrives()
        return await super().get_many(paths, current=current)


@pytest.mark.parametrize("topics", [1, 3])
async def test_looks_that_follow_one_another_let_callers_mutations_have_their_turns(
    cluster: FakeCluster, topics: int
) -> None:
    """Each look asked for the next one while it was under way, and its steps went before every mutation."""
    await cluster.begin(1, 2, 3)
    stores: list[Arriving] = []

    def open_store(server: MemoryServer) -> MemoryStore:
        stores.append(Arriving(server))
        return stores[-1]

    cluster.open_store = open_store
    controller = await cluster.reign()
    agent = controller._reassigner
    for number in range(topics):
        await created(controller, f"moving-{number}", (1, 2))
        assert await ask(controller, f"moving-{number}", {0: (2, 3)}) == [None]
        await grown(cluster, f"moving-{number}", 0, 1, 2, 3)
        # Due at every look, and never written: a person has given the partition other replicas.
        node = await cluster.topic(f"moving-{number}")
        edited = replace(node, partitions={0: ids(3, 2, 1)})
        await cluster.outside.set(paths.topic(f"moving-{number}"), edited.encode(), version=None)
        await catch_up(cluster, f"moving-{number}", 0, 3)
    looks, looks_max = agent.looks, 300

    def arrives() -> None:
        if agent.looks < looks + looks_max:
            agent.wake()

    stores[0].arrives = arrives
    await until(lambda: agent.looks > looks + 5, what="looks that follow one another")
    before = agent.looks
    await created(controller, "wanted", (1, 2))
    assert agent.looks - before < looks_max // 10
