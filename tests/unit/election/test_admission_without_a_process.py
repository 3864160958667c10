"""Topics against quotas while the quota process hangs, is replaced or is gone (safety rule S21)."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest
from regnum.quota.v1 import quota_pb2
from regnum.types.v1 import errors_pb2
from regnum_election.admission.admissions import MUTATIONS_PER_CALL, PATIENCE_S, PROBE_INTERVAL_S, Cost
from regnum_election.admission.quota_channel import GrpcQuotaChannel
from regnum_election.admission.stand_in import Verdict
from regnum_election.reign.events import MUTATIONS_MAX, Mutation
from regnum_election.topics.requests import TopicRequest
from regnum_model.bucket import Limit
from regnum_model.nodes import Address
from regnum_model.quota_matching import CLUSTER_KEY, BucketKey
from regnum_model.quota_terms import QuotaTermsNode
from regnum_model.quotas import DEFAULT, QUOTA_TERMS, QuotaEntity
from regnum_service.errors import RegnumError
from regnum_testing.clock import settle
from regnum_testing.quota_world import APP, THROTTLED, QuotaWorld, codes, made
from regnum_testing.reigning import ANYBODY
from regnum_testing.waiting import DEADLINE_S, until


@pytest.fixture
async def world() -> AsyncIterator[QuotaWorld]:
    world = QuotaWorld()
    yield world
    await world.close()


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


async def test_the_stand_in_judges_what_waits_in_parts_with_turns_of_the_loop_between(world: QuotaWorld) -> None:
    """Safety rule S22: all that waited was judged in one turn, 2,000 mutations for each of many calls."""
    await world.begin()
    await world.set_quota(5.0, 50.0)
    first = asyncio.create_task(world.create(["a"]))
    while not first.done():
        await world.clock.advance(PATIENCE_S)
    admissions = world.controller.quotas.admissions
    assert admissions.stands_in
    turns = 0
    decided_in: list[int] = []

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def asked(_: int, verdict: "asyncio.Future[Verdict]") -> None:
        verdict.add_done_callback(lambda _: decided_in.append(turns))

    costs = [Cost(name="t", permits=1)] * MUTATIONS_PER_CALL
    counting = asyncio.create_task(count())
    await asyncio.gather(*(admissions.judge(APP, costs, asked) for _ in range(10)))
    counting.cancel()
    assert len(decided_in) == len(set(decided_in)) == 10


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


async def test_exempt_users_stay_exempt_while_no_process_answers(world: QuotaWorld) -> None:
    """Also when neither that process nor this reign's predecessor is there to ask."""
    await world.begin()
    await world.set_quota(1.0, 1.0)
    data = QuotaTermsNode(exempt_users=frozenset({"ANONYMOUS"})).encode()
    outside = world.cluster.outside
    await outside.create(QUOTA_TERMS, data, make_parents=True)
    call = asyncio.create_task(world.create([f"a{number}" for number in range(40)]))
    await settle()
    await world.clock.advance(PATIENCE_S)
    assert made(await call) == 40
    assert world.controller.quotas.admissions.stands_in
    # What nobody can read changes nothing; a list without him ends it.
    await outside.set(QUOTA_TERMS, b"?", version=None)
    await settle()
    assert made(await world.create([f"b{number}" for number in range(40)])) == 40
    await outside.set(QUOTA_TERMS, b"", version=None)
    await settle()
    assert made(await world.create([f"c{number}" for number in range(40)])) <= 2


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
        # One turn: the first is taken and waits; the others stand in line.
        await asyncio.sleep(0)
    with pytest.raises(RegnumError) as raised:
        await world.create(["a"])
    assert raised.value.code == THROTTLED
    assert process.charged == {}
    go_on.set()
    await until(lambda: not world.controller.queue.is_full)
    assert made(await world.create(["a"])) == 1


async def test_a_call_to_a_process_that_was_replaced_is_refused_at_once() -> None:
    channel = GrpcQuotaChannel(1, Address(host="127.0.0.1", port=1))
    await channel.close()
    with pytest.raises(RegnumError, match="that quota process decides no more"):
        await channel.admit(quota_pb2.AdmitRequest(), timeout_s=1.0)
