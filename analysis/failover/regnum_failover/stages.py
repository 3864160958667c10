"""From spans to failovers: one row for each, with the length of every stage.

Goals: the stages of a failover add up to its total, whatever is missing; what is missing is named.

Constraints: spans come from several processes, in any order; clocks differ; a killed process leaves its last spans out;
failovers overlap.

Algorithm: a root gives the start and the boundaries that the controller saw; the others are the latest ends of the
spans that `regnum_telemetry.conventions` names, in the same trace. A boundary counts as at least the one before it, so
stage = max(boundaries so far) - max(boundaries before), and the sum telescopes to max(boundaries) - start.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every reader of Spark code expects
from regnum_telemetry import conventions as names

KINDS: Final = {names.FAILOVER: names.FAILOVER_STAGES, names.SUCCESSION: names.SUCCESSION_STAGES}
"""Roots, and the stages of what they begin."""

ORDER: Final = {root.rpartition(".")[2]: tuple(stage.name for stage in stages) for root, stages in KINDS.items()}
"""Names of the stages of each kind, in order of time."""

STAGES: Final = tuple(dict.fromkeys(name for names_of_kind in ORDER.values() for name in names_of_kind))
"""Names of all stages, each once."""

_MS: Final = 1e6


def failovers(spans: DataFrame) -> DataFrame:
    """One row for each root among the spans.

    trace_id, kind (``failover`` or ``succession``), cause, evidence, victim (``broker 2``), partitions, started
    (timestamp), start_ns, complete, total_ms, one ``<stage>_ms`` for each of STAGES (null where the kind has no such
    stage), missing (stages whose end nobody recorded), outage_ms (the longest that a producer saw; null without one)
    and outage_partitions (how many partitions saw one).
    """
    owned = spans.withColumn(
        "failover",
        F.when(F.col("name") == names.OUTAGE, F.coalesce(_text(names.FAILOVER_TRACE_ID), F.col("trace_id"))).otherwise(
            F.col("trace_id")
        ),
    )
    outages = _outages(owned)
    ends = _latest_ends(owned, outages)
    kinds = [
        _measured(spans.where(F.col("name") == root), ends, outages, root.rpartition(".")[2], stages)
        for root, stages in KINDS.items()
    ]
    columns = ["trace_id", "kind", "cause", "evidence", "victim", "partitions", "started", "start_ns", "complete"]
    columns += ["total_ms", *(f"{stage}_ms" for stage in STAGES), "missing", "outage_ms", "outage_partitions"]
    union = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), kinds)
    return union.select(*columns)


def rootless(spans: DataFrame) -> DataFrame:
    """Trace ids of failovers whose root was never written: the controller died before it had finished them."""
    parts = F.col("name").startswith("regnum.failover.") | F.col("name").startswith("regnum.succession.")
    roots = spans.where(F.col("name").isin(list(KINDS))).select("trace_id")
    return spans.where(parts).select("trace_id").distinct().join(roots, "trace_id", "left_anti")


def _outages(owned: DataFrame) -> DataFrame:
    """What producers saw of each failover: only where a send failed, for an idle producer's silence is its own."""
    waited = owned.where((F.col("name") == names.OUTAGE) & (_text(names.RETRIED) == "true"))
    return waited.groupBy("failover").agg(
        F.max("end_ns").alias(names.OUTAGE),
        (F.max(F.col("end_ns") - F.col("start_ns")) / _MS).alias("outage_ms"),
        F.count_distinct(_text(names.TOPIC), _text(names.PARTITION)).alias("outage_partitions"),
    )


def _latest_ends(owned: DataFrame, outages: DataFrame) -> DataFrame:
    """For each trace the latest end of the spans that mark a boundary, in a column of their name."""
    waited = F.col("end_ns") <= F.col(f"`{names.OUTAGE}`")
    counted = {
        names.BECOME_LEADER: F.col("name") == names.BECOME_LEADER,
        names.METADATA_APPLIED: F.col("name") == names.METADATA_APPLIED,
        # Of the first appends those count that some producer waited for.
        names.FIRST_APPEND: (F.col("name") == names.FIRST_APPEND) & waited,
    }
    return (
        owned.where(F.col("name").isin(list(counted)))
        .join(outages, "failover", "left")
        .groupBy("failover")
        .agg(*(F.max(F.when(counts, F.col("end_ns"))).alias(name) for name, counts in counted.items()))
    )


def _measured(
    roots: DataFrame, ends: DataFrame, outages: DataFrame, kind: str, stages: Sequence[names.Stage]
) -> DataFrame:
    boundaries = [
        F.col(f"`{stage.span}`") if stage.root_attribute is None else _number(stage.root_attribute) for stage in stages
    ]
    # greatest() leaves nulls out: a boundary that nobody recorded is the one before it.
    reached = [F.col("start_ns")]
    reached += [F.greatest("start_ns", *boundaries[: count + 1]) for count in range(len(stages))]
    lengths = [
        ((after - before) / _MS).alias(f"{stage.name}_ms")
        for stage, before, after in zip(stages, reached, reached[1:], strict=False)
    ]
    unrecorded = [
        F.when(boundary.isNull(), F.lit(stage.name)) for stage, boundary in zip(stages, boundaries, strict=True)
    ]
    joined = (
        roots.withColumn("failover", F.col("trace_id")).join(ends, "failover", "left").join(outages, "failover", "left")
    )
    return joined.select(
        "trace_id",
        F.lit(kind).alias("kind"),
        _text(names.CAUSE).alias("cause"),
        _text(names.EVIDENCE).alias("evidence"),
        F.concat_ws(" ", _text(names.VICTIM_KIND), _text(names.VICTIM)).alias("victim"),
        _number(names.PARTITIONS).alias("partitions"),
        F.timestamp_micros(F.expr("start_ns div 1000")).alias("started"),
        "start_ns",
        F.coalesce(_text(names.COMPLETE) == "true", F.lit(False)).alias("complete"),  # noqa: FBT003
        ((F.greatest(*(F.coalesce(boundary, F.col("start_ns")) for boundary in boundaries)) - F.col("start_ns")) / _MS)
        .cast("double")
        .alias("total_ms"),
        *lengths,
        F.filter(F.array(*unrecorded), lambda name: name.isNotNull()).alias("missing"),
        "outage_ms",
        "outage_partitions",
    )


def _text(attribute: str) -> Column:
    return F.col("attributes")[attribute]


def _number(attribute: str) -> Column:
    return _text(attribute).try_cast("bigint")
