"""Settings are others under the next controller: min.insync.replicas (safety rule S10); the protocol, never lower."""

from collections.abc import AsyncIterator

import pytest
from regnum_election.controller import Controller
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import TopicRequest
from regnum_model.configs import CLUSTER, INTER_BROKER_PROTOCOL, MIN_INSYNC_REPLICAS, decode_config, encode_config
from regnum_model.features import PATH, Features
from regnum_model.ids import NO_LEADER, BrokerId, PartitionKey
from regnum_model.nodes import MalformedNodeError
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


async def say_protocol(cluster: FakeCluster, version: int | None) -> None:
    """A person writes another protocol into the store, or removes the node; nobody reigns."""
    node = await cluster.outside.get(CLUSTER)
    if version is None:
        await cluster.outside.delete(CLUSTER, version=node.stat.version)
        return
    config = {**decode_config(node.data, example=""), INTER_BROKER_PROTOCOL: str(version)}
    await cluster.outside.set(CLUSTER, encode_config(config), version=node.stat.version)


async def in_force(cluster: FakeCluster) -> tuple[int, str | None]:
    """Of the reign, and as the store says it."""
    assert cluster.controller is not None
    config = decode_config((await cluster.outside.get(CLUSTER)).data, example="")
    return cluster.controller.picture.settings.inter_broker_protocol, config.get(INTER_BROKER_PROTOCOL)


@pytest.mark.parametrize("flag", [1, 2])
async def test_a_protocol_lowered_by_hand_while_nobody_reigns_is_taken_back_with_an_event(
    cluster: FakeCluster, flag: int
) -> None:
    await cluster.reign()
    await cluster.end_reign()
    await say_protocol(cluster, 1)
    await cluster.reign(2, protocol=flag)
    assert await in_force(cluster) == (2, "2")
    assert [entry.detail for entry in cluster.recorded if "taken back" in entry.detail]


async def test_a_protocol_stays_also_when_the_settings_are_removed_and_the_next_flag_is_lower(
    cluster: FakeCluster,
) -> None:
    await cluster.reign()
    await cluster.end_reign()
    await say_protocol(cluster, None)
    await cluster.reign(2, protocol=1)
    assert (await in_force(cluster))[0] == 2


async def test_a_cluster_that_never_spoke_the_higher_one_keeps_the_lower_one(cluster: FakeCluster) -> None:
    await cluster.reign(protocol=1)
    await cluster.end_reign()
    await cluster.reign(2, protocol=2)
    assert await in_force(cluster) == (1, "1")
    # Raised by hand while nobody reigns: that is as good as by a call, and from there on it is final.
    await cluster.end_reign()
    await say_protocol(cluster, 2)
    await cluster.reign(3, protocol=1)
    assert await in_force(cluster) == (2, "2")
    await cluster.end_reign()
    await say_protocol(cluster, 1)
    await cluster.reign(4, protocol=1)
    assert await in_force(cluster) == (2, "2")


async def test_what_is_final_is_written_before_it_is_in_force(cluster: FakeCluster) -> None:
    await cluster.reign(protocol=1)
    assert Features.decode((await cluster.outside.get(PATH)).data).inter_broker_protocol == 1
    assert cluster.controller is not None
    before = [picture.settings.inter_broker_protocol for picture in cluster.pictures]
    assert 2 not in before
    await cluster.end_reign()
    await say_protocol(cluster, 2)
    await cluster.reign(2, protocol=1)
    assert Features.decode((await cluster.outside.get(PATH)).data).inter_broker_protocol == 2


async def test_a_node_of_features_that_nobody_can_read_is_said_and_written_anew(cluster: FakeCluster) -> None:
    await cluster.outside.create(PATH, b"what?")
    await cluster.reign()
    assert Features.decode((await cluster.outside.get(PATH)).data).inter_broker_protocol == 2


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"features":{}}', b'{"features":{"inter.broker.protocol.version":true}}', b"\xff"]
)
def test_features_that_are_none_are_refused_with_an_example(data: bytes) -> None:
    with pytest.raises(MalformedNodeError):
        Features.decode(data)


async def test_what_a_later_release_made_final_is_not_overwritten(cluster: FakeCluster) -> None:
    later = Features(inter_broker_protocol=9).encode()
    await cluster.outside.create(PATH, later)
    await cluster.reign(protocol=1)
    assert await in_force(cluster) == (2, "2")
    assert (await cluster.outside.get(PATH)).data == later
