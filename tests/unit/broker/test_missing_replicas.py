"""A missing replica is made where the broker follows, or where its order says that it is new (safety rule S10)."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import NO_LEADER, PartitionKey
from regnum_testing.batches import batch_of
from regnum_testing.broker_world import TOPIC_ID, BrokerWorld
from regnum_testing.waiting import DEADLINE_S
from structlog.testing import capture_logs

KEY = PartitionKey(TOPIC_ID, 0)
NONE, MISSING = errors_pb2.ERROR_CODE_NONE, errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[BrokerWorld]:
    made = BrokerWorld(tmp_path)
    await made.begin()
    await made.start(1)
    yield made
    await made.close()


async def ordered(
    world: BrokerWorld,
    leader: int = 1,
    *,
    epoch: int,
    began: int | None = 0,
    is_new: bool = False,
    recorded: bool = True,
) -> int:
    """What broker 1 answers to an order; ``recorded``: whether it is in the ISR."""
    state = await world.elect(1, [1], epoch=epoch, tell=())
    member = state.members[state.leader]
    item = world.order(state, epoch, replicas=[1, 2], began=began, is_new=is_new)
    item.state.leader = leader
    if not recorded:
        item.state.isr[:] = [2]
        del item.members[:]
        item.members.add(broker_id=2, broker_epoch=member.broker_epoch, log_id="other")
    (result,) = (await world.send(1, [item])).results
    return result.error_code


def is_here(world: BrokerWorld) -> bool:
    storage = world.brokers[1].broker._storage
    assert storage is not None
    return KEY in storage.directory.replicas


async def deleted(world: BrokerWorld) -> None:
    epoch, _ = await world.registration(1)
    stop = control_pb2.StopReplicaPartition(topic="t", topic_id=TOPIC_ID, partition=0, leader_epoch=9, delete=True)
    request = control_pb2.StopReplicaRequest(
        controller_id=1, controller_epoch=world.controller_epoch, broker_epoch=epoch, partitions=[stop]
    )
    assert [one.error_code for one in (await world.control(1).StopReplica(request, timeout=DEADLINE_S)).results] == [
        NONE
    ]
    assert not is_here(world)


async def test_a_leader_makes_no_replica_that_is_missing_and_says_why(world: BrokerWorld) -> None:
    with capture_logs() as logs:
        assert await ordered(world, epoch=1) == MISSING
    assert not is_here(world)
    (entry,) = [entry for entry in logs if entry["event"] == "replica missing"]
    assert (entry["topic"], entry["partition"]) == ("t", 0)
    assert "acknowledged" in entry["reason"]


async def test_a_leader_makes_a_replica_that_is_new(world: BrokerWorld) -> None:
    assert await ordered(world, epoch=1, is_new=True) == NONE
    assert world.brokers[1].leads()


async def test_a_follower_makes_one(world: BrokerWorld) -> None:
    assert await ordered(world, 2, epoch=1, recorded=False) == NONE
    assert is_here(world)


async def test_a_controller_of_an_earlier_release_is_believed_as_ever(world: BrokerWorld) -> None:
    assert await ordered(world, epoch=1, began=None) == NONE
    assert world.brokers[1].leads()


async def test_without_a_leader_none_is_made_and_a_recorded_one_is_missed(world: BrokerWorld) -> None:
    assert await ordered(world, NO_LEADER, epoch=1, recorded=False) == NONE
    assert await ordered(world, NO_LEADER, epoch=2, is_new=True) == NONE
    assert await ordered(world, NO_LEADER, epoch=3) == MISSING
    assert not is_here(world)
    assert await ordered(world, epoch=4, is_new=True) == NONE


async def test_what_is_recorded_of_another_log_is_not_missed(world: BrokerWorld) -> None:
    """A new disk: nothing of what is recorded can be here, and a person may still give it up."""
    state = await world.elect(1, [1], epoch=1, tell=())
    item = world.order(state, 0, began=0)
    item.state.leader = NO_LEADER
    item.members[0].log_id = "the former disk"
    assert [one.error_code for one in (await world.send(1, [item])).results] == [NONE]
    assert not is_here(world)


async def test_what_was_deleted_in_this_run_is_not_new_whatever_the_store_says(world: BrokerWorld) -> None:
    """Trace T9, without restarts: the store went back to where broker 1 had the partition, in its first epoch."""
    assert await ordered(world, epoch=0, is_new=True) == NONE
    assert (await world.produce(1, batch_of(b"gone elsewhere since"))).error_code == NONE
    await deleted(world)
    assert await ordered(world, epoch=0, is_new=True) == MISSING
    assert await ordered(world, epoch=7, began=0, is_new=True) == MISSING
    # A number that is given again begins above all that there was.
    assert await ordered(world, epoch=11, began=11, is_new=True) == NONE
    assert world.brokers[1].partition().log.log_end_offset == 0


async def test_what_was_deleted_may_be_followed_again(world: BrokerWorld) -> None:
    assert await ordered(world, epoch=0, is_new=True) == NONE
    await deleted(world)
    assert await ordered(world, 2, epoch=10, recorded=False) == NONE
    assert is_here(world)
