"""The job without end: changes into tables as they are told, a folder for each step that told any.

A step that Spark repeats after a kill has the same number and the same spans, and replaces its folders: each change is
there once.
"""

import pickle
from collections.abc import Callable, Sequence

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from regnum_insight.attribution.changes import UNTRACED, Change

from regnum_failover.changes import changes_as_they_come
from regnum_failover.report import FAILOVERS_DIR, STAGES_DIR, write_tables


def follow(
    records: DataFrame,
    out: str,
    checkpoint: str,
    told: Callable[[Sequence[Change]], None],
    *,
    gap_s: int,
    late_s: int,
    once: bool = False,
) -> StreamingQuery:
    """Begin, or go on from the checkpoint.

    Args:
        records: rows of ``TracesSource``, without end.
        out: tables lie below, as those of the job, by ``step``.
        checkpoint: folder in which Spark keeps how far it came; on a file system that outlives the process.
        told: hears the changes of each step, once they are in the tables.
        gap_s: see ``changes_as_they_come``.
        late_s: likewise.
        once: end when what is there now is read.
    """

    def write(step: DataFrame, number: int) -> None:
        found = step.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            rows = found.where(found["of.change"].isNotNull()).select("of.change").toLocalIterator()
            changes = [pickle.loads(row["change"]) for row in rows]  # noqa: S301 - of this job's own workers
            changes = [change for change in changes if change.kind != UNTRACED]
            if changes:
                write_tables(found, f"{out}/{FAILOVERS_DIR}/step={number}", f"{out}/{STAGES_DIR}/step={number}")
                told(sorted(changes, key=lambda change: (change.start_ns, change.trace_id)))
        finally:
            found.unpersist()

    writer = changes_as_they_come(records, gap_s=gap_s, late_s=late_s).writeStream.foreachBatch(write)
    if once:
        writer = writer.trigger(availableNow=True)
    return writer.outputMode("append").option("checkpointLocation", checkpoint).start()


def late_spans(query: StreamingQuery) -> int:
    """Spans that its last step dropped because they came too late."""
    progress = query.lastProgress
    return 0 if progress is None else sum(one.numRowsDroppedByWatermark for one in progress.stateOperators)
