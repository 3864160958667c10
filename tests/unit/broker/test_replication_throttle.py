"""New replicas of partitions that move are filled as fast as was said, and members of the ISR as fast as they can."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum_broker.replication.throttle import BURST_S, PAUSE_S, UNLIMITED, Meter
from regnum_model.ids import BrokerId
from regnum_testing.batches import batch_of
from regnum_testing.broker_world import BrokerWorld
from regnum_testing.clock import FakeClock
from regnum_testing.waiting import eventually

RATE = 1_000


async def test_over_time_the_rate_is_held_exactly_whatever_the_size_of_batches() -> None:
    clock = FakeClock()
    meter = Meter(clock)
    meter.set_rate(RATE)
    began_s = clock.monotonic()
    for size in (10, 400, 3_000, 1, 999) * 20:
        while meter.allowance() == 0:
            pause_s = meter.pause_s()
            assert pause_s > 0.0
            await clock.advance(pause_s)
        meter.count(size)
    elapsed_s = clock.monotonic() - began_s
    # The last batch may be paid for after the end, and the burst was there at the beginning.
    assert (elapsed_s + BURST_S) * RATE >= meter.counted - 3_000
    assert elapsed_s * RATE <= meter.counted


async def test_what_flows_in_during_a_request_is_not_worth_another_one() -> None:
    clock = FakeClock()
    meter = Meter(clock)
    meter.set_rate(1_000_000)
    seconds, requests = 5, 0
    for _ in range(seconds * 200):
        if allowance := meter.allowance():
            meter.count(allowance)
            requests += 1
        await clock.advance(0.005)
    assert requests <= seconds / PAUSE_S + 1
    assert meter.counted == pytest.approx((seconds + BURST_S) * 1_000_000, rel=0.05)


def test_without_a_rate_anything_may_be_sent_at_once() -> None:
    meter = Meter(FakeClock())
    assert (meter.allowance(), meter.pause_s()) == (UNLIMITED, 0.0)
    meter.count(10**9)
    assert meter.allowance() == UNLIMITED
    meter.set_rate(RATE)
    assert meter.allowance() == RATE * BURST_S
    meter.set_rate(0)
    assert meter.allowance() == UNLIMITED


def test_what_is_overdrawn_stays_so_when_the_rate_changes() -> None:
    meter = Meter(FakeClock())
    meter.set_rate(RATE)
    meter.count(5 * RATE)
    meter.set_rate(2 * RATE)
    assert meter.allowance() == 0
    # Half a second's worth was there, the rest is paid for at the new rate.
    assert meter.pause_s() == pytest.approx((5 - BURST_S) / 2 + 0.1)


def test_leaders_that_are_asked_at_once_share_what_may_be_taken() -> None:
    meter = Meter(FakeClock())
    meter.set_rate(RATE)
    for _ in range(4):
        meter.join()
    assert meter.allowance() == RATE * BURST_S / 4
    for _ in range(3):
        meter.leave()
    assert meter.allowance() == RATE * BURST_S


async def test_the_least_there_is_can_be_asked_for_however_many_share_it() -> None:
    clock = FakeClock()
    meter = Meter(clock)
    meter.set_rate(1)
    for _ in range(100):
        meter.join()
    meter.count(1)
    await clock.advance(meter.pause_s() + 1.0)
    assert meter.allowance() == 1


@pytest.mark.parametrize("rate", [1, 5, 9])
def test_no_pause_is_negative_however_low_the_rate(rate: int) -> None:
    clock = FakeClock()
    meter = Meter(clock)
    meter.set_rate(rate)
    for size in (rate, 1, 0, 100):
        meter.count(size)
        assert meter.pause_s() >= 0.0
        assert (meter.pause_s() == 0.0) == (meter.allowance() > 0)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[BrokerWorld]:
    made = BrokerWorld(tmp_path)
    await made.begin()
    await made.start(1, 2, 3)
    yield made
    await made.close()


async def test_a_new_replica_is_throttled_and_a_member_of_the_isr_is_not(world: BrokerWorld) -> None:
    state = await world.elect(1, [1, 2], replicas=[1, 2])
    for _ in range(20):
        assert (await world.produce(1, batch_of(b"x" * 1_000))).error_code == 0
    moving = world.order(state, 0, replicas=[1, 2, 3])
    moving.adding_replicas.append(3)
    moving.leader_throttle_rate = 4_000
    moving.follower_throttle_rate = 0
    await world.send(3, [moving])
    await world.send(1, [moving])
    leader = world.brokers[BrokerId(1)]
    sending = leader.broker.throttle.sending
    # A member of the ISR goes on at once, while the new one has to wait: what was sent to it alone is counted.
    assert (await world.produce(1, batch_of(b"y" * 1_000))).error_code == 0
    await world.log_ends_at(2, 21)
    assert sending.counted < 21_000
    await world.log_ends_at(3, 21)
    await world.isr_is(1, 2, 3)
    counted = sending.counted
    assert counted >= 21_000
    for _ in range(10):
        assert (await world.produce(1, batch_of(b"z" * 1_000))).error_code == 0
    await world.log_ends_at(3, 31)
    assert sending.counted == counted, "in the ISR nothing is counted any more"


async def test_the_new_replica_takes_no_faster_than_it_may(world: BrokerWorld) -> None:
    state = await world.elect(1, [1, 2], replicas=[1, 2])
    for _ in range(12):
        assert (await world.produce(1, batch_of(b"x" * 1_000))).error_code == 0
    moving = world.order(state, 0, replicas=[1, 2, 3])
    moving.adding_replicas.append(3)
    moving.follower_throttle_rate = 4_000
    await world.send(3, [moving])
    taking = world.brokers[BrokerId(3)].broker.throttle.taking
    began_s = world.brokers[BrokerId(3)].broker._clock.monotonic()
    await world.send(1, [moving])
    await world.log_ends_at(3, 12)

    async def counted() -> bool:
        return taking.counted >= 12_000

    await eventually(counted, what="all of it is counted")
    elapsed_s = world.brokers[BrokerId(3)].broker._clock.monotonic() - began_s
    # A slower machine only takes longer; what it may not do is take less time than the rate asks for.
    assert elapsed_s >= (taking.counted - 4_000 * BURST_S - 2_000) / 4_000


async def test_the_leaders_of_new_replicas_are_asked_for_a_share_each(world: BrokerWorld) -> None:
    taking = world.brokers[BrokerId(3)].broker.throttle.taking
    orders = []
    for partition, leader in enumerate((1, 2)):
        state = await world.elect(leader, [1, 2], partition=partition, replicas=[1, 2])
        moving = world.order(state, 0, partition=partition, replicas=[1, 2, 3])
        moving.adding_replicas.append(3)
        moving.follower_throttle_rate = 4_000
        orders.append(moving)
    await world.send(3, orders)
    assert taking.allowance() == 4_000 * BURST_S / 2
    # Once it is a replica like the others, the next leader epoch says so.
    await world.elect(1, [1, 2, 3], epoch=2, replicas=[1, 2, 3])
    assert taking.allowance() == 4_000 * BURST_S
