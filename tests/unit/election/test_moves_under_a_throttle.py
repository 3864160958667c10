"""Moves under a throttle: brokers are told of them bit by bit, so that clients notice little."""

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

import pytest
from regnum_election.controller import Controller
from regnum_election.decisions.isr_reports import ReportedNode
from regnum_election.reassignment.agent import INTERVAL_S as LOOK_INTERVAL_S
from regnum_election.reassignment.pacing import (
    APART_S,
    INTERVAL_S,
    PORTION_MIN,
    PORTIONS,
    Order,
    Pacing,
    Publication,
    errands_of,
)
from regnum_election.reign.events import IsrsWritten
from regnum_model import paths
from regnum_model.broker_configs import FOLLOWER_THROTTLE_RATE, LEADER_THROTTLE_RATE
from regnum_model.config_changes import Alteration, Operation, Resource, ResourceType
from regnum_model.ids import NO_LEADER, BrokerId, PartitionKey
from regnum_model.insync import with_isr
from regnum_model.nodes import LeaderAndIsr, Membership
from regnum_testing.moving import arrived, ask, catch_up, created, grown, ids, stopped
from regnum_testing.reigning import FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

MANY = 48


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


async def throttled(controller: Controller, rate: int) -> None:
    alteration = Alteration(
        resource=Resource(type=ResourceType.CLUSTER),
        operations=tuple(Operation(key=key, value=str(rate)) for key in (LEADER_THROTTLE_RATE, FOLLOWER_THROTTLE_RATE)),
    )
    assert await controller.configs.alter([alteration], validate_only=False, wait_s=DEADLINE_S) == (None,)


def new_in_each_message(cluster: FakeCluster, broker: int) -> list[int]:
    """Partitions of which a broker heard for the first time, by message."""
    known: set[PartitionKey] = set()
    counts = []
    for request in cluster.brokers[BrokerId(broker)].requests:
        keys = {PartitionKey(item.topic_id, item.state.partition) for item in request.partitions}  # type: ignore[arg-type]
        counts.append(len(keys - known))
        known |= keys
    return [count for count in counts if count]


