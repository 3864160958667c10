"""Partitions of one topic that move together: how often its node is written."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from regnum_coordination.drivers.memory import MemoryStore
from regnum_coordination.errors import InvalidRequest
from regnum_coordination.port import Check, Group, Outcome, Refused, Set
from regnum_election.reassignment.agent import INTERVAL_S
from regnum_model import paths
from regnum_model.ids import PartitionKey
from regnum_testing.clock import FakeClock
from regnum_testing.gated_store import gated
from regnum_testing.moving import ask, catch_up, created, grown, ids
from regnum_testing.reigning import FakeCluster
from regnum_testing.waiting import until


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


@pytest.mark.parametrize("target", [(1, 2), (3, 2, 1)])
async def test_a_failover_waits_for_one_write_of_a_topic_at_most(cluster: FakeCluster, target: tuple[int, ...]) -> None:
    stores = gated(cluster)
    await cluster.begin(1, 2, 3, 4, 5)
    controller = await cluster.reign()
    each = 1_200
    await created(controller, "t", *[(1, 2, 3)] * each)
    other = PartitionKey(await created(controller, "other", (4, 5)), 0)
    (store,) = stores
    # What is asked for is one write; what follows waits.
    store.gate, store.topic_writes = asyncio.Semaphore(1), -1
    assert await ask(controller, "t", dict.fromkeys(range(each), target)) == [None] * each
    await until(lambda: store.topic_writes == 1, what="the first switch is under way")
    cluster.kill(4)
    await until(lambda: not controller.queue.is_empty, what="the death is heard of")
    store.gate.release()

    def is_led_again() -> bool:
        held = controller.picture.partitions[other].held
        return held is not None and held.state.leader == 5

    await until(is_led_again)
    assert store.topic_writes <= 2, "one was under way, and the next may wait at the store"
    assert len(controller.picture.reassigning) >= each - 500
    store.gate = None
    for gate in stores:
        gate.gate = None


async def test_who_asks_is_answered_before_the_agent_writes(cluster: FakeCluster) -> None:
    stores = gated(cluster)
    await cluster.begin(1, 2, 3, 4)
    controller = await cluster.reign()
    await created(controller, "t", (1, 2, 3), (1, 2, 3))
    # The first one is open while the second is asked for: the agent looks while the topic node is being written.
    assert await ask(controller, "t", {0: (1, 2, 4)}) == [None]
    await grown(cluster, "t", 0, 1, 2, 3, 4)
    (store,) = stores
    store.gate, store.topic_writes = asyncio.Semaphore(1), 0
    store.before_write = controller.reassignments.wake
    assert await ask(controller, "t", {1: (1, 2, 4)}) == [None]
    await until(lambda: store.topic_writes == 2, what="the agent waits at the gate")
    store.gate.release()
    store.gate = None


async def test_a_whole_topic_is_switched_with_few_writes_of_its_node(cluster: FakeCluster) -> None:
    """Each write repeats the node: its size, and not the replicas, says how much a switch costs."""
    stores = gated(cluster)
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    each = 1_000
    await created(controller, "t", *[(1, 2, 3)] * each)
    for target, most in (((3, 2, 1), 3), ((1, 2), 11)):
        before = sum(store.topic_writes for store in stores)
        assert await ask(controller, "t", dict.fromkeys(range(each), target)) == [None] * each
        await until(lambda: not controller.picture.reassigning)
        assert sum(store.topic_writes for store in stores) - before <= 1 + most
        assert set((await cluster.topic("t")).partitions.values()) == {ids(*target)}


async def test_what_the_store_cannot_take_at_once_goes_in_smaller_writes(cluster: FakeCluster) -> None:
    class Small(MemoryStore):
        async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
            if any(sum(isinstance(one, Set) for one in group) > 4 for group in groups):
                return tuple(Refused(InvalidRequest("too large")) for _ in groups)
            return await super().write_batch(groups, fence=fence)

    cluster.open_store = Small
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await created(controller, "t", *[(1, 2, 3)] * 20)
    assert await ask(controller, "t", dict.fromkeys(range(20), (1, 2))) == [None] * 20
    await until(lambda: not controller.picture.reassigning)
    assert controller._reassigner.looks <= 3


async def test_what_arrives_one_after_another_is_moved_on_together() -> None:
    """Each switch rewrites the topic node and is told to all brokers: with many partitions that would be most of it."""
    partitions = 20
    clock = FakeClock()
    cluster = FakeCluster(clock)
    await cluster.begin(1, 2, 3, 4)
    controller = await cluster.reign()
    await created(controller, "t", *[(1, 2, 3)] * partitions)
    assert await ask(controller, "t", dict.fromkeys(range(partitions), (1, 2, 4))) == [None] * partitions
    await grown(cluster, "t", partitions - 1, 1, 2, 3, 4)
    before = (await cluster.outside.get(paths.topic("t"))).stat.version
    for number in range(partitions):
        await catch_up(cluster, "t", number, 4)

    async def all_have_arrived() -> bool:
        await clock.advance(INTERVAL_S)
        return not (await cluster.topic("t")).reassigning

    await until(all_have_arrived)
    # The first that is heard of goes at once, the others together; and one more takes out who has confirmed.
    assert (await cluster.outside.get(paths.topic("t"))).stat.version - before <= 4
    await cluster.close()
