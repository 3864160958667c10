"""Partitions that nobody may lead, over a memory store with fake brokers (safety rules S3, S10, S14)."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_election.controller import Controller
from regnum_election.recovery.calls import Recovered, Recovery, RecoveryRequest
from regnum_election.reign.events import ReplicasOffline
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import DeletionRequest, TopicRequest
from regnum_model import paths
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_service.errors import RegnumError
from regnum_testing.interrupted_store import interrupted
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

NOT_NEEDED = errors_pb2.ERROR_CODE_ELECTION_NOT_NEEDED
NOBODY = errors_pb2.ERROR_CODE_ELIGIBLE_LEADERS_NOT_AVAILABLE


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


async def create(controller: Controller, name: str, *replicas: int, partitions: int = 1) -> TopicId:
    assignment = tuple((number, tuple(BrokerId(id) for id in replicas)) for number in range(partitions))
    request = TopicRequest(name=name, partitions=0, replication_factor=None, assignment=assignment, mutation=None)
    answered = await controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    (outcome,) = answered.outcomes
    assert isinstance(outcome, Created)
    return outcome.topic_id


async def recover(
    controller: Controller,
    *partitions: int,
    accept_loss: bool = False,
    first: int = 0,
    topic: str = "t",
    wait_s: float = 5.0,
) -> Recovered:
    request = RecoveryRequest(
        topic=topic, partitions=partitions, first_partition=first, accept_loss=accept_loss, who="a test"
    )
    return await controller.recoveries.recover(request, wait_s=wait_s)


async def recover_one(controller: Controller, *partitions: int, accept_loss: bool = False) -> Recovery:
    (one,) = (await recover(controller, *partitions, accept_loss=accept_loss)).recoveries
    return one


def hold(cluster: FakeCluster, id: int, key: PartitionKey, *, epoch: int, end: int, heard: int = 0) -> None:
    """A broker's log of a partition."""
    cluster.brokers[BrokerId(id)].logs[key] = control_pb2.ReplicaLogInfo(
        last_written_leader_epoch=epoch,
        current_leader_epoch=max(epoch, heard),
        high_watermark=end,
        log_end_offset=end,
    )


async def lose_all_logs(cluster: FakeCluster, *ids: int) -> None:
    """All brokers lose power at once: their logs cannot be proved complete."""
    for id in ids:
        cluster.kill(id)

    async def offline() -> bool:
        return (await cluster.state("t", 0)).leader == -1

    await until(offline)
    for id in ids:
        before = cluster.brokers[BrokerId(id)].logs
        back = await cluster.register(id, log_id=f"after-the-loss-{id}")
        back.logs.update(before)
    # A broker is in the picture a moment before it can be asked; whoever has the full set can be.
    await until(lambda: all(cluster.brokers[BrokerId(id)].requests for id in ids))


