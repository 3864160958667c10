"""When segments are closed, and how dense their indexes are, by the settings of a topic."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from regnum_broker.log.replica.index import INTERVAL_BYTES
from regnum_broker.log.replica.parts import Part, replicated_parts
from regnum_broker.log.replica.rolling import LogSettings
from regnum_model.configs import NO_SETTINGS, ReplicaSettings
from regnum_records.header import assign
from regnum_testing.batches import batch_of
from regnum_testing.log_directories import ReopenedDirectory, lead

VALUE = b"v" * 300


def test_a_segment_is_closed_at_the_size_that_the_topic_says_from_the_next_append_on(place: ReopenedDirectory) -> None:
    log = place.replica()
    for _ in range(3):
        lead(log, VALUE)
    assert len(place.segments()) == 2, "by the broker's own 1000 bytes"
    log.configure(ReplicaSettings(segment_bytes=1 << 20))
    for _ in range(9):
        lead(log, VALUE)
    assert len(place.segments()) == 2
    log.configure(NO_SETTINGS)
    lead(log, VALUE)
    assert len(place.segments()) == 3, "the broker's own again"
    assert place.kill_and_open().log_end_offset == 13


def test_a_segment_is_closed_at_the_age_that_the_topic_says_whatever_timestamps_records_have(
    place: ReopenedDirectory,
) -> None:
    log = place.replica()
    log.configure(ReplicaSettings(segment_ms=60_000, segment_bytes=1 << 20))
    lead(log, b"a", timestamp_ms=1)
    lead(log, b"b", timestamp_ms=2**50)
    assert len(place.segments()) == 1
    place.wall_ms += 59_999
    lead(log, b"c")
    assert len(place.segments()) == 1
    place.wall_ms += 1
    lead(log, b"d")
    assert len(place.segments()) == 2
    place.wall_ms += 59_999
    lead(log, b"e")
    assert len(place.segments()) == 2, "the new segment has an age of its own"
    place.wall_ms -= 10_000_000
    lead(log, b"f")
    assert len(place.segments()) == 2, "a clock that was set back closes nothing"


def test_the_age_of_a_segment_begins_anew_with_the_run_of_the_broker(place: ReopenedDirectory) -> None:
    lead(place.replica(), b"a")
    place.wall_ms += 100_000
    log = place.kill_and_open()
    log.configure(ReplicaSettings(segment_ms=60_000))
    lead(log, b"b")
    assert len(place.segments()) == 1
    place.wall_ms += 60_000
    lead(log, b"c")
    assert len(place.segments()) == 2
    assert log.read(0, bytes_max=1 << 20)


def test_an_index_has_an_entry_for_as_many_bytes_as_the_topic_says(place: ReopenedDirectory) -> None:
    log = place.replica()
    log.configure(ReplicaSettings(segment_bytes=1 << 20, index_interval_bytes=1_024))
    offsets = [lead(log, VALUE) for _ in range(60)]
    dense = len(log._shown.segments[-1].loaded_index())
    other = ReopenedDirectory(place.path.parent / "other", segment_bytes=1 << 20)
    other.open()
    sparse = other.replica()
    for _ in range(60):
        lead(sparse, VALUE)
    assert dense > 3 * len(sparse._shown.segments[-1].loaded_index())
    assert all(log.read(offset, bytes_max=1, end_offset=offset + 1) for offset in offsets)
    reopened = place.stop_and_open()
    assert all(reopened.read(offset, bytes_max=1, end_offset=offset + 1) for offset in offsets)
    other.kill()


def parts_of(sizes: Sequence[int]) -> list[Part]:
    batches = [assign(batch_of(b"v" * size), base_offset=number, leader_epoch=0) for number, size in enumerate(sizes)]
    return replicated_parts(b"".join(batches))


@given(
    sizes=st.lists(st.integers(0, 400), min_size=1, max_size=12),
    segment_bytes=st.integers(100, 1_500),
    size_bytes=st.integers(0, 1_500),
    too_old=st.booleans(),
)
def test_every_batch_goes_into_one_segment_in_order_and_none_is_larger_than_it_may_be(
    sizes: list[int], segment_bytes: int, size_bytes: int, too_old: bool
) -> None:
    parts = parts_of(sizes)
    settings = LogSettings(segment_bytes=segment_bytes, index_interval_bytes=INTERVAL_BYTES)
    portions = list(settings.portions(parts, 0, size_bytes, too_old=too_old))
    assert [part for _, portion in portions for part in portion] == parts
    assert all(portion for _, portion in portions)
    assert all(begins for begins, _ in portions[1:])
    assert portions[0][0] or not (too_old and size_bytes)
    size = size_bytes
    for begins, portion in portions:
        size = 0 if begins else size
        added = sum(part.header.size_bytes for part in portion)
        assert size + added <= segment_bytes or (size == 0 and len(portion) == 1)
        size += added
