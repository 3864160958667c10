"""Partitions of which what is recorded cannot be read: a person is told what is lost, and gives them up."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_election.controller import Controller
from regnum_election.decisions.rejection import Rejection
from regnum_election.health.messages import describe_health
from regnum_election.partitions.addition import Added, AdditionOutcome
from regnum_election.partitions.giving_up import GivenUp, Kind
from regnum_election.partitions.removal import RemovalOutcome
from regnum_election.partitions.requests import AdditionRequest, RemovalRequest
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import TopicRequest
from regnum_model import paths
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_model.nodes import AcceptedAssignment, TopicIdNode
from regnum_service.errors import ExitStatus, RegnumError, traits_of
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.succession_stage import Stage, assigned, unverified
from regnum_testing.succession_stage import create as create_topics
from regnum_testing.waiting import DEADLINE_S, until

GARBAGE = b"garbage"
SOON_S = 0.02


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    await cluster.begin(1, 2, 3)
    yield cluster
    await cluster.close()


async def create(controller: Controller, partitions: int) -> TopicId:
    assignment = tuple((number, (BrokerId(1), BrokerId(2))) for number in range(partitions))
    request = TopicRequest(name="t", partitions=0, replication_factor=None, assignment=assignment, mutation=None)
    answered = await controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    (outcome,) = answered.outcomes
    assert isinstance(outcome, Created)
    return outcome.topic_id


async def add(controller: Controller, total: int, *, beside: Sequence[str] = ()) -> AdditionOutcome:
    """What comes of topic ``t``; a call with others beside it does not wait long for numbers to be free."""
    requests = [AdditionRequest(name=name, total=total, assignment=(), mutation=None) for name in ("t", *beside)]
    answered = await controller.partitions.add(requests, validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    return answered.outcomes[0]


async def remove(controller: Controller, *numbers: int) -> RemovalOutcome:
    request = RemovalRequest(name="t", topic_id="", partitions=numbers, mutation=None)
    answered = await controller.partitions.remove([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    return answered.outcomes[0]


async def give_up(controller: Controller, *numbers: int, accept_loss: bool = True) -> tuple[GivenUp, ...]:
    return await controller.partitions.giving_up.give_up(
        "t", numbers, accept_loss=accept_loss, who="ann", wait_s=DEADLINE_S
    )


def knows(cluster: FakeCluster, id: int, key: PartitionKey, epoch: int) -> None:
    cluster.brokers[BrokerId(id)].logs[key] = control_pb2.ReplicaLogInfo(
        last_written_leader_epoch=epoch, current_leader_epoch=epoch, log_end_offset=7
    )


async def next_reign(cluster: FakeCluster) -> Controller:
    await cluster.end_reign()
    return await cluster.reign(2, corrections_interval_s=SOON_S)


async def no_removals(controller: Controller) -> None:
    removals = controller._context.removals
    await until(lambda: not len(removals) and not removals.begun and not removals.damaged)


@pytest.mark.parametrize("gone", [False, True])
async def test_a_partition_whose_state_is_damaged_is_removed_when_a_person_accepts_the_loss(
    cluster: FakeCluster, gone: bool
) -> None:
    controller = await cluster.reign()
    key = PartitionKey(await create(controller, 2), 1)
    path = paths.leader_and_isr("t", 1)
    await cluster.end_reign()
    if gone:
        await cluster.outside.delete(path, version=None)
    else:
        cluster.server.overwrite(path, GARBAGE)
    controller = await cluster.reign(2)
    knows(cluster, 2, key, 5_000)

    refused = await remove(controller, 1)
    assert isinstance(refused, Rejection)
    assert "regnum partitions remove-damaged" in refused.message
    (look,) = await give_up(controller, accept_loss=False)
    assert (look.partition, look.kind, look.done) == (1, Kind.STATE, False)
    assert key in controller.picture.partitions, "a look changes nothing"

    (done,) = await give_up(controller, 1)
    assert (done.kind, done.done, done.rejection) == (Kind.STATE, True, None)
    tombstone = await cluster.state("t", 1)
    assert tombstone.removed
    assert tombstone.leader_epoch > 5_000, "a broker that knows a later epoch than its order would keep its files"
    await no_removals(controller)
    for id in (1, 2):
        (stop,) = [stop for stop in cluster.brokers[BrokerId(id)].stops if stop.partition == 1]
        assert stop.delete
        assert stop.leader_epoch == tombstone.leader_epoch
    assert await add(controller, 2) == Added(total=2)
    assert (await cluster.state("t", 1)).leader_epoch > tombstone.leader_epoch


async def test_right_after_a_succession_damage_that_the_successor_has_not_read_yet_is_found() -> None:
    stage = Stage()
    await stage.begin(1, 2, 3)
    (id,) = await create_topics(await stage.cluster.reign(), assigned("t", (1, 2), (1, 2)))
    await stage.follow()
    await stage.cluster.end_reign()
    stage.server.overwrite(paths.leader_and_isr("t", 1), GARBAGE)
    controller = await stage.succeed()
    assert PartitionKey(id, 1) in unverified(controller), "it goes by what its predecessor published"
    found = await give_up(controller, accept_loss=False)
    assert [(one.partition, one.kind) for one in found] == [(1, Kind.STATE)]
    await stage.close()


async def test_only_what_is_damaged_can_be_given_up_and_only_from_the_highest_down(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    await create(controller, 3)
    await cluster.end_reign()
    cluster.server.overwrite(paths.leader_and_isr("t", 1), GARBAGE)
    controller = await cluster.reign(2)
    found = await give_up(controller, 0, 1, 2, 9)
    assert [one.kind for one in found] == [None, Kind.STATE, None, None]
    assert not any(one.done for one in found)
    assert "highest" in (found[1].rejection or pytest.fail("given up")).message
    assert set((await cluster.topic("t")).partitions) == {0, 1, 2}
    assert not controller._remover._burial._given_up, "what is refused is not accepted for later"


async def test_a_removal_that_an_unreadable_state_holds_up_is_listed_and_goes_on_when_it_is_given_up(
    cluster: FakeCluster,
) -> None:
    controller = await cluster.reign()
    await create(controller, 2)
    path = paths.leader_and_isr("t", 1)
    cluster.server.overwrite(path, GARBAGE)
    await remove(controller, 1)
    refused = await add(controller, 2, beside=["none"])
    assert isinstance(refused, Rejection)
    assert "regnum partitions remove-damaged t 1" in refused.message
    health = await describe_health(controller.health, most=5)
    assert health.damaged_count == 1
    assert [(one.topic, one.partition) for one in health.damaged] == [("t", 1)]
    assert "remove-damaged" in health.damaged[0].advice

    (done,) = await give_up(controller)
    assert (done.kind, done.done) == (Kind.STATE_ON_ITS_WAY_OUT, True)
    await no_removals(controller)
    assert (await cluster.state("t", 1)).removed
    assert (await describe_health(controller.health, most=5)).damaged_count == 0
    assert await add(controller, 2) == Added(total=2)


async def test_a_removal_record_that_cannot_be_read_is_made_anew_with_every_broker(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    id = await create(controller, 2)
    cluster.kill(2)
    await until(lambda: BrokerId(2) not in controller.picture.brokers)
    await remove(controller, 1)
    await cluster.end_reign()
    cluster.server.overwrite(paths.partition_deletion(id, 1), GARBAGE)
    controller = await cluster.reign(2)
    refused = await add(controller, 2, beside=["none"])
    assert isinstance(refused, Rejection)
    assert "regnum partitions remove-damaged t 1" in refused.message
    for one in cluster.brokers.values():
        one.stops.clear()

    (done,) = await give_up(controller)
    assert (done.kind, done.done) == (Kind.RECORD, True)
    await until(lambda: controller._context.removals.waiting_for(id, (1,)) == {2})
    assert [stop.partition for stop in cluster.brokers[BrokerId(3)].stops] == [1], "whoever may have files is told"
    assert isinstance(await add(controller, 2, beside=["none"]), Rejection), "2 may have files and has not confirmed"
    await cluster.register(2)
    await no_removals(controller)
    assert await add(controller, 2) == Added(total=2)


async def test_a_record_that_was_mended_by_hand_meanwhile_is_taken_up_as_it_is(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    id = await create(controller, 2)
    cluster.kill(2)
    await until(lambda: BrokerId(2) not in controller.picture.brokers)
    await remove(controller, 1)
    path = paths.partition_deletion(id, 1)
    await until(lambda: controller._context.removals.waiting_for(id, (1,)) == {2})
    whole = (await cluster.outside.get(path)).data
    await cluster.end_reign()
    cluster.server.overwrite(path, GARBAGE)
    controller = await cluster.reign(2)
    await cluster.outside.set(path, whole, version=None)
    (done,) = await give_up(controller)
    assert done.done
    assert (await cluster.outside.get(path)).data == whole
    assert controller._context.removals.waiting_for(id, (1,)) == {2}


async def test_what_a_controller_that_dies_has_begun_to_give_up_is_found_and_finished(cluster: FakeCluster) -> None:
    """The topic node names it as going, and the tombstone is not written: the next reign lists it, and nobody else."""
    controller = await cluster.reign()
    id = await create(controller, 2)
    node = await cluster.topic("t")
    await cluster.end_reign()
    cluster.server.overwrite(paths.leader_and_isr("t", 1), GARBAGE)
    begun = replace(node, partitions={0: node.partitions[0]}, removing={1: node.partitions[1]})
    guard = TopicIdNode(topic="t", accepted=AcceptedAssignment.of(begun))
    cluster.server.overwrite(paths.topic("t"), begun.encode())
    cluster.server.overwrite(paths.topic_id(id), guard.encode())
    controller = await cluster.reign(2)
    await until(lambda: bool(controller._context.removals.damaged))
    (found,) = await give_up(controller, accept_loss=False)
    assert found.kind is Kind.STATE_ON_ITS_WAY_OUT
    (done,) = await give_up(controller)
    assert done.done
    await no_removals(controller)
    assert not (await cluster.topic("t")).removing


async def damaged_tombstone(cluster: FakeCluster) -> tuple[Controller, TopicId]:
    """Partition 1 is removed everywhere, and then a person writes over what it left."""
    controller = await cluster.reign()
    id = await create(controller, 2)
    await remove(controller, 1)
    await no_removals(controller)
    cluster.server.overwrite(paths.leader_and_isr("t", 1), GARBAGE)
    return controller, id


async def test_an_addition_over_a_damaged_tombstone_is_refused_as_a_conflict_with_the_way_out(
    cluster: FakeCluster,
) -> None:
    controller, _ = await damaged_tombstone(cluster)
    refused = await add(controller, 2)
    assert isinstance(refused, Rejection)
    assert traits_of(refused.code).exit_status is ExitStatus.CONFLICT
    assert not traits_of(refused.code).retriable
    assert "regnum partitions remove-damaged t 1" in refused.message
    assert await add(controller, 2) == refused, "known by now, and not waited for"
    health = await describe_health(controller.health, most=5)
    assert [(one.topic, one.partition, one.damage) for one in health.damaged] == [
        ("t", 1, admin_pb2.PARTITION_DAMAGE_TOMBSTONE)
    ]
    assert "recover" not in health.damaged[0].reason, "of what is removed nothing is recovered"


async def test_a_damaged_tombstone_is_given_up_and_its_number_goes_on_above_all_it_can_have_been(
    cluster: FakeCluster,
) -> None:
    controller, id = await damaged_tombstone(cluster)
    version = (await cluster.outside.get(paths.leader_and_isr("t", 1))).stat.version
    for one in cluster.brokers.values():
        one.stops.clear()

    (look,) = await give_up(controller, accept_loss=False)
    assert (look.partition, look.kind, look.done) == (1, Kind.TOMBSTONE, False)
    (done,) = await give_up(controller)
    assert (done.kind, done.done, done.rejection) == (Kind.TOMBSTONE, True, None)
    node = await cluster.outside.get(paths.leader_and_isr("t", 1))
    assert node.stat.version == version + 1, "written over and not removed"
    tombstone = await cluster.state("t", 1)
    assert tombstone.removed
    # Every write may have been a recovery, which leaves a thousand epochs out.
    assert tombstone.leader_epoch > version * 1_002
    await no_removals(controller)
    for broker in cluster.brokers.values():
        assert [(stop.partition, stop.delete, stop.leader_epoch) for stop in broker.stops] == [
            (1, True, tombstone.leader_epoch)
        ], "what was damaged may have been a partition that a person took out of the topic node"
    assert await add(controller, 2) == Added(total=2)
    state = await cluster.state("t", 1)
    assert (state.removed, state.leader_epoch > tombstone.leader_epoch) == (False, True)
    assert (await give_up(controller, accept_loss=False)) == ()
    await until(lambda: cluster.all_told((state.leader,), PartitionKey(id, 1), state.leader))


async def test_a_broker_that_still_knows_a_later_epoch_of_a_removed_partition_raises_the_floor(
    cluster: FakeCluster,
) -> None:
    controller, id = await damaged_tombstone(cluster)
    knows(cluster, 3, PartitionKey(id, 1), 50_000)
    (done,) = await give_up(controller, 1)
    assert done.done
    assert (await cluster.state("t", 1)).leader_epoch > 50_000


async def test_a_damaged_tombstone_with_a_damaged_record_is_given_up_as_well(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    id = await create(controller, 2)
    cluster.kill(2)
    await until(lambda: BrokerId(2) not in controller.picture.brokers)
    await remove(controller, 1)
    await cluster.end_reign()
    cluster.server.overwrite(paths.partition_deletion(id, 1), GARBAGE)
    cluster.server.overwrite(paths.leader_and_isr("t", 1), GARBAGE)
    controller = await cluster.reign(2)
    (done,) = await give_up(controller)
    assert (done.kind, done.done, done.rejection) == (Kind.RECORD, True, None)
    assert (await cluster.state("t", 1)).removed
    assert isinstance(await add(controller, 2, beside=["none"]), Rejection), "2 may have files and has not confirmed"
    await cluster.register(2)
    await no_removals(controller)
    assert await add(controller, 2) == Added(total=2)


async def test_a_tombstone_that_a_person_corrects_meanwhile_is_taken_up_as_it_is(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    await create(controller, 2)
    await remove(controller, 1)
    await no_removals(controller)
    path = paths.leader_and_isr("t", 1)
    whole = (await cluster.outside.get(path)).data
    cluster.server.overwrite(path, GARBAGE)
    assert isinstance(await add(controller, 2), Rejection)
    cluster.server.overwrite(path, whole)
    (found,) = await give_up(controller, 1)
    assert (found.kind, found.done) == (None, False)
    assert (await cluster.outside.get(path)).data == whole
    assert await add(controller, 2) == Added(total=2)


async def test_a_topic_that_cannot_be_read_is_listed_with_what_to_do(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    await create(controller, 1)
    await cluster.end_reign()
    cluster.server.overwrite(paths.topic("t"), GARBAGE)
    controller = await cluster.reign(2)
    (one,) = (await describe_health(controller.health, most=5)).damaged
    assert (one.topic, one.partition) == ("t", -1)
    assert paths.topic("t") in one.advice


async def test_too_many_partitions_and_unknown_topics_are_refused(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    await create(controller, 1)
    with pytest.raises(RegnumError) as many:
        await give_up(controller, *range(1_001))
    assert many.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    with pytest.raises(RegnumError) as unknown:
        await controller.partitions.giving_up.give_up("u", (), accept_loss=True, who="ann", wait_s=DEADLINE_S)
    assert unknown.value.code == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
