"""Which segments have expired, and when to look again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_broker.retention.due import STALE_MAX, DueIndex
from regnum_broker.retention.expiry import Limits, SegmentFacts, aged_since, due_ms, log_start

NO_TIMESTAMP = -(2**63)


def facts(*sizes: int, step: int = 10, timestamp_ms: int | None = None, written_ms: int = 10**15) -> list[SegmentFacts]:
    """Segments of ``step`` records each; the n-th has timestamp 1000 n, unless told otherwise."""
    return [
        SegmentFacts(
            next_offset=step * number,
            size_bytes=size,
            timestamp_ms_max=1_000 * number if timestamp_ms is None else timestamp_ms,
            written_ms=written_ms,
        )
        for number, size in enumerate(sizes, start=1)
    ]


@pytest.mark.parametrize(
    ("size_bytes", "high_watermark", "start"),
    [
        (None, 30, 0),
        (120, 30, 0),
        (81, 30, 0),
        (80, 30, 10),
        (50, 30, 10),
        (40, 30, 20),
        (1, 30, 20),
        (0, 30, 30),
        (0, 25, 20),
        (0, 9, 0),
    ],
)
def test_by_size_the_oldest_segments_go_as_long_as_the_rest_has_what_is_kept(
    size_bytes: int | None, high_watermark: int, start: int
) -> None:
    limits = Limits(size_bytes=size_bytes, age_ms=None)
    found = log_start(facts(40, 40, 40), present=0, high_watermark=high_watermark, now_ms=10**9, limits=limits)
    assert found == start


@pytest.mark.parametrize(
    ("now_ms", "high_watermark", "start"),
    [(5_999, 30, 0), (6_000, 30, 10), (7_000, 30, 20), (7_000, 19, 10), (8_000, 30, 30), (8_000, 29, 20)],
)
def test_by_age_segments_go_whose_largest_timestamp_is_so_old(now_ms: int, high_watermark: int, start: int) -> None:
    limits = Limits(size_bytes=None, age_ms=5_000)
    found = log_start(facts(40, 40, 40), present=0, high_watermark=high_watermark, now_ms=now_ms, limits=limits)
    assert found == start


@pytest.mark.parametrize("timestamp_ms", [2**50, NO_TIMESTAMP, -1])
def test_a_timestamp_in_the_future_or_none_counts_as_the_time_of_writing(timestamp_ms: int) -> None:
    segments = facts(40, timestamp_ms=timestamp_ms, written_ms=2_000)
    assert aged_since(segments[0]) == 2_000
    limits = Limits(size_bytes=None, age_ms=5_000)
    assert due_ms(segments, limits) == 7_000
    assert log_start(segments, present=0, high_watermark=10, now_ms=6_999, limits=limits) == 0
    assert log_start(segments, present=0, high_watermark=10, now_ms=7_000, limits=limits) == 10


def test_a_segment_without_records_neither_expires_nor_holds_the_others_up() -> None:
    limits = Limits(size_bytes=0, age_ms=1)
    segments = [
        *facts(40, 40),
        SegmentFacts(next_offset=20, size_bytes=0, timestamp_ms_max=-1, written_ms=NO_TIMESTAMP),
    ]
    assert log_start(segments, present=0, high_watermark=20, now_ms=10**6, limits=limits) == 20
    assert due_ms(segments[2:], limits) is None


def test_an_older_segment_that_is_young_keeps_those_behind_it() -> None:
    segments = [*facts(40, timestamp_ms=9_000), *facts(40, 40)[1:]]
    limits = Limits(size_bytes=None, age_ms=5_000)
    assert log_start(segments, present=0, high_watermark=20, now_ms=10_000, limits=limits) == 0
    assert due_ms(segments, limits) == 14_000


@given(
    sizes=st.lists(st.integers(0, 50), max_size=8),
    present=st.integers(0, 100),
    high_watermark=st.integers(0, 100),
    now_ms=st.integers(0, 20_000),
    size_bytes=st.none() | st.integers(0, 300),
    age_ms=st.none() | st.integers(0, 20_000),
)
def test_nothing_that_is_not_committed_goes_and_no_start_goes_back(
    sizes: list[int], present: int, high_watermark: int, now_ms: int, size_bytes: int | None, age_ms: int | None
) -> None:
    segments, limits = facts(*sizes), Limits(size_bytes=size_bytes, age_ms=age_ms)
    start = log_start(segments, present=present, high_watermark=high_watermark, now_ms=now_ms, limits=limits)
    assert present <= start <= max(present, high_watermark)
    assert start == present or start in {segment.next_offset for segment in segments}
    left = sum(segment.size_bytes for segment in segments if segment.next_offset > start)
    if size_bytes is not None and age_ms is None and start > present:
        assert left >= size_bytes


def test_keys_are_taken_when_they_are_due_soonest_first_and_once() -> None:
    index: DueIndex[str] = DueIndex()
    index.set("b", 20)
    index.set("a", 10)
    index.set("c", 30)
    index.set("c", 15)
    index.set("b", None)
    assert (len(index), index.soonest) == (2, 10)
    assert index.take(9, count_max=9) == []
    assert index.take(20, count_max=1) == ["a"]
    assert index.take(20, count_max=9) == ["c"]
    assert (index.take(100, count_max=9), index.soonest, len(index)) == ([], None, 0)


def test_moments_that_change_often_take_no_memory() -> None:
    index: DueIndex[str] = DueIndex()
    for moment in range(10_000):
        index.set("a", moment)
    assert len(index._heap) <= 2 + STALE_MAX + 1
    assert index.take(10**6, count_max=9) == ["a"]
