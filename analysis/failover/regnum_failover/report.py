"""What comes out: Parquet, what was set aside, and a table for people or JSON for programs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession
from regnum_insight.attribution.changes import UNKNOWN_KIND, UNTRACED, Change
from regnum_insight.reporting.rows import chains_of, row_of, started
from regnum_insight.reporting.text import chain_text, tables_of

from regnum_failover.changes import changes_of
from regnum_failover.reading import Reading

FAILOVERS_DIR: Final = "failovers"
"""Below the output: a row for each change of leadership."""
STAGES_DIR: Final = "stages"
"""Below the output: a row for each step of each chain."""
MALFORMED_DIR: Final = "malformed"
"""Below the output: what was set aside, as JSON lines."""

_FAILOVER: Final = {
    "trace_id": "STRING", "kind": "STRING", "cause": "STRING", "evidence": "STRING", "victim": "STRING",
    "controller": "STRING", "partitions": "BIGINT", "started": "STRING", "start_ns": "BIGINT", "complete": "BOOLEAN",
    "planned": "BOOLEAN", "unfinished": "BOOLEAN", "total_ms": "DOUBLE", "stages_ms": "MAP<STRING, DOUBLE>",
    "unexplained_ms": "DOUBLE", "missing": "ARRAY<STRING>", "before_root_ms": "DOUBLE", "outage_ms": "DOUBLE",
    "outage_partitions": "BIGINT", "worst": "STRING", "links": "ARRAY<STRING>",
}  # fmt: skip
_STAGE: Final = {
    "trace_id": "STRING", "kind": "STRING", "victim": "STRING", "started": "STRING", "partition": "STRING",
    "leader": "STRING", "client": "STRING", "seen_by": "STRING", "position": "INT", "stage": "STRING",
    "until": "STRING", "ms": "DOUBLE", "raw_ms": "DOUBLE", "bound_ms": "DOUBLE", "process": "STRING",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the job found."""

    changes: Sequence[Change]
    """All changes, oldest first, and outages of clients that no change names."""
    spans_n: int
    """Spans read, each once."""
    lines_malformed_n: int
    """Lines set aside."""
    spans_malformed_n: int
    """Spans set aside."""
    spans_repeated_n: int
    """Spans that came more than once."""
    out: str
    """Where the tables lie."""
    notes: Sequence[str] = ()
    """What else is to be known of them: what of the traces was left out."""

    @property
    def failovers(self) -> list[dict[str, Any]]:
        """A row for each change, as plain values."""
        return [row_of(change) for change in self.changes if change.kind != UNTRACED]

    @property
    def rootless_n(self) -> int:
        """Changes that began and whose root was never written."""
        return sum(1 for row in self.failovers if row["unfinished"] or row["kind"] == UNKNOWN_KIND)

    def to_json(self) -> str:
        """One JSON document."""
        value = {
            "failovers": self.failovers,
            "failovers_without_root": self.rootless_n,
            "spans": self.spans_n,
            "spans_repeated": self.spans_repeated_n,
            "malformed": {"lines": self.lines_malformed_n, "spans": self.spans_malformed_n},
            "out": self.out,
            **({"notes": list(self.notes)} if self.notes else {}),
        }
        return json.dumps(value, indent=2)

    def to_text(self) -> str:
        """Tables for people: changes of leaders and of controllers, times in milliseconds; and the longest chain."""
        parts = [tables_of(self.changes)]
        waited = [change for change in self.changes if change.chains and change.kind != UNTRACED]
        if waited:
            parts.append(chain_text(max(waited, key=lambda change: change.total_ms)))
        notes = [f"{self.spans_n:,} spans read; tables below {self.out}"]
        aside = self.lines_malformed_n + self.spans_malformed_n
        if aside:
            notes.append(
                f"{self.lines_malformed_n:,} torn lines and {self.spans_malformed_n:,} senseless spans "
                f"were set aside into {self.out}/{MALFORMED_DIR}"
            )
        if self.rootless_n:
            notes.append(f"{self.rootless_n:,} of them were never finished by the controller that noticed them")
        return "\n\n".join([*parts, "\n".join([*notes, *self.notes])])


def write_report(reading: Reading, out: str, *, named: str | None = None, notes: Sequence[str] = ()) -> Report:
    """Write the tables below ``out`` (what an earlier run left there is replaced) and return what they say.

    ``named`` is where they will lie in the end, when that is elsewhere.
    """
    spark = reading.spans.sparkSession
    found = changes_of(reading.spans).cache()
    _write(spark, found.filter(_is_change).map(_failover), _FAILOVER, f"{out}/{FAILOVERS_DIR}")
    _write(spark, found.filter(_is_change).flatMap(_stages), _STAGE, f"{out}/{STAGES_DIR}")
    reading.malformed.coalesce(1).write.mode("overwrite").json(f"{out}/{MALFORMED_DIR}")
    return Report(
        changes=sorted(found.collect(), key=lambda change: (change.start_ns, change.trace_id)),
        spans_n=reading.spans_n,
        lines_malformed_n=reading.lines_malformed_n,
        spans_malformed_n=reading.spans_malformed_n,
        spans_repeated_n=reading.spans_repeated_n,
        out=out if named is None else named,
        notes=notes,
    )


def _write(spark: SparkSession, rows: Any, columns: Mapping[str, str], folder: str) -> None:
    schema = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    spark.createDataFrame(rows, schema).coalesce(1).write.mode("overwrite").parquet(folder)


def _is_change(change: Change) -> bool:
    return change.kind != UNTRACED


def _failover(change: Change) -> tuple[Any, ...]:
    row: Mapping[str, Any] = row_of(change)
    return tuple(row[column] for column in _FAILOVER)


def _stages(change: Change) -> Iterator[tuple[Any, ...]]:
    for chain in chains_of(change):
        about = (change.trace_id, change.kind, change.victim or None, started(change), chain.name)
        of = (chain.leader or None, chain.client or None, chain.seen_by)
        for position, segment in enumerate(chain.segments):
            lengths = (segment.ms, segment.raw_ms, segment.bound_ms)
            yield (*about, *of, position, segment.step, segment.until, *lengths, segment.process)
