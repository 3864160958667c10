"""In which leader epoch a partition's life began: written, told and kept; and whose replicas are new (S10, S13)."""

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from regnum.replication.v1 import control_pb2
from regnum_election.controller import Controller
from regnum_election.decisions.topic_nodes import Accepted, FoundNode, judge_topic
from regnum_election.partitions.addition import Added
from regnum_election.partitions.removal import Removed
from regnum_election.partitions.requests import AdditionRequest, RemovalRequest
from regnum_election.reassignment.calls import ReassignmentRequest
from regnum_election.recovery.calls import RecoveryRequest
from regnum_election.topics.requests import TopicRequest
from regnum_model import paths
from regnum_model.ids import BrokerId, ControllerEpoch, LeaderEpoch, PartitionKey, TopicId
from regnum_model.nodes import LeaderAndIsr, TopicNode
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.succession_stage import Stage, assigned
from regnum_testing.succession_stage import create as create_topics
from regnum_testing.waiting import DEADLINE_S, eventually, until

TOPIC_ID = TopicId("A" * 22)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


async def create(controller: Controller, *assignments: Sequence[int], name: str = "t") -> None:
    assignment = tuple((number, tuple(map(BrokerId, ids))) for number, ids in enumerate(assignments))
    request = TopicRequest(name=name, partitions=0, replication_factor=None, assignment=assignment, mutation=None)
    await controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)


