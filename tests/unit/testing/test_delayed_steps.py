"""What is said of a delay in one step: it is seen there, and nowhere else."""

from regnum_insight.attribution.steps import STEPS
from regnum_service.failpoints.failpoint import Action, parse
from regnum_testing.delayed_steps import AT, differences, judged

QUIET = [{"fenced": 3.0, "sent": 1.0}, {"fenced": 4.0, "sent": 2.0}, {"fenced": 90.0, "sent": 2.0}]


def test_every_step_has_a_failpoint_that_can_be_read() -> None:
    for step, (_, words) in AT.items():
        assert parse(f"action=delay ms=1 {words.format(leader=2)}").action is Action.DELAY, step
    assert AT.keys() <= {*STEPS, "replicated"}


def test_medians_are_compared_with_those_of_rounds_without_a_delay() -> None:
    moved = differences({"": QUIET, "fenced": [{"fenced": 204.0, "sent": 2.0}, {"fenced": 203.0, "sent": 4.0}]})
    assert moved == {"fenced": {"fenced": 199.5, "sent": 1.0}}
    assert judged(moved, 200) == []


def test_a_delay_that_is_not_seen_or_seen_elsewhere_is_told() -> None:
    moved = differences({"": QUIET, "fenced": [{"fenced": 14.1, "sent": 191.0}]})
    assert judged(moved, 200) == [
        "200 ms in fenced moved fenced by 10.1 ms",
        "200 ms in fenced moved sent by 189.0 ms",
    ]
