"""A storm of one caller, and what somebody else wants meanwhile: counted in steps, on a clock that stands still."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable

import pytest
from regnum.types.v1 import errors_pb2
from regnum_election.admission.stand_in import Account
from regnum_election.controller import Controller
from regnum_election.partitions.requests import AdditionRequest, RemovalRequest
from regnum_election.topics.charging import Answered
from regnum_election.topics.clearing import TOPICS_TOGETHER
from regnum_election.topics.creation import TOPICS_PER_STEP, CreationOutcome
from regnum_election.topics.requests import DeletionRequest, TopicRequest
from regnum_model import paths
from regnum_model.config_changes import Alteration, Operation, Resource, ResourceType
from regnum_model.ids import PartitionKey
from regnum_service.errors import RegnumError
from regnum_testing.quota_world import QuotaWorld, codes, made
from regnum_testing.reigning import FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

STORM = Account(user="ANONYMOUS", client_id="storm", strict=True)
OPERATOR = Account(user="ANONYMOUS", client_id="operator", strict=True)


@pytest.fixture
async def world() -> AsyncIterator[QuotaWorld]:
    world = QuotaWorld()
    await world.begin()
    yield world
    await world.close()


async def test_a_topic_does_not_wait_for_all_topics_of_somebody_elses_storm(world: QuotaWorld) -> None:
    """Each call has eight times three writes: one whole call was waited for after the other."""
    calls = [
        asyncio.create_task(world.create([f"s{call}-{number}" for number in range(8 * TOPICS_PER_STEP)], account=STORM))
        for call in range(3)
    ]
    await until(lambda: "s0-0" in world.controller.picture.names)
    assert made(await world.create(["wanted"], account=OPERATOR)) == 1
    # A creation has a few steps; between each two of them the storm has had one.
    assert len(world.controller.picture.names) <= 7 * TOPICS_PER_STEP
    assert not any(call.done() for call in calls)
    answers = await asyncio.gather(*calls)
    assert [made(answered) for answered in answers] == [8 * TOPICS_PER_STEP] * 3
    assert len(world.controller.picture.names) == 3 * 8 * TOPICS_PER_STEP + 1


async def test_settings_are_changed_in_the_middle_of_a_large_deletion(world: QuotaWorld) -> None:
    names = [f"t{number}" for number in range(5 * TOPICS_TOGETHER)]
    await world.create([*names, "kept"], account=STORM)
    deleting = asyncio.create_task(world.delete(names, account=STORM))
    await until(lambda: len(world.controller.picture.names) < len(names))
    wanted = Alteration(
        resource=Resource(type=ResourceType.TOPIC, name="kept"),
        operations=(Operation(key="retention.ms", value="60000"),),
    )
    assert await world.controller.configs.alter([wanted], validate_only=False, wait_s=30.0) == (None,)
    assert len(world.controller.picture.names) >= 3 * TOPICS_TOGETHER
    assert not deleting.done()
    answered = await deleting
    assert len(answered.outcomes) == len(names)
    assert set(world.controller.picture.names) == {"kept"}


async def test_who_waits_for_leaders_of_a_topic_that_somebody_deletes_hears_at_once(world: QuotaWorld) -> None:
    """It was waited for until the caller's own deadline, since nobody would ever lead it."""
    held = asyncio.Event()
    for broker in world.cluster.brokers.values():
        broker.held = held
    creating = asyncio.create_task(_create_with_patience(world))
    await until(lambda: "wanted" in world.controller.picture.names)
    deleted = await world.controller.topics.delete(
        [DeletionRequest(name="wanted", topic_id="", mutation=None)], wait_s=DEADLINE_S, account=STORM
    )
    assert [getattr(one, "name", one) for one in deleted.outcomes] == ["wanted"]
    await until(creating.done)
    assert made(await creating) == 1
    held.set()


async def test_who_waits_for_leaders_when_a_reign_ends_hears_at_once_that_there_is_none_yet(world: QuotaWorld) -> None:
    for broker in world.cluster.brokers.values():
        broker.held = asyncio.Event()
    creating = asyncio.create_task(_create_with_patience(world))
    controller = world.controller
    await until(lambda: "wanted" in controller.picture.names and controller.queue.is_empty and not controller._in_hand)
    await world.cluster.end_reign()
    await until(creating.done)
    assert codes((await creating).outcomes) == [errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT]


async def _create_with_patience(world: QuotaWorld) -> Answered[CreationOutcome]:
    wanted = TopicRequest(name="wanted", partitions=1, replication_factor=3, assignment=(), mutation=None)
    return await world.controller.topics.create(
        [wanted], validate_only=False, wait_s=1e6 * DEADLINE_S, account=OPERATOR
    )


SEEDS = 8
STEPS = 40
STEPS_MAX = 400
"""So many until two mutations have been under way at once."""
NAMES = ("a", "b", "c")
PATIENCE_S = 1e6 * DEADLINE_S
"""Nobody who hangs is let off by a deadline of his own."""
CALLERS = tuple(Account(user="ANONYMOUS", client_id=f"app-{number}", strict=True) for number in range(6))


