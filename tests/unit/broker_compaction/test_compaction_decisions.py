"""Which segments are compacted, what is known of keys in little memory, and since when."""

import time
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from regnum_broker.compaction.cleanable import AGAIN_MS, SegmentFacts, cleanable, grouped
from regnum_broker.compaction.offset_map import SALT_MAX, UNKNOWN, OffsetMap, digest
from regnum_broker.log.epochs import EpochCache
from regnum_broker.log.replica.cleaned import (
    MARKS_MAX,
    CleanedMark,
    cleaned_until,
    decode_marks,
    deletions_done_until,
    encode_marks,
    valid_marks,
    with_mark,
)
from regnum_broker.log.replica.rolling import OFFSETS_IN_SEGMENT_MAX, LogSettings
from regnum_model.config_definition import CLEANUP_COMPACT, CLEANUP_DELETE
from regnum_model.configs import ReplicaSettings
from regnum_model.ids import LeaderEpoch

NOW_MS = 1_000_000


def segments(*ends: int, size_bytes: int = 10, written_ms: int = 0) -> list[SegmentFacts]:
    """Segments that end there."""
    return [
        SegmentFacts(base_offset=base, next_offset=end, size_bytes=size_bytes, written_ms=written_ms)
        for base, end in zip((0, *ends), ends, strict=False)
    ]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 1 << 40)), max_size=60))
def test_the_map_knows_the_newest_offset_of_each_key(puts: list[tuple[int, int]]) -> None:
    found, model = OffsetMap(keys_max=41), dict[int, int]()
    for key, offset in puts:
        found.put(digest(b"%d" % key), offset)
        model[key] = offset
    assert [found.get(digest(b"%d" % key)) for key in range(50)] == [model.get(key, UNKNOWN) for key in range(50)]
    assert (len(found), found.room) == (len(model), 41 - len(model))


def test_a_full_map_still_tells_what_it_has_and_what_it_has_not() -> None:
    found = OffsetMap(keys_max=5_000)
    for key in range(5_000):
        found.put(digest(b"%d" % key), key)
    assert found.room == 0
    assert all(found.get(digest(b"%d" % key)) == key for key in range(5_000))
    assert all(found.get(digest(b"%d" % key)) == UNKNOWN for key in range(5_000, 6_000))


def test_keys_that_were_made_to_share_a_slot_do_not_when_chance_spreads_them() -> None:
    """What it costs, as a ratio: each of these keys has to be passed by all that come after it, or by none."""
    keys_max = 3_000
    slots = keys_max * 4 // 3 + 1
    made = [(7 + slots * number).to_bytes(8, "little") + bytes(8) for number in range(keys_max)]

    def cost(salt: int) -> float:
        began_s = time.process_time()
        found = OffsetMap(keys_max=keys_max, salt=salt)
        for offset, one in enumerate(made):
            found.put(one, offset)
        assert all(found.get(one) == offset for offset, one in enumerate(made))
        return time.process_time() - began_s

    assert cost(Random(3).randint(1, SALT_MAX)) * 20 < cost(1)


def test_the_example_of_the_decision_is_right() -> None:
    found = cleanable(
        segments(10, 20, 30),
        cleaned_offset=10,
        log_start_offset=0,
        high_watermark=35,
        now_ms=NOW_MS,
        by_age=True,
        settings=LogSettings(segment_bytes=100),
    )
    assert (found.count, found.dirty_offset, found.end_offset, found.is_due, found.again_ms) == (3, 10, 30, True, None)


def test_a_log_is_compacted_when_more_than_the_ratio_is_new() -> None:
    for ratio, due in ((0, True), (249, True), (250, False), (1000, False)):
        settings = LogSettings(segment_bytes=100, min_cleanable_dirty_ratio=ratio)
        found = cleanable(
            segments(10, 20, 30, 40),
            cleaned_offset=30,
            log_start_offset=0,
            high_watermark=99,
            now_ms=NOW_MS,
            by_age=True,
            settings=settings,
        )
        assert found.is_due is due
    settings = LogSettings(segment_bytes=100, min_cleanable_dirty_ratio=0)
    found = cleanable(
        segments(10),
        cleaned_offset=10,
        log_start_offset=0,
        high_watermark=99,
        now_ms=NOW_MS,
        by_age=True,
        settings=settings,
    )
    assert not found.is_due, "nothing is new"


def test_what_is_not_committed_or_too_young_waits_and_is_looked_at_again() -> None:
    settings = LogSettings(segment_bytes=100, min_compaction_lag_ms=5_000)
    found = cleanable(
        segments(10, 20),
        cleaned_offset=0,
        log_start_offset=0,
        high_watermark=19,
        now_ms=NOW_MS,
        by_age=True,
        settings=settings,
    )
    assert (found.count, found.again_ms) == (1, NOW_MS + AGAIN_MS)
    young = segments(10, 20, written_ms=NOW_MS - 4_000)
    found = cleanable(
        young, cleaned_offset=0, log_start_offset=0, high_watermark=99, now_ms=NOW_MS, by_age=True, settings=settings
    )
    assert (found.count, found.is_due, found.again_ms) == (0, False, NOW_MS + 1_000)


