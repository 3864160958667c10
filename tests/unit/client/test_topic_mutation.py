"""A call that a quota throttles: what is sent when, what becomes of each topic, and what the caller is told."""

import asyncio
from collections.abc import Sequence

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client.admin.carrying.throttle import Throttle
from regnum_client.admin.carrying.topic_mutation import Answered, TopicMutation, Waiting
from regnum_client.errors import ThrottlingQuotaExceededError
from regnum_model.bucket import Bucket, Limit, charge, full, is_exhausted, refill, wait_ms
from regnum_model.nodes import Address
from regnum_service.errors import Code, RegnumError
from regnum_testing.clock import FakeClock
from regnum_testing.waiting import within

THROTTLED = errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED


class Controller:
    """Admits topics of one partition each by a token bucket, and remembers who sent what when."""

    def __init__(self, clock: FakeClock, limit: Limit, *, taken: float = 0.0) -> None:
        self.clock = clock
        self.limit = limit
        self.bucket: Bucket = charge(full(limit, clock.monotonic()), limit, taken, clock.monotonic())
        self.created: dict[str, float] = {}
        self.calls: list[tuple[float, tuple[str, ...]]] = []
        self.not_before: dict[str, float] = {}
        self.failures: list[RegnumError | None] = []
        self.answers_once: dict[str, Code] = {}

    async def ask(self, _address: Address, names: Sequence[str], _timeout_ms: int) -> Answered[str]:
        now_s = self.clock.monotonic()
        self.calls.append((now_s, tuple(names)))
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        self.bucket = refill(self.bucket, self.limit, now_s)
        outcomes: dict[str, str | RegnumError] = {}
        for name in names:
            assert now_s >= self.not_before.get(name, 0.0) - 1e-6, f"{name} was sent before its wait was over"
            lie = self.answers_once.pop(name, None)
            if lie is not None:
                outcomes[name] = RegnumError(lie, "said the test")
            elif name in self.created:
                outcomes[name] = name
            elif is_exhausted(self.bucket):
                outcomes[name] = RegnumError(THROTTLED, "the quota is used up")
            else:
                self.bucket = charge(self.bucket, self.limit, 1, now_s)
                self.created[name] = now_s
                outcomes[name] = name
        throttle_ms = wait_ms(self.bucket, self.limit)
        for name, outcome in outcomes.items():
            if isinstance(outcome, RegnumError) and outcome.code == THROTTLED:
                self.not_before[name] = now_s + throttle_ms / 1000
        return Answered(topics=outcomes, throttle_ms=throttle_ms)


class Search:
    """Knows the controller, and the deadline."""

    def __init__(self, clock: FakeClock, timeout_s: float) -> None:
        self.clock = clock
        self.deadline_s = clock.monotonic() + timeout_s
        self.lost: RegnumError | None = None

    @property
    def left_s(self) -> float:
        return self.deadline_s - self.clock.monotonic()

    async def address(self) -> Address:
        if self.lost is not None:
            raise self.lost
        return Address(host="127.0.0.1", port=1)

    async def failed(self, _address: Address, error: RegnumError) -> None:
        if self.left_s <= 0:
            raise error
        await self.pause()

    async def pause(self) -> None:
        await self.clock.sleep(0.05)


class Scene:
    """One call against one controller."""

    def __init__(
        self, *, rate: float = 5.0, burst: float = 50.0, taken: float = 0.0, timeout_s: float = 1e6, retry: bool = True
    ) -> None:
        self.clock = FakeClock(start_s=1_000.0)
        self.began_s = self.clock.monotonic()
        self.controller = Controller(self.clock, Limit(rate=rate, burst=burst), taken=taken)
        self.search = Search(self.clock, timeout_s)
        self.waits: list[Waiting] = []
        self.mutation = TopicMutation(
            self.search,
            self.controller.ask,
            clock=self.clock,
            verb="created",
            retry_on_quota_violation=retry,
            on_wait=self.waits.append,
        )

    async def play(self, names: Sequence[str], *, for_s: float = 300.0) -> dict[str, str | RegnumError]:
        """Carry it out; fails when it takes longer than so many seconds of its clock."""
        work = asyncio.create_task(self.mutation.carry_out(names))
        await self.clock.advance(for_s)
        return await within(work)

    @property
    def sent(self) -> int:
        return sum(len(names) for _, names in self.controller.calls)


