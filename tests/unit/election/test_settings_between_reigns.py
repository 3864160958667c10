"""min.insync.replicas is another one under the next controller (safety rule S10)."""

from collections.abc import AsyncIterator

import pytest
from regnum_election.controller import Controller
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import TopicRequest
from regnum_model.configs import CLUSTER, MIN_INSYNC_REPLICAS, decode_config, encode_config
from regnum_model.ids import NO_LEADER, BrokerId, PartitionKey
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    await cluster.begin(1, 2, 3)
    yield cluster
    await cluster.close()


async def create(controller: Controller, *replicas: int) -> PartitionKey:
    assignment = ((0, tuple(BrokerId(id) for id in replicas)),)
    request = TopicRequest(name="t", partitions=0, replication_factor=None, assignment=assignment, mutation=None)
    answered = await controller.topics.create((request,), validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    (outcome,) = answered.outcomes
    assert isinstance(outcome, Created)
    return PartitionKey(outcome.topic_id, 0)


async def say(cluster: FakeCluster, min_insync: int) -> None:
    """A person writes another value into the store."""
    node = await cluster.outside.get(CLUSTER)
    config = {**decode_config(node.data, example=""), MIN_INSYNC_REPLICAS: str(min_insync)}
    await cluster.outside.set(CLUSTER, encode_config(config), version=node.stat.version)


async def lose_three_under_three(cluster: FakeCluster) -> PartitionKey:
    """ISR (1, 2), ELR (3), and nobody reigns."""
    key = await create(await cluster.reign(min_insync=3), 1, 2, 3)
    cluster.kill(3)
    await until(lambda: list(cluster.told(1)[key].state.elr) == [3])
    await cluster.end_reign()
    return key


async def test_a_lower_value_lets_eligible_replicas_go_before_the_leader_hears_of_it(cluster: FakeCluster) -> None:
    key = await lose_three_under_three(cluster)
    before = len(cluster.brokers[BrokerId(1)].requests)
    await say(cluster, 2)
    await cluster.reign(2)
    await until(lambda: cluster.told(1)[key].min_insync_replicas == 2)
    state = await cluster.state("t", 0)
    assert (state.leader, state.leader_epoch, state.isr, state.elr) == (1, 0, (1, 2), ())
    for request in cluster.brokers[BrokerId(1)].requests[before:]:
        assert [list(item.state.elr) for item in request.partitions] == [[]]


async def test_a_lower_value_lets_nobody_go_while_the_isr_is_wiped(cluster: FakeCluster) -> None:
    """Trace T7: 1 and 2 come back empty; 3, which holds everything, leads."""
    key = await lose_three_under_three(cluster)
    cluster.kill(1)
    cluster.kill(2)
    await cluster.register(1, log_id="wiped-1")
    await cluster.register(2, log_id="wiped-2")
    await say(cluster, 2)
    await cluster.reign(2)
    state = await cluster.state("t", 0)
    assert (state.leader, state.isr, state.elr) == (NO_LEADER, (1, 2), (3,))
    await cluster.register(3)
    await until(lambda: cluster.all_told((1, 2, 3), key, 3))
    state = await cluster.state("t", 0)
    assert (state.leader, state.isr) == (3, (3,))


async def test_the_next_reign_tells_leaders_another_value_though_nothing_is_written(cluster: FakeCluster) -> None:
    key = await create(await cluster.reign(min_insync=2), 1, 2, 3)
    version = cluster.told(1)[key].state.version
    await cluster.end_reign()
    await say(cluster, 3)
    await cluster.reign(2)
    await until(lambda: cluster.told(1)[key].min_insync_replicas == 3)
    assert cluster.told(1)[key].state.version == version


async def test_another_flag_changes_nothing_once_the_store_has_the_value(cluster: FakeCluster) -> None:
    key = await lose_three_under_three(cluster)
    await cluster.reign(2, min_insync=1, default_factor=1)
    await until(lambda: len(cluster.brokers[BrokerId(2)].requests) > 1)
    assert cluster.told(2)[key].min_insync_replicas == 3
    assert (await cluster.state("t", 0)).elr == (3,)
    assert cluster.controller is not None
    assert cluster.controller.picture.settings.default_replication_factor == 3
