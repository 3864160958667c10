"""The tables of changes, and their columns. Pure.

They are the interface of an analyst: a column keeps its name and meaning, and VERSION rises where one does not.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

VERSION: Final = 1
"""In the metadata of each file, as ``regnum.tables.version``."""


class Type(StrEnum):
    """Types of columns, as Spark's SQL names them."""

    STRING = "STRING"
    BIGINT = "BIGINT"
    INT = "INT"
    DOUBLE = "DOUBLE"
    BOOLEAN = "BOOLEAN"
    TIMESTAMP = "TIMESTAMP"
    """Microseconds since 1970, UTC."""
    STRINGS = "ARRAY<STRING>"
    LENGTHS = "MAP<STRING, DOUBLE>"
    TEXTS = "MAP<STRING, STRING>"


class Column(NamedTuple):
    """One column."""

    name: str
    """Its name."""
    type: Type
    """Its type."""
    about: str
    """What it says."""


class Table(NamedTuple):
    """One table."""

    name: str
    """Folder in which it lies."""
    about: str
    """What a row is."""
    columns: tuple[Column, ...]
    """Its columns, in order."""


_RUN: Final = Column("run", Type.BIGINT, "run of the job that told it; step of a stream")
_CHANGE: Final = (
    Column("trace_id", Type.STRING, "trace of the change: 32 hexadecimal digits"),
    _RUN,
    Column("started", Type.TIMESTAMP, "begin of the change, UTC"),
    Column("start_ns", Type.BIGINT, "the same in nanoseconds since 1970"),
    Column("hour", Type.INT, "hour of the day in which it began, UTC"),
    Column("kind", Type.STRING, "broker failure, ...; unknown: without a root; untraced: an outage of no change"),
    Column("planned", Type.BOOLEAN, "a request or a decision began it, and no failure"),
    Column("version", Type.STRING, "release that the controller ran; else of what recorded the change first"),
)  # fmt: skip
"""Columns of every table that comes from traces."""
_CLIENT: Final = (
    Column("client", Type.STRING, "process of the client that waited; null: it left no spans"),
    Column("seen_by", Type.STRING, "producer, consumer, broker (the client left no spans), order (no client waited)"),
    Column("leader", Type.STRING, "broker that leads afterwards"),
)

