"""Reads OTLP JSON lines into flat spans, and sets aside what is not a span.

A process that is killed leaves a torn last line, and a file system after a loss of power may leave anything: such lines
are counted and kept beside the results, and never end the job. A span that was exported twice counts once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every reader of Spark code expects

from regnum_failover.schema import CORRUPT, LINE

TRACE_ID: Final = "^[0-9a-f]{32}$"
SPAN_ID: Final = "^[0-9a-f]{16}$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was read."""

    spans: DataFrame
    """Flat spans (``schema.SPANS``), each once; cached."""
    malformed: DataFrame
    """What was set aside: file, reason, line."""
    spans_n: int
    """Spans, each once."""
    lines_malformed_n: int
    """Lines that are not an OTLP request."""
    spans_malformed_n: int
    """Spans without ids, name or times that make sense."""
    spans_repeated_n: int
    """Spans that were there before with the same ids."""


def read_spans(spark: SparkSession, paths: Sequence[str]) -> Reading:
    """Read all files of folders, or of glob patterns.

    Raises pyspark's AnalysisException when there is no such path.
    """
    lines = _parsed(spark.read.text(list(paths)).withColumn("file", F.col("_metadata.file_name"))).cache()
    spans = _flat(lines).cache()
    good = F.col("trace_id").rlike(TRACE_ID) & F.col("span_id").rlike(SPAN_ID) & F.col("name").isNotNull()
    good = F.coalesce(good & (F.col("start_ns") > 0) & (F.col("end_ns") >= F.col("start_ns")), F.lit(False))  # noqa: FBT003
    once = spans.where(good).drop("file").dropDuplicates(["trace_id", "span_id"]).cache()
    torn = lines.where("torn").select("file", F.lit("not an OTLP request").alias("reason"), F.col("raw").alias("line"))
    senseless = spans.where(~good).select(
        "file",
        F.lit("a span without ids, name or times that make sense").alias("reason"),
        F.to_json(F.struct("trace_id", "span_id", "name", "start_ns", "end_ns")).alias("line"),
    )
    counts = spans.agg(F.count("*").alias("all"), F.count_if(~good).alias("bad")).first()
    spans_all, spans_bad = (0, 0) if counts is None else (int(counts["all"]), int(counts["bad"]))
    spans_once = once.count()
    return Reading(
        spans=once,
        malformed=torn.unionByName(senseless),
        spans_n=spans_once,
        lines_malformed_n=torn.count(),
        spans_malformed_n=spans_bad,
        spans_repeated_n=spans_all - spans_bad - spans_once,
    )


def _parsed(text: DataFrame) -> DataFrame:
    """One row for each line: file, what was parsed, whether it is torn, and then the line as it was."""
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    line = F.col("line")
    torn = line.isNull() | line.getField(CORRUPT).isNotNull() | line.getField("resourceSpans").isNull()
    return (
        text.where(F.length(F.trim("value")) > 0)
        .select("file", "value", F.from_json("value", LINE, options).alias("line"))
        .select(
            "file",
            torn.alias("torn"),
            F.when(torn, F.col("value")).alias("raw"),
            F.when(~torn, line.getField("resourceSpans")).alias("resource_spans"),
        )
    )


def _flat(lines: DataFrame) -> DataFrame:
    """One row for each span."""
    scopes = lines.select("file", F.explode("resource_spans").alias("of")).select(
        "file",
        _map(F.col("of.resource.attributes")).alias("resource"),
        F.explode("of.scopeSpans").alias("scope"),
    )
    span = scopes.select("file", "resource", F.explode("scope.spans").alias("span"))
    return span.select(
        "file",
        F.lower("span.traceId").alias("trace_id"),
        F.lower("span.spanId").alias("span_id"),
        # The root of a trace has no parent, or an empty one, as the writer likes.
        F.when(F.length("span.parentSpanId") > 0, F.lower("span.parentSpanId")).alias("parent_span_id"),
        F.col("span.name").alias("name"),
        F.col("span.kind").alias("kind"),
        F.col("span.startTimeUnixNano").try_cast("bigint").alias("start_ns"),
        F.col("span.endTimeUnixNano").try_cast("bigint").alias("end_ns"),
        F.col("resource")["service.name"].alias("service"),
        F.col("resource")["service.instance.id"].alias("instance"),
        _map(F.col("span.attributes")).alias("attributes"),
        F.col("span.links").alias("links"),
        F.transform(
            "span.events",
            lambda event: F.struct(
                event["timeUnixNano"].try_cast("bigint").alias("ns"),
                event["name"].alias("name"),
                _map(event["attributes"]).alias("attributes"),
            ),
        ).alias("events"),
    )


def _map(attributes: Column) -> Column:
    """Attributes as a map from key to text; lists are joined by commas. None becomes an empty map."""
    empty = F.from_json(F.lit("{}"), "MAP<STRING, STRING>")
    named = F.filter(attributes, lambda pair: pair["key"].isNotNull())
    entries = F.transform(named, lambda pair: F.struct(pair["key"], _text(pair["value"])))
    return F.coalesce(F.map_from_entries(entries), empty)


def _text(value: Column) -> Column:
    joined = F.array_join(
        F.transform(value["arrayValue"]["values"], lambda item: F.coalesce(item["stringValue"], item["intValue"])), ","
    )
    return F.coalesce(
        value["stringValue"],
        value["intValue"],
        value["doubleValue"].cast("string"),
        value["boolValue"].cast("string"),
        joined,
    )
