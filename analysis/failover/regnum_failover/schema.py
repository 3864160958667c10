"""What a line of an OTLP JSON file looks like to Spark, and the flat spans made of it. Pure.

A line is one `ExportTraceServiceRequest`: ids in hex, 64-bit integers as text, enums as integers. Fields that the job
does not read are left out, so that whatever else a collector writes beside them does no harm.
"""

from typing import Final

CORRUPT: Final = "_corrupt_record"
"""Column that gets a line which is not JSON of this shape."""

_VALUE: Final = (
    "STRUCT<stringValue: STRING, intValue: STRING, doubleValue: DOUBLE, boolValue: BOOLEAN, "
    "arrayValue: STRUCT<values: ARRAY<STRUCT<stringValue: STRING, intValue: STRING>>>>"
)
_ATTRIBUTES: Final = f"ARRAY<STRUCT<key: STRING, value: {_VALUE}>>"
_SPAN: Final = (
    "STRUCT<traceId: STRING, spanId: STRING, parentSpanId: STRING, name: STRING, kind: INT, "
    f"startTimeUnixNano: STRING, endTimeUnixNano: STRING, attributes: {_ATTRIBUTES}, "
    f"events: ARRAY<STRUCT<timeUnixNano: STRING, name: STRING, attributes: {_ATTRIBUTES}>>, "
    "links: ARRAY<STRUCT<traceId: STRING, spanId: STRING>>, status: STRUCT<code: INT, message: STRING>>"
)
LINE: Final = (
    f"STRUCT<resourceSpans: ARRAY<STRUCT<resource: STRUCT<attributes: {_ATTRIBUTES}>, "
    f"scopeSpans: ARRAY<STRUCT<spans: ARRAY<{_SPAN}>>>>>, {CORRUPT}: STRING>"
)
"""DDL of a line."""

SPANS: Final = (
    "trace_id STRING, span_id STRING, parent_span_id STRING, name STRING, kind INT, start_ns BIGINT, end_ns BIGINT, "
    "service STRING, instance STRING, attributes MAP<STRING, STRING>, "
    "links ARRAY<STRUCT<traceId: STRING, spanId: STRING>>, "
    "events ARRAY<STRUCT<ns: BIGINT, name: STRING, attributes: MAP<STRING, STRING>>>"
)
"""DDL of the flat spans that the rest of the job works on: one row for each span, times in nanoseconds since 1970."""
