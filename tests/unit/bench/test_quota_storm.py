"""``storm --quota``: what is worked out of the controller's histograms, and when a limit is not kept."""

import asyncio
import itertools
from types import SimpleNamespace

import pytest
from regnum.types.v1 import errors_pb2
from regnum_bench.figures import Round, spreads
from regnum_bench.quota_storm import PAIRS_MIN, PREFIX, _Operator, _p99_ms, storm_complaints
from regnum_bench.shape import Shape
from regnum_bench.waiting import MeasureError
from regnum_client import NewTopic
from regnum_client.admin.describing.quota_usage import QueueWait
from regnum_service.errors import RegnumError
from regnum_testing.clock import FakeClock
from regnum_testing.waiting import until


def waits(*counts: int) -> QueueWait:
    return QueueWait(bounds_s=(0.01, 0.05), counts=counts)


def _complaints(rounds: list[Round]) -> tuple[str, ...]:
    return storm_complaints(spreads(rounds))


def test_only_what_waited_meanwhile_counts_of_all_kinds_together() -> None:
    before = {"cluster": waits(5, 0, 9), "mutations": waits(0, 0, 0)}
    after = {"cluster": waits(55, 0, 9), "mutations": waits(49, 1, 0)}
    assert _p99_ms(before, after, *after) == 10.0
    assert _p99_ms(before, after, "mutations") == 50.0
    assert _p99_ms(after, after, *after) == 0.0
    assert _p99_ms(before, {"cluster": waits(5, 0, 19)}, "cluster") == float("inf")


def test_a_limit_that_is_not_kept_is_a_complaint_and_of_few_pairs_the_ratio_says_nothing() -> None:
    good: Round = {"queue_wait_p99_ms": 50.0, "from_kill_s": 0.2, "storm_from_kill_s": 0.24}
    slow: Round = {**good, "storm_from_kill_s": 0.25}
    assert _complaints([good] * PAIRS_MIN) == ()
    assert "1.25 times" in _complaints([slow] * PAIRS_MIN)[0]
    assert _complaints([slow] * (PAIRS_MIN - 1)) == ()
    (waited,) = _complaints([good, {**good, "queue_wait_p99_ms": 100.0}])
    assert "100 ms" in waited
    assert _complaints([{"queue_wait_p99_ms": 10.0}]) == ()


def test_of_a_storm_without_a_quota_nothing_is_said() -> None:
    assert _complaints([{"create_answers_s": 1.0}]) == ()


class FakeAdmin:
    """Makes topics until it is told not to."""

    def __init__(self) -> None:
        self.made: list[NewTopic] = []
        self.calls = 0
        self.fails = False

    async def create_topics(self, topics: list[NewTopic], *, timeout_s: float) -> dict[str, object]:
        assert timeout_s > 0
        self.calls += 1
        await asyncio.sleep(0)
        if self.fails:
            return {topic.name: RegnumError(errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, "too late") for topic in topics}
        self.made += topics
        return {topic.name: object() for topic in topics}


def operator_of(admin: FakeAdmin) -> _Operator:
    clock = FakeClock()
    run = SimpleNamespace(clock=clock, shape=Shape(replication_factor=3))
    return _Operator(SimpleNamespace(admin=admin, run=run), itertools.count())  # type: ignore[arg-type]


async def test_the_operator_makes_one_topic_after_the_other_and_none_while_he_pauses() -> None:
    admin = FakeAdmin()
    operator = operator_of(admin)
    async with operator.at_work():
        await until(lambda: admin.calls > 0)
        await operator.pause()
        assert len(operator.taken_s()) == len(admin.made) == 1
        assert operator.taken_s() == []
    (topic,) = admin.made
    assert (topic.partitions, topic.replication_factor) == (1, 3)
    assert topic.name.startswith(PREFIX)


async def test_an_operator_whose_call_fails_ends_the_measurement_and_holds_nothing_up() -> None:
    admin = FakeAdmin()
    admin.fails = True
    operator = operator_of(admin)

    async def measure() -> None:
        async with operator.at_work():
            await until(lambda: admin.calls > 0)
            await operator.pause()

    with pytest.raises(MeasureError, match="too late"):
        await measure()
    assert admin.made == []
