"""The judge finds what it is there for, in histories that are known to be bad."""

from collections.abc import Callable

import pytest
from regnum_testing.simulation.judging.judge import History, Log, judged, of_images

VALUES = [10, 11, 12, 13]


def log(values: list[int] = VALUES, *, high_watermark: int | None = None) -> Log:
    return Log(
        start=0,
        records=tuple(enumerate(values)),
        high_watermark=len(values) if high_watermark is None else high_watermark,
    )


def history() -> History:
    made = History(sent=4)
    made.acknowledged = {("t-0", value): offset for offset, value in enumerate(VALUES)}
    made.read = {"t-0": list(enumerate(VALUES))}
    made.see("a/1", "a", "t-0", epoch=1, leads=True, high_watermark=4)
    made.see("b/1", "b", "t-0", epoch=1, leads=False, high_watermark=3)
    return made


def verdict(of: History, *logs: Log) -> str:
    return " ".join(judged(of, {"t-0": dict(zip("abc", logs, strict=False))}, assigned={"t-0": "abc"}))


def test_a_good_history_is_good() -> None:
    assert verdict(history(), log(), log(), log()) == ""


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([10, 11, 12], "lost: 1 acknowledged records of partition t-0, as [13]"),
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
    assert "has the replicas ['a', 'b'] and not ['a', 'b', 'c']" in verdict(history(), log(), log())


def two_leaders(of: History) -> None:
    of.see("b/1", "b", "t-0", epoch=1, leads=True, high_watermark=3)


def leads_again(of: History) -> None:
    of.see("a/2", "a", "t-0", epoch=1, leads=True, high_watermark=4)


def leads_with_another_log(of: History) -> None:
    of.see_log("a", "t-0", epoch=1, recorded="former", log_id="present")


def back(of: History) -> None:
    of.see("a/1", "a", "t-0", epoch=1, leads=True, high_watermark=3)


def read_back(of: History) -> None:
    of.read["t-0"].append((2, 12))


def never_acknowledged(of: History) -> None:
    of.awaited["t-0", 14] = None


def read_over(of: History) -> None:
    del of.read["t-0"][2]


def stops_reading(of: History) -> None:
    del of.read["t-0"][2:]


def never_reads(of: History) -> None:
    of.read["t-0"].clear()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (two_leaders, "two leaders in epoch 1 of partition t-0: a, b"),
        (leads_again, "S11: a leads t-0 in epoch 1 again, in another life"),
        (leads_with_another_log, "S10: a leads t-0 in epoch 1 with another log than is recorded"),
        (back, "high watermark went back: a partition t-0 from 4 to 3"),
        (read_back, "a consumer of partition t-0 went back"),
        (never_acknowledged, "1 records are not acknowledged, as ('t-0', 14)"),
        (read_over, "was not given 1 records"),
        (stops_reading, "a consumer of partition t-0 has come to offset 1 and not to the last one, 3"),
        (never_reads, "a consumer of partition t-0 has come to offset -1 and not to the last one, 3"),
    ],
)
def test_what_was_seen_meanwhile_is_judged(spoil: Callable[[History], None], says: str) -> None:
    spoiled = history()
    spoil(spoiled)
    assert says in verdict(spoiled, log(), log(), log())


def commits_back(of: History) -> None:
    of.handed["t-0"] = dict.fromkeys(range(4))
    of.commit("t-0", 3, known={})
    of.commit("t-0", 2, known={"t-0": 3})


def commits_unread(of: History) -> None:
    of.handed["t-0"] = dict.fromkeys((0, 1, 3))
    of.commit("t-0", 4, known={})


def commits_beyond(of: History) -> None:
    of.handed["t-0"] = dict.fromkeys(range(5))
    of.commit("t-0", 5, known={})


def stops_committing(of: History) -> None:
    of.handed["t-0"] = {0: None}
    of.commit("t-0", 1, known={})


def never_commits(of: History) -> None:
    of.committed["t-0"] = 0


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (commits_back, "group offset went back: partition t-0 from 3 to 2"),
        (commits_unread, "a group was not given 1 records of partition t-0"),
        (commits_beyond, "a group has committed 5 of partition t-0, which ends at 4"),
        (stops_committing, "a group has committed 1 of partition t-0, which ends at 4"),
        (never_commits, "a group has committed 0 of partition t-0, which ends at 4"),
    ],
)
def test_groups_are_judged(spoil: Callable[[History], None], says: str) -> None:
    spoiled = history()
    spoil(spoiled)
    assert says in verdict(spoiled, log(), log(), log())


def test_what_a_removed_partition_had_is_gone_for_good_and_may_be_gone_before() -> None:
    removed, open_yet = history(), history()
    removed.removing("t-0")()
    open_yet.removing("t-0")
    removed.read = open_yet.read = {}
    assert "records of a removed partition are back: 4 of t-0" in verdict(removed, log(), log(), log())
    assert verdict(removed, log([]), log([]), log([])) == ""
    assert verdict(open_yet, log([]), log([]), log([])) == ""
    assert verdict(open_yet, log(), log(), log()) == ""


def test_what_is_acknowledged_while_its_partition_is_being_removed_goes_with_it() -> None:
    told = history()
    removed = told.removing("t-0")
    told.acknowledged["t-0", 99] = 4
    removed()
    told.read = {}
    assert verdict(told, log([]), log([]), log([])) == ""


def test_a_partition_that_the_store_no_longer_knows_is_lost_unless_it_was_removed() -> None:
    (found,) = judged(history(), {}, assigned={})
    assert found == "lost: 4 acknowledged records of partition t-0, which the store does not know"
    removed = history()
    removed.removing("t-0")
    assert judged(removed, {}, assigned={}) == []


def test_another_life_of_a_broker_leads_in_another_epoch_with_the_log_that_is_recorded() -> None:
    again = history()
    again.see("a/2", "a", "t-0", epoch=2, leads=True, high_watermark=4)
    again.see_log("a", "t-0", epoch=2, recorded="present", log_id="present")
    assert verdict(again, log(), log(), log()) == ""


def test_another_life_of_a_broker_begins_with_a_high_watermark_of_its_own() -> None:
    again = history()
    again.see("a/2", "a", "t-0", epoch=2, leads=False, high_watermark=0)
    assert verdict(again, log(), log(), log()) == ""


def test_metadata_that_differs_from_the_store_is_found() -> None:
    store = {("t", 0): (1, 5, (1, 2)), ("t", 1): (2, 3, (2,))}
    assert of_images(store, {"a": dict(store), "b": dict(store)}) == []
    (found,) = of_images(store, {"a": store, "b": {("t", 0): (1, 4, (1, 2)), ("t", 1): (2, 3, (2,))}})
    assert found.startswith("metadata of b differs from the store in 1 partitions, as ('t', 0)")
    (found,) = of_images(store, {"a": {**store, ("gone", 0): (1, 1, (1,))}})
    assert "('gone', 0): (1, 1, (1,)) and not None" in found


def test_what_was_sent_before_a_removal_and_acknowledged_long_after_may_be_gone() -> None:
    """Seed 2159: its leader was paused while the partition was removed."""
    late, sent_after = history(), history()
    for one in (late, sent_after):
        one.removing("t-0")()
    late.acknowledge("t-0", 14, 4, removals=0)
    sent_after.acknowledge("t-0", 14, 4, removals=1)
    assert "lost" not in verdict(late, log([]), log([]), log([]))
    assert "lost: 1 acknowledged records of partition t-0, as [14]" in verdict(sent_after, log([]), log([]), log([]))
