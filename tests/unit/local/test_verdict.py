"""The judge itself is judged: on histories that are right, and on each kind that is wrong."""

from regnum_local.demo.verdict import Acknowledged, Verdict, judge, longest_gap_s, unequal_replicas


def acks(*pairs: tuple[int, int]) -> list[Acknowledged]:
    return [Acknowledged(number=number, offset=offset) for number, offset in pairs]


def test_a_log_with_everything_once_and_in_order_is_clean() -> None:
    verdict = judge(sent=3, acknowledged=acks((0, 0), (1, 1), (2, 2)), log=[(0, 0), (1, 1), (2, 2)])
    assert verdict.clean
    assert (verdict.acknowledged, verdict.found) == (3, 3)


def test_a_record_without_acknowledgement_may_be_there_or_not() -> None:
    assert judge(sent=2, acknowledged=acks((0, 0)), log=[(0, 0)]).clean
    assert judge(sent=2, acknowledged=acks((0, 0)), log=[(0, 0), (1, 1)]).clean


def test_lost() -> None:
    assert judge(sent=2, acknowledged=acks((0, 0), (1, 1)), log=[(0, 0)]).lost == (1,)


def test_duplicated() -> None:
    verdict = judge(sent=2, acknowledged=acks((0, 0), (1, 1)), log=[(0, 0), (1, 1), (2, 1)])
    assert verdict.duplicated == (1,)
    assert not verdict.clean


def test_reordered() -> None:
    assert judge(sent=2, acknowledged=acks((0, 1), (1, 0)), log=[(0, 1), (1, 0)]).reordered == (0,)


def test_moved() -> None:
    assert judge(sent=1, acknowledged=acks((0, 7)), log=[(0, 0)]).moved == (0,)


def test_invented() -> None:
    assert judge(sent=1, acknowledged=[], log=[(0, 5)]).invented == (5,)


def test_verdicts_add_up() -> None:
    total = Verdict(acknowledged=2, found=1, lost=(1,)) + Verdict(acknowledged=1, found=2, duplicated=(0,))
    assert total == Verdict(acknowledged=3, found=3, lost=(1,), duplicated=(0,))


def test_the_longest_gap_is_the_one_around_the_window() -> None:
    moments = [0.0, 3.0, 3.1, 3.2, 3.7, 3.8, 9.0]
    assert longest_gap_s(moments, begin=3.25, end=3.8) >= 0.5
    assert longest_gap_s([1.0, 1.1, 1.4, 1.5], begin=1.2, end=1.5) == 1.4 - 1.1


def test_a_window_without_any_acknowledgement_is_all_gap() -> None:
    assert longest_gap_s([], begin=1.0, end=4.0) == 3.0


def test_replicas_are_compared_byte_by_byte() -> None:
    assert unequal_replicas({"t-0": {"1": b"x", "2": b"x"}, "t-1": {"1": b"x", "2": b"y"}}) == ("t-1",)
