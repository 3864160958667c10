"""Replicas that were reassigned to others: when their files go, and when never (safety rule S13, third clause)."""

import errno
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.cluster.strays.assignments import Assignment, assignments_of
from regnum_broker.replication.partition import Following
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.recipes.folders import ensure_folders
from regnum_model import paths
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, LogId, PartitionKey, TopicId
from regnum_model.nodes import AcceptedAssignment, LeaderAndIsr, Membership, TopicIdNode, TopicNode
from regnum_model.reassignment import Reassignment
from regnum_service.clock import SystemClock
from regnum_testing.batches import batch_of
from regnum_testing.broker_world import TOPIC_ID, BrokerWorld
from regnum_testing.disk import FaultyDisk
from regnum_testing.waiting import DEADLINE_S, eventually, within

GRACE_S = 1.0
KEY = PartitionKey(TOPIC_ID, 0)
OTHER_ID = TopicId("U" * 22)
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[BrokerWorld]:
    made = BrokerWorld(tmp_path, stray_grace_s=GRACE_S)
    await made.begin()
    await made.start(1, 2)
    yield made
    await made.close()


def topic_node(*replicas: BrokerId, move: Reassignment | None = None, id: TopicId = TOPIC_ID) -> TopicNode:
    return TopicNode(topic_id=id, partitions={0: replicas}, reassigning={} if move is None else {0: move})


async def assign(world: BrokerWorld, node: TopicNode) -> None:
    stat = await world.store.exists(paths.topic("t"))
    assert stat is not None
    await world.store.set(paths.topic("t"), node.encode(), version=stat.version)


async def move_away(world: BrokerWorld, *, epoch: int = 1) -> None:
    """What a switch leaves in the store: broker 2 has the partition, and leads it."""
    await world.elect(2, [2], epoch=epoch, tell=[2])
    await assign(world, topic_node(TWO))


async def stop(world: BrokerWorld, *, leader_epoch: int = 1) -> int:
    epoch, _ = await world.registration(1)
    response = await world.control(1).StopReplica(
        control_pb2.StopReplicaRequest(
            controller_id=1,
            controller_epoch=world.controller_epoch,
            broker_epoch=epoch,
            partitions=[
                control_pb2.StopReplicaPartition(
                    topic="t",
                    topic_id=TOPIC_ID,
                    partition=0,
                    leader_epoch=leader_epoch,
                    delete=True,
                    reassigned=True,
                )
            ],
        ),
        timeout=DEADLINE_S,
    )
    return response.results[0].error_code


def has_replica(world: BrokerWorld, id: int) -> bool:
    return world.brokers[BrokerId(id)].broker.replicas.get(KEY) is not None


async def test_a_replica_that_was_reassigned_goes_with_the_order(world: BrokerWorld) -> None:
    await world.elect(1, [1], replicas=[1, 2])
    await move_away(world)
    assert await stop(world) == errors_pb2.ERROR_CODE_NONE
    assert not has_replica(world, 1)
    assert has_replica(world, 2)


async def fail_disk(world: BrokerWorld) -> None:
    """Broker 1 appends to a disk that fails, ends, and starts on the same one, which works again."""
    await world.stop(1)
    disk = world.disks[1] = FaultyDisk()
    await world.start(1)
    await world.elect(1, [1], epoch=1)
    disk.fail_writes = errno.EIO
    assert (await world.produce(1, batch_of(b"lost"))).error_code != errors_pb2.ERROR_CODE_NONE
    running = world.brokers[ONE]

    async def failed() -> bool:
        return running.supervisor.failure is not None

    await eventually(failed, what="the broker at its end")
    del world.brokers[ONE], world.disks[1]
    await within(running.supervisor.unwind())
    await world.start(1)


async def replace_disk(world: BrokerWorld) -> None:
    """Broker 1 starts on an empty one."""
    await world.stop(1)
    shutil.rmtree(world.root / "broker-1")
    await world.start(1)


@pytest.mark.parametrize("happens", [fail_disk, replace_disk])
async def test_a_replica_that_was_reassigned_goes_also_where_a_disk_failed_or_is_new(
    world: BrokerWorld, happens: Callable[[BrokerWorld], Awaitable[None]]
) -> None:
    await happens(world)
    await world.elect(1, [1], replicas=[1, 2], epoch=2)
    await move_away(world, epoch=3)
    assert await stop(world, leader_epoch=3) == errors_pb2.ERROR_CODE_NONE
    assert not has_replica(world, 1)


async def test_an_order_that_comes_late_does_nothing_to_a_replica_that_has_come_back(world: BrokerWorld) -> None:
    """Reassigned away and back (defect D23): the epoch of the order is not below what the replica knows."""
    await world.elect(1, [1], replicas=[1, 2], epoch=1)
    await assign(world, topic_node(ONE, TWO))
    assert (await world.produce(1, batch_of(b"kept"))).error_code == errors_pb2.ERROR_CODE_NONE
    assert await stop(world) == errors_pb2.ERROR_CODE_NONE
    assert world.brokers[ONE].leads()
    assert world.brokers[ONE].partition().log.log_end_offset == 1


