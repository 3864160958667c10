"""Moments and spans of time as people read them."""

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from regnum_model.wire_times import ceiling_unix_ms_of, duration_of, seconds_of, timestamp_of, unix_ms_of


@pytest.mark.parametrize("unix_ms", [0, 1, 999, 1_000, 1_795_232_687_774, -1, -1_001])
def test_a_moment_comes_back_as_it_was(unix_ms: int) -> None:
    moment = timestamp_of(unix_ms)
    assert 0 <= moment.nanos < 1_000_000_000
    assert moment.ToMilliseconds() == unix_ms
    assert unix_ms_of(moment) == ceiling_unix_ms_of(moment) == unix_ms


def test_parts_of_a_millisecond_are_rounded_to_the_side_that_is_asked_for() -> None:
    moment = Timestamp(seconds=1, nanos=500_000_001)
    assert (unix_ms_of(moment), ceiling_unix_ms_of(moment)) == (1_500, 1_501)
    assert unix_ms_of(Timestamp()) == 0


@pytest.mark.parametrize(
    ("seconds", "span"),
    [
        (0.0, Duration()),
        (61.0, Duration(seconds=61)),
        (0.0426, Duration(nanos=43_000_000)),
        (1.9999, Duration(seconds=2)),
        (-3.0, Duration()),
    ],
)
def test_a_span_of_time_has_whole_milliseconds(seconds: float, span: Duration) -> None:
    assert duration_of(seconds) == span
    assert seconds_of(span) == pytest.approx(max(seconds, 0.0), abs=0.000_5)
