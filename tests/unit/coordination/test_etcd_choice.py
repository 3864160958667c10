"""Which of several etcd members is asked."""

from hypothesis import given
from hypothesis import strategies as st
from regnum_coordination.drivers.etcd.members import SILENT_FOR_S, MemberChoice


def test_one_member_is_kept_until_it_fails() -> None:
    choice = MemberChoice(3)
    assert [choice.best(now_s) for now_s in (0.0, 1.0, 2.0)] == [0, 0, 0]
    choice.failed(0, 2.0, silent=False)
    assert [choice.best(now_s) for now_s in (2.0, 3.0, 60.0)] == [1, 1, 1]


def test_members_that_refuse_are_asked_in_turn() -> None:
    choice = MemberChoice(3)
    asked = []
    for step in range(6):
        asked.append(choice.best(float(step)))
        choice.failed(asked[-1], float(step), silent=False)
    assert asked == [0, 1, 2, 0, 1, 2]


def test_a_silent_member_is_passed_over_while_another_is_not() -> None:
    """The example of the module: the two others look for a leader, and the stopped one is not tried in between."""
    choice = MemberChoice(3)
    choice.failed(0, 2.0, silent=True)
    asked = []
    for now_s in (2.1, 2.2, 2.3, 2.4):
        asked.append(choice.best(now_s))
        choice.failed(asked[-1], now_s, silent=False)
    assert asked == [1, 2, 1, 2]
    assert choice.best(2.0 + SILENT_FOR_S) == 0


def test_when_all_are_silent_the_one_that_was_so_first_is_next() -> None:
    choice = MemberChoice(2)
    choice.failed(1, 1.0, silent=True)
    choice.failed(0, 2.0, silent=True)
    assert choice.best(2.1) == 1


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 3), st.booleans()), max_size=20))
def test_a_member_that_was_silent_just_now_is_not_the_next(failures: list[tuple[int, float, bool]]) -> None:
    """One that refused may be, if the others are silent."""
    choice = MemberChoice(3)
    now_s = 0.0
    for member, pause_s, silent in failures:
        now_s += pause_s + 0.001
        choice.failed(member, now_s, silent=silent)
        assert choice.best(now_s) != member or not silent


def test_a_single_member_is_always_the_best() -> None:
    choice = MemberChoice(1)
    choice.failed(0, 1.0, silent=True)
    assert choice.best(1.0) == 0
