"""What brokers say of the replicas that they have: sizes, ends, and how far followers are."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerId
from regnum_testing.batches import batch_of
from regnum_testing.broker_world import TOPIC_ID, BrokerWorld
from regnum_testing.waiting import DEADLINE_S, eventually


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[BrokerWorld]:
    made = BrokerWorld(tmp_path)
    await made.begin()
    await made.start(1, 2)
    yield made
    await made.close()


async def describe(world: BrokerWorld, id: int, *queries: log_pb2.ReplicaQuery) -> list[log_pb2.ReplicaDescription]:
    asked = queries or (log_pb2.ReplicaQuery(topic="t", topic_id=TOPIC_ID, partition=0),)
    response = await world.log(id).DescribeReplicas(log_pb2.DescribeReplicasRequest(queries=asked), timeout=DEADLINE_S)
    return list(response.results)


async def test_leader_and_follower_each_say_what_they_have(world: BrokerWorld) -> None:
    await world.elect(1, [1, 2], epoch=4)
    await world.produce(1, batch_of(b"a", b"b"))

    async def heard() -> bool:
        return world.brokers[BrokerId(2)].partition().high_watermark == 2

    await eventually(heard)
    [leader], [follower] = await describe(world, 1), await describe(world, 2)
    size = world.brokers[BrokerId(1)].partition().log.size_bytes
    assert size > 0
    for one, leading in ((leader, True), (follower, False)):
        assert (one.error_code, one.leading, one.leader_epoch) == (errors_pb2.ERROR_CODE_NONE, leading, 4)
        assert (one.size_bytes, one.log_start_offset, one.high_watermark, one.log_end_offset) == (size, 0, 2, 2)
    [known] = leader.followers
    assert (known.broker_id, known.log_end_offset, known.in_sync) == (2, 2, True)
    assert not follower.followers


async def test_a_follower_that_was_not_heard_of_has_no_end(world: BrokerWorld) -> None:
    await world.elect(1, [1], replicas=[1, 2], tell=[1])
    [leader] = await describe(world, 1)
    [known] = leader.followers
    assert (known.broker_id, known.HasField("log_end_offset"), known.in_sync) == (2, False, False)


async def test_what_is_not_here_is_refused_alone(world: BrokerWorld) -> None:
    await world.elect(1, [1])
    found = await describe(
        world,
        1,
        log_pb2.ReplicaQuery(topic="t", partition=0),
        log_pb2.ReplicaQuery(topic="t", partition=1),
        log_pb2.ReplicaQuery(topic="t", topic_id="Z" * 22, partition=0),
    )
    assert [(one.error_code, one.HasField("status")) for one in found] == [
        (errors_pb2.ERROR_CODE_NONE, False),
        (errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION, True),
        (errors_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID, True),
    ]
