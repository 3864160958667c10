"""What comes out: Parquet, what was set aside, and a table for people or JSON for programs."""

import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every reader of Spark code expects
from regnum_insight.attribution.changes import UNKNOWN_KIND, UNTRACED, Change
from regnum_insight.reporting.rows import row_of
from regnum_insight.reporting.text import chain_text, notes_of, tables_of
from regnum_insight.spans.intake import Tally

from regnum_failover.changes import changes_of

FAILOVERS_DIR: Final = "failovers"
"""Below the output: a row for each change of leadership."""
STAGES_DIR: Final = "stages"
"""Below the output: a row for each step of each chain."""
MALFORMED_DIR: Final = "malformed"
"""Below the output: what was set aside, as JSON lines."""


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
    found = changes_of(records).persist(StorageLevel.MEMORY_AND_DISK)
    write_tables(found, f"{out}/{FAILOVERS_DIR}", f"{out}/{STAGES_DIR}")
    attributed: list[Change] = []
    tally = Tally()
    repeated = 0
    for row in found.select("of.change", "of.repeated", "told").toLocalIterator():
        repeated += row["repeated"]
        if row["change"] is not None:
            attributed.append(pickle.loads(row["change"]))  # noqa: S301 - of this job's own workers
        for told in row["told"] or ():
            tally.add(pickle.loads(told))  # noqa: S301 - likewise
    _write_aside(records.sparkSession, tally, f"{out}/{MALFORMED_DIR}")
    return Report(
        changes=sorted(attributed, key=lambda change: (change.start_ns, change.trace_id)),
        tally=tally,
        spans_repeated_n=repeated,
        out=out if named is None else named,
        notes=notes,
    )


def write_tables(found: DataFrame, failovers: str, stages: str) -> None:
    """Write what ``changes_of`` found into two folders, in the place of what is there."""
    changes = found.where(F.col("of.failover.kind") != UNTRACED)
    changes.select("of.failover.*").coalesce(1).write.mode("overwrite").parquet(failovers)
    steps = changes.select(F.explode("of.stages").alias("stage")).select("stage.*")
    steps.coalesce(1).write.mode("overwrite").parquet(stages)


def _write_aside(spark: SparkSession, tally: Tally, folder: str) -> None:
    rows = [(one.file, one.reason, one.text) for one in tally.aside]
    aside = spark.createDataFrame(rows, "file STRING, reason STRING, text STRING")
    aside.coalesce(1).write.mode("overwrite").json(folder)
