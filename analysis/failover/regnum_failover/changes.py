"""From spans to changes of leadership: spans are grouped by trace, and `regnum_insight` says what each group tells.

Goals: the same chains as the report of one process gives, however many machines read the spans, in a batch or as they
come. So reading a span and attributing a trace are `regnum_insight`'s, and Spark does what lies between.

The attribution is Python, so executors need this package, `regnum_insight` and `regnum_telemetry`, as the driver does.
"""

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, GroupedData
from pyspark.sql import functions as F  # noqa: N812 - the name that every reader of Spark code expects
from pyspark.sql.pandas.functions import arrow_udf
from regnum_insight.attribution.changes import Change, change_of
from regnum_insight.engine import no_collection
from regnum_insight.spans.packing import spans_of_trace

from regnum_failover.rows import ATTRIBUTED, PACKED, attributed, packed
from regnum_failover.traces.packs import apart


def changes_of(records: DataFrame) -> DataFrame:
    """What rows of ``TracesSource`` tell, a row for each trace: ``trace_id``, ``of`` (``ATTRIBUTED``), ``told``.

    The row without a trace has in ``told`` what tasks tell of their work.
    """
    return attribute(gathered(records.groupBy("trace_id")))


def changes_as_they_come(records: DataFrame, *, gap_s: int, late_s: int) -> DataFrame:
    """The same of a stream: what ``traces_as_they_come`` gathers is attributed."""
    return attribute(traces_as_they_come(records, gap_s=gap_s, late_s=late_s))


def traces_as_they_come(records: DataFrame, *, gap_s: int, late_s: int) -> DataFrame:
    """Spans of traces of which none ended for ``gap_s`` before the watermark: ``trace_id``, ``spans``, ``ended``.

    Rows without a trace come when the watermark has passed their step.

    Args:
        records: rows of ``TracesSource``, without end.
        gap_s: silence of a trace after which it is complete, by the ends of its spans.
        late_s: how much later than others a span may come; what comes later still is dropped, and counted by Spark.
    """
    ended = records.withWatermark("ended", f"{late_s} seconds")
    # Rows of no trace have the moments of their steps, whole seconds: each step has a session of its own, which ends.
    gap = F.when(F.col("trace_id").isNotNull(), f"{gap_s} seconds").otherwise("1 millisecond")
    return gathered(ended.groupBy(F.session_window("ended", gap), "trace_id"))


def gathered(grouped: GroupedData) -> DataFrame:
    """Spans of each trace, and the latest of their ends."""
    return grouped.agg(F.collect_list("span").alias("spans"), F.max("ended").alias("ended"))


def attribute(traces: DataFrame) -> DataFrame:
    """The same of spans that are grouped: ``trace_id``, ``spans``."""
    return _told(traces, attributed, ATTRIBUTED)


def find(traces: DataFrame) -> DataFrame:
    """The same, of which ``of`` has (``PACKED``) what makes no rows in the JVM."""
    return _told(traces, packed, PACKED)


def _told(traces: DataFrame, made: Callable[[Sequence[tuple[Change | None, int]]], pa.Array], kind: str) -> DataFrame:
    def of_traces(trace_ids: pa.Array, spans: pa.Array) -> pa.Array:
        with no_collection():
            return made([_of_trace(*trace) for trace in zip(trace_ids.to_pylist(), spans.to_pylist(), strict=True)])

    # Its kind is told by the hints of the function; Spark's own stubs ask for a number, which Spark warns of.
    of = arrow_udf(of_traces, kind)(F.col("trace_id"), F.col("spans"))  # type: ignore[call-overload]
    told = F.when(F.col("trace_id").isNull(), F.col("spans"))
    return traces.select("trace_id", of.alias("of"), told.alias("told"))


def _of_trace(trace_id: str | None, packs: list[bytes]) -> tuple[Change | None, int]:
    if trace_id is None:
        return None, 0
    each = [span for pack in packs for span in apart(pack)]
    spans = spans_of_trace(trace_id, each)
    return change_of(spans), len(each) - len(spans)
