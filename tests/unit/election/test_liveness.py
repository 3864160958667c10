"""The rules of safety rule S9."""

from dataclasses import replace

import pytest
from regnum_election.liveness import Listener, Verdict, judge_silence
from regnum_model.ids import BrokerId

FIT = Listener(session_connected=True, loop_lag_s=0.0, since_silence_fence_s=None, session_timeout_s=6.0)


def judge(unanswered: dict[int, float | None], live: list[int], listener: Listener = FIT) -> Verdict:
    return judge_silence(
        BrokerId(1), {BrokerId(id): age for id, age in unanswered.items()}, [BrokerId(id) for id in live], listener
    )


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
