"""Partitions added and removed in random histories of brokers, controllers and topics that come and go.

What holds of every state that the store ever had: versions and leader epochs of a partition never go back, whoever
removed and added it how often, and no leader epoch has two leaders. What holds when everything has come to rest: the
numbers of a topic have no gap, every partition is led, nothing is recorded or marked any more, and whoever was ever
told of a partition that is gone was told to delete it.
"""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from regnum_election.controller import Controller
from regnum_election.partitions.requests import AdditionRequest, RemovalRequest
from regnum_election.topics.requests import DeletionRequest, TopicRequest
from regnum_model import paths
from regnum_model.ids import NO_LEADER, BrokerId, PartitionKey, TopicId
from regnum_service.errors import RegnumError
from regnum_testing.reigning import ANYBODY, FakeBroker, FakeCluster
from regnum_testing.standing_by import FakeStandby, RecordingServer
from regnum_testing.waiting import DEADLINE_S, until

SEEDS = 8
STEPS = 25
BROKERS = (1, 2, 3, 4)
SHORTLY_S = 0.05
"""How long a caller waits: most give up in the middle of something."""


class History:
    """A cluster to which things happen."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.server = RecordingServer()
        self.cluster = FakeCluster(server=self.server)
        self.standby = FakeStandby(lambda: self.cluster.controller, self.cluster.clock)
        self.everyone: list[FakeBroker] = []
        self.reigns = 0

    @property
    def controller(self) -> Controller:
        assert self.cluster.controller is not None
        return self.cluster.controller

    async def begin(self) -> None:
        await self.cluster.begin()
        for id in BROKERS:
            self.everyone.append(await self.cluster.register(id))
        await self.next_reign()
        self.standby.start()
        await self.create(wait_s=DEADLINE_S)

    async def create(self, *, wait_s: float) -> None:
        request = TopicRequest(name="t", partitions=2, replication_factor=2, assignment=(), mutation=None)
        await self.controller.topics.create([request], validate_only=False, wait_s=wait_s, account=ANYBODY)

    async def next_reign(self) -> None:
        followed = None
        if self.reigns:
            followed = await self.standby.follower.take() if self.chance.random() < 0.5 else None
            await self.cluster.end_reign()
        self.reigns += 1
        await self.cluster.reign(self.reigns, followed=followed, corrections_interval_s=0.02)

    async def happen(self) -> None:
        """One thing."""
        chance = self.chance
        topic = self.controller.picture.topic_named("t")
        count = 0 if topic is None else len(topic.partitions)
        live = [id for id in BROKERS if not self.cluster.brokers[BrokerId(id)].down]
        match chance.choice(["add", "add", "remove", "remove", "kill", "back", "reign", "delete", "wait"]):
            case "add":
                request = AdditionRequest(name="t", total=count + chance.randint(1, 4), assignment=(), mutation=None)
                await self.controller.partitions.add([request], validate_only=False, wait_s=SHORTLY_S, account=ANYBODY)
            case "remove":
                gone = range(chance.randint(1, max(count, 1)), count)
                removal = RemovalRequest(name="t", topic_id="", partitions=gone, mutation=None)
                await self.controller.partitions.remove(
                    [removal], validate_only=False, wait_s=SHORTLY_S, account=ANYBODY
                )
            case "kill" if len(live) > 2:
                self.cluster.kill(chance.choice(live))
            case "back":
                for id in set(BROKERS) - set(live):
                    self.everyone.append(await self.cluster.register(id))
            case "reign":
                await self.next_reign()
            case "delete" if chance.random() < 0.3:
                deletion = DeletionRequest(name="t", topic_id="", mutation=None)
                await self.controller.topics.delete([deletion], wait_s=SHORTLY_S, account=ANYBODY)
                await self.create(wait_s=SHORTLY_S)
            case _:
                # A while, by chance, in which whatever is under way goes on.
                await asyncio.sleep(SHORTLY_S * chance.random())

    async def come_to_rest(self) -> TopicId:
        for id in BROKERS:
            if self.cluster.brokers[BrokerId(id)].down:
                self.everyone.append(await self.cluster.register(id))
        context = self.controller._context
        await until(lambda: len(context.picture.brokers) == len(BROKERS), what="all brokers")
        await until(self.is_idle, what="what was asked for last and not waited for")
        if context.picture.topic_named("t") is None:
            await until(lambda: "t" not in context.clearing)
            await self.create(wait_s=DEADLINE_S)
        await until(lambda: not (len(context.removals) or context.removals.begun), what="removals confirmed")
        await until(lambda: not len(context.deletions), what="deletions confirmed")
        await until(self.is_marked_no_more, what="no marks in the topic node")
        await until(self.is_idle)
        return context.picture.names["t"]

    def is_idle(self) -> bool:
        return self.controller.queue.is_empty and self.controller._in_hand is None

    async def is_marked_no_more(self) -> bool:
        node = await self.cluster.topic("t")
        return not node.creating and not node.removing

    async def close(self) -> None:
        await self.standby.close()
        await self.cluster.close()


@pytest.fixture
async def histories() -> AsyncIterator[list[History]]:
    histories: list[History] = []
    yield histories
    for history in histories:
        await history.close()


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_whatever_happens_epochs_only_grow_and_nothing_is_left_behind(
    histories: list[History], seed: int
) -> None:
    history = History(seed)
    histories.append(history)
    await history.begin()
    for _ in range(STEPS):
        try:
            await history.happen()
        except RegnumError:
            # Cut off, or not in time: whoever asked does not know what became of it.
            continue
    id = await history.come_to_rest()
    check_states(history.server)
    await check_rest(history, id)


def check_states(server: RecordingServer) -> None:
    for key, versions in server.states.items():
        before = -1
        leaders: dict[int, int] = {}
        for version in sorted(versions):
            state = versions[version]
            assert state.leader_epoch >= before, f"{key}: the epoch goes back at version {version}"
            before = state.leader_epoch
            if state.leader != NO_LEADER:
                assert leaders.setdefault(before, state.leader) == state.leader, f"{key}: two leaders in {before}"
                assert state.leader in state.isr
        assert sorted(versions) == list(range(len(versions))), f"{key}: its node was made anew"


async def check_rest(history: History, id: TopicId) -> None:
    cluster, picture = history.cluster, history.controller.picture
    node = await cluster.topic("t")
    count = len(node.partitions)
    assert sorted(node.partitions) == list(range(count))
    assert picture.topics[id].partitions == tuple(range(count))
    assert (await cluster.outside.children(paths.DELETE_TOPICS)).names == ()

    async def nothing_recorded() -> bool:
        return (await cluster.outside.children(paths.DELETE_PARTITIONS)).names == ()

    await until(nothing_recorded)
    for number in range(count):
        state = await cluster.state("t", number)
        assert not state.removed
        await until(lambda: led(history.controller, PartitionKey(id, number)))  # noqa: B023
    gone = {key for broker in history.everyone for key in broker.states if key not in picture.partitions}
    for key in gone:
        for broker in BROKERS:
            lives = [one for one in history.everyone if one.id == broker]
            told = [one.states[key].state.leader_epoch for one in lives if key in one.states]
            stops = [stop for one in lives for stop in one.stops if stop.topic_id == key.topic_id and stop.delete]
            whole = any(stop.partition == -1 for stop in stops)
            epochs = [stop.leader_epoch for stop in stops if stop.partition == key.partition]
            assert not told or whole or max(epochs, default=-1) > max(told), f"broker {broker} keeps {key}"


def led(controller: Controller, key: PartitionKey) -> bool:
    held = controller.picture.partitions[key].held
    return held is not None and held.state.leader != NO_LEADER