class Crowd:
    """Callers that create, delete, widen and narrow the same few topics at once, under one reign after the other."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.cluster = FakeCluster()
        self.calls: list[asyncio.Task[object]] = []
        self.reigns = 0
        self.begun_most = 0
        """How many mutations had begun and gave way to one another, at most."""

    @property
    def controller(self) -> Controller:
        assert self.cluster.controller is not None
        return self.cluster.controller

    async def begin(self) -> None:
        await self.cluster.begin(1, 2, 3)
        await self.next_reign()

    async def next_reign(self) -> None:
        await self.cluster.end_reign()
        self.reigns += 1
        await self.cluster.reign(self.reigns, corrections_interval_s=0.02)

    def call(self, wanted: Awaitable[object]) -> None:
        self.calls.append(asyncio.ensure_future(_outcome(wanted)))

    async def happen(self) -> None:
        chance, controller, account = self.chance, self.controller, self.chance.choice(CALLERS)
        names = chance.sample(NAMES, chance.randint(1, len(NAMES)))
        match chance.choice(["create", "create", "delete", "add", "remove", "wait", "wait", "reign"]):
            case "create":
                # More partitions than one step writes, so that others come in between.
                wanted = [
                    TopicRequest(
                        name=name,
                        partitions=chance.choice((1, 5, 700)),
                        replication_factor=2,
                        assignment=(),
                        mutation=None,
                    )
                    for name in names
                ]
                self.call(controller.topics.create(wanted, validate_only=False, wait_s=PATIENCE_S, account=account))
            case "delete":
                gone = [DeletionRequest(name=name, topic_id="", mutation=None) for name in names]
                self.call(controller.topics.delete(gone, wait_s=PATIENCE_S, account=account))
            case "add":
                more = AdditionRequest(name=names[0], total=chance.randint(2, 9), assignment=(), mutation=None)
                self.call(controller.partitions.add([more], validate_only=False, wait_s=PATIENCE_S, account=account))
            case "remove":
                less = RemovalRequest(name=names[0], topic_id="", partitions=range(3, 5), mutation=None)
                self.call(controller.partitions.remove([less], validate_only=False, wait_s=PATIENCE_S, account=account))
            case "reign" if chance.random() < 0.2:
                await self.next_reign()
            case _:
                for _ in range(chance.randint(1, 60)):
                    await asyncio.sleep(0)
                    self.begun_most = max(self.begun_most, len(self.controller.queue._mutations._begun))

    def is_idle(self) -> bool:
        return self.controller.queue.is_empty and self.controller._in_hand is None

    async def come_to_rest(self) -> None:
        await until(lambda: all(call.done() for call in self.calls), what="every caller has an answer")
        context = self.controller._context
        await until(lambda: not (len(context.removals) or context.removals.begun), what="removals confirmed")
        await until(lambda: not len(context.deletions), what="deletions confirmed")
        await until(lambda: not context.clearing, what="names are free")
        await until(self.is_idle)


async def _outcome(wanted: Awaitable[object]) -> object:
    try:
        return await wanted
    except RegnumError as error:
        # Cut off with a reign, or too late: a caller does not know what became of it.
        return error


@pytest.fixture
async def crowds() -> AsyncIterator[list[Crowd]]:
    crowds: list[Crowd] = []
    yield crowds
    for crowd in crowds:
        await crowd.cluster.close()


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_whoever_comes_between_whose_steps_store_and_picture_agree_and_nothing_is_left_half_done(
    crowds: list[Crowd], seed: int
) -> None:
    crowd = Crowd(seed)
    crowds.append(crowd)
    await crowd.begin()
    steps = 0
    while steps < STEPS or (crowd.begun_most < 2 and steps < STEPS_MAX):
        await crowd.happen()
        steps += 1
    await crowd.come_to_rest()
    assert crowd.begun_most > 1
    await check_rest(crowd)


async def check_rest(crowd: Crowd) -> None:
    cluster, picture = crowd.cluster, crowd.controller.picture
    assert set((await cluster.outside.children(paths.TOPICS)).names) == set(picture.names)
    assert (await cluster.outside.children(paths.DELETE_TOPICS)).names == ()
    assert set((await cluster.outside.children(paths.TOPIC_IDS)).names) == set(picture.topics)
    for name, id in picture.names.items():
        node = await cluster.topic(name)
        assert node.topic_id == id
        assert not node.creating, f"{name} is marked for ever"
        assert tuple(sorted(node.partitions)) == picture.topics[id].partitions
        for number in node.partitions:
            held = picture.partitions[PartitionKey(id, number)].held
            assert held is not None
            assert held.state.leader in held.state.isr
    led = [crowd.controller._context.dispatch.is_led(key) for key in picture.partitions]
    assert all(led)