async def test_an_order_is_repeated_while_nobody_leads_the_partition(world: BrokerWorld) -> None:
    state = await world.elect(1, [1], replicas=[1, 2])
    await move_away(world)
    leaderless = replace(await world.state(), leader=BrokerId(-1), leader_epoch=LeaderEpoch(2))
    path = paths.leader_and_isr("t", 0)
    stat = await world.store.exists(path)
    assert stat is not None
    await world.store.set(path, leaderless.encode(), version=stat.version)
    assert await stop(world, leader_epoch=2) == errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT
    assert has_replica(world, 1)
    assert state.leader == 1


async def test_a_replica_that_was_reassigned_while_its_broker_was_away_goes_after_the_grace_time(
    world: BrokerWorld,
) -> None:
    await world.elect(1, [1], replicas=[1, 2])
    await world.elect(1, [1], replicas=[1], partition=1)
    node = TopicNode(topic_id=TOPIC_ID, partitions={0: (ONE, TWO), 1: (ONE,)})
    await assign(world, node)
    await world.stop(1)
    await world.elect(2, [2], epoch=1, tell=[2])
    await assign(world, replace(node, partitions={0: (TWO,), 1: (ONE,)}))
    await world.start(1)
    assert has_replica(world, 1)

    async def gone() -> bool:
        return not has_replica(world, 1)

    await eventually(gone, what="the stray is deleted")
    # It had no role all the time either, and is this broker's own.
    assert world.brokers[ONE].broker.replicas.get(PartitionKey(TOPIC_ID, 1)) is not None
    assert has_replica(world, 2)


def state(leader: int, isr: tuple[BrokerId, ...], elr: tuple[BrokerId, ...] = (), id: TopicId = TOPIC_ID) -> bytes:
    members = {one: Membership(broker_epoch=BrokerEpoch(1), log_id=LogId(f"log-{one}")) for one in (*isr, *elr)}
    return LeaderAndIsr(
        topic_id=id,
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(3),
        isr=isr,
        elr=elr,
        members=members,
        controller_epoch=ControllerEpoch(1),
    ).encode()


GUARD = TopicIdNode(topic="t").encode()
ELSEWHERE = topic_node(TWO, THREE).encode()


def recorded(*replicas: BrokerId, move: Reassignment | None = None) -> bytes:
    """A guard that records the assignment of the partition."""
    reassigning = {} if move is None else {0: move}
    return TopicIdNode(
        topic="t", accepted=AcceptedAssignment(partitions={0: replicas}, reassigning=reassigning)
    ).encode()


LED = state(2, (TWO, THREE))


@pytest.mark.parametrize(
    ("guard", "topic", "led", "expected"),
    [
        pytest.param(GUARD, ELSEWHERE, LED, Assignment.ELSEWHERE, id="others have it and lead it"),
        pytest.param(GUARD, topic_node(TWO, ONE).encode(), LED, Assignment.HERE, id="assigned"),
        pytest.param(
            GUARD,
            topic_node(TWO, move=Reassignment(origin=(TWO,), target=(ONE,))).encode(),
            LED,
            Assignment.HERE,
            id="a target that has not begun",
        ),
        pytest.param(recorded(TWO, ONE), ELSEWHERE, LED, Assignment.HERE, id="accepted, and the node was edited"),
        pytest.param(recorded(TWO), ELSEWHERE, LED, Assignment.ELSEWHERE, id="accepted elsewhere, too"),
        pytest.param(recorded(TWO), topic_node(ONE).encode(), LED, Assignment.HERE, id="the node has it back"),
        pytest.param(
            recorded(TWO, move=Reassignment(origin=(TWO,), target=(ONE,))),
            ELSEWHERE,
            LED,
            Assignment.HERE,
            id="an accepted target",
        ),
        pytest.param(None, ELSEWHERE, LED, Assignment.TOPIC_GONE, id="no guard"),
        pytest.param(b"{", ELSEWHERE, LED, Assignment.UNKNOWN, id="a guard that nobody can read"),
        pytest.param(GUARD, None, LED, Assignment.UNKNOWN, id="no topic node"),
        pytest.param(GUARD, b"{}", LED, Assignment.UNKNOWN, id="a topic node that nobody can read"),
        pytest.param(GUARD, topic_node(TWO, id=OTHER_ID).encode(), LED, Assignment.UNKNOWN, id="another topic id"),
        pytest.param(GUARD, b'{"0":[2,3]}', LED, Assignment.UNKNOWN, id="a bare node without an id"),
        pytest.param(
            GUARD,
            TopicNode(topic_id=TOPIC_ID, partitions={1: (TWO,)}).encode(),
            LED,
            Assignment.TOPIC_GONE,
            id="no such partition",
        ),
        pytest.param(GUARD, ELSEWHERE, None, Assignment.UNKNOWN, id="no state"),
        pytest.param(GUARD, ELSEWHERE, b"?", Assignment.UNKNOWN, id="a state that nobody can read"),
        pytest.param(GUARD, ELSEWHERE, state(-1, (TWO,)), Assignment.UNKNOWN, id="nobody leads"),
        pytest.param(GUARD, ELSEWHERE, state(2, (TWO, ONE)), Assignment.UNKNOWN, id="in the ISR"),
        pytest.param(GUARD, ELSEWHERE, state(2, (TWO,), (ONE,)), Assignment.UNKNOWN, id="eligible"),
        pytest.param(GUARD, ELSEWHERE, state(2, (TWO,), id=OTHER_ID), Assignment.UNKNOWN, id="another topic's state"),
    ],
)
async def test_only_what_others_have_and_lead_beyond_doubt_is_elsewhere(
    guard: bytes | None, topic: bytes | None, led: bytes | None, expected: Assignment
) -> None:
    server = MemoryServer()
    store = MemoryStore(server)
    await ensure_folders(store, [*paths.PERSISTENT_FOLDERS], SystemClock())
    for path, data in (
        (paths.topic_id(TOPIC_ID), guard),
        (paths.topic("t"), topic),
        (paths.leader_and_isr("t", 0), led),
    ):
        if data is not None:
            await store.create(path, data, make_parents=True)
    if topic is None and led is not None:
        await store.delete(paths.leader_and_isr("t", 0), version=0)
        await store.delete(paths.partition("t", 0), version=0)
        await store.delete(paths.topic("t"), version=0)
    assert await assignments_of(store, [KEY], broker=ONE) == {KEY: expected}


