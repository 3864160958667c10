"""Trace T10: what a broker brings back of a removed partition whose number was given again (safety rules S2, S13)."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.replication.decisions.lives import Life, life_of
from regnum_model.ids import LeaderEpoch, PartitionKey
from regnum_records.read import read_records
from regnum_testing.batches import batch_of
from regnum_testing.broker_world import TOPIC_ID, BrokerWorld
from regnum_testing.waiting import DEADLINE_S, eventually

KEY = PartitionKey(TOPIC_ID, 1)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[BrokerWorld]:
    made = BrokerWorld(tmp_path)
    await made.begin()
    yield made
    await made.close()


@pytest.mark.parametrize(
    ("epochs", "highest", "has_records", "life"),
    [
        ([], -1, False, Life.THIS),
        ([2, 4], 4, True, Life.FORMER),
        ([], 4, False, Life.FORMER),
        ([6], 6, True, Life.THIS),
        ([6, 9], 9, False, Life.THIS),
        ([4, 6], 6, True, Life.BOTH),
        ([4], 6, True, Life.BOTH),
        ([], -1, True, Life.BOTH),
    ],
)
def test_the_epoch_of_the_beginning_parts_two_lives(
    epochs: Sequence[int], highest: int, has_records: bool, life: Life
) -> None:
    known = [LeaderEpoch(epoch) for epoch in epochs]
    for began, expected in ((6, life), (0, Life.THIS), (None, Life.THIS)):
        first = None if began is None else LeaderEpoch(began)
        found = life_of(known, highest=LeaderEpoch(highest), has_records=has_records, began=first)
        assert found is expected, began


async def remove_from(world: BrokerWorld, *ids: int, leader_epoch: int) -> None:
    """Delete partition 1 there, as the controller orders after its removal."""
    for id in ids:
        epoch, _ = await world.registration(id)
        stop = control_pb2.StopReplicaPartition(
            topic="t", topic_id=TOPIC_ID, partition=1, leader_epoch=leader_epoch, delete=True
        )
        request = control_pb2.StopReplicaRequest(
            controller_id=1, controller_epoch=world.controller_epoch, broker_epoch=epoch, partitions=[stop]
        )
        response = await world.control(id).StopReplica(request, timeout=DEADLINE_S)
        assert [result.error_code for result in response.results] == [0]


async def test_a_forgotten_broker_leads_an_added_partition_without_the_removed_records(world: BrokerWorld) -> None:
    await world.start(1, 2, 3)
    await world.elect(1, [1, 2, 3], epoch=4, partition=1, min_insync=2, began=0, is_new=True)
    for _ in range(3):
        assert (await world.produce(1, batch_of(b"removed"), partition=1)).error_code == 0
    for id in (2, 3):
        await world.log_ends_at(id, 3, number=1)
    await world.stop(3)
    # The tombstone is written in epoch 5; broker 3 is forgotten, and comes back.
    await remove_from(world, 1, 2, leader_epoch=5)
    await world.start(3)
    await world.elect(3, [3, 1, 2], epoch=6, partition=1, min_insync=2, began=6, is_new=True)
    result = await world.produce(3, batch_of(b"new"), partition=1)
    assert (result.error_code, result.base_offset) == (0, 0)
    for id in (1, 2, 3):
        await world.log_ends_at(id, 1, number=1)
        data = world.brokers[id].partition(1).log.read(0, bytes_max=1 << 20)
        assert [record.value for record in read_records(data, from_offset=0)] == [b"new"]


async def test_a_forgotten_broker_follows_without_the_removed_records(world: BrokerWorld) -> None:
    await world.start(1, 2)
    await world.elect(1, [1, 2], epoch=4, partition=1, began=0, is_new=True)
    assert (await world.produce(1, batch_of(b"removed"), partition=1)).error_code == 0
    await world.log_ends_at(2, 1, number=1)
    former = world.brokers[2].partition(1).log
    await remove_from(world, 1, leader_epoch=5)
    # It has a role in the former life still.
    await world.elect(1, [1, 2], epoch=6, partition=1, began=6, is_new=True)
    log = world.brokers[2].partition(1).log
    assert log is not former
    assert (log.log_end_offset, log.highest_leader_epoch) == (0, -1)


async def test_what_is_of_this_life_is_kept(world: BrokerWorld) -> None:
    await world.start(1)
    await world.elect(1, [1], epoch=6, partition=1, began=6, is_new=True)
    assert (await world.produce(1, batch_of(b"kept"), partition=1)).error_code == 0
    await world.stop(1)
    await world.start(1)
    await world.elect(1, [1], epoch=7, partition=1, began=6)
    assert world.brokers[1].partition(1).log.log_end_offset == 1


async def test_a_log_with_epochs_of_both_lives_is_damaged_and_keeps_its_files(world: BrokerWorld) -> None:
    await world.start(1)
    # As a controller of release 0.1.0 has it done, which says of no partition where its life began.
    await world.elect(1, [1], epoch=4, partition=1)
    assert (await world.produce(1, batch_of(b"removed"), partition=1)).error_code == 0
    await world.elect(1, [1], epoch=6, partition=1)
    state = await world.elect(1, [1], epoch=7, partition=1, tell=())
    (result,) = (await world.send(1, [world.order(state, 2, partition=1, began=6)])).results
    assert result.error_code == errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR
    storage = world.brokers[1].broker._storage
    assert storage is not None
    directory = storage.directory

    async def is_offline() -> bool:
        return KEY in directory.offline

    await eventually(is_offline, what="the replica is offline")
    assert "began" in directory.offline[KEY].reason
    assert (directory.path / "replicas" / f"{TOPIC_ID}-1").exists()


async def test_an_order_whose_beginning_lies_above_its_epoch_contradicts_itself(world: BrokerWorld) -> None:
    await world.start(1)
    state = await world.elect(1, [1], epoch=4, partition=1, tell=())
    (result,) = (await world.send(1, [world.order(state, 0, partition=1, began=5, is_new=True)])).results
    assert result.error_code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert world.brokers[1].broker.replicas.get(KEY) is None
