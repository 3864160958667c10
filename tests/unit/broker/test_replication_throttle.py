"""New replicas of partitions that move are filled as fast as was said, and members of the ISR as fast as they can."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest
from regnum_broker.replication.throttle import BURST_S, PAUSE_S, TURN_S, UNLIMITED, Meter, Share
from regnum_model.ids import BrokerId, PartitionKey
from regnum_testing.batches import batch_of
from regnum_testing.broker_world import TOPIC_ID, BrokerWorld
from regnum_testing.clock import FakeClock
from regnum_testing.waiting import eventually

RATE = 1_000


def wanting(meter: Meter) -> Share:
    """The part of a stream that has something to send, or to ask for."""
    share = meter.share()
    share.want()
    return share


async def test_over_time_the_rate_is_held_exactly_whatever_the_size_of_batches() -> None:
    clock = FakeClock()
    meter = Meter(clock)
    share = wanting(meter)
    meter.set_rate(RATE)
    began_s = clock.monotonic()
    for size in (10, 400, 3_000, 1, 999) * 20:
        while share.allowance() == 0:
            pause_s = share.pause_s()
            assert pause_s > 0.0
            await clock.advance(pause_s)
        share.count(size)
    elapsed_s = clock.monotonic() - began_s
    # The last batch may be paid for after the end, and the burst was there at the beginning.
    assert (elapsed_s + BURST_S) * RATE >= meter.counted - 3_000
    assert elapsed_s * RATE <= meter.counted


async def test_what_flows_in_during_a_request_is_not_worth_another_one() -> None:
    clock = FakeClock()
    meter = Meter(clock)
    share = wanting(meter)
    meter.set_rate(1_000_000)
    seconds, requests = 5, 0
    for _ in range(seconds * 200):
        if allowance := share.allowance():
            share.count(allowance)
            requests += 1
        await clock.advance(0.005)
    assert requests <= seconds / PAUSE_S + 1
    assert meter.counted == pytest.approx((seconds + BURST_S) * 1_000_000, rel=0.05)


def test_without_a_rate_anything_may_be_sent_at_once() -> None:
    meter = Meter(FakeClock())
    share, other = wanting(meter), wanting(meter)
    assert (share.allowance(), share.pause_s(), other.allowance()) == (UNLIMITED, 0.0, UNLIMITED)
    share.count(10**9)
    assert share.allowance() == UNLIMITED
    meter.set_rate(RATE)
    assert share.allowance() == RATE * BURST_S
    meter.set_rate(0)
    assert other.allowance() == UNLIMITED


def test_what_is_overdrawn_stays_so_when_the_rate_changes() -> None:
    meter = Meter(FakeClock())
    share = wanting(meter)
    meter.set_rate(RATE)
    share.count(5 * RATE)
    meter.set_rate(2 * RATE)
    assert share.allowance() == 0
    # Half a second's worth was there, the rest is paid for at the new rate.
    assert share.pause_s() == pytest.approx((5 - BURST_S) / 2 + 0.1)


async def test_leaders_take_turns_and_a_batch_of_one_is_all_that_comes_in_a_moment() -> None:
    """Batches larger than a portion: asked at once, they would all send one, and all pay for them together."""
    clock = FakeClock()
    meter = Meter(clock)
    meter.set_rate(1_000_000)
    leaders, batch, step_s = [wanting(meter) for _ in range(3)], 250_000, 0.005
    sent: list[tuple[float, int]] = []
    for _ in range(round(10 / step_s)):
        allowed = [leader for leader, share in enumerate(leaders) if share.allowance() > 0]
        # What came together in quiet times is enough for all of them, once.
        assert len(allowed) <= (1 if sent else len(leaders))
        for leader in allowed:
            leaders[leader].count(batch)
            sent.append((clock.monotonic(), leader))
        await clock.advance(step_s)
    assert [leader for _, leader in sent] == [number % 3 for number in range(len(sent))]
    later = [at_s for at_s, _ in sent[4:]]
    assert min(after - before for before, after in pairwise(later)) >= 0.2
    assert meter.counted == pytest.approx(10 * 1_000_000, rel=0.06)


@pytest.mark.parametrize("silent", [1, 4, 50])
async def test_leaders_that_never_send_what_they_may_hold_up_nobody_for_long(silent: int) -> None:
    clock = FakeClock()
    meter = Meter(clock)
    meter.set_rate(1_000_000)
    dead = [wanting(meter) for _ in range(silent)]
    for share in dead:
        share.allowance()
    alive, began_s = wanting(meter), clock.monotonic()
    while not alive.allowance():
        assert alive.pause_s() > 0.0
        await clock.advance(min(alive.pause_s(), TURN_S))
    assert clock.monotonic() - began_s <= silent * TURN_S + 1e-6
    alive.count(100_000)
    # From then on they are out of the way, until they come again.
    began_s, before = clock.monotonic(), meter.counted
    while clock.monotonic() < began_s + 5.0:
        alive.count(alive.allowance())
        await clock.advance(0.01)
    assert meter.counted - before == pytest.approx(5.0 * 1_000_000, rel=0.15)


async def test_who_wants_nothing_stands_in_nobodys_way_and_may_have_a_portion() -> None:
    clock = FakeClock()
    meter = Meter(clock)
    meter.set_rate(RATE)
    idle, busy, unknown = wanting(meter), wanting(meter), meter.share()
    idle.count(round(RATE * BURST_S))
    await clock.advance(1.9 * PAUSE_S)
    assert idle.allowance() == 190
    assert busy.allowance() == 0
    assert unknown.allowance() == 100
    idle.rest()
    assert busy.allowance() == 190
    # Who was sent something wants something from then on, and is behind the others.
    unknown.count(1)
    assert unknown.allowance() == 0
    busy.count(1)
    assert unknown.allowance() == 188


async def test_leaders_that_are_too_far_away_for_one_turn_get_the_rate_all_the_same() -> None:
    """Each asks, sends what it may, and asks again, a third of a second later; so does it when it may send nothing."""
    clock, rate, away_s, seconds = FakeClock(), 20_000_000, 0.3, 20
    meter = Meter(clock)
    meter.set_rate(rate)

    async def asking(leader: Share, first_s: float) -> None:
        await clock.sleep(first_s)
        while True:
            allowed = leader.allowance()
            await clock.sleep(away_s + (0.0 if allowed else leader.pause_s()))
            leader.count(allowed)

    leaders = [asyncio.create_task(asking(wanting(meter), number * 0.07)) for number in range(4)]
    for _ in range(seconds * 100):
        await clock.advance(0.01)
    for leader in leaders:
        leader.cancel()
    await asyncio.gather(*leaders, return_exceptions=True)
    assert meter.counted == pytest.approx(seconds * rate, rel=0.1)


async def test_the_least_there_is_can_be_asked_for_however_many_share_it() -> None:
    clock = FakeClock()
    meter = Meter(clock)
    meter.set_rate(1)
    shares = [wanting(meter) for _ in range(100)]
    shares[0].count(1)
    await clock.advance(shares[0].pause_s() + 1.0)
    assert [share.allowance() for share in shares] == [1, *[0] * 99]


@pytest.mark.parametrize("rate", [1, 5, 9])
def test_no_pause_is_negative_however_low_the_rate(rate: int) -> None:
    clock = FakeClock()
    meter = Meter(clock)
    share = wanting(meter)
    meter.set_rate(rate)
    for size in (rate, 1, 0, 100):
        share.count(size)
        assert share.pause_s() >= 0.0
        assert (share.pause_s() == 0.0) == (share.allowance() > 0)


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


@pytest.mark.alone
async def test_the_leaders_of_new_replicas_send_in_turns(world: BrokerWorld) -> None:
    """Both have batches of more than a portion, and not both of them send one in the same moment, over and over."""
    orders, rate = [], 20_000
    for partition, leader in enumerate((1, 2)):
        state = await world.elect(leader, [1, 2], partition=partition, replicas=[1, 2])
        for _ in range(6):
            assert (await world.produce(leader, batch_of(b"x" * 5_000), partition=partition)).error_code == 0
        moving = world.order(state, 0, partition=partition, replicas=[1, 2, 3])
        moving.adding_replicas.append(3)
        moving.follower_throttle_rate = rate
        orders.append(moving)
    broker = world.brokers[BrokerId(3)].broker
    for leader in (1, 2):
        await world.send(leader, orders)
    await world.send(3, orders)
    taking, owed_s = broker.throttle.taking.share(), [0.0]

    async def all_there() -> bool:
        found = [broker.replicas.get(PartitionKey(TOPIC_ID, partition)) for partition in (0, 1)]
        ends = [0 if replica is None else replica.log.log_end_offset for replica in found]
        # What is there at the beginning is sent at once.
        if sum(ends) > 6:
            owed_s.append(taking.pause_s())
        return min(ends) == 6

    await eventually(all_there, what="both are filled")
    # A batch is a quarter of a second, which has to come together before the next: never are two paid for at once.
    assert 0.2 < max(owed_s) < 0.4
