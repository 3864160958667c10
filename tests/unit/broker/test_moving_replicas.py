"""What a broker tells of partitions that move, and that it tells nothing while none does."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum.election.v1 import controller_pb2
from regnum_broker.cluster.reports import Reports
from regnum_broker.replication.moving import REPORTED_MAX, MovingReplica, MovingReplicas
from regnum_model.ids import PartitionKey
from regnum_service.clock import SystemClock
from regnum_testing.batches import batch_of
from regnum_testing.broker_world import TOPIC_ID, BrokerWorld

KEY = PartitionKey(TOPIC_ID, 0)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[BrokerWorld]:
    made = BrokerWorld(tmp_path)
    await made.begin()
    await made.start(1)
    yield made
    await made.close()


async def test_what_moves_is_told_with_what_it_has_and_the_end_of_it_once(world: BrokerWorld) -> None:
    await world.elect(1, [1])
    await world.produce(1, batch_of(b"x" * 100))
    told: list[tuple[MovingReplica, ...]] = []
    moving = MovingReplicas(replicas=world.brokers[1].broker.replicas, tell=told.append, clock=SystemClock())  # type: ignore[index]
    moving.look()
    assert told == []
    moving.note(KEY, True)
    moving.note(PartitionKey(TOPIC_ID, 7), True)
    moving.look()
    ((one,),) = told
    assert (one.key, one.log_start_offset, one.log_end_offset) == (KEY, 0, 1)
    assert one.size_bytes > 100
    moving.note(KEY, False)
    moving.look()
    moving.look()
    assert told[1:] == [()]


def test_a_report_goes_out_with_one_message_and_no_other() -> None:
    reports = Reports(tuple)
    said = [MovingReplica(PartitionKey(TOPIC_ID, number), 0, number, 10 * number) for number in range(REPORTED_MAX)]
    reports.set_moving(said)
    first, second = controller_pb2.BrokerLifelineRequest(), controller_pb2.BrokerLifelineRequest()
    reports.put_into(first)
    reports.put_into(second)
    assert [(item.partition, item.size_bytes) for item in first.moving_replicas] == [
        (one.key.partition, one.size_bytes) for one in said
    ]
    assert not second.moving_replicas