async def test_without_accept_loss_it_is_said_what_there_is_and_nothing_is_written(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    key = PartitionKey(await create(controller, "t", 1, 2, 3), 0)
    for id, end in ((1, 10), (2, 12), (3, 11)):
        hold(cluster, id, key, epoch=0, end=end)
    await lose_all_logs(cluster, 1, 2, 3)
    before = await cluster.outside.get(paths.leader_and_isr("t", 0))
    one = await recover_one(controller)
    assert one.rejection is None
    assert one.assessment is not None
    assert one.assessment.chosen == 2
    assert one.assessment.lost_from_offset == 12
    assert one.found is not None
    assert one.leader_epoch == -1
    assert (await cluster.outside.get(paths.leader_and_isr("t", 0))).stat == before.stat


async def test_with_accept_loss_the_best_log_leads_alone_in_a_new_epoch_and_all_are_told(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    key = PartitionKey(await create(controller, "t", 1, 2, 3), 0)
    hold(cluster, 1, key, epoch=0, end=10)
    hold(cluster, 2, key, epoch=0, end=12, heard=30)
    await lose_all_logs(cluster, 1, 2, 3)
    one = await recover_one(controller, accept_loss=True)
    assert one.rejection is None
    assert one.leader_epoch == 31
    state = await cluster.state("t", 0)
    assert (state.leader, state.leader_epoch, state.isr, state.elr) == (2, 31, (2,), ())
    assert state.members[BrokerId(2)].broker_epoch == cluster.brokers[BrokerId(2)].epoch
    assert state.members[BrokerId(2)].log_id == "after-the-loss-2"
    await until(lambda: cluster.all_told((1, 2, 3), key, 2))
    await until(lambda: cluster.metadata.topics == {"t": {0: 2}})
    again = await recover_one(controller, 0, accept_loss=True)
    assert again.rejection is not None
    assert again.rejection.code == NOT_NEEDED


async def test_a_partition_with_a_leader_or_an_eligible_replica_is_left_alone(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    key = PartitionKey(await create(controller, "t", 1, 2), 0)
    before = await cluster.outside.get(paths.leader_and_isr("t", 0))
    led = await recover_one(controller, 0, accept_loss=True)
    assert led.rejection is not None
    assert led.rejection.code == NOT_NEEDED
    assert (await recover(controller, accept_loss=True)).recoveries == ()
    assert (await cluster.outside.get(paths.leader_and_isr("t", 0))).stat == before.stat
    cluster.kill(1)
    await until(lambda: cluster.all_told((2,), key, 2))
    cluster.kill(2)

    async def offline() -> bool:
        return (await cluster.state("t", 0)).leader == -1

    await until(offline)
    # Broker 1 is eligible (ELR); it comes back while a person types.
    looked = await recover_one(controller)
    assert looked.rejection is not None
    assert looked.rejection.code == NOBODY
    await cluster.register(1)
    await until(lambda: cluster.all_told((1,), key, 1))
    late = await recover_one(controller, 0, accept_loss=True)
    assert late.rejection is not None
    assert late.rejection.code == NOT_NEEDED


async def test_a_state_that_is_gone_is_made_anew_far_above_every_epoch_that_is_known(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    key = PartitionKey(await create(controller, "t", 1, 2), 0)
    hold(cluster, 1, key, epoch=0, end=10)
    hold(cluster, 2, key, epoch=3, end=7)
    await cluster.end_reign()
    await cluster.outside.delete(paths.leader_and_isr("t", 0), version=None)
    await cluster.outside.delete(paths.partition("t", 0), version=None)
    following = await cluster.reign(2)
    assert following.picture.partitions[key].trouble is not None
    one = await recover_one(following, accept_loss=True)
    assert one.rejection is None, one.rejection
    state = await cluster.state("t", 0)
    assert (state.leader, state.isr) == (2, (2,))
    assert state.leader_epoch > 1_000
    assert state.topic_id == key.topic_id
    await until(lambda: cluster.all_told((1, 2), key, 2))
    assert following.picture.partitions[key].trouble is None
    # The next reign finds a whole topic.
    await cluster.end_reign()
    third = await cluster.reign(3)
    assert third.picture.partitions[key].trouble is None
    assert (await cluster.state("t", 0)).leader == 2


async def test_an_unreadable_state_is_replaced_only_in_the_version_that_was_looked_at(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    key = PartitionKey(await create(controller, "t", 1, 2), 0)
    hold(cluster, 2, key, epoch=0, end=7)
    await cluster.end_reign()
    path = paths.leader_and_isr("t", 0)
    kept = await cluster.outside.get(path)
    await cluster.outside.set(path, b"scribble", version=None)
    following = await cluster.reign(2)
    cluster.brokers[BrokerId(1)].mute = True
    looking = asyncio.ensure_future(recover(following, accept_loss=True, wait_s=2.0))
    await until(lambda: cluster.brokers[BrokerId(1)].questions == 1)
    await cluster.outside.set(path, b"scribbled again", version=None)
    (one,) = (await looking).recoveries
    assert one.rejection is not None
    assert one.rejection.code == NOBODY
    assert (await cluster.outside.get(path)).data == b"scribbled again"
    cluster.brokers[BrokerId(1)].mute = False
    assert (await recover_one(following, accept_loss=True)).rejection is None
    assert (await cluster.state("t", 0)).leader == 2
    assert kept.data != (await cluster.outside.get(path)).data


async def test_a_missing_guard_is_made_with_the_last_write_and_the_topic_is_whole_again(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    id = await create(controller, "t", 1, 2, partitions=3)
    keys = [PartitionKey(id, number) for number in range(3)]
    for key in keys:
        hold(cluster, 1, key, epoch=0, end=4)
    await cluster.end_reign()
    await cluster.outside.delete(paths.topic_id(id), version=None)
    following = await cluster.reign(2)
    assert all(following.picture.partitions[key].trouble is not None for key in keys)
    found = (await recover(following)).recoveries
    assert all(one.found is not None and "guard" in one.found.reason for one in found)
    done = (await recover(following, accept_loss=True)).recoveries
    assert [one.rejection for one in done] == [None, None, None]
    guard = await cluster.outside.get(paths.topic_id(id))
    assert json.loads(guard.data)["topic"] == "t"
    for key in keys:
        await until(lambda key=key: cluster.all_told((1, 2), key, 1))
    assert (await following.topics.delete([_deletion("t")], wait_s=DEADLINE_S, account=ANYBODY)).outcomes


async def test_a_guard_that_is_restored_while_states_are_written_leaves_them_as_they_were(cluster: FakeCluster) -> None:
    """All but the last write rely on its absence, which is checked with each of them."""
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    id = await create(controller, "t", 1, 2, partitions=3)
    for number in range(3):
        hold(cluster, 1, PartitionKey(id, number), epoch=0, end=4)
    await cluster.end_reign()
    guard = await cluster.outside.get(paths.topic_id(id))
    await cluster.outside.delete(paths.topic_id(id), version=None)
    before = [await cluster.outside.get(paths.leader_and_isr("t", number)) for number in range(3)]

    async def restore() -> None:
        await cluster.outside.create(paths.topic_id(id), guard.data)

    interrupted(cluster, {paths.leader_and_isr("t", 0): restore})
    following = await cluster.reign(2)
    done = (await recover(following, accept_loss=True)).recoveries
    assert all(one.rejection is not None for one in done)
    assert [await cluster.outside.get(paths.leader_and_isr("t", number)) for number in range(3)] == before


async def test_a_topic_whose_guard_and_states_are_all_gone_is_had_back_from_its_logs(cluster: FakeCluster) -> None:
    """Its node was restored and nothing else: no creation, so nothing begins at epoch 0."""
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    id = await create(controller, "t", 1, 2, partitions=2)
    keys = [PartitionKey(id, number) for number in range(2)]
    for key in keys:
        hold(cluster, 2, key, epoch=4, end=9)
    await cluster.end_reign()
    for key in keys:
        await cluster.outside.delete(paths.leader_and_isr("t", key.partition), version=None)
        await cluster.outside.delete(paths.partition("t", key.partition), version=None)
    await cluster.outside.delete(paths.topic_id(id), version=None)
    following = await cluster.reign(2)
    done = (await recover(following, accept_loss=True)).recoveries
    assert [one.rejection for one in done] == [None, None]
    for key in keys:
        state = await cluster.state("t", key.partition)
        assert state.leader == 2
        assert state.leader_epoch > 1_000
        await until(lambda key=key: cluster.all_told((1, 2), key, 2))
    assert json.loads((await cluster.outside.get(paths.topic_id(id))).data)["topic"] == "t"


async def test_two_calls_at_once_elect_once(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    key = PartitionKey(await create(controller, "t", 1, 2), 0)
    hold(cluster, 1, key, epoch=0, end=10)
    await lose_all_logs(cluster, 1, 2)
    both = await asyncio.gather(
        recover_one(controller, 0, accept_loss=True), recover_one(controller, 0, accept_loss=True)
    )
    elected = [one for one in both if one.leader_epoch >= 0]
    assert len(elected) == 1
    (other,) = [one for one in both if one.leader_epoch < 0]
    assert other.rejection is not None
    assert other.rejection.code in {NOT_NEEDED, NOBODY}
    assert (await cluster.state("t", 0)).leader_epoch == elected[0].leader_epoch


async def test_a_chosen_broker_that_registers_anew_before_the_write_is_not_elected(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    key = PartitionKey(await create(controller, "t", 1, 2), 0)
    hold(cluster, 1, key, epoch=0, end=10)
    await lose_all_logs(cluster, 1, 2)
    # The controller does not hear of it, so that the checks in the write are what refuses.
    cluster.server.hold_watches()
    before = await cluster.outside.get(paths.leader_and_isr("t", 0))
    old = cluster.brokers[BrokerId(1)]
    new = await cluster.register(1, log_id="wiped")
    cluster.brokers[BrokerId(1)] = old
    one = await recover_one(controller, 0, accept_loss=True)
    assert one.rejection is not None
    assert one.rejection.code == NOBODY
    assert (await cluster.outside.get(paths.leader_and_isr("t", 0))).stat == before.stat
    cluster.brokers[BrokerId(1)] = new
    cluster.server.release_watches()


async def test_a_mute_broker_costs_its_deadline_once_and_is_named(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    id = await create(controller, "t", 1, 2, partitions=30)
    for number in range(30):
        hold(cluster, 1, PartitionKey(id, number), epoch=0, end=number)
    await lose_all_logs(cluster, 1, 2)
    await until(lambda: _offline(controller, id) == 30)
    cluster.brokers[BrokerId(2)].mute = True
    async with asyncio.timeout(DEADLINE_S):
        found = (await recover(controller, wait_s=1.0)).recoveries
    assert [one.partition for one in found] == list(range(30))
    for one in found:
        assert one.assessment is not None
        assert one.assessment.chosen == 1
        assert 2 in one.assessment.unknown


async def test_a_replica_that_its_broker_has_refused_is_not_chosen_again(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    key = PartitionKey(await create(controller, "t", 1, 2), 0)
    hold(cluster, 1, key, epoch=0, end=10)
    hold(cluster, 2, key, epoch=0, end=7)
    await lose_all_logs(cluster, 1, 2)
    broker = cluster.brokers[BrokerId(1)]
    controller.queue.put(ReplicasOffline(broker=broker.id, epoch=broker.epoch, keys=frozenset({key})))
    await until(lambda: controller.picture.offline_at(key) == {1})
    one = await recover_one(controller, accept_loss=True)
    assert one.rejection is None
    assert one.assessment is not None
    assert one.assessment.chosen == 2
    assert 1 in one.assessment.unknown


async def test_an_epoch_out_of_nowhere_is_not_believed(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    key = PartitionKey(await create(controller, "t", 1, 2), 0)
    hold(cluster, 1, key, epoch=0, end=10, heard=2**31 - 2)
    hold(cluster, 2, key, epoch=0, end=7)
    await lose_all_logs(cluster, 1, 2)
    one = await recover_one(controller, accept_loss=True)
    assert one.rejection is None
    state = await cluster.state("t", 0)
    assert state.leader == 2
    assert state.leader_epoch < 100


async def test_what_nobody_can_give_back_stays_offline_and_says_so(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await create(controller, "t", 1)
    cluster.kill(1)

    async def offline() -> bool:
        return (await cluster.state("t", 0)).leader == -1

    await until(offline)
    one = await recover_one(controller, accept_loss=True)
    assert one.rejection is not None
    assert one.rejection.code == NOBODY
    assert (await cluster.state("t", 0)).leader == -1


async def test_a_topic_or_partition_that_does_not_exist(cluster: FakeCluster) -> None:
    await cluster.begin(1)
    controller = await cluster.reign()
    with pytest.raises(RegnumError) as missing:
        await recover(controller, topic="nobody")
    assert missing.value.code == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
    await create(controller, "t", 1)
    one = await recover_one(controller, 7)
    assert one.rejection is not None
    assert one.rejection.code == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(RegnumError) as many:
        await recover(controller, *range(1_001))
    assert many.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST


async def test_more_partitions_than_one_answer_has_come_back_page_by_page(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    id = await create(controller, "t", 1, partitions=1_100)
    for number in range(1_100):
        hold(cluster, 1, PartitionKey(id, number), epoch=0, end=1)
    cluster.kill(1)
    await until(lambda: _offline(controller, id) == 1_100)
    logs = cluster.brokers[BrokerId(1)].logs
    (await cluster.register(1, log_id="renewed")).logs.update(logs)
    await until(lambda: 1 in controller.picture.brokers)
    first, pages = 0, []
    while True:
        page = await recover(controller, first=first, accept_loss=True, wait_s=30.0)
        assert all(one.rejection is None for one in page.recoveries)
        pages.append(len(page.recoveries))
        # What was recovered has a leader now; the next page begins where this one ended.
        first = page.next_partition
        if not first:
            break
    assert pages == [1_000, 100]
    assert _offline(controller, id) == 0


def _offline(controller: Controller, id: TopicId) -> int:
    return sum(1 for key in controller.picture.of_topic(id) if not _led(controller, key))


def _led(controller: Controller, key: PartitionKey) -> bool:
    held = controller.picture.partitions[key].held
    return held is not None and held.state.leader >= 0


def _deletion(name: str) -> DeletionRequest:
    return DeletionRequest(name=name, topic_id=TopicId(""), mutation=None)
