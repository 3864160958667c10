"""Tables of changes: what is put in twice is there once, and analysts' questions have answers."""

import datetime as dt
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from regnum_failover.objects.folder import FolderStore
from regnum_failover.objects.store import StoreError
from regnum_failover.tables.ledger import Ledger, Shelf, read_kept, read_ledger, write_kept, write_ledger
from regnum_failover.tables.merging import Told, file_of, merge, packed
from regnum_failover.tables.shelves import alone
from regnum_insight.spans.span import Span
from regnum_insight.tables.columns import TABLES, VERSION, Type
from regnum_insight.tables.reading import TablesError, rows_of_table
from regnum_insight.tables.rows import PLACES_MAX, Place, percentiles_of, places_of
from regnum_insight.tables.trends import COLUMNS, Period, trends_of, trends_text, trends_values
from regnum_telemetry import conventions as names
from regnum_testing.change_tables import content, put, put_into, questions, told_of, viewed
from regnum_testing.change_traces import FullChangeTrace, two_releases

PAGE = Path(__file__).parents[3] / "docs" / "tables.md"


class DyingStore(FolderStore):
    """Of a process that is killed before its n-th write."""

    def __init__(self, root: Path, writes: int) -> None:
        super().__init__(root)
        self._left = writes

    def write(self, key: str, content: Path | bytes) -> None:
        if not self._left:
            raise StoreError("killed")
        self._left -= 1
        super().write(key, content)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("releases")
    two_releases(folder)
    return folder


