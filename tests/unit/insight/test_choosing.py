"""Changes are chosen by what they are about, and two of them stand side by side, stage by stage."""

from pathlib import Path

import pytest
from regnum_insight.attribution.changes import Change
from regnum_insight.engine import analyse
from regnum_insight.reporting.choosing import ChangeFilter, errors_of
from regnum_insight.reporting.comparing import pair_of, pair_text, pair_value
from regnum_telemetry import conventions as names
from regnum_testing.change_traces import FULL_STEPS_MS, PLANNED_STEPS_MS, FullChangeTrace


def change_of(folder: Path, made: FullChangeTrace) -> Change:
    made.write(folder / made.trace_id)
    (change,) = analyse(folder / made.trace_id).changes
    return change


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        (ChangeFilter(), True),
        (ChangeFilter(kind="broker-failure"), True),
        (ChangeFilter(kind="Lifeline_Broken"), True),
        (ChangeFilter(kind="balance"), False),
        (ChangeFilter(victim="broker-1"), True),
        (ChangeFilter(victim="1"), True),
        (ChangeFilter(victim="11"), False),
        (ChangeFilter(broker=1), True),
        (ChangeFilter(broker=2), True),
        (ChangeFilter(broker=9), False),
        (ChangeFilter(partition="orders"), True),
        (ChangeFilter(partition="orders/1"), True),
        (ChangeFilter(partition="orders/7"), False),
        (ChangeFilter(partition="order"), False),
        (ChangeFilter(min_ms=103.0), True),
        (ChangeFilter(min_ms=103.1), False),
        (ChangeFilter(error="unavail"), True),
        (ChangeFilter(error="ANY"), True),
        (ChangeFilter(error="FENCED"), False),
        (ChangeFilter(kind="broker failure", partition="orders/0", broker=2, min_ms=50.0, error="any"), True),
        (ChangeFilter(kind="broker failure", broker=9), False),
        (ChangeFilter(since_ns=2**62), False),
    ],
)
def test_a_change_has_all_that_is_asked_for(tmp_path: Path, chosen: ChangeFilter, found: bool) -> None:
    change = change_of(tmp_path, FullChangeTrace())
    assert errors_of(change) == ("UNAVAILABLE",)
    assert chosen.finds(change) is found


def test_two_changes_side_by_side_say_where_they_differ(tmp_path: Path) -> None:
    slow = FullChangeTrace(2, steps_ms={**FULL_STEPS_MS, "leads": 66.0}, before_ms=7_000.0)
    pair = pair_of(change_of(tmp_path, FullChangeTrace(1)), change_of(tmp_path, slow))
    text = pair_text(pair)
    (leads,) = [line for line in text.splitlines() if line.startswith("leads")]
    assert leads.split() == ["leads", "6.0", "66.0", "+60.0", "differs", "most"]
    assert text.splitlines()[-1].split() == ["all", "103.0", "163.0", "+60.0"]
    told = pair_value(pair)
    assert sum(one["difference_ms"] for one in told["stages"][:-1]) == pytest.approx(60.0)
    assert told["about"][0] == {"fact": "trace", "first": f"{1:032x}", "second": f"{2:032x}"}


def test_stages_that_one_of_both_does_not_have_are_shown_as_missing(tmp_path: Path) -> None:
    planned = FullChangeTrace(2, kind=names.KIND_BALANCE, steps_ms=PLANNED_STEPS_MS, before_ms=7_000.0)
    text = pair_text(pair_of(change_of(tmp_path, FullChangeTrace(1)), change_of(tmp_path, planned)))
    (detected,) = [line for line in text.splitlines() if line.startswith("detected")]
    assert detected.split()[:4] == ["detected", "25.0", "-", "-25.0"]
    same = pair_text(pair_of(*[change_of(tmp_path, FullChangeTrace(1))] * 2))
    assert "differs most" not in same
