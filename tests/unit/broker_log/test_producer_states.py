"""Idempotent producers: Kafka's rules and vectors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_broker.log.replica.producers.snapshots import decode_snapshot, encode_snapshot
from regnum_broker.log.replica.producers.states import NOBODY, Accepted, Duplicate, Fenced, OutOfOrder, ProducerStates
from regnum_model.ids import LeaderEpoch
from regnum_records.header import BatchHeader, read_header
from regnum_service.clock import SystemClock
from regnum_testing.batches import batch_of

DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS


def head(sequence: int, *, count: int = 1, epoch: int = 0, producer: int = 7, offset: int = 0) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        batch_length=100,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=count - 1,
        base_timestamp_ms=0,
        max_timestamp_ms=0,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )


def states(*heads: BatchHeader) -> ProducerStates:
    result = ProducerStates()
    for header in heads:
        result.apply(header, seen_ms=1_000)
    return result


def test_a_sequence_goes_on():
    known = states(head(0), head(1))
    assert known.check(head(2)) == Accepted()
    assert known.check(head(5)) == OutOfOrder(expected=2, found=5)


def test_an_unknown_producer_may_begin_anywhere():
    assert ProducerStates().check(head(77)) == Accepted()


def test_a_repeat_is_answered_with_its_first_offsets():
    known = states(head(0, count=3, offset=40), head(3, count=2, offset=50))
    assert known.check(head(0, count=3)) == Duplicate(base_offset=40, last_offset=42)
    assert known.check(head(3, count=2)) == Duplicate(base_offset=50, last_offset=51)


def test_a_repeat_needs_the_same_first_and_last_sequence():
    known = states(head(0, count=3, offset=40))
    assert known.check(head(0, count=2)) == OutOfOrder(expected=3, found=0)
    assert known.check(head(1, count=2)) == OutOfOrder(expected=3, found=1)


def test_five_batches_are_remembered():
    known = states(*[head(sequence, offset=sequence) for sequence in range(6)])
    assert known.check(head(0)) == OutOfOrder(expected=6, found=0)
    assert known.check(head(1)) == Duplicate(base_offset=1, last_offset=1)


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one():
    known = states(head(0), head(1))
    assert known.check(head(2, epoch=1)) == OutOfOrder(expected=0, found=2)
    assert known.check(head(0, epoch=1)) == Accepted()
    known.apply(head(0, epoch=1), seen_ms=1_000)
    assert known.check(head(2, epoch=0)) == Fenced(current=1, found=0)
    assert known.check(head(0, epoch=0)) == Fenced(current=1, found=0)


@pytest.mark.parametrize(
    ("first", "count", "following"), [(2**31 - 1, 1, 0), (2**31 - 2, 4, 2), (2**31 - 3, 2, 2**31 - 1)]
)
def test_sequences_wrap(first, count, following):
    known = states(head(first, count=count))
    assert known.check(head(following)) == Accepted()
    assert known.check(head(first, count=count)) == Duplicate(base_offset=0, last_offset=count - 1)
    assert known.check(head(following + 1)) == OutOfOrder(expected=following, found=following + 1)


def test_batches_without_a_producer_are_not_remembered():
    header = read_header(batch_of(b"x"))
    known = states(header)
    assert known.entries == NOBODY
    assert known.check(header) == Accepted()


def test_producers_do_not_mix():
    known = states(head(0, producer=1), head(9, producer=2))
    assert known.check(head(1, producer=1)) == Accepted()
    assert known.check(head(10, producer=2)) == Accepted()
    assert known.check(head(10, producer=1)) == OutOfOrder(expected=1, found=10)


def test_replication_ignores_what_an_old_epoch_brings():
    known = states(head(0, epoch=3), head(4, epoch=2))
    assert known.check(head(1, epoch=3)) == Accepted()


def test_reaches():
    known = states(head(0, offset=10, count=5))
    assert known.reaches(14)
    assert not known.reaches(15)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 100), st.integers(1, 9)), max_size=30))
def test_a_snapshot_is_the_same_state(applied):
    known = states(
        *[
            head(sequence, producer=producer, epoch=epoch, count=count, offset=number * 10)
            for number, (producer, epoch, sequence, count) in enumerate(applied)
        ]
    )
    data = encode_snapshot(known.entries)
    again = decode_snapshot(data)
    assert again is not None
    assert again.entries == known.entries
    assert decode_snapshot(data[:-2]) is None


def test_who_appends_nothing_for_long_is_forgotten():
    known = states(head(0, producer=1), head(0, producer=2))
    known.apply(head(1, producer=2), seen_ms=5_000)
    assert known.expire(1_000) == ()
    assert known.expire(1_001) == (1,)
    assert set(known.entries) == {2}
    assert known.check(head(7, producer=1)) == Accepted()


@pytest.mark.parametrize("stop", ["stop_and_open", "kill_and_open"])
def test_a_restart_lets_nobody_be_forgotten_early_and_nobody_stay_for_ever(place, stop):
    """Timestamps of records are the client's: a clock that is wrong there does not make a duplicate here."""
    # Files are written by the machine's clock.
    place.wall_ms = SystemClock().wall_ms()
    batch = batch_of(b"v", timestamp_ms=1, producer_id=5, producer_epoch=0, base_sequence=0)
    place.replica().append_as_leader([batch], leader_epoch=LeaderEpoch(0))
    appended_ms = place.wall_ms
    place.wall_ms += 1_000_000
    replica = getattr(place, stop)()
    assert replica.expire_producers(appended_ms) == 0
    assert replica.append_as_leader([batch], leader_epoch=LeaderEpoch(0)) == [Duplicate(base_offset=0, last_offset=0)]
    assert replica.expire_producers(place.wall_ms + 1) == 1
    assert place.stop_and_open().producers.entries == NOBODY


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_start_with_a_clock_that_is_far_behind_has_nobody_forgotten_once_it_is_right(place, is_cut):
    place.wall_ms = SystemClock().wall_ms()
    for number in range(2):
        batch = batch_of(b"v", producer_id=5, producer_epoch=0, base_sequence=number)
        place.replica().append_as_leader([batch], leader_epoch=LeaderEpoch(0))
    place.wall_ms -= YEAR_MS
    replica = place.kill_and_open()
    if is_cut:
        replica.truncate(1)
    place.wall_ms += YEAR_MS
    assert replica.expire_producers(place.wall_ms - DAY_MS) == 0
    assert len(replica.producers.entries[5].batches) == (1 if is_cut else 2)
