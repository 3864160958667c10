"""A truncation comes in the middle of a failover: what it reads does not grow with the log."""

from collections.abc import Iterator
from itertools import count
from typing import Final

import pytest
from regnum_broker.log.disk.names import SNAPSHOT_SUFFIX
from regnum_broker.log.replica.producers.snapshots import INTERVAL_BYTES
from regnum_broker.log.replica.producers.states import Duplicate
from regnum_model.ids import LeaderEpoch
from regnum_records.header import assign
from regnum_testing.batches import batch_of
from regnum_testing.disk import FaultyDisk
from regnum_testing.log_directories import KEY, ReopenedDirectory

READ_AT_LEAST: Final = 64 * 1024
"""Bytes that are read to find the place of an offset, whatever is cut."""


def produced(size_bytes: int) -> Iterator[bytes]:
    """Batches of one idempotent producer, without end."""
    value = b"v" * size_bytes
    for sequence in count():
        yield batch_of(value, producer_id=5, producer_epoch=0, base_sequence=sequence)


def with_segments_of(place: ReopenedDirectory, size_bytes: int) -> None:
    place.kill()
    place.segment_bytes = size_bytes
    place.open()


def fill(place: ReopenedDirectory, batches: Iterator[bytes], number: int) -> None:
    log = place.replica()
    for _ in range(number):
        log.append_as_leader([next(batches)], leader_epoch=LeaderEpoch(0))


def test_small_batches_are_read_many_at_a_time(place: ReopenedDirectory, disk: FaultyDisk) -> None:
    with_segments_of(place, 1 << 30)
    fill(place, produced(200), 3_000)
    before = disk.reads
    place.now.replicas[KEY].truncate(2_990)
    assert disk.reads - before < 30


@pytest.mark.parametrize("cut", [1, 10, 100, 1_000])
@pytest.mark.parametrize("killed", [False, True])
def test_a_truncation_costs_what_it_cuts(place: ReopenedDirectory, disk: FaultyDisk, *, killed: bool, cut: int) -> None:
    """Small records sent one by one: eight megabytes of them are seconds of the writer thread."""
    with_segments_of(place, 1 << 30)
    batches = produced(10)
    fill(place, batches, 6_000)
    log = place.kill_and_open() if killed else place.now.replicas[KEY]
    size_bytes = log.size_bytes // 6_000
    before = disk.read_bytes
    log.truncate(log.log_end_offset - cut)
    assert disk.read_bytes - before <= READ_AT_LEAST + 3 * cut * size_bytes


def test_a_cut_into_one_large_append_costs_what_it_cuts(place: ReopenedDirectory, disk: FaultyDisk) -> None:
    """A follower that caught up has its last megabytes from one answer."""
    with_segments_of(place, 1 << 30)
    batches = produced(10)
    whole = b"".join(assign(next(batches), base_offset=offset, leader_epoch=0) for offset in range(6_000))
    log = place.replica()
    log.append_replicated(whole)
    before = disk.read_bytes
    log.truncate(5_999)
    assert disk.read_bytes - before <= READ_AT_LEAST


@pytest.mark.full
def test_what_no_mark_reaches_is_read_from_the_last_snapshot_on(place: ReopenedDirectory, disk: FaultyDisk) -> None:
    with_segments_of(place, 1 << 30)
    batches = produced(1_000)
    fill(place, batches, 5 * INTERVAL_BYTES // 1_000)
    log = place.now.replicas[KEY]
    before = disk.read_bytes
    log.truncate(log.log_end_offset // 2)
    assert disk.read_bytes - before <= 1.5 * INTERVAL_BYTES


def test_a_truncation_far_back_knows_the_producers_of_then(place: ReopenedDirectory) -> None:
    """With snapshots between the segments' beginnings, and after a kill as well."""
    with_segments_of(place, 40_000)
    batches = produced(200)
    sent = [next(batches) for _ in range(600)]
    log = place.replica()
    for batch in sent:
        log.append_as_leader([batch], leader_epoch=LeaderEpoch(0))
    for end, kill in ((590, False), (540, True), (500, False), (300, True), (20, False)):
        if kill:
            log = place.kill_and_open()
        log.truncate(end)
        (repeated,) = log.append_as_leader([sent[end - 1]], leader_epoch=LeaderEpoch(0))
        assert repeated == Duplicate(base_offset=end - 1, last_offset=end - 1)
        (repeated,) = log.append_as_leader([sent[end - 5]], leader_epoch=LeaderEpoch(0))
        assert repeated == Duplicate(base_offset=end - 5, last_offset=end - 5)


def test_a_start_after_a_kill_reads_the_last_segment_and_no_other(place: ReopenedDirectory, disk: FaultyDisk) -> None:
    """The snapshot at its beginning is not pushed out by those that are taken between."""
    with_segments_of(place, 1_000_000)
    fill(place, produced(1_000), 5_900)
    sizes = [path.stat().st_size for path in place.segments()]
    assert len(sizes) > 5
    assert len(list(place.folder().glob(f"*{SNAPSHOT_SUFFIX}"))) <= 12
    place.kill()
    before = disk.read_bytes
    place.open()
    assert disk.read_bytes - before <= sizes[-1]
