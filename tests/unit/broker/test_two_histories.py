"""The store was put back, and a leader epoch has had two leaders: no replica takes the other one's log for its own.

Broker 2 led epoch 6, with 3 as its follower. The store forgot it, and broker 1 leads in the next epoch it knows of.
"""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog
from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_model import paths
from regnum_model.ids import BrokerId, PartitionKey
from regnum_testing.batches import batch_of, values_of
from regnum_testing.broker_world import TOPIC_ID, BrokerWorld
from regnum_testing.waiting import eventually

LEADER = log_pb2.ACKS_LEADER
KEY = PartitionKey(TOPIC_ID, 0)
COMMON = [b"a0", b"a1", b"a2"]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[BrokerWorld]:
    made = BrokerWorld(tmp_path)
    await made.begin()
    await made.start(1, 2, 3)
    yield made
    await made.close()


async def led_and_forgotten(world: BrokerWorld, *values: bytes) -> None:
    """Broker 2 led epoch 6, and these were acknowledged by it and 3; then the store went back, and all stopped."""
    await world.elect(1, [1, 2, 3], epoch=5, min_insync=2)
    for value in COMMON:
        assert (await world.produce(1, batch_of(value))).error_code == errors_pb2.ERROR_CODE_NONE
    for id in (2, 3):
        await world.log_ends_at(id, 3)
    await world.elect(2, [2, 3], replicas=[1, 2, 3], epoch=6, min_insync=2, tell=[2, 3])
    for value in values:
        assert (await world.produce(2, batch_of(value))).error_code == errors_pb2.ERROR_CODE_NONE
    for id in (1, 2, 3):
        await world.stop(id)
    await world.start(1)


async def leads(world: BrokerWorld, epoch: int, *values: bytes) -> None:
    """Broker 1 leads alone, and appends these."""
    await world.elect(1, [1], replicas=[1, 2, 3], epoch=epoch, min_insync=2, tell=[1])
    for value in values:
        assert (await world.produce(1, batch_of(value), acks=LEADER)).error_code == errors_pb2.ERROR_CODE_NONE


async def follow(world: BrokerWorld, *followers: int) -> None:
    """These follow it as the store says."""
    stat = (await world.store.get(paths.leader_and_isr("t", 0))).stat
    item = world.order(await world.state(), stat.version, replicas=[1, 2, 3], min_insync=2)
    for id in (*followers, 1):
        assert [result.error_code for result in (await world.send(id, [item])).results] == [0]


async def offline(world: BrokerWorld, id: int) -> None:
    """Wait until a broker has taken its replica out of use."""

    async def is_offline() -> bool:
        return world.brokers[BrokerId(id)].broker.replicas.get(KEY) is None

    await eventually(is_offline, what=f"replica of {id} offline")


def values_on_disk(world: BrokerWorld, id: int) -> list[bytes | None]:
    """What the files of a replica hold."""
    folder = world.brokers[BrokerId(id)].settings.data_dir / "replicas" / f"{TOPIC_ID}-0"
    return [value for segment in sorted(folder.glob("*.log")) for value in values_of(segment.read_bytes())]


@pytest.mark.parametrize(
    ("forgotten", "epoch", "appended"),
    [
        pytest.param([b"b0", b"b1", b"b2"], 6, [b"c0", b"c1", b"c2"], id="logs end at one offset"),
        pytest.param([b"b0"], 6, [b"c0", b"c1", b"c2"], id="the leader's is longer"),
        pytest.param([b"b0", b"b1", b"b2"], 6, [b"c0"], id="the leader's is shorter"),
        pytest.param([b"b0", b"b1", b"b2"], 6, [], id="the leader has appended nothing"),
    ],
)
async def test_followers_whose_epoch_was_led_by_another_take_their_replicas_offline_and_cut_nothing(
    world: BrokerWorld, forgotten: list[bytes], epoch: int, appended: list[bytes]
) -> None:
    await led_and_forgotten(world, *forgotten)
    await leads(world, epoch, *appended)
    await world.start(2, 3)
    with structlog.testing.capture_logs() as lines:
        await follow(world, 2, 3)
        for id in (2, 3):
            await offline(world, id)
    reasons = [line["reason"] for line in lines if line["event"] == "replica offline"]
    for id in (2, 3):
        (reason,) = [reason for reason in reasons if reason.startswith(f"t-0: broker {id} has")]
        assert "broker 1, which leads" in reason
        assert f"leader epoch {epoch}" in reason
        assert values_on_disk(world, id) == [*COMMON, *forgotten]
    assert values_on_disk(world, 1) == [*COMMON, *appended]
    assert (await world.state()).isr == (1,)
    assert world.brokers[BrokerId(1)].partition().high_watermark <= 3


