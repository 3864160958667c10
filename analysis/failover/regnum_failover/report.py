"""What comes out: Parquet, what was set aside, and a table for people or JSON for programs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every reader of Spark code expects
from regnum_telemetry import conventions as names

from regnum_failover.reading import Reading
from regnum_failover.stages import ORDER, failovers, rootless

FAILOVERS_DIR: Final = "failovers"
"""Below the output: a row for each failover."""
BY_PRODUCERS: Final = (names.FIRST_APPEND_STAGE, names.FIRST_ACKNOWLEDGED_STAGE)
"""Stages that are there only when a producer waited."""
STAGES_DIR: Final = "stages"
"""Below the output: a row for each stage of each failover."""
MALFORMED_DIR: Final = "malformed"
"""Below the output: what was set aside, as JSON lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the job found."""

    failovers: Sequence[Mapping[str, Any]]
    """A row for each failover, oldest first, as plain values."""
    rootless_n: int
    """Failovers that began and whose root was never written."""
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

    def to_json(self) -> str:
        """One JSON document."""
        value = {
            "failovers": list(self.failovers),
            "failovers_without_root": self.rootless_n,
            "spans": self.spans_n,
            "spans_repeated": self.spans_repeated_n,
            "malformed": {"lines": self.lines_malformed_n, "spans": self.spans_malformed_n},
            "out": self.out,
            **({"notes": list(self.notes)} if self.notes else {}),
        }
        return json.dumps(value, indent=2)

    def to_text(self) -> str:
        """Tables for people: one for each kind of failover that there was, times in milliseconds."""
        parts = [
            _table([row for row in self.failovers if row["kind"] == kind], stages) for kind, stages in ORDER.items()
        ]
        if not self.failovers:
            parts.append("No failover in these traces.")
        notes = [f"{self.spans_n:,} spans read; tables below {self.out}"]
        aside = self.lines_malformed_n + self.spans_malformed_n
        if aside:
            notes.append(
                f"{self.lines_malformed_n:,} torn lines and {self.spans_malformed_n:,} senseless spans "
                f"were set aside into {self.out}/{MALFORMED_DIR}"
            )
        if self.rootless_n:
            notes.append(f"{self.rootless_n:,} more began and were never finished by the controller that noticed them")
        for row in self.failovers:
            # Without a producer that waited there is nothing to acknowledge, and without partitions nothing to do.
            unrecorded = [name for name in row["missing"] if name not in BY_PRODUCERS or row["outage_partitions"]]
            if unrecorded and row["partitions"]:
                notes.append(f"{row['victim']} at {row['started'][11:23]}: no end of {', '.join(unrecorded)} recorded")
        notes += self.notes
        return "\n\n".join([*(part for part in parts if part), "\n".join(notes)])


def write_report(reading: Reading, out: str, *, named: str | None = None, notes: Sequence[str] = ()) -> Report:
    """Write the tables below ``out`` (what an earlier run left there is replaced) and return what they say.

    ``named`` is where they will lie in the end, when that is elsewhere.
    """
    found = failovers(reading.spans).cache()
    found.coalesce(1).write.mode("overwrite").parquet(f"{out}/{FAILOVERS_DIR}")
    _long(found).coalesce(1).write.mode("overwrite").parquet(f"{out}/{STAGES_DIR}")
    reading.malformed.coalesce(1).write.mode("overwrite").json(f"{out}/{MALFORMED_DIR}")
    rows = [row.asDict() for row in found.orderBy("start_ns").collect()]
    return Report(
        failovers=[_plain(row) for row in rows],
        rootless_n=rootless(reading.spans).count(),
        spans_n=reading.spans_n,
        lines_malformed_n=reading.lines_malformed_n,
        spans_malformed_n=reading.spans_malformed_n,
        spans_repeated_n=reading.spans_repeated_n,
        out=out if named is None else named,
        notes=notes,
    )


def _long(found: DataFrame) -> DataFrame:
    """A row for each stage: trace_id, kind, victim, started, position (from 0, in order of time), stage, ms."""
    by_kind = {
        kind: F.array(*(F.struct(F.lit(name).alias("stage"), F.col(f"{name}_ms").alias("ms")) for name in stages))
        for kind, stages in ORDER.items()
    }
    failover, succession = (F.when(F.col("kind") == kind, stages) for kind, stages in by_kind.items())
    stages = F.coalesce(failover, succession)
    row = found.select("trace_id", "kind", "victim", "started", F.posexplode(stages).alias("position", "of"))
    return row.select("trace_id", "kind", "victim", "started", "position", "of.stage", "of.ms")


def _plain(row: Mapping[str, Any]) -> Mapping[str, Any]:
    stages = {name: _rounded(row[f"{name}_ms"]) for name in ORDER[row["kind"]]}
    return {
        "trace_id": row["trace_id"],
        "kind": row["kind"],
        "cause": row["cause"],
        "evidence": row["evidence"],
        "victim": row["victim"],
        "partitions": row["partitions"],
        "started": _utc(row["start_ns"]).isoformat(timespec="milliseconds"),
        "start_ns": row["start_ns"],
        "complete": row["complete"],
        "total_ms": _rounded(row["total_ms"]),
        "stages_ms": stages,
        "missing": list(row["missing"]),
        "outage_ms": _rounded(row["outage_ms"]),
        "outage_partitions": row["outage_partitions"] or 0,
    }


def _utc(unix_ns: int) -> datetime:
    # Not the row's timestamp: Spark hands those out in the time zone of the machine.
    return datetime.fromtimestamp(unix_ns / 1e9, UTC)


def _rounded(ms: float | None) -> float | None:
    # To the nanosecond: the sum of the stages is to show what was measured, not what was rounded.
    return None if ms is None else round(ms, 6)


def _table(rows: Sequence[Mapping[str, Any]], stages: Sequence[str]) -> str:
    if not rows:
        return ""
    head = ["started", "victim", "cause", "partitions", *(name.replace("_", " ") for name in stages), "total", "outage"]
    lines = [head]
    for row in rows:
        lengths = [_ms(row["stages_ms"].get(name)) for name in stages]
        about = [row["started"][11:23], row["victim"] or "-", row["cause"] or "-", str(row["partitions"] or 0)]
        lines.append([*about, *lengths, _ms(row["total_ms"]), _ms(row["outage_ms"])])
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    text = [
        "  ".join(_padded(cell, width, column) for column, (cell, width) in enumerate(zip(line, widths, strict=True)))
        for line in lines
    ]
    return "\n".join([f"{rows[0]['kind']} (ms)", *(line.rstrip() for line in text)])


def _padded(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column < 3 else cell.rjust(width)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
