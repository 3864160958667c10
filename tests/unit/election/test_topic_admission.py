"""Topics against quotas: what is charged, what is refused, and who never waits for the quota process."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest
from regnum.quota.v1 import quota_pb2
from regnum.types.v1 import errors_pb2
from regnum_election.admission.admissions import PATIENCE_S, PROBE_INTERVAL_S
from regnum_election.admission.quota_channel import GrpcQuotaChannel
from regnum_election.admission.stand_in import Account
from regnum_election.decisions.deletion import Removal
from regnum_election.decisions.rejection import Rejection
from regnum_election.partitions.addition import AdditionOutcome
from regnum_election.partitions.requests import AdditionRequest, RemovalRequest
from regnum_election.reign.events import MUTATIONS_MAX, Mutation
from regnum_election.topics.charging import Answered
from regnum_election.topics.deletion import Deleted
from regnum_election.topics.requests import DeletionRequest, TopicRequest
from regnum_model import paths
from regnum_model.bucket import Limit
from regnum_model.ids import BrokerId, LeaderEpoch, PartitionKey
from regnum_model.nodes import Address, PartitionDeletionNode
from regnum_model.quota_matching import CLUSTER_KEY, BucketKey
from regnum_model.quotas import DEFAULT, QuotaEntity
from regnum_service.errors import RegnumError
from regnum_telemetry import instruments
from regnum_testing.clock import settle
from regnum_testing.quota_world import QuotaWorld, made
from regnum_testing.reigning import ANYBODY, until
from regnum_testing.waiting import DEADLINE_S

OLD = Account(user="ANONYMOUS", client_id="", strict=False)
APP = Account(user="ANONYMOUS", client_id="app", strict=True)


@pytest.fixture
async def world() -> AsyncIterator[QuotaWorld]:
    world = QuotaWorld()
    yield world
    await world.close()


def codes(outcomes: tuple[object, ...]) -> list[int]:
    return [outcome.code if isinstance(outcome, Rejection) else 0 for outcome in outcomes]


THROTTLED = errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED


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


async def test_a_broker_failure_does_not_wait_for_a_hanging_quota_process(world: QuotaWorld) -> None:
    await world.begin()
    process = await world.start_process()
    await world.set_quota(5.0, 50.0)
    topic = TopicRequest(name="t", partitions=6, replication_factor=3, assignment=(), mutation=None)
    await world.controller.topics.create([topic], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    process.hangs = True
    waiting = [asyncio.create_task(world.create([f"w{number}"])) for number in range(30)]
    await until(lambda: process.in_flight == 1)
    world.cluster.kill(1)

    async def led() -> bool:
        states = [await world.cluster.state("t", number) for number in range(6)]
        return all(state.leader in {2, 3} for state in states)

    # The clock stands still: whoever waits for the quota process waits on.
    await until(led, what="leadership moved")
    assert not any(call.done() for call in waiting)
    assert process.in_flight == 1
    await world.clock.advance(PATIENCE_S)
    answers = await asyncio.gather(*waiting)
    assert all(made(answered) == 1 for answered in answers)


async def test_a_lost_answer_is_not_charged_twice(world: QuotaWorld) -> None:
    await world.begin()
    process = await world.start_process()
    await world.set_quota(5.0, 50.0)
    process.loses_answers = 1
    call = asyncio.create_task(world.create(["a"], partitions=10))
    await until(lambda: len(process.requests) == 1)
    await settle()
    await world.clock.advance(0.1)
    assert made(await call) == 1
    first, second = (request.admissions[0].request_id for request in process.requests)
    assert first == second
    assert process.tokens(CLUSTER_KEY) == pytest.approx(40.5)
    assert world.controller.quotas.admissions.absences == 0


async def test_the_next_process_is_asked_with_the_same_ids_and_knows_the_tokens(world: QuotaWorld) -> None:
    await world.begin()
    first = await world.start_process(1)
    await world.set_quota(5.0, 50.0)
    await world.set_quota(100.0, 1_000.0, QuotaEntity(user=DEFAULT))
    await world.create(["a"], partitions=60)
    await world.clock.advance(1.0)
    first.hangs = True
    call = asyncio.create_task(world.create(["b"]))
    await until(lambda: first.in_flight == 1)
    first.leave()
    second = await world.start_process(2)
    # The clock stands still: the call to the first one never ends.
    await until(lambda: len(second.requests) == 1)
    known = {
        BucketKey(state.key.user or None, state.key.client_id or None): (state.tokens, state.age_ms)
        for state in second.requests[0].known
    }
    assert known == {CLUSTER_KEY: (-10.0, 1_000), BucketKey("ANONYMOUS", None): (940.0, 1_000)}
    answered = await call
    assert codes(answered.outcomes) == [THROTTLED]
    assert answered.throttle_ms == 1_000
    await world.create(["c"])
    assert len(second.requests[1].known) == 0
    assert world.controller.quotas.admissions.absences == 0


async def test_the_controller_judges_while_no_process_answers(world: QuotaWorld) -> None:
    """Rate x time + burst + one request holds over the change, and the next process knows what happened."""
    await world.begin()
    first = await world.start_process(1)
    await world.set_quota(5.0, 50.0, QuotaEntity(user=DEFAULT))
    assert made(await world.create([f"a{number}" for number in range(40)])) == 40
    first.leave()
    first.dead = True
    call = asyncio.create_task(world.create([f"b{number}" for number in range(40)]))
    await settle()
    await world.clock.advance(PATIENCE_S)
    # 10 left, 5 for the second that the callers waited, and the one that goes into debt.
    assert made(await call) == 16
    admissions = world.controller.quotas.admissions
    assert (admissions.absences, admissions.stands_in) == (1, True)
    # Nobody waits any more.
    refused = await world.create([f"c{number}" for number in range(40)])
    assert (made(refused), refused.throttle_ms) == (0, 200)
    await world.clock.advance(2.0)
    assert made(await world.create([f"d{number}" for number in range(40)])) == 10
    second = await world.start_process(2)
    await until(lambda: not admissions.stands_in, what="the second process answers")
    assert second.tokens(BucketKey("ANONYMOUS", None)) == -1
    assert made(await world.create([f"e{number}" for number in range(40)])) == 0
    await world.clock.advance(0.2)
    assert made(await world.create([f"f{number}" for number in range(40)])) == 1


async def test_a_process_that_comes_back_is_told_what_was_charged_meanwhile(world: QuotaWorld) -> None:
    await world.begin()
    process = await world.start_process(1)
    await world.set_quota(1.0, 50.0)
    await world.create(["a"], partitions=20)
    process.hangs = True
    call = asyncio.create_task(world.create(["b"], partitions=25))
    await until(lambda: process.in_flight == 1)
    await world.clock.advance(PATIENCE_S)
    assert made(await call) == 1
    process.hangs = False
    await world.clock.advance(PATIENCE_S + PROBE_INTERVAL_S)
    await until(lambda: not world.controller.quotas.admissions.stands_in)
    (state,) = process.requests[-1].known
    assert state.tokens == 50 - 20 + 1 - 25
    # The clock moved on by as much as it takes until the next look.
    assert process.tokens(CLUSTER_KEY) == pytest.approx(6 + PATIENCE_S + PROBE_INTERVAL_S, abs=1.5)
    await world.create(["c"])
    assert len(process.requests[-1].known) == 0


async def test_what_the_next_process_is_told_has_grown_at_the_rates_of_the_time(world: QuotaWorld) -> None:
    await world.begin()
    first = await world.start_process(1)
    await world.set_quota(1.0, 50.0)
    await world.create(["a"], partitions=150)
    assert first.tokens(CLUSTER_KEY) == -100
    world.clock.skip(10.0)
    await world.set_quota(100.0, 1_000.0)
    first.leave()
    second = await world.start_process(2, starts_full=False)
    refused = await world.create(["b"])
    assert (codes(refused.outcomes), refused.throttle_ms) == ([THROTTLED], 900)
    assert second.tokens(CLUSTER_KEY) == pytest.approx(-90)


async def test_when_both_are_gone_the_bucket_starts_empty(world: QuotaWorld) -> None:
    """Safety rule S21: neither a new controller nor its stand-in hands out the burst again."""
    await world.begin()
    process = await world.start_process(1)
    await world.set_quota(5.0, 50.0)
    await world.create([f"a{number}" for number in range(51)])
    process.leave()
    await world.cluster.end_reign()
    await world.reign(2)
    call = asyncio.create_task(world.create([f"b{number}" for number in range(40)]))
    await settle()
    await world.clock.advance(PATIENCE_S)
    # Empty when the absence began, which is at the end of the wait.
    assert made(await call) == 1
    second = await world.start_process(2, starts_full=False)
    await until(lambda: not world.controller.quotas.admissions.stands_in)
    assert second.tokens(CLUSTER_KEY) == -1


async def test_a_quota_set_while_nobody_answers_starts_full(world: QuotaWorld) -> None:
    await world.begin(stand_in=Limit(rate=1_000.0, burst=1_000.0))
    await world.set_quota(1_000.0, 1_000.0)
    call = asyncio.create_task(world.create(["a"]))
    await settle()
    await world.clock.advance(PATIENCE_S)
    await call
    await world.clock.advance(1.0)
    await world.set_quota(1.0, 20.0, QuotaEntity(client_id="app"))
    assert made(await world.create([f"b{number}" for number in range(40)], account=APP)) == 21
    assert made(await world.create([f"c{number}" for number in range(40)])) == 40


async def test_an_answer_that_does_not_fit_is_no_answer(world: QuotaWorld) -> None:
    await world.begin()
    process = await world.start_process(1)
    await world.set_quota(5.0, 50.0)
    process.forgets_verdicts = True
    await world.create(["a"])
    assert world.controller.quotas.admissions.absences == 1


async def test_the_end_of_the_reign_answers_those_who_wait(world: QuotaWorld) -> None:
    await world.begin()
    process = await world.start_process(1)
    await world.set_quota(5.0, 50.0)
    process.hangs = True
    calls = [asyncio.create_task(world.create([f"a{number}"])) for number in range(3)]
    await until(lambda: process.in_flight == 1)
    former = world.controller
    await world.cluster.end_reign()
    for call in calls:
        with pytest.raises(RegnumError) as raised:
            await call
        assert raised.value.code == errors_pb2.ERROR_CODE_NOT_CONTROLLER
    request = TopicRequest(name="late", partitions=1, replication_factor=1, assignment=(), mutation=None)
    with pytest.raises(RegnumError) as raised:
        await former.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    assert raised.value.code == errors_pb2.ERROR_CODE_NOT_CONTROLLER


async def test_whoever_finds_the_queue_full_is_not_charged(world: QuotaWorld) -> None:
    await world.begin()
    process = await world.start_process(1)
    await world.set_quota(5.0, 50.0)
    go_on = asyncio.Event()

    async def busy() -> AsyncGenerator[None, None]:
        await go_on.wait()
        yield

    for _ in range(MUTATIONS_MAX + 1):
        world.controller.queue.put_mutation(Mutation(name="busy", steps=busy(), abandon=lambda: None))
        await asyncio.sleep(0)
    with pytest.raises(RegnumError) as raised:
        await world.create(["a"])
    assert raised.value.code == THROTTLED
    assert process.charged == {}
    go_on.set()
    await until(lambda: not world.controller.queue.is_full)
    assert made(await world.create(["a"])) == 1


async def test_a_call_to_a_process_that_was_replaced_is_refused_at_once() -> None:
    channel = GrpcQuotaChannel(Address(host="127.0.0.1", port=1))
    await channel.close()
    with pytest.raises(RegnumError, match="that quota process decides no more"):
        await channel.admit(quota_pb2.AdmitRequest(), timeout_s=1.0)


async def more(
    world: QuotaWorld,
    names: list[str],
    total: int,
    *,
    account: Account = ANYBODY,
    validate_only: bool = False,
    wait_s: float = DEADLINE_S,
) -> Answered[AdditionOutcome]:
    requests = [AdditionRequest(name=name, total=total, assignment=(), mutation=None) for name in names]
    return await world.controller.partitions.add(requests, validate_only=validate_only, wait_s=wait_s, account=account)


async def test_added_partitions_are_charged_with_what_is_new(world: QuotaWorld) -> None:
    """ControllerMutationQuotaTest: 2/s, a burst of 20, two topics from 1 to 31 partitions."""
    await world.begin()
    process = await world.start_process()
    await world.create(["a", "b", "c", "d"])
    await world.set_quota(2.0, 20.0)
    assert codes((await more(world, ["a"], 31, validate_only=True)).outcomes) == [0]
    assert codes((await more(world, ["a"], 1)).outcomes) == [errors_pb2.ERROR_CODE_INVALID_PARTITIONS]
    assert process.requests == [], "what is checked only, or refused anyway, costs nothing"
    strict = await more(world, ["a", "b"], 31)
    assert sorted(codes(strict.outcomes)) == [0, THROTTLED]
    assert strict.throttle_ms == 5_000
    assert process.tokens(CLUSTER_KEY) == -10
    assert len((await world.cluster.topic("b")).partitions) == 1
    world.clock.skip(5.0)
    assert codes((await more(world, ["b"], 31)).outcomes) == [0]
    # A caller that cannot understand a refusal is let in, and told to wait.
    world.clock.skip(25.0)
    permissive = await more(world, ["c", "d"], 31, account=OLD)
    assert codes(permissive.outcomes) == [0, 0]
    assert permissive.throttle_ms == 20_000


async def test_what_waits_for_removed_partitions_to_be_gone_is_not_charged(world: QuotaWorld) -> None:
    await world.begin()
    process = await world.start_process()
    await world.create(["a"], partitions=2)
    key = PartitionKey(world.controller.picture.names["a"], 1)
    # Some broker has not confirmed.
    node = PartitionDeletionNode(topic="a", brokers=frozenset({BrokerId(9)}), leader_epoch=LeaderEpoch(3))
    await world.set_quota(2.0, 20.0)
    gone = PartitionKey(key.topic_id, 2)
    world.controller._context.removals.add(Removal.recorded_as(gone, node, version=0))
    answered = await more(world, ["a"], 3, wait_s=0.6)
    assert codes(answered.outcomes) == [errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT]
    assert process.requests == []


async def test_removed_partitions_are_charged_too(world: QuotaWorld) -> None:
    await world.begin()
    process = await world.start_process()
    await world.create(["a"], partitions=10)
    await world.set_quota(2.0, 20.0)

    async def remove(*numbers: int, validate_only: bool = False) -> list[int]:
        request = RemovalRequest(name="a", topic_id="", partitions=numbers, mutation=None)
        answered = await world.controller.partitions.remove(
            [request], validate_only=validate_only, wait_s=DEADLINE_S, account=ANYBODY
        )
        return codes(answered.outcomes)

    assert await remove(8, 9, validate_only=True) == [0]
    assert await remove(0) == [errors_pb2.ERROR_CODE_INVALID_PARTITIONS]
    assert process.requests == []
    assert await remove(8, 9) == [0]
    assert process.tokens(CLUSTER_KEY) == 18
