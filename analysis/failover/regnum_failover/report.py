"""What comes out: Parquet, what was set aside, and a table for people or JSON for programs."""

import json
import pickle
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every reader of Spark code expects
from regnum_insight.attribution.changes import UNKNOWN_KIND, UNTRACED, Change
from regnum_insight.engine import no_collection
from regnum_insight.reporting.rows import row_of
from regnum_insight.reporting.text import chain_text, notes_of, tables_of
from regnum_insight.spans.intake import Tally

from regnum_failover.changes import find, gathered
from regnum_failover.rows import failovers_in, stages_in, unpacked

FAILOVERS_DIR: Final = "failovers"
"""Below the output: a row for each change of leadership."""
STAGES_DIR: Final = "stages"
"""Below the output: a row for each step of each chain."""
MALFORMED_DIR: Final = "malformed"
"""Below the output: what was set aside, as JSON lines."""
_CHUNK: Final = 2_000
"""Changes whose rows this process has at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the job found."""

    changes: Sequence[Change]
    """All changes, oldest first, and outages of clients that no change names."""
    tally: Tally
    """What was read, and what was set aside."""
    spans_repeated_n: int
    """Spans of changes that were there before with the same ids."""
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
        return sum(1 for change in self.changes if change.unfinished or change.kind == UNKNOWN_KIND)

    def to_json(self) -> str:
        """One JSON document."""
        value = {
            "failovers": self.failovers,
            "failovers_without_root": self.rootless_n,
            "spans": self.tally.spans_n,
            "spans_repeated": self.spans_repeated_n,
            "files": self.tally.files_n,
            "malformed": {
                "lines": self.tally.documents_torn_n,
                "spans": self.tally.spans_refused_n,
                "foreign_documents": self.tally.documents_foreign_n,
            },
            "out": self.out,
            **({"notes": list(self.notes)} if self.notes else {}),
        }
        # On one line: with an indent it is written by Python, at seven times the cost.
        return json.dumps(value)

    def to_text(self) -> str:
        """Tables for people: changes of leaders and of controllers, times in milliseconds; and the longest chain."""
        parts = [tables_of(self.changes)]
        waited = [change for change in self.changes if change.chains and change.kind != UNTRACED]
        if waited:
            parts.append(chain_text(max(waited, key=lambda change: change.total_ms)))
        notes = [*notes_of(self.changes, self.tally), f"tables below {self.out}"]
        if self.tally.aside:
            notes.append(f"the first of what was set aside is in {self.out}/{MALFORMED_DIR}")
        return "\n\n".join([*parts, "\n".join([*notes, *self.notes])])


def write_report(records: DataFrame, out: str, *, named: str | None = None, notes: Sequence[str] = ()) -> Report:
    """Write the tables below ``out`` (what an earlier run left there is replaced) and return what they say.

    ``records`` are rows of ``TracesSource``; ``named`` is where the tables will lie in the end, when that is elsewhere.
    """
    found = find(gathered(records.groupBy("trace_id"))).persist(StorageLevel.MEMORY_AND_DISK)
    # First and by itself: an iterator takes one partition after another.
    (counted,) = found.agg(F.sum("of.repeated").alias("repeated")).collect()
    attributed: list[Change] = []
    tally = Tally()
    with no_collection():
        told_any = F.col("of.change").isNotNull() | F.col("told").isNotNull()
        for row in found.where(told_any).select("of.change", "told").toLocalIterator():
            if row["change"] is not None:
                attributed.append(unpacked(row["change"]))
            for told in row["told"] or ():
                tally.add(pickle.loads(told))  # noqa: S301 - of this job's own workers
        attributed.sort(key=lambda change: (change.start_ns, change.trace_id))
        write_tables([change for change in attributed if change.kind != UNTRACED], Path(out))
    write_aside(tally, Path(out))
    return Report(
        changes=attributed,
        tally=tally,
        spans_repeated_n=counted["repeated"],
        out=out if named is None else named,
        notes=notes,
    )


def write_tables(changes: Sequence[Change], out: Path) -> None:
    """Write rows of changes into two folders, in the place of what is there. Raises OSError.

    This process has the changes anyway; as rows in the JVM, and files of Spark's, they cost as much as reading them.
    """
    for name, rows_in in ((FAILOVERS_DIR, failovers_in), (STAGES_DIR, stages_in)):
        with pq.ParquetWriter(_replaced(out / name) / "part-0.parquet", rows_in(()).schema, compression="zstd") as file:
            for begin in range(0, len(changes), _CHUNK):
                file.write_batch(rows_in(changes[begin : begin + _CHUNK]))


def write_aside(tally: Tally, out: Path) -> None:
    """Write what was set aside, in the place of what is there. Raises OSError."""
    lines = (json.dumps(asdict(one), ensure_ascii=False, separators=(",", ":")) for one in tally.aside)
    file = _replaced(out / MALFORMED_DIR) / "part-0.json"
    file.write_text("".join(f"{text}\n" for text in lines), encoding="utf-8", errors="backslashreplace")


def _replaced(folder: Path) -> Path:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder
