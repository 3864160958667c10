"""Tables of changes without Spark, and the questions of their page."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from regnum_failover.objects.folder import FolderStore
from regnum_failover.objects.store import ObjectStore
from regnum_failover.tables.ledger import Shelf
from regnum_failover.tables.merging import Merged, Told, merge, packed
from regnum_insight.attribution.changes import SELECTION, change_of, trace_of
from regnum_insight.spans.intake import read_folder
from regnum_insight.tables.columns import TABLES
from regnum_insight.tables.rows import Place, place_of, places_of, rows_of


def told_of(traces: Path, run: int = 1, *, known: bool = False) -> dict[Place, list[bytes]]:
    """What one process tells of a folder of traces, by the partitions that it belongs in."""
    told: dict[Place, list[bytes]] = defaultdict(list)
    for spans in read_folder(traces, SELECTION, trace_of=trace_of).traces():
        change = change_of(spans)
        if change is not None:
            here = place_of(change)
            for place in {*places_of(spans), here}:
                rows = rows_of(change, spans, run, with_spans=True) if place == here else {}
                told[place].append(packed(Told(change.trace_id, known, rows)))
    return told


def put(told: Mapping[Place, Sequence[bytes]], tables: Path, run: int = 1) -> list[Merged]:
    """Put it into a folder of tables."""
    return put_into(FolderStore(tables), told, run)


def put_into(store: ObjectStore, told: Mapping[Place, Sequence[bytes]], run: int) -> list[Merged]:
    """Put it into tables at the root of a store. Raises StoreError."""
    shelf = Shelf(store, "")
    return [merge(shelf, place, some, run) for place, some in sorted(told.items())]


def content(tables: Path) -> dict[str, list[dict[str, Any]]]:
    """All rows of a folder by the name of their table, but for the run that told them."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name in TABLES:
        rows: list[dict[str, Any]] = []
        for file in sorted((tables / name).rglob("*.parquet")):
            table: pa.Table = pq.ParquetFile(file).read()
            place = file.parent.relative_to(tables / name).as_posix()
            rows += [{**row, "place": place, "run": None} for row in table.to_pylist()]
        found[name] = rows
    return found


def questions(page: Path) -> list[str]:
    """Queries of a page of documentation."""
    return re.findall(r"```sql\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def viewed(tables: Path) -> duckdb.DuckDBPyConnection:
    """A connection with a view of each table that is there."""
    database = duckdb.connect()
    database.execute("SET threads = 1; SET TimeZone = 'UTC'")
    for folder in sorted(tables.iterdir()):
        if folder.name in TABLES:
            database.execute(
                f"CREATE VIEW {folder.name} AS FROM read_parquet('{folder}/**/*.parquet', hive_partitioning = true)"
            )
    return database