def topics(count: int) -> list[str]:
    return [f"t{number}" for number in range(count)]


async def test_five_hundred_topics_at_five_a_second_finish_by_waiting() -> None:
    scene = Scene()
    names = topics(500)
    answers = await scene.play(names)
    assert answers == {name: name for name in names}
    moments = sorted(scene.controller.created.values())
    took_s = moments[-1] - scene.began_s
    assert 89.0 <= took_s <= 91.5
    for number, moment in enumerate(moments, start=1):
        assert number <= 5.0 * (moment - scene.began_s) + 50 + 1 + 1e-6
    assert len(scene.controller.calls) <= 130, "not a round for each topic"
    assert scene.sent <= 500 + 130 * 13, "nor everything in every round"


async def test_a_call_that_no_quota_concerns_is_one_call() -> None:
    scene = Scene(rate=1e6, burst=1e6)
    await scene.play(topics(500), for_s=1.0)
    assert [len(names) for _, names in scene.controller.calls] == [500]
    assert scene.waits == []


async def test_one_topic_waits_as_long_as_it_was_told_and_no_longer() -> None:
    scene = Scene(taken=100.0)  # 50 in debt: ten seconds
    await scene.play(["t"])
    assert scene.controller.created["t"] - scene.began_s == pytest.approx(10.0, abs=0.01)
    assert len(scene.controller.calls) == 2
    assert scene.waits == [Waiting(done=0, waiting=1, refusals=1, wait_ms=10_000)]


async def test_a_raised_quota_is_used_at_once() -> None:
    """Batches grow while everything is admitted: 449 topics do not take 28 rounds of a second."""
    scene = Scene(rate=5.0, burst=50.0)
    work = asyncio.create_task(scene.mutation.carry_out(topics(500)))
    await scene.clock.advance(5.0)
    raised = len(scene.controller.calls)
    scene.controller.limit = Limit(rate=5_000.0, burst=50_000.0)
    await scene.clock.advance(1.5)
    assert len(await within(work)) == 500
    assert len(scene.controller.calls) - raised <= 12


async def test_the_deadline_leaves_the_refusal_and_the_rest_of_the_wait() -> None:
    """Not a time-out: 20 topics at 1 a second, of which five seconds allow a few."""
    scene = Scene(rate=1.0, burst=1.0, timeout_s=5.0)
    answers = await scene.play(topics(20))
    refused = [answer for answer in answers.values() if isinstance(answer, RegnumError)]
    assert 4 <= 20 - len(refused) <= 8
    assert len(answers) == 20
    for answer in refused:
        assert isinstance(answer, ThrottlingQuotaExceededError)
        assert 0 < answer.throttle_time_ms <= 1_000
        assert answer.retry_after_ms == answer.throttle_time_ms
        assert "regnum quotas" in answer.message
    assert scene.search.left_s <= 0 or all(moment < scene.search.deadline_s for moment, _ in scene.controller.calls)


async def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    scene = Scene(taken=100.0, timeout_s=5.0)
    answers = await scene.play(["t"], for_s=0.0)
    refused = answers["t"]
    assert isinstance(refused, ThrottlingQuotaExceededError)
    assert refused.throttle_time_ms == 10_000
    assert len(scene.controller.calls) == 1


