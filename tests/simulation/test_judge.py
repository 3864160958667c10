"""The judge finds what it is there for, in histories that are known to be bad."""

from collections.abc import Callable

import pytest
from regnum_testing.simulation.judge import History, Log, judged

VALUES = [10, 11, 12, 13]


def log(values: list[int] = VALUES, *, high_watermark: int | None = None) -> Log:
    return Log(
        start=0,
        records=tuple(enumerate(values)),
        high_watermark=len(values) if high_watermark is None else high_watermark,
    )


def history() -> History:
    made = History(sent=4)
    made.acknowledged = {(0, value): offset for offset, value in enumerate(VALUES)}
    made.read = {0: list(enumerate(VALUES))}
    made.see("a/1", "a", 0, epoch=1, leads=True, high_watermark=4)
    made.see("b/1", "b", 0, epoch=1, leads=False, high_watermark=3)
    return made


def verdict(of: History, *logs: Log) -> str:
    return " ".join(judged(of, {0: dict(zip("abc", logs, strict=False))}, replicas=3))


def test_a_good_history_is_good() -> None:
    assert verdict(history(), log(), log(), log()) == ""


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([10, 11, 12], "lost: 1 acknowledged records of partition 0, as [13]"),
        ([10, 11, 12], "committed records are gone"),
        ([10, 12, 11, 13], "moved: 2 acknowledged"),
        ([10, 12, 11, 13], "reordered"),
        ([10, 11, 11, 12, 13], "doubled: 1"),
        ([10, 11, 99, 12, 13], "aborted read"),
    ],
)
def test_wrong_records_are_found(values: list[int], says: str) -> None:
    assert says in verdict(history(), log(values), log(values), log(values))


def test_replicas_that_differ_or_are_behind_or_missing_are_found() -> None:
    assert "logs differ" in verdict(history(), log(), log(), log([10, 11, 12, 14]))
    assert "not all is committed" in verdict(history(), log(), log(), log(high_watermark=3))
    assert "has only the replicas ['a', 'b']" in verdict(history(), log(), log())


def two_leaders(of: History) -> None:
    of.see("b/1", "b", 0, epoch=1, leads=True, high_watermark=3)


def back(of: History) -> None:
    of.see("a/1", "a", 0, epoch=1, leads=True, high_watermark=3)


def read_back(of: History) -> None:
    of.read[0].append((2, 12))


def read_over(of: History) -> None:
    del of.read[0][2]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (two_leaders, "two leaders in epoch 1 of partition 0: a, b"),
        (back, "high watermark went back: a partition 0 from 4 to 3"),
        (read_back, "a consumer of partition 0 went back"),
        (read_over, "was not given 1 records"),
    ],
)
def test_what_was_seen_meanwhile_is_judged(spoil: Callable[[History], None], says: str) -> None:
    spoiled = history()
    spoil(spoiled)
    assert says in verdict(spoiled, log(), log(), log())


def test_another_life_of_a_broker_begins_with_a_high_watermark_of_its_own() -> None:
    again = history()
    again.see("a/2", "a", 0, epoch=2, leads=False, high_watermark=0)
    assert verdict(again, log(), log(), log()) == ""
