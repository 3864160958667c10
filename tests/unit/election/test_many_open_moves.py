"""A hundred thousand partitions wait for a place: a look of the agent costs what moves, and nothing for these."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from regnum_election.configs.book import PARTITIONS_PER_STEP
from regnum_election.decisions.cluster import HeldState, Partition, Topic
from regnum_election.reassignment.agent import Reassigner
from regnum_election.reassignment.waiting import AHEAD, OpenMoves
from regnum_election.state.context import ControllerContext
from regnum_model.ids import BrokerId, ControllerEpoch, LeaderEpoch, PartitionKey, TopicId
from regnum_model.nodes import LeaderAndIsr, Membership
from regnum_model.reassignment import Reassignment
from regnum_testing.reigning import FakeCluster

OPEN = 100_000
MOVING = 10
ORIGIN = (BrokerId(1), BrokerId(2))
TARGET = (BrokerId(2), BrokerId(3))


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    await cluster.begin(1, 2, 3)
    yield cluster
    await cluster.close()


async def alone(cluster: FakeCluster) -> ControllerContext:
    """The context of a reign that nobody else acts in any more, with the live brokers in its picture."""
    context = (await cluster.reign())._context
    brokers = context.picture.brokers
    await cluster.end_reign()
    context.picture = replace(context.picture, brokers=brokers)
    return context


def topic(
    cluster: FakeCluster, name: str, count: int, *, grown: int, since_ms: int
) -> tuple[Topic, dict[int, Partition]]:
    id = TopicId(name.ljust(22, "x"))
    brokers = [cluster.brokers[one] for one in ORIGIN]
    state = LeaderAndIsr(
        topic_id=id,
        leader=ORIGIN[0],
        leader_epoch=LeaderEpoch(0),
        isr=ORIGIN,
        elr=(),
        members={one.id: Membership(broker_epoch=one.epoch, log_id=one.log_id) for one in brokers},
        controller_epoch=ControllerEpoch(1),
    )
    held = HeldState(state=state, version=0)
    members = {
        number: Partition(
            replicas=(*ORIGIN, BrokerId(3)) if number < grown else ORIGIN,
            held=held,
            reassignment=Reassignment(origin=ORIGIN, target=TARGET, since_ms=since_ms + number),
        )
        for number in range(count)
    }
    return Topic(name=name, id=id, version=0, partitions=tuple(members)), members


async def looked(agent: Reassigner) -> tuple[int, int]:
    """One look: how many reassignments it judged, and in how many steps it asked the store anything."""
    before, steps = agent.judged, 0
    async for _ in agent._look():
        steps += 1
    return agent.judged - before, steps


async def test_a_look_judges_those_that_move_and_asks_the_store_nothing_for_those_that_wait(
    cluster: FakeCluster,
) -> None:
    context = await alone(cluster)
    agent = Reassigner(context, moving_max=MOVING)
    each = OPEN // 10
    topics = [
        topic(cluster, f"t{number}", each, grown=MOVING if number == 0 else 0, since_ms=number * each)
        for number in range(10)
    ]
    context.picture = context.picture.with_topics(topics)
    assert len(context.picture.reassigning) == OPEN
    assert [await looked(agent) for _ in range(20)] == [(MOVING, 0)] * 20
    assert agent.scans == 1
    # One of them is gone: its place is due to the one that asked first.
    first = topics[0][0].id
    context.picture = context.picture.without_partitions({first: [0]})
    judged = agent.judged
    assert await agent._due() == {first: [MOVING]}
    assert (agent.judged - judged, agent.scans) == (MOVING + 1, 1)


async def test_those_that_wait_begin_in_the_order_in_which_they_asked_over_many_scans(cluster: FakeCluster) -> None:
    context = await alone(cluster)
    count = 3 * AHEAD + 7
    late, early = (
        topic(cluster, "late", count, grown=0, since_ms=count),
        topic(cluster, "early", count, grown=0, since_ms=0),
    )
    context.picture = context.picture.with_topics([late, early])
    moves = OpenMoves(context)
    begun: list[tuple[str, int]] = []
    while True:
        await moves.keep_up()
        key = moves.next()
        if key is None:
            break
        begun.append((context.picture.topics[key.topic_id].name, key.partition))
        # It has begun, and goes on; nothing of it waits any more.
        context.picture = context.picture.with_assignments({key: ((*ORIGIN, BrokerId(3)), None)})
    assert begun == [(name, number) for name in ("early", "late") for number in range(count)]
    assert moves.scans <= 2 * count // AHEAD + 2


async def test_what_was_taken_out_and_could_not_begin_comes_again_when_the_others_had_their_turn(
    cluster: FakeCluster,
) -> None:
    """A topic whose node is damaged: more of its partitions than are kept in order were the first of each scan."""
    context = await alone(cluster)
    count = 2 * AHEAD + 7
    topics = [
        topic(cluster, "damaged", count, grown=0, since_ms=0),
        topic(cluster, "sound", 3, grown=0, since_ms=count),
    ]
    context.picture = context.picture.with_topics(topics)
    moves = OpenMoves(context)
    taken: list[tuple[str, int]] = []
    for _ in range(4):
        await moves.keep_up()
        while (key := moves.next()) is not None:
            taken.append((context.picture.topics[key.topic_id].name, key.partition))
    expected = [("damaged", number) for number in range(count)] + [("sound", number) for number in range(3)]
    assert taken == expected
    # All are looked at again, by the clock or because of the brokers.
    context.picture = context.picture.with_broker(replace(context.picture.brokers[BrokerId(3)], rack="other"))
    await moves.keep_up()
    assert moves.next() == PartitionKey(topics[0][0].id, 0)


async def test_one_that_waits_for_a_dead_broker_begins_when_it_is_live(cluster: FakeCluster) -> None:
    context = await alone(cluster)
    context.picture = context.picture.with_topics([topic(cluster, "t", 3, grown=0, since_ms=0)])
    third = context.picture.brokers[BrokerId(3)]
    context.picture = context.picture.without_broker(BrokerId(3))
    moves = OpenMoves(context)
    await moves.keep_up()
    assert moves.next() is None
    context.picture = context.picture.with_broker(third)
    await moves.keep_up()
    assert moves.next() == PartitionKey(TopicId("t".ljust(22, "x")), 0)


async def test_another_throttle_looks_at_open_moves_in_parts_with_turns_of_the_loop_between(
    cluster: FakeCluster,
) -> None:
    """Safety rule S22: they were looked at in one turn."""
    controller = await cluster.reign()
    context, book = controller._context, controller._config_book
    brokers = context.picture.brokers
    await cluster.end_reign()
    context.picture = replace(context.picture, brokers=brokers)
    parts = 6
    context.picture = context.picture.with_topics(
        [topic(cluster, "t", parts * PARTITIONS_PER_STEP, grown=0, since_ms=0)]
    )
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await book._tell_rates()
    counting.cancel()
    assert turns >= parts - 1