CHANGES: Final = Table("changes", "a change of leadership", (
    *_CHANGE,
    Column("cause", Type.STRING, "what began it"),
    Column("evidence", Type.STRING, "what proved it"),
    Column("victim", Type.STRING, "process that was replaced"),
    Column("controller", Type.STRING, "election id of the controller that did it"),
    Column("partitions", Type.BIGINT, "partitions that needed a leader"),
    Column("complete", Type.BOOLEAN, "every new leader had acknowledged when its root ended"),
    Column("unfinished", Type.BOOLEAN, "it was opened and never closed: its controller died, or is not done"),
    Column("total_ms", Type.DOUBLE, "length of its worst chain"),
    Column("outage_ms", Type.DOUBLE, "longest outage of a producer; null: none waited"),
    Column("outage_partitions", Type.BIGINT, "partitions whose producers waited"),
    Column("before_root_ms", Type.DOUBLE, "of the worst chain, until it was noticed"),
    Column("unexplained_ms", Type.DOUBLE, "of the worst chain, without a name"),
    Column("worst", Type.STRING, "partition of the worst chain, or broker of its slowest order"),
    Column("steps_ms", Type.LENGTHS, "steps of the worst chain; they add up to total_ms"),
    Column("links", Type.STRINGS, "trace ids of changes that belong together with it"),
))  # fmt: skip
OUTAGES: Final = Table("outages", "an outage of one client at one partition, also one that no change names", (
    *_CHANGE,
    Column("partition", Type.STRING, "orders/0"),
    *_CLIENT,
    Column("leader_epoch", Type.STRING, "epoch of that leadership"),
    Column("outage_start_ns", Type.BIGINT, "last acknowledgement before, by the clock of the client"),
    Column("outage_end_ns", Type.BIGINT, "first acknowledgement after, by the same clock"),
    Column("outage_ms", Type.DOUBLE, "its length"),
    Column("retried", Type.BOOLEAN, "a send failed"),
    Column("error", Type.STRING, "what the client was told last before it succeeded"),
))  # fmt: skip
SEGMENTS: Final = Table("segments", "a step of a chain", (
    *_CHANGE,
    Column("partition", Type.STRING, "orders/0; of a change without clients broker 2"),
    *_CLIENT,
    Column("worst", Type.BOOLEAN, "of the worst chain of its change"),
    Column("position", Type.INT, "place in the chain, from 0"),
    Column("step", Type.STRING, "its name; unexplained between boundaries of which one was not recorded"),
    Column("until", Type.STRING, "boundary at which it ends"),
    Column("ms", Type.DOUBLE, "its length, clocks corrected"),
    Column("raw_ms", Type.DOUBLE, "its length by the clocks as they were"),
    Column("bound_ms", Type.DOUBLE, "how wrong ms may be for the clocks; null: no call shows it"),
    Column("uncertain", Type.BOOLEAN, "its length is within what the clocks leave open"),
    Column("process", Type.STRING, "process that recorded its end"),
))  # fmt: skip
ORDERS: Final = Table("orders", "a LeaderAndIsr of a change to one broker", (
    *_CHANGE,
    Column("broker", Type.STRING, "id of the broker"),
    Column("order_start_ns", Type.BIGINT, "begin of the call; where that was not recorded, of what the broker did"),
    Column("call_ms", Type.DOUBLE, "length of the call, as the controller saw it"),
    Column("become_leader_ms", Type.DOUBLE, "how long the broker took to lead; null: it was to lead nothing"),
    Column("journal_ms", Type.DOUBLE, "of that, what is ordered is noted on disk"),
    Column("epochs_ms", Type.DOUBLE, "of that, leader epochs begin in the logs"),
    Column("roles_ms", Type.DOUBLE, "of that, replicas take their roles"),
    Column("fetchers_ms", Type.DOUBLE, "of that, fetchers of what was followed before end"),
    Column("status", Type.STRING, "gRPC status of the call"),
))  # fmt: skip
STORE_WRITES: Final = Table("store_writes", "a batch of writes to the coordination store in a change", (
    *_CHANGE,
    Column("process", Type.STRING, "process that wrote"),
    Column("write_start_ns", Type.BIGINT, "begin by its clock"),
    Column("ms", Type.DOUBLE, "until every outcome was known"),
    Column("writes", Type.BIGINT, "groups of writes"),
    Column("refused", Type.BIGINT, "of these, refused by a condition"),
))  # fmt: skip
SKEW: Final = Table("skew", "the clock of one process in one change, where it was corrected or little is known", (
    *_CHANGE,
    Column("process", Type.STRING, "process"),
    Column("ahead_ms", Type.DOUBLE, "how far it was ahead of the controller, and corrected"),
    Column("bound_ms", Type.DOUBLE, "how wrong that may be; null: no call shows it"),
    Column("consistent", Type.BOOLEAN, "its calls agree with one another"),
))  # fmt: skip
INCOMPLETE: Final = Table("incomplete", "a change of which something was not recorded or not done", (
    *_CHANGE,
    Column("unfinished", Type.BOOLEAN, "it was opened and never closed"),
    Column("complete", Type.BOOLEAN, "every new leader had acknowledged"),
    Column("unexplained_ms", Type.DOUBLE, "time without a name in its worst chain"),
    Column("missing", Type.STRINGS, "boundaries before which that time lies"),
    Column("unsaid", Type.STRINGS, "steps that traces of its age do not tell"),
))  # fmt: skip
SPANS: Final = Table("spans", "a span of a change; only where asked for", (
    *_CHANGE,
    Column("span_id", Type.STRING, "16 hexadecimal digits"),
    Column("parent_id", Type.STRING, "of its parent; null: a root"),
    Column("name", Type.STRING, "name of the operation"),
    Column("span_kind", Type.INT, "OTLP's number: 1 internal, 2 server, 3 client, 4 producer, 5 consumer"),
    Column("span_start_ns", Type.BIGINT, "begin by the clock of its process"),
    Column("span_end_ns", Type.BIGINT, "end by the same clock"),
    Column("process", Type.STRING, "process that wrote it"),
    Column("topic", Type.STRING, "topic that it is about"),
    Column("partition", Type.INT, "partition that it is about"),
    Column("broker", Type.STRING, "broker that it is about"),
    Column("error", Type.STRING, "error.type"),
    Column("attributes", Type.TEXTS, "attributes that say something of a change"),
))  # fmt: skip
PERCENTILES: Final = Table("percentiles_hourly", "a step of the worst chains of one hour, by kind and release", (
    Column("hour", Type.INT, "hour of the day, UTC"),
    Column("kind", Type.STRING, "kind of the changes"),
    Column("version", Type.STRING, "their release"),
    Column("step", Type.STRING, "step; all: the whole chain; outage: the longest outage of a producer"),
    Column("n", Type.BIGINT, "changes that have it"),
    Column("p50_ms", Type.DOUBLE, "the nearest rank: half of them took no longer"),
    Column("p90_ms", Type.DOUBLE, "likewise"),
    Column("p99_ms", Type.DOUBLE, "likewise"),
    Column("max_ms", Type.DOUBLE, "the longest"),
))  # fmt: skip
QUARANTINE: Final = Table("quarantine", "something that was set aside: no span, or no document", (
    _RUN,
    Column("file", Type.STRING, "name of the file"),
    Column("reason", Type.STRING, "why"),
    Column("text", Type.STRING, "its beginning"),
))  # fmt: skip

OF_TRACES: Final = (CHANGES, OUTAGES, SEGMENTS, ORDERS, STORE_WRITES, SKEW, INCOMPLETE, SPANS)
"""Tables that have rows of each trace."""
TABLES: Final[Mapping[str, Table]] = {table.name: table for table in (*OF_TRACES, PERCENTILES, QUARANTINE)}
"""All by name."""
