"""From spans to changes of leadership: spans are grouped by trace, and `regnum_insight` says what each group tells.

Goals: the same chains as the report of one process gives, however many machines read the spans; what no change needs
never leaves the JVM.

The attribution is Python, so executors need this package, `regnum_insight` and `regnum_telemetry`, as the driver does.
"""

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Final

from pyspark import RDD
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the name that every reader of Spark code expects
from regnum_insight.attribution.changes import ATTRIBUTES, NAMES, PREFIXES, Change, change_of, is_wanted, trace_of
from regnum_insight.spans.span import Span, process_name

_COLUMNS: Final = (
    "trace_id", "span_id", "parent_span_id", "name", "kind", "start_ns", "end_ns", "service", "instance", "links",
)  # fmt: skip


def changes_of(spans: DataFrame) -> "RDD[Change]":
    """The changes that flat spans (``schema.SPANS``) tell of, in no order."""
    attributes = F.map_filter("attributes", lambda key, _: key.isin(sorted(ATTRIBUTES))).alias("attributes")
    needed = spans.where(_wanted(F.col("name"))).select(*_COLUMNS, attributes)
    grouped = needed.rdd.map(_span).filter(_is_wanted).keyBy(trace_of).groupByKey()
    return grouped.flatMap(_of_trace)


def _wanted(name: Column) -> Column:
    """What `is_wanted` says, as far as Spark can: no span that it wants is left out."""
    return reduce(or_, [name.startswith(prefix) for prefix in PREFIXES], name.isin(sorted(NAMES)))


def _is_wanted(span: Span) -> bool:
    return is_wanted(span.name)


def _of_trace(trace: tuple[str, Iterable[Span]]) -> list[Change]:
    # A client that learned of its change late has a trace of its own, and belongs to the one it names.
    change = change_of([span._replace(trace_id=trace[0]) for span in trace[1]])
    return [] if change is None else [change]


def _span(row: Row) -> Span:
    return Span(
        row["trace_id"],
        row["span_id"],
        row["parent_span_id"] or "",
        row["name"],
        row["kind"] or 0,
        row["start_ns"],
        row["end_ns"],
        process_name(row["service"] or "", row["instance"] or ""),
        {key: value for key, value in row["attributes"].items() if value is not None},
        tuple((link["traceId"], link["spanId"] or "") for link in row["links"] or () if link["traceId"]),
    )
