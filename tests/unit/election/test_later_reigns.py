"""A state from a later reign ends this one wherever it is met; a number that no reign can have reached ends nothing."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from regnum_election.controller import Controller
from regnum_election.reign.events import IsrsWritten
from regnum_election.reign.reign import DeposedError
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import TopicRequest
from regnum_model import paths
from regnum_model.epochs import EPOCH_LEAP_MAX
from regnum_model.ids import BrokerId, ControllerEpoch, LeaderEpoch, PartitionKey
from regnum_testing.election_values import replicas
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

SOON_S = 0.02


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


async def create(controller: Controller, name: str = "t", partitions: int = 1) -> list[PartitionKey]:
    request = TopicRequest(
        name=name,
        partitions=0,
        replication_factor=None,
        assignment=tuple((number, replicas(1, 2)) for number in range(partitions)),
        mutation=None,
    )
    answered = await controller.topics.create((request,), validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    (outcome,) = answered.outcomes
    assert isinstance(outcome, Created), outcome
    return [PartitionKey(outcome.topic_id, number) for number in range(partitions)]


async def rewrite(cluster: FakeCluster, partition: int, *, controller_epoch: int) -> None:
    path = paths.leader_and_isr("t", partition)
    node = await cluster.outside.get(path)
    state = await cluster.state("t", partition)
    later = replace(
        state,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        controller_epoch=ControllerEpoch(controller_epoch),
    )
    await cluster.outside.set(path, later.encode(), version=node.stat.version)


async def deposed(cluster: FakeCluster) -> int | None:
    assert cluster.running is not None
    with pytest.raises(DeposedError) as ended:
        await cluster.running
    return ended.value.seen


async def test_a_conflict_with_a_later_reign_ends_this_one_and_the_next_begins_above_it(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    await create(await cluster.reign(), partitions=2)
    for partition in (0, 1):
        await rewrite(cluster, partition, controller_epoch=40 + partition)
    cluster.kill(1)
    assert await deposed(cluster) == 41


async def test_an_isr_report_that_leads_to_a_later_reign_ends_this_one(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    (key,) = await create(controller)
    await rewrite(cluster, 0, controller_epoch=40)
    controller.queue.put(IsrsWritten.unseen({key}))
    assert await deposed(cluster) == 40


async def test_a_state_of_a_later_reign_that_a_person_restores_ends_this_one(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    (key,) = await create(controller)
    path = paths.leader_and_isr("t", 0)
    state = replace(await cluster.state("t", 0), controller_epoch=ControllerEpoch(40))
    await cluster.outside.delete(path, version=None)
    controller.queue.put(IsrsWritten.unseen({key}))
    await until(lambda: controller.picture.partitions[key].trouble is not None)
    await cluster.outside.create(path, state.encode())
    assert await deposed(cluster) == 40


async def test_the_highest_of_all_states_is_given_way_to_at_the_start_of_a_reign(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    await create(await cluster.reign(), partitions=3)
    await cluster.end_reign()
    for partition, epoch in ((0, 40), (1, 50), (2, 45)):
        await rewrite(cluster, partition, controller_epoch=epoch)
    await cluster.reign(2, wait=False)
    assert await deposed(cluster) == 50


@pytest.mark.parametrize("reigning", [True, False], ids=["in a reign", "at its start"])
async def test_an_epoch_out_of_nowhere_is_trouble_of_its_partition_and_of_no_other(
    cluster: FakeCluster, reigning: bool
) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    keys = await create(controller, partitions=2)
    await rewrite(cluster, 0, controller_epoch=EPOCH_LEAP_MAX + 10)
    if reigning:
        controller.queue.put(IsrsWritten.unseen(keys))
    else:
        await cluster.end_reign()
        controller = await cluster.reign(2)
    await until(lambda: controller.picture.partitions[keys[0]].trouble is not None)
    assert "controller epoch" in (controller.picture.partitions[keys[0]].trouble or "")
    assert controller.picture.partitions[keys[1]].trouble is None
    cluster.kill(1)
    await until(lambda: cluster.all_told((2,), keys[1], 2))
    assert cluster.running is not None
    assert not cluster.running.done()
    assert set(controller.picture.brokers) == {BrokerId(2)}
