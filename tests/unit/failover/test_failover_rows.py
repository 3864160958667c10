"""Rows of changes for the JVM and for files, and changes as bytes between processes: without Spark."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from regnum_failover.report import write_aside, write_tables
from regnum_failover.rows import ATTRIBUTED, FAILOVER, STAGE, attributed, packed, stages_of, unpacked
from regnum_insight.attribution.changes import Change
from regnum_insight.engine import analyse
from regnum_insight.reporting.rows import summary_of
from regnum_insight.spans.intake import Tally
from regnum_testing.change_traces import golden


@pytest.fixture(name="changes")
def changes_of_golden_traces(tmp_path: Path) -> list[Change]:
    golden(tmp_path / "golden")
    return list(analyse(tmp_path / "golden").changes)


def test_rows_of_the_jvm_are_those_of_the_change_and_a_trace_that_is_none_has_none(changes):
    rows = attributed([(None, 0), *((change, 2) for change in changes), (None, 3)]).to_pylist()
    assert [row["repeated"] for row in rows] == [0, *(2 for _ in changes), 3]
    for change, row in zip(changes, rows[1:-1], strict=True):
        told = {name: value for name, value in summary_of(change).items() if name in FAILOVER}
        assert {**row["failover"], "stages_ms": dict(row["failover"]["stages_ms"])} == told
        assert [tuple(stage.values()) for stage in row["stages"]] == [*stages_of(change)]
    assert {row[name] for row in (rows[0], rows[-1]) for name in ("failover", "stages", "change")} == {None}
    assert all(f"{name}: {kind}" in ATTRIBUTED for name, kind in {**FAILOVER, **STAGE}.items())


def test_without_any_trace_there_are_no_rows():
    assert (len(attributed([])), attributed([]).type) == (0, attributed([(None, 0)]).type)


def test_changes_are_the_same_after_a_way_between_processes(changes):
    rows = packed([(None, 1), *((change, 0) for change in changes)]).to_pylist()
    assert [row["repeated"] for row in rows] == [1, *(0 for _ in changes)]
    assert (rows[0]["change"], [unpacked(row["change"]) for row in rows[1:]]) == (None, changes)


def test_files_take_the_place_of_what_is_there(changes, tmp_path):
    tally = Tally()
    tally.set_aside("a.jsonl", "no JSON", 'an "\u00e4" and a half \ud83d')
    for told in (changes[:1], changes):
        write_tables(told, tmp_path / "out")
        write_aside(tally, tmp_path / "out")
        tables = {name: pq.read_table(tmp_path / "out" / name) for name in ("failovers", "stages")}
        assert tables["failovers"]["trace_id"].to_pylist() == [change.trace_id for change in told]
        assert tables["stages"].num_rows == sum(len([*stages_of(change)]) for change in told)
    assert tables["failovers"].schema.field("stages_ms").type == pa.map_(pa.string(), pa.float64())
    (aside,) = (tmp_path / "out" / "malformed").iterdir()
    assert (
        aside.read_text("utf-8")
        == '{"file":"a.jsonl","reason":"no JSON","text":"an \\"\u00e4\\" and a half \\ud83d"}\n'
    )
    write_tables([], tmp_path / "out")
    assert pq.read_table(tmp_path / "out" / "failovers").num_rows == 0
