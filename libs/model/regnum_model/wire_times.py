"""Moments and spans of time that people read, between numbers and google.protobuf's Timestamp and Duration.

Not for records and deadlines, which stay numbers of milliseconds: see docs/decisions/0031.
"""

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp


def timestamp_of(unix_ms: int) -> Timestamp:
    """A moment, from milliseconds since 1970."""
    seconds, rest_ms = divmod(unix_ms, 1_000)
    return Timestamp(seconds=seconds, nanos=rest_ms * 1_000_000)


def unix_ms_of(moment: Timestamp) -> int:
    """Milliseconds since 1970, rounded down; 0 for a moment that is not set."""
    return moment.seconds * 1_000 + moment.nanos // 1_000_000


def ceiling_unix_ms_of(moment: Timestamp) -> int:
    """The first whole millisecond since 1970 that is not before a moment."""
    return moment.seconds * 1_000 - -moment.nanos // 1_000_000


def duration_of(seconds: float) -> Duration:
    """A span of time in whole milliseconds; none is negative."""
    whole_s, rest_ms = divmod(max(round(seconds * 1_000), 0), 1_000)
    return Duration(seconds=whole_s, nanos=rest_ms * 1_000_000)


def seconds_of(span: Duration) -> float:
    """A span of time in seconds."""
    return span.seconds + span.nanos / 1_000_000_000
