"""When a leader stops serving because it hears from nobody, and when it must not (safety rule S8)."""

import pytest
from regnum_broker.replication.decisions.isolation import SILENCE_S, is_cut_off

CUT_OFF = {
    "session_lost": True,
    "lifeline_open": False,
    "orders_astray": False,
    "others_in_sync": True,
    "heard_s": 100.0,
    "now_s": 102.1,
}


def judged(**changed: object) -> bool:
    return is_cut_off(**{**CUT_OFF, **changed})  # type: ignore[arg-type]


def test_a_leader_that_hears_from_nobody_is_cut_off() -> None:
    assert judged()


@pytest.mark.parametrize(
    "sign_of_life",
    [
        {"session_lost": False},
        {"lifeline_open": True},
        {"others_in_sync": False},
        {"heard_s": 100.5},
        {"now_s": 100.0 + SILENCE_S},
    ],
)
def test_one_sign_of_life_is_enough(sign_of_life: dict[str, object]) -> None:
    assert not judged(**sign_of_life)


@pytest.mark.parametrize("session_lost", [False, True])
def test_a_lifeline_that_says_that_orders_go_astray_is_no_sign_of_life(session_lost: bool) -> None:
    astray = {"session_lost": session_lost, "lifeline_open": True, "orders_astray": True}
    assert judged(**astray)
    assert not judged(**astray, others_in_sync=False)
    assert not judged(**astray, heard_s=100.5)
