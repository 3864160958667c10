"""Tables that grow by what is new in a place of traces. Around Spark.

Goals: tables that are told from files as they come, in any number of runs, are those that one run over all of them
tells, as long as what belongs to one change comes before spans that ended ``settle_s`` later; and a run that is
repeated, also after it was killed in its middle, is the same run.

Algorithm: the ledger says how far files were read, and keeps the spans of changes of the last ``settle_s``. A run reads
what is new and what is kept, attributes each trace of which anything is new, puts its rows into the partitions where
they belong (``merging``), takes them out of others, and replaces the ledger last. Of older changes the ledger keeps a
mark: what comes to them later is counted, and their rows stay. Of traces that are no change it keeps nothing then.
"""

import json
import os
import pickle
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every reader of Spark code expects
from pyspark.sql.pandas.functions import arrow_udf
from regnum_insight.engine import no_collection
from regnum_insight.spans.growth import pieces_since
from regnum_insight.spans.intake import Tally
from regnum_insight.tables import columns
from regnum_insight.tables.rows import UNKNOWN_CLUSTER, Place

from regnum_failover.changes import gathered
from regnum_failover.objects.address import is_bucket
from regnum_failover.tables.in_process import BYTES_MAX, TracesHere, gather
from regnum_failover.tables.ledger import Ledger, Shelf, read_kept, read_ledger, write_kept, write_ledger
from regnum_failover.tables.merging import Merged, file_of, merge
from regnum_failover.tables.parquet import table_of, write
from regnum_failover.tables.placing import KEPT, TOLD, marked, placed
from regnum_failover.tables.shelves import alone, shelf_of
from regnum_failover.traces.options import Options
from regnum_failover.traces.pieces import of_identity
from regnum_failover.traces.plan import parts_between
from regnum_failover.traces.planned import Planned, write_plan
from regnum_failover.traces.source import records_of
from regnum_failover.traces.span_rows import rows_of