async def test_without_the_store_nobody_knows() -> None:
    assert await assignments_of(None, [KEY], broker=ONE) == {KEY: Assignment.UNKNOWN}


async def test_a_leader_takes_up_new_replicas_from_an_order_it_knows_and_lets_them_join(world: BrokerWorld) -> None:
    """A reassignment that begins leaves leader, epoch and version as they are."""
    state = await world.elect(1, [1], replicas=[1])
    assert (await world.produce(1, batch_of(b"before"))).error_code == errors_pb2.ERROR_CODE_NONE
    role = world.brokers[ONE].partition().role
    wider = world.order(state, 0, replicas=[1, 2])
    # The new one hears of it first, and asks a leader that does not know it.
    await world.send(2, [wider])
    await world.send(1, [wider])
    await world.isr_is(1, 2)
    assert world.brokers[ONE].partition().role is role
    await world.log_ends_at(2, 1)


async def full_set(world: BrokerWorld, id: int) -> None:
    """INIT of the next controller, which names nothing."""
    world.controller_epoch += 1
    epoch, _ = await world.registration(id)
    await world.control(id).LeaderAndIsr(
        control_pb2.LeaderAndIsrRequest(
            controller_id=2, controller_epoch=world.controller_epoch, broker_epoch=epoch, init=True, part=0, parts=1
        ),
        timeout=DEADLINE_S,
    )


async def test_a_follower_whose_stop_died_with_its_controller_goes_after_the_grace_time(world: BrokerWorld) -> None:
    """Switched, the leader told, and the controller dead before it ordered the stop."""
    await world.elect(1, [1], replicas=[1, 2])
    await assign(world, topic_node(ONE, TWO))
    await world.elect(1, [1], epoch=1, tell=[1])
    await assign(world, topic_node(ONE))
    await full_set(world, 2)

    async def gone() -> bool:
        return not has_replica(world, 2)

    await eventually(gone, what="the stray is deleted")
    assert world.brokers[ONE].leads()


async def test_a_follower_that_its_leader_refuses_stays_while_it_is_assigned(world: BrokerWorld) -> None:
    """The leaders are an epoch ahead: an order to the follower of the first is late, whatever a full set left out."""
    for partition in (0, 1):
        await world.elect(1, [1], replicas=[1, 2], tell=[2], partition=partition)
        await world.elect(1, [1], replicas=[1, 2], epoch=1, tell=[1], partition=partition)
    await assign(world, TopicNode(topic_id=TOPIC_ID, partitions={0: (ONE, TWO), 1: (ONE,)}))
    await full_set(world, 2)

    async def gone() -> bool:
        return world.brokers[TWO].broker.replicas.get(PartitionKey(TOPIC_ID, 1)) is None

    await eventually(gone, what="the stray is deleted")
    # Refused for as long, and looked at together with the other.
    follower = world.brokers[TWO].partition()
    assert isinstance(follower.role, Following)
    await world.send(2, [world.order(await world.state(), 1, replicas=[1, 2])])
    await world.isr_is(1, 2)
