"""Hand-made spans in, failovers out."""

import json
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from regnum_failover.reading import Reading, read_spans
from regnum_failover.report import Report, write_report
from regnum_telemetry import conventions as names
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


def test_the_stages_of_the_conventions_own_example(spark, tmp_path):
    (row,) = report(spark, tmp_path, line(broker_failover(1, 0))).failovers
    assert row["stages_ms"] == {
        "detection": 110,
        "fence": 3,
        "decision": 1,
        "store_write": 3,
        "become_leader": 5,
        "dispatch": 3,
        "metadata": 0,
        "first_append": 65,
        "first_acknowledged": 6,
    }
    assert (row["total_ms"], row["outage_ms"], row["outage_partitions"]) == (196, 206, 2)
    assert (row["kind"], row["victim"], row["partitions"], row["cause"]) == (
        "failover",
        "broker 2",
        3,
        "lifeline broken",
    )
    assert row["complete"]
    assert row["missing"] == []


@pytest.mark.full
def test_a_stage_that_nobody_recorded_is_named_and_the_sum_still_holds(spark, tmp_path):
    left_out = (names.WRITTEN_UNIX_NANO, names.BECOME_LEADER, names.OUTAGE)
    (row,) = report(spark, tmp_path, line(broker_failover(1, 0, left_out=left_out))).failovers
    assert row["missing"] == ["store_write", "become_leader", "first_append", "first_acknowledged"]
    assert row["stages_ms"]["dispatch"] == 11
    assert row["total_ms"] == 125
    assert row["outage_ms"] is None
    assert adds_up(row)


@pytest.mark.full
def test_failovers_at_the_same_time_are_kept_apart(spark, tmp_path):
    one, other = broker_failover(1, 0), broker_failover(2, 50, victim=3)
    mixed = [span for pair in zip(one, other, strict=True) for span in pair]
    found = report(spark, tmp_path, line(mixed[::2]), line(mixed[1::2]), line(succession(3, 60))).failovers
    assert [row["victim"] for row in found] == ["broker 2", "broker 3", "controller 1"]
    assert [row["total_ms"] for row in found] == [196, 196, 80]
    assert all(adds_up(row) for row in found)


def test_a_succession_has_stages_of_its_own(spark, tmp_path):
    (row,) = report(spark, tmp_path, line(succession(3, 0))).failovers
    assert row["stages_ms"] == {
        "detection": 5,
        "fence": 10,
        "campaign": 15,
        "load": 15,
        "verify": 5,
        "dispatch": 20,
        "metadata": 10,
    }
    assert row["kind"] == "succession"


@pytest.mark.full
def test_an_outage_in_a_trace_of_its_own_belongs_to_the_failover_it_names(spark, tmp_path):
    failover = broker_failover(1, 0, left_out=(names.OUTAGE,))
    apart = Spans(2)
    named = {names.TOPIC: "t", names.PARTITION: "0", names.RETRIED: True, names.FAILOVER_TRACE_ID: f"{1:032x}"}
    apart.add(names.OUTAGE, -20, 230, **named)
    (row,) = report(spark, tmp_path, line(failover), line(apart.made, service="producer")).failovers
    assert (row["outage_ms"], row["stages_ms"]["first_acknowledged"], row["total_ms"]) == (250, 40, 230)


@pytest.mark.full
def test_a_failover_that_lost_its_controller_is_counted(spark, tmp_path):
    found = report(spark, tmp_path, line(broker_failover(1, 0, left_out=(names.FAILOVER,))))
    assert (list(found.failovers), found.rootless_n) == ([], 1)
    assert "1 more began" in found.to_text()


@pytest.mark.full
def test_tables_are_written_and_written_again(spark, tmp_path):
    reading = read(spark, tmp_path, line(broker_failover(1, 0)), line(succession(3, 0)))
    write_report(reading, str(tmp_path / "out"))
    again = write_report(reading, str(tmp_path / "out"))
    stages = spark.read.parquet(f"{tmp_path}/out/stages")
    totals = {row["trace_id"]: row["sum(ms)"] for row in stages.groupBy("trace_id").sum("ms").collect()}
    assert totals == pytest.approx({f"{1:032x}": 196.0, f"{3:032x}": 80.0})
    assert spark.read.parquet(f"{tmp_path}/out/failovers").count() == 2
    text = again.to_text()
    assert "broker 2" in text
    assert "196.0" in text
    assert json.loads(again.to_json())["failovers"] == list(again.failovers)


def test_nothing_to_read_is_said(spark, tmp_path):
    with pytest.raises(AnalysisException, match="PATH_NOT_FOUND"):
        read_spans(spark, [f"{tmp_path}/*.jsonl"])
    found = report(spark, tmp_path, "nonsense")
    assert "No failover in these traces." in found.to_text()
