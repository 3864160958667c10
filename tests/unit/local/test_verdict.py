"""The judge itself is judged: on histories that are right, and on each kind that is wrong."""

import pytest
from regnum_local.demo.verdict import Acknowledged, Verdict, judge, judge_reader, longest_gap_s, unequal_replicas


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


LOG = [(0, 0), (1, 1), (2, 2), (3, 3)]


def reader(*read: tuple[int, int], acknowledged: int = 3) -> Verdict:
    """Of who read that of LOG, so many records of which were acknowledged."""
    return judge_reader(sent=5, acknowledged=acks(*LOG[:acknowledged]), log=LOG, read=read)


def test_a_reader_has_to_have_read_a_prefix_of_the_log_with_all_that_was_acknowledged() -> None:
    assert reader(*LOG).clean
    assert reader(*LOG[:3]).clean, "of what was not acknowledged it had no time for all"
    assert reader(acknowledged=0).clean


@pytest.mark.parametrize(
    ("read", "lost", "misread"),
    [
        ((), (0, 1, 2), ()),
        (((0, 0),), (1, 2), ()),
        (((0, 0), (3, 3)), (1, 2), (3,)),
        (((1, 0), (2, 1), (3, 2)), (), (0, 1, 2)),
        ((*LOG, (4, 4)), (), (4,)),
    ],
    ids=["nothing", "hangs", "skips", "other offsets", "not in the log"],
)
def test_a_reader_that_was_given_something_else_is_found(
    read: tuple[tuple[int, int], ...], lost: tuple[int, ...], misread: tuple[int, ...]
) -> None:
    verdict = reader(*read)
    assert not verdict.clean
    assert (verdict.lost, verdict.misread) == (lost, misread)


def test_verdicts_add_up() -> None:
    total = Verdict(acknowledged=2, found=1, lost=(1,)) + Verdict(
        acknowledged=1, found=2, duplicated=(0,), misread=(2,)
    )
    assert total == Verdict(acknowledged=3, found=3, lost=(1,), duplicated=(0,), misread=(2,))


def test_the_longest_gap_is_the_one_around_the_window() -> None:
    moments = [0.0, 3.0, 3.1, 3.2, 3.7, 3.8, 9.0]
    assert longest_gap_s(moments, begin=3.25, end=3.8) >= 0.5
    assert longest_gap_s([1.0, 1.1, 1.4, 1.5], begin=1.2, end=1.5) == 1.4 - 1.1


def test_a_window_without_any_acknowledgement_is_all_gap() -> None:
    assert longest_gap_s([], begin=1.0, end=4.0) == 3.0


def test_replicas_are_compared_byte_by_byte() -> None:
    logs = {"t-0": {"1": b"x", "2": b"x"}, "t-1": {"1": b"x", "2": b"y"}}
    assert unequal_replicas(logs, ["t-0", "t-1"], replicas=2) == ("t-1",)
    assert unequal_replicas(logs, ["t-0"], replicas=2) == ("t-1",), "others are compared too"


def test_a_partition_with_too_few_replicas_on_disk_or_none_is_not_equal() -> None:
    logs = {"t-0": dict.fromkeys("123", b"x"), "t-1": dict.fromkeys("12", b"x"), "deleted-0": {"1": b"x"}}
    assert unequal_replicas(logs, ["t-0", "t-1", "t-2"]) == ("t-1", "t-2")
    assert unequal_replicas({}, ["t-0"]) == ("t-0",)
