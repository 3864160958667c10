"""A controller that dies while it moves partitions: the next one carries on from what the store says."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Check, Group, Outcome
from regnum_election.controller import Controller
from regnum_model import paths
from regnum_model.ids import PartitionKey
from regnum_model.nodes import TopicNode
from regnum_testing.moving import arrived, ask, catch_up, created, grown, ids
from regnum_testing.reigning import FakeCluster
from regnum_testing.standing_by import FakeStandby
from regnum_testing.waiting import until


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


class Dying(MemoryStore):
    """A session that is over at one of its writes: just before the store takes it, or just after."""

    writes = 0
    dies_at = 10**9
    after = False

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        concerned = any(operation.path == paths.topic("t") for group in groups for operation in group)
        self.writes += concerned
        if not concerned or self.writes < self.dies_at:
            return await super().write_batch(groups, fence=fence)
        if self.after and self.writes == self.dies_at:
            await super().write_batch(groups, fence=fence)
        # It hears of nothing any more, and nothing of it is heard.
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("write", [1, 2, 3])
@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_controller_that_dies_at_any_write_is_carried_on_from(
    cluster: FakeCluster, write: int, after: bool, cancelled: bool
) -> None:
    """Asked for, grown, switched or called back: before or after each of the writes."""
    await cluster.begin(1, 2, 3, 4)
    stores: list[Dying] = []

    def open_dying(server: MemoryServer) -> MemoryStore:
        stores.append(Dying(server))
        return stores[-1]

    cluster.open_store = open_dying
    controller = await cluster.reign()
    key = PartitionKey(await created(controller, "t", (1, 2)), 0)
    await until(lambda: not controller.picture.partitions[key].creating and controller.queue.is_empty)
    stores[0].dies_at, stores[0].after = stores[0].writes + write, after
    working = asyncio.create_task(work(cluster, controller, cancelled=cancelled))
    await until(lambda: stores[0].writes >= stores[0].dies_at, what="the write")
    # One turn: whoever wrote hears how it ended, if it is to hear of it.
    await asyncio.sleep(0)
    working.cancel()
    await asyncio.wait({working})
    cluster.open_store = MemoryStore
    await cluster.end_reign()
    successor = await cluster.reign(2)
    node = await cluster.topic("t")
    if 0 not in node.reassigning and node.partitions[0] == ids(1, 2) and not cancelled:
        # Nothing had been written yet: the caller asks again.
        assert await ask(successor, "t", {0: (3, 4)}) == [None]
    await finish(cluster, cancelled=cancelled)
    expected = ids(1, 2) if cancelled else ids(3, 4)
    await until(lambda: not successor.picture.reassigning)
    assert (await cluster.topic("t")).partitions[0] == expected
    state = await cluster.state("t", 0)
    assert set(state.isr) <= set(expected)
    assert state.leader in expected
    await until(lambda: key in cluster.told(state.leader))
    await until(lambda: cluster.told(state.leader)[key].state.leader_epoch == state.leader_epoch)
    assert list(cluster.told(state.leader)[key].state.replicas) == list(expected)


async def work(cluster: FakeCluster, controller: Controller, *, cancelled: bool) -> None:
    await ask(controller, "t", {0: (3, 4)})
    await grown(cluster, "t", 0, 1, 2, 3, 4)
    if cancelled:
        await ask(controller, "t", {0: None})
    else:
        await catch_up(cluster, "t", 0, 3, 4)


async def finish(cluster: FakeCluster, *, cancelled: bool) -> None:
    """What callers and leaders do after a change of controller."""
    assert cluster.controller is not None
    node: TopicNode = await cluster.topic("t")
    if cancelled:
        await ask(cluster.controller, "t", {0: None})
        return
    if 0 in node.reassigning:
        await grown(cluster, "t", 0, 1, 2, 3, 4)
        await catch_up(cluster, "t", 0, 3, 4)


@pytest.mark.parametrize("stale", [False, True])
async def test_a_standby_that_succeeds_goes_on_with_what_the_store_says(cluster: FakeCluster, stale: bool) -> None:
    """Its picture may be from before the switch: nobody is told of the assignment that was."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    standby = FakeStandby(lambda: cluster.controller, cluster.clock)
    standby.start()
    try:
        key = PartitionKey(await created(controller, "t", (1, 2)), 0)
        await ask(controller, "t", {0: (2, 3)})
        await grown(cluster, "t", 0, 1, 2, 3)
        await until(lambda: key in standby.follower.followed.picture.reassigning and standby.has_all())
        followed_move = standby.follower.followed.picture.partitions[key]
        assert followed_move == controller.picture.partitions[key]
        standby.hold()
        if stale:
            await catch_up(cluster, "t", 0, 3)
            await arrived(cluster, "t", 0, 2, 3)
        await cluster.end_reign()
        followed = await standby.follower.take()
        assert followed is not None
        assert key in followed.picture.reassigning
        successor = await cluster.reign(2, followed=followed)
        if not stale:
            await catch_up(cluster, "t", 0, 3)
        await arrived(cluster, "t", 0, 2, 3)
        await until(lambda: not successor.picture.reassigning and key in cluster.told(3))
        await until(lambda: list(cluster.told(3)[key].state.replicas) == [2, 3])
        told = [
            (broker.id, list(item.state.replicas))
            for broker in cluster.brokers.values()
            for request in broker.requests
            if request.controller_epoch == 2 and stale
            for item in request.partitions
        ]
        assert all(replicas == [2, 3] and id != 1 for id, replicas in told), told
    finally:
        standby.release()
        await standby.close()
