"""Hand-made spans in, failovers out."""

import json
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from regnum_failover.reading import Reading, read_spans
from regnum_failover.report import Report, write_report
from regnum_insight.engine import analyse
from regnum_telemetry import conventions as names
from regnum_testing.change_traces import ChangeTrace, FullChangeTrace
from regnum_testing.otlp_lines import Spans, broker_failover, line, succession

pytestmark = pytest.mark.timeout(300)


def read(spark, folder: Path, *lines: str) -> Reading:
    (folder / "traces").mkdir()
    (folder / "traces" / "one.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return read_spans(spark, [f"{folder}/traces/*.jsonl"])


def report(spark, folder: Path, *lines: str) -> Report:
    return write_report(read(spark, folder, *lines), str(folder / "out"))


def adds_up(row) -> bool:
    return abs(sum(row["stages_ms"].values()) - row["total_ms"]) < 0.001


@pytest.mark.full
def test_torn_lines_and_senseless_spans_are_counted_and_set_aside(spark, tmp_path):
    good = line(broker_failover(1, 0))
    spans = Spans(9)
    backwards = spans.add("x", 5, 4)
    nameless = {**spans.add("x", 4, 5), "name": None}
    timeless = {**spans.add("x", 4, 5), "startTimeUnixNano": "soon"}
    id_less = {**spans.add("x", 4, 5), "spanId": "zz"}
    reading = read(
        spark,
        tmp_path,
        good,
        good[: len(good) // 2],
        "nonsense",
        "",
        "{}",
        line([backwards, nameless, timeless, id_less]),
    )
    assert (reading.lines_malformed_n, reading.spans_malformed_n) == (3, 4)
    assert reading.spans_n == len(broker_failover(1, 0))
    write_report(reading, str(tmp_path / "out"))
    aside = [
        json.loads(text)
        for path in (tmp_path / "out" / "malformed").glob("*.json")
        for text in path.read_text(encoding="utf-8").splitlines()
    ]
    assert len(aside) == 7
    assert {"nonsense", "{}", good[: len(good) // 2]} <= {row["line"] for row in aside}
    assert {row["file"] for row in aside} == {"one.jsonl"}


def test_a_span_that_was_exported_twice_counts_once(spark, tmp_path):
    spans = broker_failover(1, 0)
    reading = read(spark, tmp_path, line(spans), line(spans[:3]))
    assert (reading.spans_n, reading.spans_repeated_n) == (len(spans), 3)


@pytest.mark.full
def test_ids_in_capitals_and_an_empty_parent_are_as_good(spark, tmp_path):
    spans = [{**span, "traceId": span["traceId"].upper(), "parentSpanId": ""} for span in broker_failover(0xAB, 0)]
    rows = read(spark, tmp_path, line(spans, service="s", instance="7")).spans.collect()
    assert {(row["trace_id"], row["parent_span_id"], row["service"], row["instance"]) for row in rows} == {
        (f"{0xAB:032x}", None, "s", "7")
    }


def test_the_changes_are_those_that_one_process_finds(spark, tmp_path):
    """Clients in traces of their own, both forms of roots, clocks that differ, and spans that came twice."""
    whole = tmp_path / "traces"
    FullChangeTrace(1).write(whole / "1", ahead_ms={"broker 2": 500.0})
    FullChangeTrace(2, kind=names.KIND_BALANCE, before_ms=2_000).write(whole / "2", without=["client 7"])
    ChangeTrace(3, before_ms=4_000).write(whole / "3")
    dead = FullChangeTrace(4, before_ms=6_000, links=[f"{1:032x}"])
    dead.unfinished()
    dead.write(whole / "4")
    dead.write(whole / "5")
    apart = Spans(6)
    named = {names.TOPIC: "t", names.PARTITION: "0", names.RETRIED: True, names.FAILOVER_TRACE_ID: f"{1:032x}"}
    apart.add(names.OUTAGE, -20, 230, **named)
    (whole / "apart.jsonl").write_text(line(apart.made, service="producer"), encoding="utf-8")
    (whole / "six.jsonl").write_text(line(succession(7, 60)), encoding="utf-8")
    found = write_report(read_spans(spark, [f"{whole}/*.jsonl", f"{whole}/*/*.jsonl"]), str(tmp_path / "out"))
    assert list(found.changes) == list(analyse(whole).changes)
    assert all(adds_up(row) for row in found.failovers)
    assert [row["unfinished"] for row in found.failovers].count(True) == 1


@pytest.mark.full
def test_a_change_that_lost_its_controller_is_counted(spark, tmp_path):
    found = report(spark, tmp_path, line(broker_failover(1, 0, left_out=(names.FAILOVER,))))
    assert ([row["kind"] for row in found.failovers], found.rootless_n) == (["unknown"], 1)
    assert "1 of them were never finished" in found.to_text()


@pytest.mark.full
def test_tables_are_written_and_written_again(spark, tmp_path):
    reading = read(spark, tmp_path, line(broker_failover(1, 0)), line(succession(3, 0)))
    write_report(reading, str(tmp_path / "out"))
    again = write_report(reading, str(tmp_path / "out"))
    stages = spark.read.parquet(f"{tmp_path}/out/stages")
    lengths = {}
    for row in stages.collect():
        key = (row["trace_id"], row["partition"], row["client"])
        lengths[key] = lengths.get(key, 0.0) + row["ms"]
    told = {row["trace_id"]: row["total_ms"] for row in spark.read.parquet(f"{tmp_path}/out/failovers").collect()}
    assert told == {row["trace_id"]: row["total_ms"] for row in again.failovers}
    for trace_id, total in told.items():
        assert max(ms for key, ms in lengths.items() if key[0] == trace_id) == pytest.approx(total)
    assert "broker 2" in again.to_text()
    assert json.loads(again.to_json())["failovers"] == again.failovers


def test_nothing_to_read_is_said(spark, tmp_path):
    with pytest.raises(AnalysisException, match="PATH_NOT_FOUND"):
        read_spans(spark, [f"{tmp_path}/*.jsonl"])
    found = report(spark, tmp_path, "nonsense")
    assert "No change of leadership in these traces." in found.to_text()
