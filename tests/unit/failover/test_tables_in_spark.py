"""Tables that grow by Spark, run after run, are those of one process over everything; answers from them are alike."""

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from regnum_failover.__main__ import main
from regnum_failover.objects.folder import FolderStore
from regnum_failover.tables.growing import Grew, Growing, grow
from regnum_failover.tables.ledger import Ledger, Shelf, read_kept, read_ledger
from regnum_failover.tables.merging import file_of
from regnum_insight.tables.rows import Place
from regnum_telemetry import conventions as names
from regnum_testing.change_tables import content, put, questions, told_of, viewed
from regnum_testing.change_traces import golden, two_releases
from regnum_testing.otlp_lines import Spans, line
from regnum_testing.s3_server import Bucket, served

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]
PAGE = Path(__file__).parents[3] / "docs" / "tables.md"
NOW_S = 1_801_000_000.0
"""After these traces, which are of a year to come."""


def grown(
    spark, traces: Path | str, tables: Path | str, *, settle_s: float = 10**6, here: bool = False, **variables: str
) -> Grew:
    """A run by Spark; or, where it is ``here``, by this process."""
    growing = Growing(
        traces=str(traces),
        tables=str(tables),
        days=3650,
        store_timeout_s=30,
        settle_s=settle_s,
        with_spans=True,
        variables=variables,
        **({} if here else {"here_bytes_max": 0}),
    )
    return grow(lambda: nullcontext(spark), growing, now_s=NOW_S)


def plain(traces: Path, tables: Path) -> Path:
    put(told_of(traces), tables)
    return tables


def test_runs_over_files_as_they_come_tell_what_one_process_tells(spark, tmp_path):
    """Changes in halves, files that grow, spans that come twice; a run that dies in its middle, repeated with more."""
    whole, traces, tables = (tmp_path / name for name in ("whole", "traces", "tables"))
    two_releases(whole / "releases")
    golden(whole / "golden")
    expected = content(plain(whole, tmp_path / "expected"))
    files = sorted(file.relative_to(whole) for file in whole.rglob("*.jsonl"))
    # Of each change some processes' files come first, and of the golden ones half of the lines.
    for number, file in enumerate(files):
        (traces / file.parent).mkdir(parents=True, exist_ok=True)
        if number % 2:
            text = (whole / file).read_text(encoding="utf-8")
            (traces / file).write_text(text + '{"torn": ', encoding="utf-8")
    first = grown(spark, traces, tables)
    assert (first.run, first.late) == (1, 0)
    assert content(tables) != expected
    again = grown(spark, traces, tables)
    assert (again.run, again.changes) == (0, 0)

    # A folder where a file belongs: the run dies when other partitions are written.
    blocked = tables / file_of("segments", Place("green/1", "2027-01-17"))
    aside = tmp_path / "aside.parquet"
    blocked.rename(aside)
    (blocked / "x").mkdir(parents=True)
    for number, file in enumerate(files):
        if not number % 4:
            shutil.copy(whole / file, traces / file)
    ledger = (tables / "_ledger" / "ledger.json").read_text(encoding="utf-8")
    with pytest.raises(PySparkException):
        grown(spark, traces, tables)
    assert (tables / "_ledger" / "ledger.json").read_text(encoding="utf-8") == ledger
    shutil.rmtree(blocked)
    aside.rename(blocked)
    for number, file in enumerate(files):
        if number % 4 == 2:
            shutil.copy(whole / file, traces / file)
    second = grown(spark, traces, tables)
    assert (second.run, second.late) == (2, 0)
    assert content(tables) == expected


def ledger_of(tables: Path) -> tuple[Ledger, list[dict[str, Any]]]:
    """What is known after a run, and the spans that it keeps, in some order of theirs."""
    shelf = Shelf(FolderStore(tables), "")
    ledger = read_ledger(shelf)
    rows = [row for batch in read_kept(shelf, ledger.kept) for row in batch.to_pylist()]
    return ledger, sorted(rows, key=lambda row: (row["trace_id"], row["span"]))


