"""Runs over little take no Spark, and leave the tables of one process over everything; more is left to Spark."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from regnum_failover.objects.folder import FolderStore
from regnum_failover.tables.growing import Grew, Growing, grow
from regnum_failover.tables.in_process import gather
from regnum_failover.tables.ledger import Shelf, read_kept, read_ledger
from regnum_failover.traces.packs import bytes_of
from regnum_failover.traces.pieces import of_path
from regnum_failover.traces.span_rows import rows_of
from regnum_insight.spans.growth import Piece
from regnum_insight.spans.intake import Tally
from regnum_telemetry import conventions as names
from regnum_testing.change_tables import content, put, told_of
from regnum_testing.change_traces import golden, two_releases
from regnum_testing.otlp_lines import BASE_NS, Spans, line

NOW_S = 1_801_000_000.0
"""After these traces, which are of a year to come."""


class SparkAskedError(Exception):
    """A run wanted Spark."""


@contextmanager
def no_spark() -> Iterator[SparkSession]:
    raise SparkAskedError
    yield


def grown(traces: Path, tables: Path, *, settle_s: float = 10**6, now_s: float = NOW_S, **more: int) -> Grew:
    growing = Growing(
        traces=str(traces),
        tables=str(tables),
        days=30,
        store_timeout_s=30,
        settle_s=settle_s,
        with_spans=True,
        **more,
    )
    return grow(no_spark, growing, now_s=now_s)


def copied(files: list[Path], whole: Path, traces: Path) -> None:
    for file in files:
        (traces / file.parent).mkdir(parents=True, exist_ok=True)
        shutil.copy(whole / file, traces / file)


def test_runs_over_files_as_they_come_tell_what_one_process_tells(tmp_path):
    """Changes in thirds, and spans that come twice."""
    whole, traces, tables = (tmp_path / name for name in ("whole", "traces", "tables"))
    two_releases(whole / "releases")
    golden(whole / "golden")
    put(told_of(whole), tmp_path / "expected")
    files = sorted(file.relative_to(whole) for file in whole.rglob("*.jsonl"))
    for step in range(3):
        copied(files[step::3], whole, traces)
        told = grown(traces, tables)
        assert (told.run, told.late) == (step + 1, 0)
    copied(files[:1], whole, traces / "again")
    assert grown(traces, tables).late == 0
    assert content(tables) == content(tmp_path / "expected")
    assert grown(traces, tables).run == 0


def test_what_comes_after_a_change_was_told_for_good_is_counted(tmp_path):
    whole, traces, tables = (tmp_path / name for name in ("whole", "traces", "tables"))
    two_releases(whole)
    late = Path("01/client-7.jsonl")
    copied([Path("05") / file.name for file in (whole / "05").iterdir()], whole, traces)
    copied([Path("01") / file.name for file in (whole / "01").iterdir() if file.name != late.name], whole, traces)
    assert grown(traces, tables, settle_s=3600).changes == 2
    before = content(tables)
    copied([late], whole, traces)
    told = grown(traces, tables, settle_s=3600)
    assert (told.changes, told.late) == (0, 1)
    assert content(tables) == before


def test_a_span_of_a_clock_that_is_ahead_settles_no_change(tmp_path):
    """Half a change, and a span of a year later: the other half is told when it comes, in the next run."""
    whole, traces, tables = (tmp_path / name for name in ("whole", "traces", "tables"))
    two_releases(whole)
    files = sorted(file.relative_to(whole) for file in (whole / "01").iterdir())
    copied(files[1:], whole, traces)
    ahead = Spans(99)
    ahead.add(names.OUTAGE, 0, 365 * 86_400_000)
    (traces / "ahead.jsonl").write_text(f"{line(ahead.made)}\n", encoding="utf-8")
    soon_s = BASE_NS / 1e9 + 60
    grown(traces, tables, settle_s=3600, now_s=soon_s)
    copied(files[:1], whole, traces)
    assert grown(traces, tables, settle_s=3600, now_s=soon_s).late == 0
    put(told_of(whole / "01"), tmp_path / "expected")
    assert content(tables)["changes"] == content(tmp_path / "expected")["changes"]


def test_an_odd_span_stops_no_run(tmp_path):
    """A name of a cluster that no folder can have, and a number that no column has room for."""
    spans = Spans(1)
    for number, name in ((7, names.LEADERSHIP_CHANGE), (3_000_000_000, names.FIRST_APPEND), (2**40, names.OUTAGE)):
        spans.add(name, 0, 5, **{names.PARTITION: number, names.TOPIC: "t"})
    odd = line(spans.made, resource={names.CLUSTER_ID: "\u00e4" * 300})
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "a.jsonl").write_text(f"{odd}\n", encoding="utf-8")
    assert grown(tmp_path / "traces", tmp_path / "tables").changes == 1
    rows = content(tmp_path / "tables")["spans"]
    assert sorted((row["partition"] or 0, row["place"].partition("/")[0]) for row in rows) == [
        (0, "cluster=unknown"), (0, "cluster=unknown"), (7, "cluster=unknown"),
    ]  # fmt: skip
    assert {dict(row["attributes"])[names.PARTITION] for row in rows} == {"3000000000", str(2**40), "7"}


def test_traces_that_are_no_change_are_kept_while_more_may_come_and_leave_no_mark(tmp_path):
    """Each traced batch of a producer is one: marks of them all would fill the ledger."""
    whole, traces, tables = (tmp_path / name for name in ("whole", "traces", "tables"))
    two_releases(whole)
    traces.mkdir()
    batches = Spans(77)
    batches.add(names.SEND_TO_TOPIC.format(topic="orders"), 0, 5)
    (traces / "client.jsonl").write_text(f"{line(batches.made)}\n", encoding="utf-8")
    shelf = Shelf(FolderStore(tables), "")

    def kept() -> set[str]:
        found = [row for batch in read_kept(shelf, read_ledger(shelf).kept) for row in batch.to_pylist()]
        assert len({(row["trace_id"], row["span"]) for row in found}) == len(found)
        return {row["trace_id"] for row in found}

    grown(traces, tables, settle_s=3600)
    assert kept() == {batches.trace_id}
    # A change of days later, and nothing new of the batch.
    copied([Path("05") / file.name for file in (whole / "05").iterdir()], whole, traces)
    changes = grown(traces, tables, settle_s=3600).changes
    assert changes == 1
    assert batches.trace_id not in kept()
    # Changes that are told for good have their marks.
    copied([Path("09") / file.name for file in (whole / "09").iterdir()], whole, traces)
    before = kept()
    grown(traces, tables, settle_s=3600)
    assert before < kept()


def test_more_than_this_process_may_hold_is_left_to_spark_and_nothing_is_written_before(tmp_path):
    golden(tmp_path / "traces")
    with pytest.raises(SparkAskedError):
        grown(tmp_path / "traces", tmp_path / "tables", here_bytes_max=10_000)
    assert [path.name for path in (tmp_path / "tables").rglob("*") if path.is_file()] == [".lock"]


def test_a_run_says_what_it_could_not_read():
    grew = Grew(run=3, tally=Tally(files_n=5, files_unread_n=2, documents_torn_n=1, spans_refused_n=3))
    text = grew.to_text("/tables").splitlines()
    assert text[1:] == ["4 documents and spans were set aside, 2 files could not be read: table quarantine"]
    assert json.loads(grew.to_json())["files_unread"] == 2


def test_what_is_gathered_has_a_bound(tmp_path):
    golden(tmp_path)
    pieces = [Piece(str(file)) for file in sorted(tmp_path.rglob("*.jsonl"))]
    packs = [pack for batch in rows_of(pieces, of_path) for pack in batch.column("span").to_pylist()]
    size = sum(map(bytes_of, packs))
    assert gather(rows_of(pieces, of_path), bytes_max=size - 1) is None
    traces = gather(rows_of(pieces, of_path), bytes_max=size)
    assert traces is not None
    # What is held is less: spans of a trace that lie together are compressed.
    assert sum(len(pack) for of in traces.values() for pack in of.packs) < size
