"""Mutations that were charged and whose callers went away, or found no room: a repeat does not pay again (S20)."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

import pytest
from regnum_election.admission.admissions import Cost
from regnum_election.admission.stand_in import Account
from regnum_election.partitions.requests import AdditionRequest, RemovalRequest
from regnum_election.reign.events import MUTATIONS_MAX, Mutation, nobody_waits
from regnum_election.topics.charging import LEFT_MAX, Charging, Kind, Mark, mark_of
from regnum_election.topics.requests import DeletionRequest, TopicRequest
from regnum_model.quota_matching import CLUSTER_KEY
from regnum_service.errors import RegnumError
from regnum_testing.clock import settle
from regnum_testing.fake_quota_process import FakeQuotaProcess
from regnum_testing.quota_world import QuotaWorld, codes
from regnum_testing.reigning import ANYBODY
from regnum_testing.waiting import DEADLINE_S, until

BURST = 50.0
PARTITIONS = 10
"""Of the topic, and what each of the mutations costs."""

Call = Callable[[QuotaWorld, str, Account], Awaitable[list[int]]]
"""A mutation by its id; the codes of its outcomes."""


async def create(world: QuotaWorld, mutation: str, account: Account) -> list[int]:
    wanted = TopicRequest(name="new", partitions=PARTITIONS, replication_factor=1, assignment=(), mutation=mutation)
    topics = world.controller.topics
    return codes((await topics.create([wanted], validate_only=False, wait_s=DEADLINE_S, account=account)).outcomes)


async def delete(world: QuotaWorld, mutation: str, account: Account) -> list[int]:
    wanted = DeletionRequest(name="t", topic_id="", mutation=mutation)
    return codes((await world.controller.topics.delete([wanted], wait_s=DEADLINE_S, account=account)).outcomes)


async def add(world: QuotaWorld, mutation: str, account: Account) -> list[int]:
    wanted = AdditionRequest(name="t", total=2 * PARTITIONS, assignment=(), mutation=mutation)
    partitions = world.controller.partitions
    return codes((await partitions.add([wanted], validate_only=False, wait_s=DEADLINE_S, account=account)).outcomes)


async def remove(world: QuotaWorld, mutation: str, account: Account) -> list[int]:
    numbers = tuple(range(1, PARTITIONS))
    wanted = RemovalRequest(name="t", topic_id="", partitions=numbers, mutation=mutation)
    partitions = world.controller.partitions
    return codes((await partitions.remove([wanted], validate_only=False, wait_s=DEADLINE_S, account=account)).outcomes)


EACH = pytest.mark.parametrize(("call", "cost"), [(create, 10), (delete, 10), (add, 10), (remove, 9)])


@pytest.fixture
async def world() -> AsyncIterator[QuotaWorld]:
    world = QuotaWorld()
    await world.begin()
    await world.create(["t"], partitions=PARTITIONS)
    yield world
    await world.close()


async def limited(world: QuotaWorld) -> FakeQuotaProcess:
    """A quota process that answers when the test says so."""
    process = await world.start_process()
    await world.set_quota(5.0, BURST)
    process.held = asyncio.Event()
    return process


async def gone(calling: "asyncio.Task[list[int]]") -> None:
    calling.cancel()
    await asyncio.wait([calling])
    assert calling.cancelled()


@EACH
async def test_whose_caller_went_while_the_quota_process_was_at_it_is_charged_once(
    world: QuotaWorld, call: Call, cost: int
) -> None:
    process = await limited(world)
    first = asyncio.create_task(call(world, "m", ANYBODY))
    await until(lambda: process.in_flight == 1)
    await gone(first)
    assert process.held is not None
    process.held.set()
    await until(lambda: bool(process.charged))
    await settle()
    assert await call(world, "m", ANYBODY) == [0]
    assert process.tokens(CLUSTER_KEY) == BURST - cost


@EACH
async def test_a_repeat_that_comes_while_the_quota_process_is_at_the_first_is_not_charged(
    world: QuotaWorld, call: Call, cost: int
) -> None:
    process = await limited(world)
    first = asyncio.create_task(call(world, "m", ANYBODY))
    await until(lambda: process.in_flight == 1)
    await gone(first)
    repeats = [asyncio.create_task(call(world, "m", ANYBODY)) for _ in range(2)]
    await settle()
    assert process.held is not None
    process.held.set()
    answers = [await one for one in repeats]
    assert [0] in answers
    assert process.tokens(CLUSTER_KEY) == BURST - cost


@EACH
async def test_that_the_full_queue_did_not_take_is_charged_once(world: QuotaWorld, call: Call, cost: int) -> None:
    process = await limited(world)
    go_on = asyncio.Event()

    async def busy() -> AsyncGenerator[None, None]:
        await go_on.wait()
        return
        yield

    first = asyncio.create_task(call(world, "m", ANYBODY))
    await until(lambda: process.in_flight == 1)
    # One is taken at once and stands still.
    for number in range(MUTATIONS_MAX + 1):
        world.controller.queue.put_mutation(Mutation(name=str(number), steps=busy(), abandon=nobody_waits))
        await asyncio.sleep(0)
    assert process.held is not None
    process.held.set()
    with pytest.raises(RegnumError, match="too many requests wait"):
        await first
    go_on.set()
    await until(lambda: world.controller.queue.is_empty)
    assert await call(world, "m", ANYBODY) == [0]
    assert process.tokens(CLUSTER_KEY) == BURST - cost


async def test_whose_caller_went_before_the_quota_process_was_asked_is_never_charged(world: QuotaWorld) -> None:
    process = await limited(world)
    first = asyncio.create_task(create(world, "first", ANYBODY))
    await until(lambda: process.in_flight == 1)
    second = asyncio.create_task(delete(world, "second", ANYBODY))
    await settle()
    await gone(second)
    assert process.held is not None
    process.held.set()
    assert await first == [0]
    assert process.tokens(CLUSTER_KEY) == BURST - 10
    assert len(process.requests) == 1


async def test_a_caller_that_went_is_held_up_all_the_same(world: QuotaWorld) -> None:
    process = await limited(world)
    held_up: list[float] = []
    old = Account(user="ANONYMOUS", client_id="", strict=False, hold_up=held_up.append)
    wanted = TopicRequest(name="new", partitions=60, replication_factor=1, assignment=(), mutation=None)
    creating = world.controller.topics.create([wanted], validate_only=False, wait_s=DEADLINE_S, account=old)
    first = asyncio.create_task(creating)
    await until(lambda: process.in_flight == 1)
    first.cancel()
    await asyncio.wait([first])
    assert process.held is not None
    process.held.set()
    await until(lambda: held_up == [2.0])
    assert "new" not in world.controller.picture.names


def test_of_what_was_left_the_oldest_is_forgotten_and_each_is_taken_up_once(world: QuotaWorld) -> None:
    charging = Charging(world.controller._context, world.controller.quotas.admissions)
    marks = [
        mark
        for number in range(LEFT_MAX + 1)
        if (mark := mark_of(Kind.CREATION, Cost(name="t", permits=1), str(number), ANYBODY)) is not None
    ]
    charging.leave(marks)
    taken: list[Mark] = []
    assert not charging.is_paid(marks[0], taken), "the oldest"
    assert charging.is_paid(marks[1], taken)
    assert taken == [marks[1]]
    charging.release([marks[1]])
    assert not charging.is_paid(marks[1], taken)
