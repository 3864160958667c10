"""``storm --quota``: what is worked out of the controller's histograms, and when a limit is not kept."""

from regnum_bench.figures import Round, spreads
from regnum_bench.quota_storm import PAIRS_MIN, _p99_ms, storm_complaints
from regnum_client.admin.describing.quota_usage import QueueWait


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