@pytest.fixture(scope="module")
def tables(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    put(told_of(traces), folder)
    return folder


def test_spans_that_name_any_clusters_and_days_belong_to_no_more_places_than_a_bound():
    day_ns = 86_400 * 10**9

    def spans(n: int) -> list[Span]:
        return [
            Span("a" * 32, f"{i:016x}", "", names.OUTAGE, 4, i * day_ns, i * day_ns + 1, "c", {}, (), "", f"c{i}")
            for i in range(1, n + 1)
        ]

    assert [place.date for place in places_of(spans(2))] == ["1970-01-02", "1970-01-03"] * 2
    assert len(places_of(spans(8))) == PLACES_MAX
    assert places_of(spans(9)) == places_of(spans(300)) == []


def test_files_lie_by_cluster_and_day_and_say_their_version(tables):
    changes = tables / "changes"
    found = sorted(file.relative_to(changes).as_posix() for file in changes.rglob("*.parquet"))
    places = [f"cluster={cluster}/date=2027-01-{day}" for cluster in ("blue", "green%2F1") for day in (15, 16, 17)]
    assert found == [f"{place}/part-0.parquet" for place in places]
    for name, table in TABLES.items():
        for file in (tables / name).rglob("*.parquet"):
            schema = pq.read_schema(file)
            assert schema.names == [column.name for column in table.columns]
            assert schema.metadata[b"regnum.tables.version"] == str(VERSION).encode()
    rows = content(tables)
    told = rows["changes"]
    assert len(told) == 12
    assert all(sum(dict(row["steps_ms"]).values()) == pytest.approx(row["total_ms"]) for row in told)
    assert {row["version"] for row in told} == {"1.0.0", "1.1.0"}
    assert len(rows["store_writes"]) == 10 * 2 + 2
    assert {row["span_kind"] for row in rows["spans"]} == {1, 2, 3, 4, 5}


def test_the_page_has_every_column():
    text = PAGE.read_text(encoding="utf-8")
    for table in TABLES.values():
        lines = "\n".join(f"| `{column.name}` | {column.type} | {column.about} |" for column in table.columns)
        assert (
            f"### {table.name}\n\nA row is {table.about}.\n\n| column | type | what it says |\n|---|---|---|\n{lines}"
            in text
        )
    assert f"it is **{VERSION}**" in text
    assert set(Type) == {column.type for table in TABLES.values() for column in table.columns}


def test_six_questions_of_an_analyst(tables):
    with viewed(tables) as database:
        answers = [database.execute(query).fetchall() for query in questions(PAGE)]
    worst, grew, slowest, planned, skew, detection = answers
    # The last of the kills: each of its steps takes 11 ms more, and to lead 20 ms besides.
    assert worst[0][:3] == (dt.date(2027, 1, 17), 8, 8)
    assert grew == [("leads", 9.0, 35.0)]
    assert (slowest[0][0], slowest[0][1]) == ("2", 12)
    assert [row[:2] for row in planned] == [(False, 10), (True, 2)]
    assert planned[0][3] == 103 + 16 * 11 + 20
    assert ("broker 2", 502.5, False) in [(row[0], row[2], row[3]) for row in skew]
    steps = 39 * 10 + 2 * (sum(range(1, 12)) - 6)
    whole = 103 * 10 + 16 * (sum(range(1, 12)) - 6) + 20 * 5
    assert detection == [(round(steps / whole, 6),)]


def test_what_is_put_in_again_is_there_once(traces, tmp_path):
    """Killed at a write, and repeated: with what it had, and with what came meanwhile."""
    first, all_of_it = told_of(traces / "01"), {**told_of(traces / "01"), **told_of(traces / "02")}
    put(all_of_it, tmp_path / "once")
    expected = content(tmp_path / "once")
    # Percentiles go first, then changes; a whole partition is seven writes and more.
    for writes, told in ((1, first), (10, all_of_it)):
        out = tmp_path / f"{writes}"
        with pytest.raises(StoreError, match="killed"):
            put_into(DyingStore(out, writes), told, 1)
        put(all_of_it, out)
        assert content(out) == expected
    put(all_of_it, out)
    assert content(out) == expected


def test_a_change_of_which_more_comes_is_told_anew_and_one_that_was_told_for_good_stays(tmp_path):
    change = FullChangeTrace(1, before_ms=57_600_000 - 30)
    part, whole, other = (tmp_path / name for name in ("part", "whole", "other"))
    # Without its controller the change begins with what a client saw, the day before.
    change.write(part, without=["election 1"], resource={names.CLUSTER_ID: "blue"})
    change.write(whole, resource={names.CLUSTER_ID: "blue"})
    put(told_of(whole, 2), other, 2)
    tables = tmp_path / "tables"
    first = put(told_of(part, 1), tables, 1)
    assert [row["kind"] for row in content(tables)["changes"]] == ["unknown"]
    assert sum(one.told for one in first) == 1
    put(told_of(whole, 2, known=True), tables, 2)
    assert content(tables) == content(other)
    # What comes alone, later, is late: a row that says less takes the place of none.
    late = put(told_of(whole, 3), tables, 3)
    assert sum(one.late for one in late) == 1
    assert content(tables) == content(other)


def test_a_partition_of_another_version_is_left_alone(tables, tmp_path):
    shutil.copytree(tables, tmp_path / "old")
    place = Place("blue", "2027-01-15")
    file = tmp_path / "old" / file_of("changes", place)
    table = pq.ParquetFile(file).read()
    pq.write_table(table.replace_schema_metadata({b"regnum.tables.version": b"99"}), file)
    with pytest.raises(StoreError, match=re.escape("is of version 99 of the tables, and this is 1")):
        merge(Shelf(FolderStore(tmp_path / "old"), ""), place, [packed(Told("a", False, {}))], 2)


def test_a_ledger_is_replaced_last_and_by_one_run_only(tmp_path):
    shelf = Shelf(FolderStore(tmp_path), "")
    assert read_ledger(shelf) == Ledger()
    kept = write_kept(shelf, 1, [("a", 5, b"Kx"), ("b", 6, b"Ky")])
    write_ledger(shelf, Ledger(run=1, files={"1:2": 3}, newest_us=6, kept=kept))
    assert [row["span"] for batch in read_kept(shelf, kept) for row in batch.to_pylist()] == [b"Kx", b"Ky"]
    with pytest.raises(StoreError, match="another run wrote into _ledger"):
        write_ledger(shelf, Ledger(run=1))
    write_ledger(shelf, Ledger(run=2, kept=write_kept(shelf, 2, [])))
    assert read_ledger(shelf).run == 2
    assert sorted(path.name for path in (tmp_path / "_ledger").iterdir()) == ["kept-2.parquet", "ledger.json"]
    with pytest.raises(StoreError, match="the ledger names it"):
        list(read_kept(shelf, kept))


def test_one_run_at_a_time(tmp_path):
    with alone(str(tmp_path)), pytest.raises(StoreError, match="another run writes into"), alone(str(tmp_path)):
        pass
    with alone(str(tmp_path)), alone("s3://bucket"), alone("s3://bucket"):
        pass


def test_percentiles_are_of_one_hour_kind_and_release():
    of = {"hour": 8, "kind": "balance", "version": "1", "outage_ms": None, "steps_ms": ()}
    rows = [
        tuple({**of, "total_ms": float(n), **more}.get(column.name) for column in TABLES["changes"].columns)
        for n, more in ((1, {}), (2, {}), (3, {"steps_ms": (("sent", 2.0),)}), (9, {"version": None, "outage_ms": 4.0}))
    ]
    assert percentiles_of(rows) == [
        (8, "balance", "1", "all", 3, 2.0, 3.0, 3.0, 3.0),
        (8, "balance", "1", "sent", 1, 2.0, 2.0, 2.0, 2.0),
        (8, "balance", None, "all", 1, 9.0, 9.0, 9.0, 9.0),
        (8, "balance", None, "outage", 1, 4.0, 4.0, 4.0, 4.0),
    ]


def test_trends_are_told_by_month_and_by_release(tables):
    rows = list(rows_of_table(tables, "changes", COLUMNS))
    found = trends_of(rows, Period.MONTH)
    assert [(part.begin, part.cluster, part.changes, part.planned) for part in found.parts] == [
        (dt.date(2027, 1, 1), "blue", 6, 0), (dt.date(2027, 1, 1), "green/1", 6, 2),
    ]  # fmt: skip
    assert [part.begin.day for part in trends_of(rows, Period.DAY).parts] == [15, 15, 16, 16, 17, 17]
    assert {part.begin for part in trends_of(rows, Period.WEEK).parts} == {dt.date(2027, 1, 11)}
    # (Twice: of six kills nothing is said.)
    found = trends_of(rows * 2, Period.MONTH)
    failures, planned = found.releases
    assert (failures.earlier, failures.later, failures.planned) == ("1.0.0", "1.1.0", False)
    # Every step takes 6 ms more with each later trace; to lead 20 ms more than that.
    assert failures.regressions[0].step == "leads"
    assert planned.regressions == []
    text = trends_text(found)
    assert "1.0.0 to 1.1.0, failures: longer: leads" in text
    assert "too few changes: 2 and 2" in text
    assert trends_values(found)["releases"][0]["regressions"][0] == "leads"
    late = list(rows_of_table(tables, "changes", COLUMNS, dt.date(2027, 1, 17)))
    assert {row["version"] for row in late} == {"1.1.0"}
    with pytest.raises(TablesError, match="there are no tables in"):
        list(rows_of_table(tables / "changes", "changes", COLUMNS))
    assert trends_text(trends_of([], Period.DAY)) == "No change of leadership in these tables."