async def test_without_retries_everything_is_sent_once() -> None:
    scene = Scene(retry=False)
    answers = await scene.play(topics(500), for_s=0.0)
    refused = [answer for answer in answers.values() if isinstance(answer, ThrottlingQuotaExceededError)]
    assert (len(refused), len(scene.controller.created)) == (449, 51)
    assert {answer.throttle_time_ms for answer in refused} == {200}
    assert len(scene.controller.calls) == 1


async def test_a_topic_with_an_open_outcome_does_not_wait_for_the_quota_of_others() -> None:
    """One is created without a leader yet; the others wait ten seconds for their quota."""
    scene = Scene(taken=50.0 - 1.0)
    scene.controller.answers_once["t0"] = errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT
    answers = await scene.play(["t0", "t1", "t2", "t3"])
    assert all(answer == name for name, answer in answers.items())
    soon = [moment - scene.began_s for moment, names in scene.controller.calls if "t0" in names]
    assert soon[:2] == pytest.approx([0.0, 0.05])


async def test_a_refusal_stays_a_refusal_when_the_controller_is_lost_meanwhile() -> None:
    scene = Scene(rate=1.0, burst=1.0, timeout_s=60.0)
    work = asyncio.create_task(scene.mutation.carry_out(topics(4)))
    await scene.clock.advance(0.1)
    scene.search.lost = RegnumError(errors_pb2.ERROR_CODE_NOT_CONTROLLER, "nobody knows one")
    await scene.clock.advance(60.0)
    answers = await within(work)
    assert [isinstance(answer, ThrottlingQuotaExceededError) for answer in answers.values()] == [False] * 2 + [True] * 2


async def test_what_may_have_been_done_is_not_called_refused() -> None:
    """Refused, sent again, and then no answer: its outcome is unknown."""
    scene = Scene(rate=1.0, burst=1.0, timeout_s=3.0)
    lost = RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "the connection broke")
    scene.controller.failures = [None, *[lost] * 100]
    answers = await scene.play(topics(4), for_s=10.0)
    assert [answers["t0"], answers["t1"]] == ["t0", "t1"]
    for name in ("t2", "t3"):
        unknown = answers[name]
        assert isinstance(unknown, RegnumError)
        assert unknown.code == errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE


async def test_a_call_that_fails_as_a_whole_raises() -> None:
    scene = Scene(timeout_s=1.0)
    scene.controller.failures = [RegnumError(errors_pb2.ERROR_CODE_NOT_CONTROLLER, "ask another")] * 100
    with pytest.raises(RegnumError, match="ask another"):
        await scene.play(topics(3), for_s=2.0)


async def test_nothing_is_sent_when_there_is_no_time_for_an_answer() -> None:
    scene = Scene(rate=1.0, burst=1.0, timeout_s=1.1)
    answers = await scene.play(topics(3))
    assert isinstance(answers["t2"], ThrottlingQuotaExceededError)
    assert len(scene.controller.calls) == 1


async def test_a_burst_smaller_than_a_seconds_flow_is_noticed() -> None:
    """Longer waits would lose tokens: a bucket of 1 is full after a fifth of a second."""
    scene = Scene(rate=5.0, burst=1.0)
    await scene.play(topics(100))
    took_s = max(scene.controller.created.values()) - scene.began_s
    assert 19.6 <= took_s <= 1.25 * 19.6


def test_a_wait_is_not_stretched_beyond_the_deadline() -> None:
    throttle = Throttle()
    throttle.answered(admitted=9, refused=5, waiting=5, throttle_ms=200, now_s=0.0, deadline_s=60.0)
    assert throttle.resume_s == pytest.approx(0.2)
    throttle.answered(admitted=45, refused=5, waiting=5, throttle_ms=200, now_s=9.0, deadline_s=60.0)
    assert throttle.resume_s == pytest.approx(9.9)
    throttle.answered(admitted=5, refused=5, waiting=5, throttle_ms=200, now_s=9.9, deadline_s=10.5)
    assert throttle.resume_s == pytest.approx(10.1)