def test_what_is_old_enough_is_compacted_however_little_there_is_of_it() -> None:
    settings = LogSettings(segment_bytes=100, min_cleanable_dirty_ratio=1000, max_compaction_lag_ms=5_000)
    for written_ms, due in ((NOW_MS - 5_000, True), (NOW_MS - 4_999, False)):
        found = cleanable(
            (*segments(10, 20, written_ms=written_ms), *segments(30, written_ms=NOW_MS)),
            cleaned_offset=20,
            log_start_offset=0,
            high_watermark=99,
            now_ms=NOW_MS,
            by_age=True,
            settings=settings,
        )
        assert found.is_due is due, "what is dirty came after the segment before it was written"
        assert found.again_ms == (None if due else NOW_MS + 1)


def test_what_must_not_be_compacted_yet_is_not_however_old_it_is() -> None:
    settings = LogSettings(segment_bytes=100, min_compaction_lag_ms=9_000, max_compaction_lag_ms=5_000)
    old = segments(10, 20, written_ms=NOW_MS - 6_000)
    found = cleanable(
        old, cleaned_offset=0, log_start_offset=0, high_watermark=99, now_ms=NOW_MS, by_age=True, settings=settings
    )
    assert (found.is_due, found.again_ms) == (False, NOW_MS + 3_000)
    settings = LogSettings(segment_bytes=100, max_compaction_lag_ms=5_000)
    found = cleanable(
        old, cleaned_offset=0, log_start_offset=0, high_watermark=9, now_ms=NOW_MS, by_age=True, settings=settings
    )
    assert (found.is_due, found.again_ms) == (False, NOW_MS + AGAIN_MS), "nothing of it is committed"


def test_nothing_is_old_by_a_clock_that_is_not_to_be_believed() -> None:
    old = segments(10, 20, written_ms=NOW_MS - 9_000)
    for min_lag_ms, ratio, count, due in ((0, 1000, 2, False), (0, 500, 2, True), (1, 500, 0, False)):
        settings = LogSettings(
            segment_bytes=100,
            min_cleanable_dirty_ratio=ratio,
            min_compaction_lag_ms=min_lag_ms,
            max_compaction_lag_ms=5_000,
        )
        found = cleanable(
            old,
            cleaned_offset=0,
            log_start_offset=0,
            high_watermark=99,
            now_ms=NOW_MS,
            by_age=False,
            settings=settings,
        )
        assert (found.count, found.is_due, found.is_overdue) == (count, due, False)


def test_segments_of_a_compacted_log_are_closed_before_they_are_too_old_to_be_compacted_in_time() -> None:
    defaults = LogSettings(segment_bytes=100, segment_ms=10_000)
    for policy, max_lag_ms, expected in (
        (CLEANUP_COMPACT, 4_000, 4_000),
        (CLEANUP_COMPACT, 40_000, 10_000),
        (CLEANUP_COMPACT, None, 10_000),
        (CLEANUP_DELETE, 4_000, 10_000),
    ):
        told = defaults.told(ReplicaSettings(cleanup_policy=policy, max_compaction_lag_ms=max_lag_ms))
        assert told.segment_ms == expected


@given(st.lists(st.integers(1, 60), max_size=30), st.integers(1, 100))
def test_segments_become_one_as_far_as_they_fit(sizes: list[int], size_bytes_max: int) -> None:
    facts = [
        SegmentFacts(base_offset=at, next_offset=at + 1, size_bytes=size, written_ms=0) for at, size in enumerate(sizes)
    ]
    counts = list(grouped(facts, size_bytes_max=size_bytes_max))
    assert sum(counts) == len(sizes)
    at = 0
    for count in counts:
        assert count == 1 or sum(sizes[at : at + count]) <= size_bytes_max
        at += count
        assert at == len(sizes) or sum(sizes[at - count : at + 1]) > size_bytes_max


def test_segments_do_not_become_one_that_could_not_count_its_offsets() -> None:
    far = segments(10, OFFSETS_IN_SEGMENT_MAX, OFFSETS_IN_SEGMENT_MAX + 2)
    assert list(grouped(far, size_bytes_max=1000)) == [2, 1]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1_000)), max_size=60), st.integers(0, 30_000))
def test_with_few_marks_a_deletion_is_never_thought_older_than_it_is(
    steps: list[tuple[int, int]], retention_ms: int
) -> None:
    marks: tuple[CleanedMark, ...] = ()
    history: list[CleanedMark] = []
    offset = at_ms = 0
    for further, later in steps:
        offset, at_ms = offset + further, at_ms + later
        history.append(CleanedMark(offset, at_ms, 0))
        marks = with_mark(marks, history[-1])
        assert len(marks) <= MARKS_MAX
        assert cleaned_until(marks) == offset
        true = max((mark.offset for mark in history if mark.at_ms + retention_ms <= at_ms), default=0)
        assert deletions_done_until(marks, now_ms=at_ms, delete_retention_ms=retention_ms) <= true
    assert decode_marks(encode_marks(marks)) == marks


def test_marks_of_other_records_are_none() -> None:
    marks = (CleanedMark(10, 1, 0), CleanedMark(20, 2, 1), CleanedMark(30, 3, 1))
    epochs = EpochCache(((LeaderEpoch(0), 0), (LeaderEpoch(1), 15), (LeaderEpoch(2), 25)))
    assert valid_marks(marks, epochs=epochs, log_start_offset=0, log_end_offset=99) == marks[:2]
    assert valid_marks(marks, epochs=epochs, log_start_offset=10, log_end_offset=99) == marks[1:2]
    assert valid_marks(marks, epochs=epochs, log_start_offset=0, log_end_offset=19) == marks[:1]
    assert decode_marks(b"anything") == decode_marks(b"") == decode_marks(encode_marks(marks)[:-5]) == ()
