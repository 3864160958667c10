"""Topics against quotas: what is charged, and what is refused."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest
from regnum.types.v1 import errors_pb2
from regnum_election.decisions.rejection import Rejection
from regnum_election.reign.events import Mutation
from regnum_election.topics.deletion import Deleted
from regnum_election.topics.requests import DeletionRequest, TopicRequest
from regnum_model import paths
from regnum_model.quota_matching import CLUSTER_KEY
from regnum_model.quotas import QuotaEntity
from regnum_telemetry.instruments import election as instruments
from regnum_testing.clock import settle
from regnum_testing.quota_world import OLD, THROTTLED, QuotaWorld, codes, made
from regnum_testing.reigning import ANYBODY
from regnum_testing.waiting import DEADLINE_S, until


@pytest.fixture
async def world() -> AsyncIterator[QuotaWorld]:
    world = QuotaWorld()
    yield world
    await world.close()


async def test_without_quotas_nobody_is_asked(world: QuotaWorld) -> None:
    await world.begin()
    process = await world.start_process()
    answered = await world.create(["a", "b"], partitions=100)
    assert (made(answered), answered.throttle_ms) == (2, 0)
    assert process.requests == []
    assert world.controller.quotas.admissions.absences == 0


async def test_a_burst_is_admitted_as_far_as_the_bucket_goes(world: QuotaWorld) -> None:
    """500 topics in ten calls at 5/s with a burst of 50: what is refused leaves nothing anywhere."""
    await world.begin()
    await world.start_process()
    await world.set_quota(5.0, 50.0)
    calls = [[f"t{call}-{number}" for number in range(50)] for call in range(10)]
    answers = await asyncio.gather(*(world.create(names) for names in calls))
    admitted = sum(made(answered) for answered in answers)
    # No time passes: the burst, and the one that goes into debt.
    assert admitted == 51
    names = [name for call in calls for name in call]
    outcomes = [outcome for answered in answers for outcome in answered.outcomes]
    refused = [name for name, outcome in zip(names, outcomes, strict=True) if isinstance(outcome, Rejection)]
    assert all(outcome.code == THROTTLED for outcome in outcomes if isinstance(outcome, Rejection))
    assert set((await world.cluster.outside.children(paths.TOPICS)).names) == set(names) - set(refused)
    assert len((await world.cluster.outside.children(paths.TOPIC_IDS)).names) == 51
    assert set(world.controller.picture.names) == set(names) - set(refused)
    waits = {answered.throttle_ms for answered in answers if made(answered) < 50}
    # One token of debt at 5/s.
    assert waits == {200}
    message = next(outcome.message for outcome in outcomes if isinstance(outcome, Rejection))
    assert "try again in 200 ms" in message
    world.clock.skip(10.2)
    assert made(await world.create(refused[:60])) == 51


async def test_what_is_admitted_and_what_is_throttled_is_counted_with_who_decided(world: QuotaWorld) -> None:
    await world.begin()
    process = await world.start_process()
    await world.set_quota(5.0, 50.0)
    admitted = made(await world.create([f"a{number}" for number in range(60)]))
    assert _decisions(world) == {("admitted", "quota"): admitted, ("throttled", "quota"): 60 - admitted}
    process.leave()
    world.clock.skip(100.0)
    here = asyncio.create_task(world.create(["b1", "b2"]))
    while not here.done():
        await world.clock.advance(0.1)
    assert made(await here) == 2
    assert _decisions(world)["admitted", "controller"] == 2


def _decisions(world: QuotaWorld) -> dict[tuple[str, ...], float]:
    (reading,) = [one for one in world.metrics.read() if one.instrument is instruments.ADMISSIONS]
    return dict(reading.numbers)


async def test_requests_that_wait_go_together(world: QuotaWorld) -> None:
    await world.begin()
    process = await world.start_process()
    await world.set_quota(1_000.0, 1_000.0)
    process.held = asyncio.Event()
    callers = [asyncio.create_task(world.create(["first"]))]
    await until(lambda: process.in_flight == 1)
    callers.extend(asyncio.create_task(world.create([f"t{number}"])) for number in range(19))
    await settle()
    process.held.set()
    await asyncio.gather(*callers)
    assert [len(request.admissions) for request in process.requests] == [1, 19]
    assert process.in_flight_max == 1


async def test_what_would_be_refused_anyway_and_what_is_only_checked_costs_nothing(world: QuotaWorld) -> None:
    await world.begin()
    process = await world.start_process()
    await world.set_quota(5.0, 50.0)
    await world.create(["a"], partitions=10)
    invalid = await world.create(["a", "bad name", "b", "b"], partitions=10)
    assert codes(invalid.outcomes) == [
        errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS,
        errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION,
        errors_pb2.ERROR_CODE_INVALID_REQUEST,
        errors_pb2.ERROR_CODE_INVALID_REQUEST,
    ]
    assert made(await world.create(["c"], partitions=10_000, validate_only=True)) == 1
    assert codes((await world.delete(["nothing"])).outcomes) == [errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION]
    assert process.tokens(CLUSTER_KEY) == 40
    mixed = await world.create(["a", "d"], partitions=10)
    assert codes(mixed.outcomes) == [errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS, 0]
    assert process.tokens(CLUSTER_KEY) == 30


async def test_a_repeat_is_answered_and_not_charged(world: QuotaWorld) -> None:
    """Safety rule S20: also while the first one still waits for its turn."""
    await world.begin()
    process = await world.start_process()
    await world.set_quota(5.0, 50.0)
    requests = [TopicRequest(name="t", partitions=10, replication_factor=1, assignment=(), mutation="m1")]

    def call() -> "asyncio.Task[object]":
        creating = world.controller.topics.create(requests, validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
        return asyncio.create_task(creating)

    go_on = asyncio.Event()

    async def busy() -> AsyncGenerator[None, None]:
        await go_on.wait()
        yield

    world.controller.queue.put_mutation(Mutation(name="busy", steps=busy(), abandon=lambda: None))
    first = call()
    await until(lambda: len(process.charged) == 1)
    await settle()
    second = call()
    await settle()
    go_on.set()
    one, two = await first, await second
    assert one == two
    assert await call() == one
    assert process.tokens(CLUSTER_KEY) == 40
    deletion = [DeletionRequest(name="t", topic_id="", mutation="m2")]
    for _ in range(2):
        deleted = await world.controller.topics.delete(deletion, wait_s=DEADLINE_S, account=ANYBODY)
        assert isinstance(deleted.outcomes[0], Deleted)
    assert process.tokens(CLUSTER_KEY) == 30


async def test_a_mutation_pays_for_nothing_but_itself(world: QuotaWorld) -> None:
    """A deletion under the id of a creation that is on its way is charged."""
    await world.begin()
    process = await world.start_process()
    await world.set_quota(5.0, 50.0)
    store = world.cluster.controller_store
    assert store is not None
    held = world.cluster.server.hold_write(session_id=store.session_id, touching=paths.leader_and_isr("t", 0))
    creation = [TopicRequest(name="t", partitions=10, replication_factor=1, assignment=(), mutation="m")]
    deletion = [DeletionRequest(name="t", topic_id="", mutation="m")]
    topics = world.controller.topics
    creating = asyncio.create_task(topics.create(creation, validate_only=False, wait_s=DEADLINE_S, account=ANYBODY))
    await held.arrived.wait()
    deleting = asyncio.create_task(topics.delete(deletion, wait_s=DEADLINE_S, account=ANYBODY))
    await settle()
    assert not creating.done()
    assert [permits for _, permits in sorted(process.charged.items())] == [10, 10]
    while not (creating.done() and deleting.done()):
        await world.clock.advance(1.0)
    assert isinstance((await deleting).outcomes[0], Deleted)
    await creating


async def test_a_throttle_time_shrinks_until_the_answer_goes_out(world: QuotaWorld) -> None:
    await world.begin()
    await world.start_process()
    await world.set_quota(2.0, 20.0)
    go_on = asyncio.Event()
    for broker in world.cluster.brokers.values():
        broker.held = go_on
    creating = asyncio.create_task(world.create(["a"], partitions=60, account=OLD))
    await until(lambda: "a" in world.controller.picture.names)
    await settle()
    await world.clock.advance(3.0)
    assert not creating.done()
    go_on.set()
    answered = await creating
    assert (made(answered), answered.throttle_ms) == (1, 17_000)


async def test_a_repeat_beside_a_refused_request_is_refused_too(world: QuotaWorld) -> None:
    await world.begin()
    process = await world.start_process()
    await world.set_quota(5.0, 50.0)
    await world.create(["a"], partitions=60)
    request = TopicRequest(name="t", partitions=10, replication_factor=1, assignment=(), mutation="m1")
    process.held = asyncio.Event()
    calls = [
        asyncio.create_task(
            world.controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
        )
        for _ in range(3)
    ]
    await until(lambda: process.in_flight == 1)
    process.held.set()
    for call in calls:
        assert codes((await call).outcomes) == [THROTTLED]
    assert "t" not in world.controller.picture.names


async def test_the_refused_do_not_wait_for_the_controller_and_stay_refused(world: QuotaWorld) -> None:
    """A repeat of what was refused is no repeat of what was paid for beside it."""
    await world.begin()
    process = await world.start_process()
    await world.set_quota(5.0, 5.0)
    go_on = asyncio.Event()

    async def busy() -> AsyncGenerator[None, None]:
        await go_on.wait()
        yield

    world.controller.queue.put_mutation(Mutation(name="busy", steps=busy(), abandon=lambda: None))
    paid, refused = (
        TopicRequest(name=name, partitions=10, replication_factor=1, assignment=(), mutation=f"m-{name}")
        for name in ("paid", "refused")
    )

    async def call(*requests: TopicRequest) -> list[int]:
        answered = await world.controller.topics.create(
            requests, validate_only=False, wait_s=DEADLINE_S, account=ANYBODY
        )
        return codes(answered.outcomes)

    first = asyncio.create_task(call(paid, refused))
    await until(lambda: len(process.charged) == 1)
    await settle()
    assert await call(refused) == [THROTTLED]
    assert not first.done()
    go_on.set()
    assert await first == [0, THROTTLED]
    assert set(world.controller.picture.names) == {"paid"}


async def test_old_versions_are_admitted_and_told_to_wait(world: QuotaWorld) -> None:
    await world.begin()
    process = await world.start_process()
    await world.set_quota(2.0, 20.0)
    answered = await world.create(["a", "b"], partitions=30, account=OLD)
    assert (made(answered), answered.throttle_ms) == (2, 20_000)
    assert process.tokens(CLUSTER_KEY) == -40
    deleted = await world.delete(["a"], account=OLD)
    assert (codes(deleted.outcomes), deleted.throttle_ms) == ([0], 35_000)
    refused = await world.delete(["b"])
    assert (codes(refused.outcomes), refused.throttle_ms) == ([THROTTLED], 35_000)
    assert "b" in world.controller.picture.names


async def test_deletions_cost_their_partitions_and_a_topic_is_named_once(world: QuotaWorld) -> None:
    await world.begin()
    await world.start_process()
    await world.set_quota(1.0, 50.0)
    await world.create(["a", "b"], partitions=20)
    answered = await world.delete(["a", "a", "b"])
    assert codes(answered.outcomes) == [0, errors_pb2.ERROR_CODE_INVALID_REQUEST, THROTTLED]
    assert answered.throttle_ms == 10_000
    assert set((await world.cluster.outside.children(paths.TOPICS)).names) == {"b"}


async def test_only_those_wait_for_whom_a_quota_counts(world: QuotaWorld) -> None:
    await world.begin()
    process = await world.start_process()
    await world.set_quota(1.0, 1.0, QuotaEntity(client_id="app"))
    process.hangs = True
    assert made(await world.create(["a"], partitions=100)) == 1
    assert process.requests == []
