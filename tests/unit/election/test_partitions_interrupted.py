"""A controller dies at each write of an addition and of a removal: the next one completes it, or nothing happened.

1. A controller begins to add or remove partitions.
2. At its n-th write it dies: before the write, after half of its groups, or after all of it and before it knows.
3. The next one reigns, from nothing or from the picture that a standby has.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Check, Group, Outcome
from regnum_election.controller import Controller
from regnum_election.partitions.removal import RemovalCall, RemovalOutcome
from regnum_election.partitions.requests import AdditionRequest, RemovalRequest
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import TopicRequest
from regnum_model import paths
from regnum_model.ids import NO_LEADER, BrokerId, PartitionKey, TopicId
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.standing_by import FakeStandby
from regnum_testing.waiting import DEADLINE_S, until

BROKERS = (1, 2, 3)
BEFORE = 3
"""Partitions of the topic at first."""
AFTER = {"add": 7, "remove": 1}
WRITES_MAX = 30


class MortalStore(MemoryStore):
    """Carries out a part of one write, and answers no more."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.writes_left: int | None = None
        """Writes before the one at which it ends; None: it lives."""
        self.share = 0.0
        """How much of that write is carried out."""
        self.ended = asyncio.Event()

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        """Write, or come to an end."""
        if self.writes_left is not None:
            if self.writes_left == 0:
                some = groups[: round(len(groups) * self.share)]
                if some:
                    await super().write_batch(some, fence=fence)
                self.ended.set()
                await asyncio.Event().wait()
            self.writes_left -= 1
        return await super().write_batch(groups, fence=fence)


async def create(controller: Controller) -> TopicId:
    request = TopicRequest(name="t", partitions=BEFORE, replication_factor=2, assignment=(), mutation=None)
    answered = await controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    (outcome,) = answered.outcomes
    assert isinstance(outcome, Created)
    return outcome.topic_id


def add(controller: Controller) -> Awaitable[object]:
    request = AdditionRequest(name="t", total=AFTER["add"], assignment=(), mutation=None)
    return controller.partitions.add([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)


def remove(controller: Controller) -> Awaitable[object]:
    request = RemovalRequest(name="t", topic_id="", partitions=range(AFTER["remove"], BEFORE), mutation=None)
    return controller.partitions.remove([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)


CALLS: dict[str, Callable[[Controller], Awaitable[object]]] = {"add": add, "remove": remove}


@pytest.fixture
async def clusters() -> AsyncIterator[list[FakeCluster]]:
    clusters: list[FakeCluster] = []
    yield clusters
    for cluster in clusters:
        await cluster.close()


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0], ids=["before", "half-way", "unanswered"])
@pytest.mark.parametrize("successor", ["from nothing", "from a standby"])
@pytest.mark.parametrize("kind", ["add", "remove"])
async def test_whatever_a_controller_had_begun_the_next_one_completes_or_nothing_happened(
    clusters: list[FakeCluster], kind: str, successor: str, share: float
) -> None:
    outcomes: set[int] = set()
    for writes in range(WRITES_MAX):
        cluster = FakeCluster()
        clusters.append(cluster)
        cluster.open_store = MortalStore
        await cluster.begin(*BROKERS)
        controller = await cluster.reign()
        id = await create(controller)
        await until(lambda: controller.queue.is_empty and controller._in_hand is None)  # noqa: B023
        standby = FakeStandby(lambda: cluster.controller, cluster.clock)  # noqa: B023
        standby.start()
        await until(standby.has_all)
        store = cluster.controller_store
        assert isinstance(store, MortalStore)
        store.writes_left, store.share = writes, share
        calling = asyncio.ensure_future(CALLS[kind](controller))
        dying = asyncio.ensure_future(store.ended.wait())
        everything = asyncio.ensure_future(finished(controller, calling))
        await asyncio.wait({dying, everything}, return_when=asyncio.FIRST_COMPLETED)
        survived = not dying.done()
        dying.cancel()
        everything.cancel()
        followed = await standby.follower.take() if successor == "from a standby" else None
        await cluster.end_reign()
        calling.cancel()
        await asyncio.gather(calling, dying, everything, return_exceptions=True)
        await standby.close()
        controller = await cluster.reign(2, followed=followed)
        outcomes.add(await settled(cluster, controller, id))
        if survived:
            break
    else:
        raise AssertionError(f"not done after {WRITES_MAX} writes")
    # The first write is the one that counts.
    assert outcomes == ({AFTER[kind]} if share == 1.0 else {BEFORE, AFTER[kind]})
    assert writes >= 3


