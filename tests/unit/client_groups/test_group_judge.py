"""The judge of groups sees what it is there for."""

from regnum_client.records import ConsumedRecord
from regnum_testing.group_judge import judge_runs
from regnum_testing.group_member import Run, runs_of


def record(partition: int, offset: int) -> ConsumedRecord:
    return ConsumedRecord("t", partition, offset, 0, None, None, ())


def test_runs_begin_anew_at_gaps_and_at_other_partitions() -> None:
    records = [record(0, 0), record(0, 1), record(1, 5), record(1, 7), record(0, 2)]
    assert runs_of(records, 9) == [Run(9, 0, 0, 1), Run(9, 1, 5, 5), Run(9, 1, 7, 7), Run(9, 0, 2, 2)]
    assert runs_of([], 9) == []


def test_what_is_repeated_skipped_and_missing_is_told_apart() -> None:
    judged = judge_runs([Run(3, 0, 5, 14), Run(1, 0, 0, 9), Run(2, 1, 0, 3)], {0: 15, 1: 4})
    assert (judged.processed, judged.repeated, judged.skipped, judged.missing) == (19, 5, (), 0)
    late = judge_runs([Run(1, 0, 0, 4), Run(2, 0, 6, 9), Run(3, 0, 5, 5)], {0: 12})
    assert late.skipped == ("partition 0: from 5 to 6",), "that somebody else read it later does not mend it"
    assert late.missing == 2