def test_runs_of_spark_and_runs_without_it_are_the_same_runs(spark, tmp_path):
    """Of each run rows, counts, ledger and what it keeps: parts of changes, late spans, traces of no change."""
    whole, traces = tmp_path / "whole", tmp_path / "traces"
    golden(whole / "golden")
    two_releases(whole / "releases")
    by_spark, plain_run = tmp_path / "spark", tmp_path / "plain"
    files = sorted(file.relative_to(whole) for file in whole.rglob("*.jsonl"))
    for step in range(3):
        for file in files[step::3]:
            (traces / file.parent).mkdir(parents=True, exist_ok=True)
            shutil.copy(whole / file, traces / file)
        batch = Spans(900 + step)
        batch.add(names.SEND_TO_TOPIC.format(topic="orders"), step * 86_400_000.0, step * 86_400_000.0 + 5)
        (traces / f"torn-{step}.jsonl").write_text(f"nonsense\n{line(batch.made)}\n", encoding="utf-8")
        told = [grown(spark, traces, out, settle_s=3600, here=out is plain_run) for out in (by_spark, plain_run)]
        assert told[0].to_json() == told[1].to_json()
        assert told[0].changes
        assert content(by_spark) == content(plain_run)
        assert ledger_of(by_spark) == ledger_of(plain_run)
    assert ledger_of(plain_run)[0].late


def test_spark_and_duckdb_answer_an_analyst_alike(spark, tmp_path):
    traces, tables = tmp_path / "traces", tmp_path / "tables"
    two_releases(traces)
    grown(spark, traces, tables)
    with viewed(tables) as database:
        answers = [database.execute(query).fetchall() for query in questions(PAGE)]
    for folder in tables.iterdir():
        if not folder.name.startswith("_"):
            spark.read.parquet(str(folder)).createOrReplaceTempView(folder.name)
    assert len(answers) == 6
    assert [[tuple(row) for row in spark.sql(query).collect()] for query in questions(PAGE)] == answers
    assert all(answers)


def test_what_comes_after_a_change_was_told_for_good_is_counted(spark, tmp_path):
    whole, traces, tables = (tmp_path / name for name in ("whole", "traces", "tables"))
    two_releases(whole)
    (traces / "01").mkdir(parents=True)
    (traces / "05").mkdir()
    late = "client-7.jsonl"
    for file in (whole / "01").iterdir():
        if file.name != late:
            shutil.copy(file, traces / "01")
    for file in (whole / "05").iterdir():
        shutil.copy(file, traces / "05")
    (traces / "torn.jsonl").write_text("nonsense\n", encoding="utf-8")
    expected = grown(spark, traces, tables, settle_s=3600)
    before = content(tables)
    assert (expected.changes, [row["text"] for row in before["quarantine"]]) == (2, ["nonsense"])
    shutil.copy(whole / "01" / late, traces / "01")
    told = grown(spark, traces, tables, settle_s=3600)
    assert (told.changes, told.late) == (0, 1)
    assert "of 1 changes spans came too late" in told.to_text("there")
    assert content(tables) == before


def test_from_one_bucket_into_another(spark, tmp_path, monkeypatch, capsys):
    two_releases(tmp_path / "traces")
    bucket = Bucket(page=1000)
    with served(bucket) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        from regnum_failover.objects.address import parse  # noqa: PLC0415
        from regnum_failover.objects.s3 import S3ObjectStore  # noqa: PLC0415

        store = S3ObjectStore(parse("s3://traces-of-ours"), variables, timeout_s=30)
        for file in (tmp_path / "traces").rglob("*.jsonl"):
            store.write(f"in/{file.parent.name}/{file.name}", file)
        told = grown(spark, "s3://traces-of-ours/in", "s3://traces-of-ours/out", **variables)
        assert told.changes == 12
        for found in store.objects("out"):
            path = tmp_path / found.key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"".join(store.read(found.key)))
        assert content(tmp_path / "out") == content(plain(tmp_path / "traces", tmp_path / "expected"))
        # Nothing is new: Spark is not asked for.
        assert main(["s3://traces-of-ours/in", "s3://traces-of-ours/out", "--tables", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"] == 0