async def test_who_resumes_a_removal_that_is_over_but_for_its_mark_leaves_no_folder_behind(
    clusters: list[FakeCluster],
) -> None:
    """Steps: partitions are buried; every broker confirms; before the mark goes, upkeep resumes what has one."""
    cluster = FakeCluster()
    clusters.append(cluster)
    await cluster.begin(*BROKERS)
    controller = await cluster.reign()
    await create(controller)
    await until(lambda: controller.queue.is_empty and controller._in_hand is None)
    removals, remover = controller._context.removals, controller._remover
    request = RemovalRequest(name="t", topic_id="", partitions=range(1, BEFORE), mutation=None)
    result: asyncio.Future[tuple[RemovalOutcome, ...]] = asyncio.get_running_loop().create_future()
    steps = remover.remove_partitions(RemovalCall(requests=[request], validate_only=False, result=result))
    await anext(steps)
    await anext(steps)
    assert len(removals) == BEFORE - 1, "buried"
    await until(lambda: not len(removals), what="every broker confirmed")

    async def nothing_recorded() -> bool:
        return (await cluster.outside.children(paths.DELETE_PARTITIONS)).names == ()

    await until(nothing_recorded)
    assert (await cluster.topic("t")).removing
    async for _ in remover.resume():
        pass
    async for _ in steps:
        pass
    assert result.done()
    assert not (await cluster.topic("t")).removing
    assert (await cluster.outside.children(paths.DELETE_PARTITIONS)).names == ()


async def finished(controller: Controller, calling: "asyncio.Future[object]") -> None:
    """The call is answered and every broker has confirmed."""
    await asyncio.shield(calling)
    removals = controller._context.removals
    await until(lambda: not len(removals) and not removals.begun)
    await until(lambda: controller.queue.is_empty and controller._in_hand is None)


async def settled(cluster: FakeCluster, controller: Controller, id: TopicId) -> int:
    """Wait until nothing is under way any more, and look at what is left; returns how many partitions there are."""
    removals = controller._context.removals

    async def unmarked() -> bool:
        node = await cluster.topic("t")
        return not node.creating and not node.removing

    await until(unmarked, what="no marks in the topic node")
    await until(lambda: not len(removals) and not removals.begun, what="every broker confirmed")
    await until(lambda: controller.queue.is_empty and controller._in_hand is None)
    node = await cluster.topic("t")
    count = len(node.partitions)
    assert sorted(node.partitions) == list(range(count))
    assert controller.picture.topics[id].partitions == tuple(range(count))

    async def nothing_recorded() -> bool:
        return (await cluster.outside.children(paths.DELETE_PARTITIONS)).names == ()

    await until(nothing_recorded)
    for number in range(max(count, BEFORE)):
        state = await cluster.state("t", number)
        key = PartitionKey(id, number)
        if number < count:
            assert not state.removed
            assert state.leader != NO_LEADER
            await until(lambda: cluster.all_told(node.partitions[number], key, state.leader))  # noqa: B023
            continue
        assert state.removed
        assert key not in controller.picture.partitions
        for broker in BROKERS:
            told = cluster.told(broker).get(key)
            if told is not None:
                stops = [stop for stop in cluster.brokers[BrokerId(broker)].stops if stop.partition == number]
                assert stops, f"broker {broker} keeps files of {number}"
                assert all(stop.delete and stop.leader_epoch > told.state.leader_epoch for stop in stops)
    await until(lambda: sorted(cluster.metadata.topics["t"]) == list(range(count)), what="metadata")
    return count
