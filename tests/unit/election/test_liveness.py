"""The rules of safety rule S9."""

from dataclasses import replace

import pytest
from regnum_election.decisions.liveness import Listener, Verdict, beat_interval_s, judge_silences
from regnum_model.ids import BrokerId

FIT = Listener(session_connected=True, loop_lag_s=0.0, since_silence_fence_s=None, session_timeout_s=6.0)


def judge(unanswered: dict[int, float | None], live: list[int], listener: Listener = FIT) -> Verdict:
    ages = {BrokerId(id): age for id, age in unanswered.items()}
    verdicts = judge_silences(ages, [BrokerId(id) for id in live], lambda: listener)
    return verdicts.get(BrokerId(1), Verdict.NOT_SILENT)


def test_silence_with_witnesses_fences() -> None:
    assert judge({1: 2.0, 2: None, 3: 0.1}, [1, 2, 3]) is Verdict.FENCE


@pytest.mark.parametrize("age", [None, 0.0, 1.99])
def test_short_silence_is_none(age: float | None) -> None:
    assert judge({1: age, 2: None, 3: None}, [1, 2, 3]) is Verdict.NOT_SILENT


def test_a_broker_without_a_stream_is_not_silent() -> None:
    assert judge({2: None, 3: None}, [1, 2, 3]) is Verdict.NOT_SILENT


def test_a_controller_that_doubts_its_session_fences_nobody() -> None:
    listener = replace(FIT, session_connected=False)
    assert judge({1: 9.0, 2: None, 3: None}, [1, 2, 3], listener) is Verdict.NOT_ACTING


def test_a_controller_that_lags_fences_nobody() -> None:
    assert judge({1: 9.0, 2: None}, [1, 2], replace(FIT, loop_lag_s=0.1)) is Verdict.LAGGING
    assert judge({1: 9.0, 2: None}, [1, 2], replace(FIT, loop_lag_s=0.099)) is Verdict.FENCE


@pytest.mark.parametrize(
    ("unanswered", "live", "verdict"),
    [
        ({1: 9.0, 2: 9.0, 3: None}, [1, 2, 3], Verdict.TOO_FEW_ANSWER),
        ({1: 9.0, 2: None, 3: None, 4: 9.0}, [1, 2, 3, 4], Verdict.FENCE),
        ({1: 9.0, 2: None, 3: 0.6, 4: 9.0}, [1, 2, 3, 4], Verdict.TOO_FEW_ANSWER),
        ({1: 9.0, 2: None}, [1, 2, 3], Verdict.TOO_FEW_ANSWER),
        ({1: 9.0, 2: None}, [1, 2], Verdict.FENCE),
        ({1: 9.0, 2: 9.0}, [1, 2], Verdict.TOO_FEW_ANSWER),
        ({1: 9.0}, [1], Verdict.TOO_FEW_ANSWER),
    ],
)
def test_more_than_half_of_the_others_must_answer(
    unanswered: dict[int, float | None], live: list[int], verdict: Verdict
) -> None:
    assert judge(unanswered, live) is verdict


def test_one_broker_in_a_session_time_out() -> None:
    recent = replace(FIT, since_silence_fence_s=5.9)
    assert judge({1: 9.0, 2: None}, [1, 2], recent) is Verdict.ONE_AT_A_TIME
    assert judge({1: 9.0, 2: None}, [1, 2], replace(FIT, since_silence_fence_s=6.0)) is Verdict.FENCE


def test_of_two_silent_brokers_one_is_fenced_in_a_look() -> None:
    ages = {BrokerId(id): 9.0 if id in {2, 4} else None for id in range(1, 6)}
    verdicts = judge_silences(ages, tuple(ages), lambda: FIT)
    assert verdicts == {BrokerId(2): Verdict.FENCE, BrokerId(4): Verdict.ONE_AT_A_TIME}


def test_nobody_asks_how_late_the_loops_are_while_all_answer() -> None:
    def listen() -> Listener:
        raise AssertionError("copies thousands of measurements")

    assert not judge_silences({BrokerId(1): 1.99, BrokerId(2): None}, [BrokerId(1), BrokerId(2)], listen)


@pytest.mark.parametrize(("brokers", "interval_s"), [(0, 0.1), (3, 0.1), (100, 0.1), (250, 0.25), (1_000, 1.0)])
def test_all_lifelines_together_carry_as_much_as_those_of_a_hundred_brokers(brokers: int, interval_s: float) -> None:
    assert beat_interval_s(brokers) == pytest.approx(interval_s)