SETTLE_S: Final = 3_600.0
"""How much later than others a span of a change may come."""
_PLACED: Final = "ARRAY<STRUCT<cluster: STRING, date: STRING, told: BINARY, is_change: BOOLEAN>>"
_PLACE: Final = {"cluster": pa.string(), "date": pa.string(), "told": pa.binary(), "is_change": pa.bool_()}
_PLACES: Final = pa.list_(pa.struct([pa.field(name, kind) for name, kind in _PLACE.items()]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Growing:
    """What grows, and from what."""

    traces: str
    """Folder or bucket."""
    tables: str
    """Likewise; executors see a folder under the same absolute path."""
    days: float
    """Of a bucket of traces: objects written within so many days."""
    store_timeout_s: float
    """How long a bucket may be silent."""
    settle_s: float = SETTLE_S
    """See SETTLE_S."""
    with_spans: bool = False
    """Whether there is a table of spans."""
    here_bytes_max: int = BYTES_MAX
    """Packed spans that this process holds; what is more is read by Spark."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """``AWS_*`` variables besides those that each process has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grew:
    """What a run added."""

    run: int
    """Its number; 0: there was nothing new, and nothing was written."""
    changes: int = 0
    """Changes, and outages of no change, that were told or told anew."""
    late: int = 0
    """Traces of which spans came after their change was told for good: their rows stayed."""
    tally: Tally
    """What was read."""

    def to_json(self) -> str:
        """One JSON document."""
        aside = {"lines": self.tally.documents_torn_n, "spans": self.tally.spans_refused_n}
        unread = {"files": self.tally.files_n, "files_unread": self.tally.files_unread_n}
        read = {"spans": self.tally.spans_n, **unread, "malformed": aside}
        return json.dumps({"run": self.run, "changes": self.changes, "late": self.late, **read}, indent=2)

    def to_text(self, tables: str) -> str:
        """A sentence or two for people."""
        if not self.run:
            return f"nothing is new; tables below {tables}"
        aside = aside_of(self.tally)
        told = [
            f"run {self.run}: {self.changes:,} changes of {self.tally.spans_n:,} spans; tables below {tables}",
            f"{aside}: table {columns.QUARANTINE.name}" if aside else "",
            f"of {self.late:,} changes spans came too late (--settle-s): their rows stay" if self.late else "",
        ]
        return "\n".join(filter(None, told))


def aside_of(tally: Tally) -> str:
    """What could not be read, as the begin of a sentence; empty: all could."""
    counts = (
        (tally.documents_torn_n + tally.spans_refused_n, "documents and spans were set aside"),
        (tally.files_unread_n, "files could not be read"),
    )
    return ", ".join(f"{count:,} {what}" for count, what in counts if count)


def grow(session: Callable[[], AbstractContextManager[SparkSession]], of: Growing, *, now_s: float) -> Grew:
    """Add what is new. Raises NoTracesError, StoreError, AddressError, OSError.

    Args:
        session: opens Spark; it is not asked where nothing is new, or little.
        of: what grows.
        now_s: this moment.
    """
    with alone(of.tables), no_collection():
        return _grow(session, of, now_s)


def _grow(session: Callable[[], AbstractContextManager[SparkSession]], of: Growing, now_s: float) -> Grew:
    shelf = shelf_of(of.tables, {**os.environ, **of.variables}, of.store_timeout_s)
    ledger = read_ledger(shelf)
    options = Options(
        place=of.traces, plan=None, days=of.days, store_timeout_s=of.store_timeout_s, variables=of.variables
    )  # fmt: skip
    found = options.look(ledger.files, now_s)
    if not found and not ledger.files:
        # It says why, and what to do.
        options.listing(now_s)
    sizes = {key: file.size for key, file in found.items()}
    pieces = pieces_since(ledger.files, sizes, found)
    if not pieces:
        return Grew(run=0, tally=Tally())
    after = replace(ledger, run=ledger.run + 1, files=sizes)
    read = {piece.file for piece in pieces}
    keys = {} if is_bucket(of.traces) else {file.name: file.inode for file in found.values() if file.name in read}
    parts = parts_between(pieces)
    if len(parts) == 1:
        rows = rows_of(pieces, of_identity(keys) if keys else options.opened())
        kept = read_kept(shelf, ledger.kept) if ledger.kept else ()
        traces = gather(chain(kept, rows), bytes_max=of.here_bytes_max)
        if traces is not None:
            return _write(TracesHere(traces, shelf, after.run, with_spans=of.with_spans), of, shelf, after, now_s)
    with tempfile.TemporaryDirectory(prefix="regnum-tables-") as folder, session() as spark:
        plan = Path(folder) / "plan.json"
        write_plan(Planned(parts=parts, keys=keys, kept_at=of.tables, kept=ledger.kept), plan)
        records = records_of(spark, of.traces, plan=str(plan), store_timeout_s=str(of.store_timeout_s), **of.variables)
        placed = placed_of(gathered(records.groupBy("trace_id")), after.run, with_spans=of.with_spans)
        placed.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            return _write(_TracesInSpark(placed, of, after.run), of, shelf, after, now_s)
        finally:
            placed.unpersist()


def placed_of(traces: DataFrame, run: int, *, with_spans: bool) -> DataFrame:
    """Of traces as they are ``gathered`` the same, and ``placed``: the rows of each, in each of its places."""

    def of_traces(trace_ids: pa.Array, spans: pa.Array) -> pa.Array:
        told = zip(trace_ids.to_pylist(), spans.to_pylist(), strict=True)
        with no_collection():
            return pa.array([placed(*one, run, with_spans=with_spans) for one in told], _PLACES)

    # Its kind is told by the hints of the function; Spark's own stubs ask for a number, which Spark warns of.
    of = arrow_udf(of_traces, _PLACED)(F.col("trace_id"), F.col("spans"))  # type: ignore[call-overload]
    return traces.select("trace_id", F.unix_micros("ended").alias("ended_us"), "spans", of.alias("placed"))


def merged(
    placed: DataFrame, tables: str, run: int, timeout_s: float, variables: Mapping[str, str] | None = None
) -> list[Merged]:
    """Put the rows of ``placed_of`` into the partitions of a place, each in a task."""
    more = dict(variables or {})

    def put(clusters: pa.Array, dates: pa.Array, told: pa.Array) -> pa.Array:
        shelf = shelf_of(tables, {**os.environ, **more}, timeout_s)
        places = map(Place, clusters.to_pylist(), dates.to_pylist())
        # One after another: a partition may have much to tell.
        with no_collection():
            counts = [merge(shelf, here, some.as_py(), run) for here, some in zip(places, told, strict=True)]
        return pa.array(counts, pa.list_(pa.int64()))

    rows = placed.select(F.explode("placed").alias("one")).select("one.*")
    partitions = rows.groupBy("cluster", "date").agg(F.collect_list("told").alias("told"))
    counts = arrow_udf(put, "ARRAY<BIGINT>")("cluster", "date", "told")  # type: ignore[call-overload]
    return [Merged(*row["counts"]) for row in partitions.select(counts.alias("counts")).collect()]


class Traces(Protocol):
    """Traces of a run, gathered: by Spark, or by this process where they are few (``in_process``)."""

    def newest_us(self) -> int:
        """End of the latest span, in microseconds since 1970; 0: there is none."""
        ...

    def merged(self) -> list[Merged]:
        """Put all rows into their places. Raises StoreError, PySparkException."""
        ...

    def tally(self) -> Tally:
        """What was read."""
        ...

    def kept(self, settled_us: int) -> tuple[list[tuple[str, int, bytes]], int]:
        """What the ledger keeps: spans of traces that are open, and marks of those that were told for good.

        And to how many of the latter more came.
        """
        ...


class _TracesInSpark:
    """``Traces`` out of ``placed_of``."""

    def __init__(self, placed: DataFrame, of: Growing, run: int) -> None:
        self._placed = placed
        self._of = of
        self._run = run

    def newest_us(self) -> int:
        newest_us: int | None = self._told["newest"]
        return newest_us or 0

    def merged(self) -> list[Merged]:
        return merged(self._placed, self._of.tables, self._run, self._of.store_timeout_s, self._of.variables)

    def tally(self) -> Tally:
        tally = Tally()
        for of_tasks in self._told["tallies"]:
            for told in of_tasks:
                tally.add(pickle.loads(told))  # noqa: S301 - of this job's own workers
        return tally

    @cached_property
    def _told(self) -> Row:
        """What is asked of all rows at once: each query more costs a second, however small."""
        tallies = F.when(F.col("trace_id").isNull(), F.col("spans"))
        (told,) = self._placed.agg(
            F.max("ended_us").alias("newest"), F.collect_list(tallies).alias("tallies")
        ).collect()
        return told

    def kept(self, settled_us: int) -> tuple[list[tuple[str, int, bytes]], int]:
        spans = F.col("spans")
        told = F.array_contains(spans, F.lit(TOLD))
        is_open = (F.col("ended_us") > settled_us) & ~told
        is_change = F.exists(spans, lambda span: F.startswith(span, F.lit(KEPT))) | F.exists(
            "placed", lambda one: one["is_change"]
        )
        rows = self._placed.where(F.col("trace_id").isNotNull() & (is_open | told | is_change)).select(
            "trace_id",
            "ended_us",
            F.when(is_open, spans).alias("spans"),
            is_change.alias("is_change"),
            (told & (F.size(spans) > 1)).alias("late"),
        )
        found, late = [], 0
        for row in rows.toLocalIterator():
            late += row["late"]
            packs = None if row["spans"] is None else [bytes(pack) for pack in row["spans"]]
            kept = marked(packs, is_change=row["is_change"])
            found += [(row["trace_id"], row["ended_us"], pack) for pack in kept]
        return found, late


def _write(traces: Traces, of: Growing, shelf: Shelf, ledger: Ledger, now_s: float) -> Grew:
    # First: what is cached then has been told once.
    newest_us = max(traces.newest_us(), ledger.newest_us)
    # A span of a clock that is ahead settles no change that is not over, now or in the runs to come.
    newest_us = min(newest_us, round(now_s * 1e6))
    partitions = traces.merged()
    tally = traces.tally()
    _set_aside(shelf, tally, ledger.run, now_s)
    kept, late = traces.kept(newest_us - round(of.settle_s * 1e6))
    name = write_kept(shelf, ledger.run, kept)
    write_ledger(shelf, replace(ledger, newest_us=newest_us, kept=name, late=ledger.late + late))
    return Grew(run=ledger.run, changes=sum(one.told for one in partitions), late=late, tally=tally)


def _set_aside(shelf: Shelf, tally: Tally, run: int, now_s: float) -> None:
    """A file of the run, in the place of what an attempt of it left."""
    name, file = columns.QUARANTINE.name, f"run-{run}.parquet"
    for found in list(shelf.store.objects(shelf.key(name))):
        if found.key.endswith(f"/{file}"):
            shelf.store.remove(found.key)
    if tally.aside:
        rows: Sequence[tuple[Any, ...]] = [(run, one.file, one.reason, one.text) for one in tally.aside]
        place = Place(UNKNOWN_CLUSTER, _day(now_s))
        write(shelf.store, file_of(name, place, shelf.prefix, file), table_of(name, rows))


def _day(now_s: float) -> str:
    return datetime.fromtimestamp(now_s, UTC).date().isoformat()
