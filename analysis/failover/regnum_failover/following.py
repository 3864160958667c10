"""The job without end: changes into the tables as they are told, and to whatever listens.

A step that Spark repeats after a kill has the same number and the same spans; its number is the run of its rows, which
take the place of what the killed step left (``tables/merging``): each change is there once.
"""

import pickle
from collections.abc import Callable, Sequence

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery
from regnum_insight.attribution.changes import UNTRACED, Change
from regnum_insight.spans.intake import Tally

from regnum_failover.changes import find, traces_as_they_come
from regnum_failover.rows import unpacked
from regnum_failover.tables.growing import merged, placed_of
from regnum_failover.traces.options import STORE_TIMEOUT_S


def follow(
    records: DataFrame,
    tables: str,
    checkpoint: str,
    told: Callable[[Sequence[Change]], None],
    read: Callable[[Tally], None],
    *,
    gap_s: int,
    late_s: int,
    once: bool = False,
    with_spans: bool = False,
    store_timeout_s: float = STORE_TIMEOUT_S,
) -> StreamingQuery:
    """Begin, or go on from the checkpoint.

    Args:
        records: rows of ``TracesSource``, without end.
        tables: where tables lie: a folder that executors see under this path, or a bucket.
        checkpoint: folder in which Spark keeps how far it came; on a file system that outlives the process.
        told: hears the changes of each step, once they are in the tables.
        read: hears what tasks read, ``late_s`` later, and so what they could not read.
        gap_s: see ``traces_as_they_come``.
        late_s: likewise.
        once: end when what is there now is read.
        with_spans: whether there is a table of spans.
        store_timeout_s: how long a bucket may be silent.
    """

    def write(step: DataFrame, number: int) -> None:
        traces = step.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            merged(placed_of(traces, number + 1, with_spans=with_spans), tables, number + 1, store_timeout_s)
            found = find(traces)
            changes: list[Change] = []
            tally = Tally()
            rows = found.where(found["of.change"].isNotNull() | found["told"].isNotNull()).select("of.change", "told")
            for row in rows.toLocalIterator():
                for one in row["told"] or ():
                    tally.add(pickle.loads(one))  # noqa: S301 - of this job's own workers
                if row["change"] is not None:
                    changes.append(unpacked(row["change"]))
            read(tally)
            changes = [change for change in changes if change.kind != UNTRACED]
            if changes:
                told(sorted(changes, key=lambda change: (change.start_ns, change.trace_id)))
        finally:
            traces.unpersist()

    writer = traces_as_they_come(records, gap_s=gap_s, late_s=late_s).writeStream.foreachBatch(write)
    if once:
        writer = writer.trigger(availableNow=True)
    return writer.outputMode("append").option("checkpointLocation", checkpoint).start()


class LateSpans(StreamingQueryListener):
    """Adds up the spans that a stream drops because they come too late for their change."""

    def __init__(self, told: Callable[[int], None]) -> None:
        """``told`` hears how many they are by now, when there are more."""
        self._told = told
        self._late = 0

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing was dropped yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - likewise
        """A step has ended."""
        late = sum(one.numRowsDroppedByWatermark for one in event.progress.stateOperators)
        if late:
            self._late += late
            self._told(self._late)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - likewise
        """Nothing more comes."""