async def test_new_replicas_are_made_bit_by_bit_under_a_throttle(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await throttled(controller, 1_000_000)
    id = await created(controller, "t", *[(1, 2)] * MANY)
    assert await ask(controller, "t", dict.fromkeys(range(MANY), (1, 3))) == [None] * MANY
    await until(lambda: all(cluster.all_told((1, 3), PartitionKey(id, n), 1) for n in range(MANY)))
    assert new_in_each_message(cluster, 3) == [MANY // PORTIONS] * PORTIONS


async def test_and_all_at_once_without_one(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    id = await created(controller, "t", *[(1, 2)] * MANY)
    assert await ask(controller, "t", dict.fromkeys(range(MANY), (1, 3))) == [None] * MANY
    await until(lambda: all(cluster.all_told((1, 3), PartitionKey(id, n), 1) for n in range(MANY)))
    assert new_in_each_message(cluster, 3) == [MANY]


async def test_moves_under_a_throttle_arrive_and_the_old_replicas_go(cluster: FakeCluster) -> None:
    """Whatever is told late: by the end every broker has heard of every partition as it is, and clients too."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await throttled(controller, 1_000_000)
    id = await created(controller, "t", *[(1, 2), (2, 1)] * 4)
    assert await ask(controller, "t", dict.fromkeys(range(8), (2, 3))) == [None] * 8
    for number in range(8):
        await grown(cluster, "t", number, *((1, 2, 3) if number % 2 == 0 else (2, 1, 3)))
        await catch_up(cluster, "t", number, 3)
    for number in range(8):
        await arrived(cluster, "t", number, 2, 3)
    await until(lambda: all(cluster.all_told((2, 3), PartitionKey(id, n), 2) for n in range(8)))
    await until(lambda: stopped(cluster, 1) == {("t", n) for n in range(8)})
    await until(lambda: cluster.metadata.topics.get("t") == dict.fromkeys(range(8), 2))


def told_of(cluster: FakeCluster, broker: int) -> list[list[int]]:
    """Partitions in each message to a broker."""
    requests = cluster.brokers[BrokerId(broker)].requests
    return [sorted(item.state.partition for item in request.partitions) for request in requests]


async def portion(pacing: Pacing, brokers: int) -> None:
    """All errands of one: these brokers, and the publication."""
    for _ in range(brokers + 1):
        await pacing.tell_some()


async def known_to_all(cluster: FakeCluster, controller: Controller, partitions: int) -> list[PartitionKey]:
    """A topic of which brokers 1 and 2 have been told; their messages are forgotten."""
    await throttled(controller, 1_000_000)
    id = await created(controller, "t", *[(1, 2)] * partitions)
    keys = [PartitionKey(id, number) for number in range(partitions)]
    await until(lambda: all(cluster.all_told((1, 2), key, 1) for key in keys))
    for number in ids(1, 2):
        cluster.brokers[number].requests.clear()
    return keys


async def test_who_is_led_elsewhere_is_told_of_first_and_what_is_left_with_the_next_look(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    keys = await known_to_all(cluster, controller, PORTIONS * PORTION_MIN)
    pacing = Pacing(controller._context)
    await pacing.written(keys, led_elsewhere={keys[22], keys[23]})
    assert not told_of(cluster, 2), "not in the moment of the write"
    await portion(pacing, 2)
    first = [0, 1, 2, 3, 4, 5, 22, 23]
    await until(lambda: told_of(cluster, 2) == [first])
    await portion(pacing, 2)
    await until(lambda: told_of(cluster, 2) == [first, list(range(6, 14))])
    await pacing.tell_all()
    assert not pacing.has_untold
    await until(lambda: sorted(number for some in told_of(cluster, 2) for number in some) == list(range(24)))


async def test_who_leads_hears_of_it_before_those_who_follow_and_clients_in_between(cluster: FakeCluster) -> None:
    """Each order is work for its broker: they are not all busy in one moment."""
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    keys = await known_to_all(cluster, controller, PORTION_MIN)
    pacing = Pacing(controller._context)
    await pacing.written(keys, led_elsewhere=set(keys))
    published = len(cluster.metadata.messages)
    await pacing.tell_some()
    await until(lambda: len(told_of(cluster, 1)) == 1)
    assert (told_of(cluster, 2), len(cluster.metadata.messages)) == ([], published)
    await pacing.tell_some()
    await until(lambda: len(cluster.metadata.messages) == published + 1)
    assert told_of(cluster, 2) == []
    assert pacing.pause_s > 0
    await pacing.tell_some()
    await until(lambda: len(told_of(cluster, 2)) == 1)
    assert not pacing.has_untold


async def test_a_partition_that_nobody_leads_any_more_holds_nobody_up(cluster: FakeCluster) -> None:
    """It has no new leader whom clients would have to wait for: they hear with the others."""
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    (key,) = await known_to_all(cluster, controller, 1)
    picture = controller.picture
    before = picture.partitions[key]
    assert before.held is not None
    leaderless = replace(before, held=replace(before.held, state=replace(before.held.state, leader=NO_LEADER)))
    errands = errands_of(replace(picture, partitions={**picture.partitions, key: leaderless}), (key,), {key})
    assert [type(errand) for errand in errands] == [Order, Order, Publication]
    assert errands[-1] == Publication((key,), can_wait=False)
    assert errands_of(picture, (PartitionKey(key.topic_id, 7),), ()) == (), "nobody has a part in it"


async def test_however_many_brokers_there_are_they_have_heard_of_it_before_the_next_portion(
    cluster: FakeCluster,
) -> None:
    brokers = range(1, 41)
    await cluster.begin(*brokers)
    controller = await cluster.reign()
    await throttled(controller, 1_000_000)
    id = await created(controller, "t", tuple(brokers))
    key = PartitionKey(id, 0)
    await until(lambda: cluster.all_told(brokers, key, 1))
    pacing = Pacing(controller._context)
    await pacing.written([key], led_elsewhere=())
    ticks = 0
    while pacing.has_untold:
        await pacing.tell_some()
        ticks += 1
    assert ticks * APART_S <= INTERVAL_S / 2


async def test_replicas_are_deleted_together_when_everybody_has_been_told(cluster: FakeCluster) -> None:
    """Each message about some of them costs its broker a look into the store and an fsync."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    reassigner = controller._reassigner
    keys = await known_to_all(cluster, controller, PORTIONS * PORTION_MIN)
    numbers = range(len(keys))
    assert await ask(controller, "t", dict.fromkeys(numbers, (1, 3))) == [None] * len(keys)
    for number in numbers:
        await grown(cluster, "t", number, 1, 2, 3)
    # So that a look comes when all have arrived, and not one for those that were first.
    reassigner._moving_max = 2 * len(keys)  # type: ignore[misc]
    for number in numbers:
        await catch_up(cluster, "t", number, 3)
    await until(lambda: cluster.brokers[BrokerId(2)].stop_requests)
    assert not reassigner._pacing.has_untold
    await until(lambda: stopped(cluster, 2) == {("t", number) for number in numbers})
    assert len(cluster.brokers[BrokerId(2)].stop_requests) < PORTIONS


async def test_what_is_due_and_on_its_way_does_not_keep_the_clock_busy(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    reassigner = controller._reassigner
    keys = await known_to_all(cluster, controller, PORTION_MIN)
    assert reassigner.pause_s == LOOK_INTERVAL_S, "nothing moves"
    await reassigner._pacing.written(keys, led_elsewhere=())
    await until(lambda: reassigner._pacing.pause_s == 0 or not reassigner._pacing.has_untold)
    assert reassigner.pause_s >= APART_S


async def test_when_a_broker_dies_nothing_waits_any_longer(cluster: FakeCluster) -> None:
    """It may have led what somebody else is to lead, who has not been told."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    keys = await known_to_all(cluster, controller, PORTIONS * PORTION_MIN)
    pacing = Pacing(controller._context)
    await pacing.written(keys, led_elsewhere=())
    await pacing.tell_some()
    assert pacing.has_untold
    assert sum(map(len, map(partial(told_of, cluster), (1, 2)))) <= 1
    cluster.kill(3)
    await until(lambda: BrokerId(3) not in controller.picture.brokers)
    # A look that writes in between changes nothing about that.
    await pacing.written(keys[:1], led_elsewhere=())
    await pacing.tell_some()
    assert not pacing.has_untold
    for number in (1, 2):
        await until(
            lambda number=number: {n for some in told_of(cluster, number) for n in some} == set(range(len(keys)))
        )


async def joined(cluster: FakeCluster, key: PartitionKey, joining: int) -> ReportedNode:
    """The leader lets a new replica join; what it reports."""
    path = paths.leader_and_isr("t", key.partition)
    node = await cluster.outside.get(path)
    before = LeaderAndIsr.decode(node.data)
    follower = cluster.brokers[BrokerId(joining)]
    members = {follower.id: Membership(broker_epoch=follower.epoch, log_id=follower.log_id)}
    after = with_isr(before, (*before.isr, follower.id), min_insync=2, joining=members)
    stat = await cluster.outside.set(path, after.encode(), version=node.stat.version)
    leader = cluster.brokers[before.leader]
    return ReportedNode(broker=leader.id, epoch=leader.epoch, version=stat.version, data=after.encode())


async def test_an_isr_that_waits_to_be_published_does_not_bring_a_leader_who_has_no_order_yet(
    cluster: FakeCluster,
) -> None:
    """Brokers that read it would give the partition up, and clients would go to one that does not lead."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await throttled(controller, 1_000_000)
    id = await created(controller, "t", *[(1, 2)] * 8)
    keys = [PartitionKey(id, number) for number in range(8)]
    assert await ask(controller, "t", dict.fromkeys(range(8), (2, 3))) == [None] * 8
    await until(lambda: all(cluster.all_told((1, 2, 3), key, 1) for key in keys))
    # So that a look follows at once when half of them have arrived.
    controller._reassigner._moving_max = 8  # type: ignore[misc]
    for key in keys:
        # One after another, so that all but the first are published later.
        controller.queue.put(IsrsWritten(reports={key: await joined(cluster, key, 3)}))
    for number in range(8):
        await arrived(cluster, "t", number, 2, 3)
    await until(lambda: cluster.metadata.topics.get("t") == dict.fromkeys(range(8), 2))
    topics = [topic for message in cluster.metadata.messages for topic in message.topics]
    states = [(state.partition, state.leader_epoch, len(state.isr)) for topic in topics for state in topic.partitions]
    assert {number for number, epoch, isr in states if (epoch, isr) == (0, 3)} == set(range(8)), (
        "each before its switch"
    )


async def test_what_was_deleted_before_it_was_told_of_is_told_to_nobody(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    await throttled(controller, 1_000_000)
    id = await created(controller, "t", (1, 2))
    await until(lambda: cluster.all_told((1, 2), PartitionKey(id, 0), 1))
    context = controller._context
    pacing = Pacing(context)
    gone = PartitionKey(id, 7)
    assert gone not in context.picture.partitions
    await pacing.written([gone], led_elsewhere=())
    await pacing.tell_all()
    assert not pacing.has_untold
    assert not any(gone in cluster.told(number) for number in ids(1, 2))