async def test_a_later_epoch_of_the_second_leader_cuts_nothing_of_what_the_first_one_had(world: BrokerWorld) -> None:
    """Steps: 1 leads epoch 6 with one record, then 7; 2 and 3 come with more of epoch 6, and would have to go back."""
    await led_and_forgotten(world, b"b0", b"b1", b"b2", b"b3")
    await leads(world, 6, b"c0")
    await leads(world, 7, b"d0", b"d1")
    await world.start(2, 3)
    await follow(world, 2, 3)
    for id in (2, 3):
        await offline(world, id)
        assert values_on_disk(world, id) == [*COMMON, b"b0", b"b1", b"b2", b"b3"]


async def test_members_of_the_restored_isr_hold_the_high_watermark_until_they_are_let_go(world: BrokerWorld) -> None:
    await led_and_forgotten(world, b"b0", b"b1", b"b2")
    await world.start(2, 3)
    await world.elect(1, [1, 2, 3], epoch=6, min_insync=2, tell=[1])
    for value in (b"c0", b"c1", b"c2"):
        assert (await world.produce(1, batch_of(value), acks=LEADER)).error_code == errors_pb2.ERROR_CODE_NONE
    await follow(world, 2, 3)
    for id in (2, 3):
        await offline(world, id)
    assert world.brokers[BrokerId(1)].partition().high_watermark <= 3


async def test_a_replica_that_a_person_gives_up_is_copied_anew(world: BrokerWorld, tmp_path: Path) -> None:
    """Steps: 2 is offline; it is stopped, its folder is removed, and it starts again."""
    await led_and_forgotten(world, b"b0", b"b1", b"b2")
    await leads(world, 6, b"c0", b"c1", b"c2")
    await world.start(2, 3)
    await follow(world, 2, 3)
    await offline(world, 2)
    await world.stop(2)
    shutil.rmtree(tmp_path / "broker-2" / "replicas" / f"{TOPIC_ID}-0")
    await world.start(2)
    await follow(world, 2)
    await world.log_ends_at(2, 6)
    assert values_on_disk(world, 2) == [*COMMON, b"c0", b"c1", b"c2"]


async def test_restarts_of_followers_and_leaders_of_one_history_are_no_alarm(world: BrokerWorld) -> None:
    """Steps: 1 leads, 2 restarts and follows; 2 leads, 1 restarts with a tail that 2 never had, and goes back."""
    await world.elect(1, [1, 2], epoch=5)
    for value in COMMON:
        await world.produce(1, batch_of(value))
    await world.stop(2)
    for value in (b"d0", b"d1"):
        await world.produce(1, batch_of(value), acks=LEADER)
    await world.start(2)
    await world.elect(1, [1, 2], epoch=6)
    await world.log_ends_at(2, 5)
    for value in (b"e0", b"e1"):
        await world.produce(1, batch_of(value))
    await world.elect(2, [2], replicas=[1, 2], epoch=7, tell=[2])
    await world.produce(1, batch_of(b"of no follower"), acks=LEADER)
    await world.stop(1)
    await world.produce(2, batch_of(b"f0"), acks=LEADER)
    await world.start(1)
    await world.elect(2, [2], replicas=[1, 2], epoch=8)
    await world.isr_is(1, 2)
    await world.produce(2, batch_of(b"g0"))
    assert values_on_disk(world, 1) == values_on_disk(world, 2)
