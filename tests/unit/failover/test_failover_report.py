"""Hand-made spans in, failovers out."""

import json
import random
from pathlib import Path

import pytest
from regnum_failover.changes import changes_of
from regnum_failover.report import Report, write_report
from regnum_failover.traces.source import records_of
from regnum_insight.engine import analyse
from regnum_telemetry import conventions as names
from regnum_testing.change_traces import golden
from regnum_testing.otlp_lines import Spans, broker_failover, line, succession

pytestmark = pytest.mark.timeout(300)


def report(spark, folder: Path, *lines: str) -> Report:
    (folder / "traces").mkdir()
    (folder / "traces" / "one.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return write_report(records_of(spark, f"{folder}/traces"), str(folder / "out"))


def adds_up(row) -> bool:
    return abs(sum(row["stages_ms"].values()) - row["total_ms"]) < 0.001


@pytest.mark.full
def test_torn_lines_and_senseless_spans_are_counted_and_set_aside(spark, tmp_path):
    good = line(broker_failover(1, 0))
    spans = Spans(9)
    backwards = spans.add(names.OUTAGE, 5, 4)
    nameless = {**spans.add(names.OUTAGE, 4, 5), "name": None}
    timeless = {**spans.add(names.OUTAGE, 4, 5), "startTimeUnixNano": "soon"}
    id_less = {**spans.add(names.OUTAGE, 4, 5), "spanId": "zz"}
    found = report(
        spark,
        tmp_path,
        good,
        "nonsense",
        "",
        "{}",
        good[: len(good) // 2],
        line([backwards, nameless, timeless, id_less]),
    )
    assert (found.tally.documents_torn_n, found.tally.documents_foreign_n, found.tally.spans_refused_n) == (2, 1, 4)
    assert found.tally.spans_n == len(broker_failover(1, 0))
    aside = [
        json.loads(text)
        for path in (tmp_path / "out" / "malformed").glob("*.json")
        for text in path.read_text(encoding="utf-8").splitlines()
    ]
    assert len(aside) == 6
    assert "nonsense" in {row["text"] for row in aside}
    assert {row["file"] for row in aside} == {"one.jsonl"}
    assert "2 torn documents and 4 spans without ids, name or times were set aside" in found.to_text()


def worse(folder: Path, seed: int) -> None:
    """All lines in any order, some of them twice, and torn ones between."""
    chance = random.Random(seed)
    files = sorted(folder.rglob("*.jsonl"))
    lines = [text for file in files for text in file.read_text("utf-8").splitlines()]
    lines += chance.sample(lines, len(lines) // 2)
    lines += [text[: chance.randrange(1, len(text))] for text in chance.sample(lines, 5)]
    chance.shuffle(lines)
    for number, file in enumerate(files):
        file.write_text("".join(f"{text}\n" for text in lines[number :: len(files)]), encoding="utf-8")


@pytest.mark.parametrize("order", [pytest.param("as written", marks=pytest.mark.full), "shuffled, doubled and torn"])
def test_the_changes_are_those_that_one_process_finds(spark, tmp_path, order):
    """Row by row."""
    whole = tmp_path / "traces"
    golden(whole)
    expected = list(analyse(whole).changes)
    if order != "as written":
        worse(whole, 7)
    found = write_report(records_of(spark, str(whole)), str(tmp_path / "out"))
    assert list(found.changes) == expected
    assert found.tally == analyse(whole).intake.tally()
    assert (found.tally.documents_torn_n > 0) is (order != "as written")
    assert found.spans_repeated_n > 0
    assert all(adds_up(row) for row in found.failovers)
    assert [row["unfinished"] for row in found.failovers].count(True) == 1


@pytest.mark.full
def test_a_change_that_lost_its_controller_is_counted(spark, tmp_path):
    found = report(spark, tmp_path, line(broker_failover(1, 0, left_out=(names.FAILOVER,))))
    assert ([row["kind"] for row in found.failovers], found.rootless_n) == (["unknown"], 1)
    assert "1 changes have no root" in found.to_text()


@pytest.mark.full
def test_tables_are_written_and_written_again(spark, tmp_path):
    report(spark, tmp_path, line(broker_failover(1, 0)), line(succession(3, 0)))
    again = write_report(records_of(spark, f"{tmp_path}/traces"), str(tmp_path / "out"))
    stages = spark.read.parquet(f"{tmp_path}/out/stages")
    lengths = {}
    for row in stages.collect():
        key = (row["trace_id"], row["partition"], row["client"])
        lengths[key] = lengths.get(key, 0.0) + row["ms"]
    told = {row["trace_id"]: row["total_ms"] for row in spark.read.parquet(f"{tmp_path}/out/failovers").collect()}
    assert told == {row["trace_id"]: row["total_ms"] for row in again.failovers}
    # A job of somebody else's finds the same rows.
    found = changes_of(records_of(spark, f"{tmp_path}/traces")).where("of.failover.kind is not null")
    written = spark.read.parquet(f"{tmp_path}/out/failovers")
    assert sorted(found.select("of.failover.*").collect()) == sorted(written.collect())
    for trace_id, total in told.items():
        assert max(ms for key, ms in lengths.items() if key[0] == trace_id) == pytest.approx(total)
    assert "broker 2" in again.to_text()
    assert json.loads(again.to_json())["failovers"] == again.failovers


def test_nothing_to_read_is_said(spark, tmp_path):
    with pytest.raises(Exception, match="there are no traces at"):
        records_of(spark, f"{tmp_path}/*.jsonl").count()
    assert "No change of leadership in these traces." in report(spark, tmp_path, "nonsense").to_text()