async def add(controller: Controller, number: int, *replicas: int) -> None:
    request = AdditionRequest(name="t", total=0, assignment=[(number, tuple(map(BrokerId, replicas)))], mutation=None)
    answered = await controller.partitions.add([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    assert isinstance(answered.outcomes[0], Added), answered.outcomes[0]


async def remove(controller: Controller, number: int) -> None:
    request = RemovalRequest(name="t", topic_id="", partitions=[number], mutation=None)
    answered = await controller.partitions.remove([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    assert isinstance(answered.outcomes[0], Removed), answered.outcomes[0]
    removals = controller._context.removals
    await until(lambda: not len(removals) and not removals.begun, what="every broker confirmed")


async def write(cluster: FakeCluster, path: str, content: object) -> None:
    """As a person does."""
    version = (await cluster.outside.get(path)).stat.version
    await cluster.outside.set(path, json.dumps(content).encode(), version=version)


async def begin_again(cluster: FakeCluster, controller: Controller) -> PartitionKey:
    """Partition 1 of a topic, removed in epoch 0 and added again."""
    await create(controller, (1, 2, 3), (1, 2, 3))
    await remove(controller, 1)
    await add(controller, 1, 3, 1, 2)
    return PartitionKey(controller.picture.names["t"], 1)


def told(cluster: FakeCluster, id: int, key: PartitionKey) -> control_pb2.LeaderAndIsrPartition:
    return cluster.told(id)[key]


async def told_of(cluster: FakeCluster, id: int, key: PartitionKey, leader: int) -> control_pb2.LeaderAndIsrPartition:
    await until(lambda: cluster.all_told([id], key, leader), what=f"broker {id} hears that {leader} leads")
    return told(cluster, id, key)


async def begin_creation(cluster: FakeCluster, controller: Controller, *replicas: int) -> PartitionKey:
    """A topic of one partition that has its first state, and of which its brokers do not hear."""
    cluster.spawn("creation", create(controller, replicas))

    def has_state() -> bool:
        id = controller.picture.names.get("t")
        return id is not None and controller.picture.partitions[PartitionKey(id, 0)].held is not None

    await until(has_state, what="the first state is written")
    return PartitionKey(controller.picture.names["t"], 0)


async def leads(controller: Controller, key: PartitionKey, leader: int) -> None:
    def is_leader() -> bool:
        held = controller.picture.partitions[key].held
        return held is not None and held.state.leader == leader

    await until(is_leader, what=f"{leader} is elected")


# The beginning.


async def test_a_number_that_comes_again_begins_above_the_tombstone_and_every_order_says_so(
    cluster: FakeCluster,
) -> None:
    """Trace T10, the controller's part."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    key = await begin_again(cluster, controller)
    state = await cluster.state("t", 1)
    assert state.leader_epoch == 2
    assert dict((await cluster.topic("t")).began) == {1: 2}
    for id in (1, 2, 3):
        order = told(cluster, id, key)
        assert (order.began_leader_epoch, order.is_new) == (2, True)
        first = told(cluster, id, PartitionKey(key.topic_id, 0))
        assert first.HasField("began_leader_epoch")
        assert (first.began_leader_epoch, first.is_new) == (0, True)
    cluster.kill(3)
    order = await told_of(cluster, 1, key, 1)
    assert (order.state.leader_epoch, order.began_leader_epoch, order.is_new) == (3, 2, False)


@pytest.mark.parametrize("content", [b"{broken", b'{"0":[1,2,3],"1":[3,1,2]}'])
async def test_a_beginning_that_an_edit_took_out_of_the_topic_node_is_known_by_the_guard(
    cluster: FakeCluster, content: bytes
) -> None:
    await cluster.begin(1, 2, 3)
    key = await begin_again(cluster, await cluster.reign())
    await cluster.end_reign()
    cluster.server.overwrite(paths.topic("t"), content)
    controller = await cluster.reign(2)
    assert controller.picture.partitions[key].began == 2
    await until(lambda: cluster.brokers[BrokerId(1)].controller_epoch == 2)
    await until(lambda: told(cluster, 1, key).began_leader_epoch == 2)


async def test_the_beginning_goes_with_the_partition_and_the_next_one_is_later(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await begin_again(cluster, controller)
    await remove(controller, 1)
    assert b"began" not in (await cluster.outside.get(paths.topic("t"))).data
    await add(controller, 1, 1, 2, 3)
    assert dict((await cluster.topic("t")).began) == {1: 4}


async def test_a_reassignment_and_a_change_of_controller_keep_it(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3, 4)
    controller = await cluster.reign()
    key = await begin_again(cluster, controller)
    request = ReassignmentRequest(topic="t", partition=1, target=(BrokerId(2), BrokerId(1)))
    await controller.reassignments.alter([request], validate_only=False, who="a test", wait_s=DEADLINE_S)

    async def moved() -> bool:
        node = await cluster.topic("t")
        return node.partitions[1] == (2, 1) and not node.reassigning

    await eventually(moved, what="the partition has moved")
    assert dict((await cluster.topic("t")).began) == {1: 2}
    await cluster.end_reign()
    controller = await cluster.reign(2)
    assert controller.picture.partitions[key].began == 2
    await until(
        lambda: cluster.brokers[BrokerId(1)].controller_epoch == 2 and cluster.told(1)[key].began_leader_epoch == 2
    )


async def test_a_standby_knows_it(tmp_path: object) -> None:
    stage = Stage()
    await stage.begin(1, 2, 3)
    controller = await stage.cluster.reign()
    await create_topics(controller, assigned("t", (1, 2, 3), (1, 2, 3)))
    await stage.follow()
    await remove(controller, 1)
    await add(controller, 1, 3, 1, 2)
    await until(stage.standby.has_all)
    key = PartitionKey(controller.picture.names["t"], 1)
    assert stage.standby.follower.followed.picture.partitions[key] == controller.picture.partitions[key]
    assert controller.picture.partitions[key].began == 2
    await stage.close()


def found(state: LeaderAndIsr, version: int = 0) -> FoundNode:
    return FoundNode(data=state.encode(), version=version)


def tombstone(epoch: int) -> LeaderAndIsr:
    return LeaderAndIsr(
        topic_id=TOPIC_ID,
        leader=BrokerId(-1),
        leader_epoch=LeaderEpoch(epoch),
        isr=(),
        elr=(),
        members={},
        controller_epoch=ControllerEpoch(1),
        removed=True,
    )


def judged(node: TopicNode, state: LeaderAndIsr) -> Accepted:
    verdict = judge_topic(
        "t",
        FoundNode(data=node.encode(), version=0),
        {0: found(state)},
        {TOPIC_ID: "t"},
        minted=TOPIC_ID,
        reign=ControllerEpoch(1),
    )
    assert isinstance(verdict, Accepted), verdict
    return verdict


def test_what_an_earlier_release_began_to_add_is_given_a_beginning_by_its_successor() -> None:
    node = TopicNode(topic_id=TOPIC_ID, partitions={0: (BrokerId(1),)}, creating=frozenset({0}))
    verdict = judged(node, tombstone(5))
    assert verdict.rewrite
    assert dict(verdict.node.began) == {0: 6}
    assert verdict.partitions[0].began == 6
    again = judged(verdict.node, tombstone(5))
    assert not again.rewrite


def test_a_beginning_above_the_recorded_epoch_is_damage(cluster: FakeCluster) -> None:
    state = replace(tombstone(5), removed=False, isr=(BrokerId(1),))
    state = LeaderAndIsr.decode(json.dumps({**json.loads(state.encode()), "members": {"1": [1, "log"]}}).encode())
    node = TopicNode(topic_id=TOPIC_ID, partitions={0: (BrokerId(1),)})
    for began, damaged in ((5, False), (6, True)):
        partition = judged(replace(node, began={0: LeaderEpoch(began)}), state).partitions[0]
        assert (partition.trouble is not None) is damaged
        assert (partition.held is None) is damaged
        assert "began at 6" in (partition.trouble or "began at 6")


async def test_a_damaged_beginning_goes_into_no_order_and_a_correction_is_taken_up(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    key = await begin_again(cluster, controller)
    await cluster.end_reign()
    path = paths.topic("t")
    content = json.loads((await cluster.outside.get(path)).data)
    await write(cluster, path, {**content, "began": {"1": 9}})
    controller = await cluster.reign(2, corrections_interval_s=0.02)
    assert "began at 9" in (controller.picture.partitions[key].trouble or "")
    zero = PartitionKey(key.topic_id, 0)
    await until(lambda: all(broker.requests[-1].controller_epoch == 2 for broker in cluster.brokers.values()))
    for broker in cluster.brokers.values():
        orders = [one for request in broker.requests if request.controller_epoch == 2 for one in request.partitions]
        assert {one.state.partition for one in orders} == {zero.partition}
    # Not even after the time in which an assignment is recorded in the guard: damage is not to be what is accepted.
    looks = controller.upkeep.looks_for_corrections
    await until(lambda: controller.upkeep.looks_for_corrections > looks + 4, what="it is looked for")
    await write(cluster, path, content)
    await until(lambda: controller.picture.partitions[key].is_led, what="it is corrected")
    assert controller.picture.partitions[key].began == 2


async def test_a_recovery_writes_an_epoch_of_this_life_and_takes_no_log_of_the_former(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    key = await begin_again(cluster, controller)
    await cluster.end_reign()
    gone = paths.leader_and_isr("t", 1)
    await cluster.outside.delete(gone, version=(await cluster.outside.get(gone)).stat.version)
    path = paths.topic("t")
    content = json.loads((await cluster.outside.get(path)).data)
    await write(cluster, path, {**content, "began": {"1": 5_000}})
    controller = await cluster.reign(2)
    cluster.brokers[BrokerId(2)].logs[key] = control_pb2.ReplicaLogInfo(
        last_written_leader_epoch=4_000, current_leader_epoch=4_000, high_watermark=9, log_end_offset=9
    )
    request = RecoveryRequest(topic="t", partitions=[1], first_partition=0, accept_loss=True, who="a test")
    (one,) = (await controller.recoveries.recover(request, wait_s=5.0)).recoveries
    assert one.assessment is not None
    assert one.assessment.chosen == 3
    assert one.leader_epoch >= 5_000
    order = await told_of(cluster, 3, key, 3)
    assert order.is_new
    assert order.began_leader_epoch == 5_000


# Whose replicas are new.


async def test_a_member_that_has_not_heard_of_a_partition_succeeds_its_dead_leader(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    for id in (1, 2, 3):
        cluster.brokers[BrokerId(id)].down = True
    key = await begin_creation(cluster, controller, 1, 2, 3)
    cluster.kill(1)
    await leads(controller, key, 2)
    for id in (2, 3):
        cluster.brokers[BrokerId(id)].down = False
    order = await told_of(cluster, 2, key, 2)
    assert (order.state.leader_epoch, order.is_new) == (1, True)
    newborn = controller._context.dispatch.newborn
    await until(lambda: not newborn.is_new_to(key, BrokerId(3)), what="broker 3 has acknowledged")
    cluster.kill(2)
    order = await told_of(cluster, 3, key, 3)
    assert not order.is_new


async def test_the_only_member_of_a_partition_may_make_it_after_a_bounce(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    cluster.brokers[BrokerId(1)].down = True
    key = await begin_creation(cluster, controller, 1)
    cluster.kill(1)
    await until(lambda: not controller.picture.partitions[key].is_led)
    await cluster.register(1)
    order = await told_of(cluster, 1, key, 1)
    assert order.is_new
    cluster.kill(1)
    await until(lambda: not controller.picture.partitions[key].is_led)
    await cluster.register(1)
    order = await told_of(cluster, 1, key, 1)
    assert not order.is_new


async def test_a_successor_trusts_members_that_have_been_up_and_no_others(cluster: FakeCluster) -> None:
    """Trace T9: a broker that came anew may have had a replica that the store does not know of any more."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await create(controller, (1, 2, 3))
    await create(controller, (1,), name="u")
    zero, one = (PartitionKey(controller.picture.names[name], 0) for name in ("t", "u"))
    await cluster.end_reign()
    for id in (2, 3):
        cluster.brokers[BrokerId(id)].down = True
    controller = await cluster.reign(2)
    cluster.kill(1)
    await leads(controller, zero, 2)
    for id in (2, 3):
        cluster.brokers[BrokerId(id)].down = False
    order = await told_of(cluster, 2, zero, 2)
    assert (order.state.leader_epoch, order.is_new) == (1, True)
    await cluster.register(1)
    order = await told_of(cluster, 1, one, 1)
    assert not order.is_new


async def test_a_member_that_misses_its_replica_makes_an_empty_one_when_a_person_gives_it_up(
    cluster: FakeCluster,
) -> None:
    await cluster.begin(1)
    controller = await cluster.reign()
    await create(controller, (1,))
    key = PartitionKey(controller.picture.names["t"], 0)
    await cluster.end_reign()
    cluster.brokers[BrokerId(1)].offline.add(key)
    controller = await cluster.reign(2)
    await leads(controller, key, -1)
    request = RecoveryRequest(topic="t", partitions=[0], first_partition=0, accept_loss=True, who="a test")
    cluster.brokers[BrokerId(1)].offline.clear()
    (one,) = (await controller.recoveries.recover(request, wait_s=5.0)).recoveries
    assert one.assessment is not None
    assert (one.assessment.chosen, one.assessment.unknown) == (1, (1,))
    # It was told of the leader epoch before as well, by the reign that created the topic.
    await until(
        lambda: told(cluster, 1, key).state.leader_epoch == one.leader_epoch, what="broker 1 hears of the recovery"
    )
    assert told(cluster, 1, key).is_new
    await until(lambda: not controller.picture.offline_at(key), what="the replica is of use again")
