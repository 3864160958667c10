"""A full disk costs appends and nothing else: on a real small file system, and with injected errors where it is not."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from regnum_broker.log.errors import CorruptLogError, DirectoryFailedError, ResourceExhaustedError
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_model.ids import LeaderEpoch, PartitionKey, TopicId
from regnum_testing.batches import assigned_batch, batch_of, values_of
from regnum_testing.log_directories import KEY, ReopenedDirectory, lead
from regnum_testing.small_filesystem import fill, small_filesystem

OTHER = PartitionKey(TopicId("BBBBBBBBBBBBBBBBBBBBBB"), 1)
VALUE = b"v" * 3_000


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "small").mkdir()
    with small_filesystem(tmp_path / "small", size_bytes=1 << 20) as folder:
        yield folder


@pytest.fixture
def on_small(small: Path) -> Iterator[ReopenedDirectory]:
    place = ReopenedDirectory(small / "logs", segment_bytes=64 * 1024)
    place.open()
    yield place
    place.kill()


def lead_until_full(place: ReopenedDirectory, key: PartitionKey = KEY) -> int:
    """Append until there is no room; returns how many batches were taken."""
    replica, count = place.replica(key), 0
    try:
        while True:
            lead(replica, b"%d" % count, VALUE, epoch=1)
            count += 1
    except ResourceExhaustedError:
        return count


def whole(place: ReopenedDirectory, count: int, key: PartitionKey = KEY) -> bool:
    replica = place.now.replicas[key]
    found: list[bytes | None] = []
    while len(found) < replica.log_end_offset:
        found += values_of(replica.read(len(found), bytes_max=50_000))
    return found == [value for number in range(count) for value in (b"%d" % number, VALUE)]


def test_an_append_without_room_is_cut_back_and_nothing_is_lost(on_small):
    count = lead_until_full(on_small)
    directory, log_id = on_small.now, on_small.log_id
    assert count > 200
    assert not directory.failed
    assert whole(on_small, count)
    sizes = sum(file.stat().st_size for file in on_small.segments())
    assert sizes == directory.replicas[KEY].size_bytes
    on_small.kill()
    on_small.open()
    assert on_small.log_id == log_id
    assert whole(on_small, count)


def test_a_full_broker_starts_again_and_again_with_the_same_log(on_small, small):
    count = lead_until_full(on_small)
    log_id = on_small.log_id
    fill(small)
    for stop in ("kill", "stop", "kill", "power"):
        on_small.now.close(clean=stop == "stop")
        if stop == "power":
            on_small.now.close(clean=True)
        on_small.open()
        assert on_small.log_id == log_id
        assert whole(on_small, count)
    on_small.now.close(clean=True)
    on_small.boot_id = "another boot"
    on_small.open()
    assert on_small.log_id == log_id, "the proof of a clean stop found room too"


def test_topics_can_be_deleted_on_a_full_disk_and_then_appends_go_on(on_small, small):
    lead(on_small.replica(OTHER), VALUE)
    count = lead_until_full(on_small)
    fill(small)
    with pytest.raises(ResourceExhaustedError):
        lead(on_small.replica(OTHER), VALUE)
    on_small.now.delete_replicas([KEY])
    assert not on_small.folder().exists()
    assert not on_small.now.full
    assert (on_small.path / "reserve").stat().st_size == on_small.reserve_bytes
    assert lead(on_small.replica(OTHER), VALUE) == 1
    assert count > 0
    on_small.kill()
    assert list(on_small.open().replicas) == [OTHER]


def test_a_full_leader_takes_orders_and_reads(on_small, small):
    count = lead_until_full(on_small)
    fill(small)
    on_small.now.record_leader_epochs([(KEY, LeaderEpoch(7), on_small.now.replicas[KEY].log_end_offset)])
    on_small.now.create_replicas([(OTHER, "other")])
    assert whole(on_small, count)
    on_small.kill()
    assert on_small.open().replicas[KEY].highest_leader_epoch == 7
    assert on_small.now.replicas[OTHER].log_end_offset == 0


def test_the_room_held_back_is_not_for_records(on_small, small):
    lead_until_full(on_small)
    fill(small)
    number = 0
    while not on_small.now.full:
        number += 1
        on_small.now.create_replicas([(PartitionKey(KEY.topic_id, number), "topic")])
    status = os.statvfs(small)
    assert status.f_bavail * status.f_frsize > 8_192, "there is room"
    with pytest.raises(ResourceExhaustedError, match="is full"):
        lead(on_small.replica(), b"small", epoch=1)
    assert not on_small.now.make_reserve()
    (small / "ballast").unlink()
    on_small.now.delete_replicas([KEY])
    assert on_small.now.make_reserve()
    assert lead(on_small.replica(OTHER), b"small") == 0


def test_a_follower_that_is_full_goes_on_where_it_stopped(on_small, small):
    replica = on_small.replica()
    ballast = fill(small, leave_bytes=200 * 1024)
    taken = follow_until_full(replica)
    assert replica.log_end_offset == taken > 0
    assert follow_until_full(replica) == taken
    ballast.unlink()
    assert follow_until_full(replica) > taken
    assert not on_small.now.failed


def follow_until_full(replica: ReplicaLog) -> int:
    try:
        while True:
            replica.append_replicated(assigned_batch(VALUE, base_offset=replica.log_end_offset, leader_epoch=0))
    except ResourceExhaustedError:
        return replica.log_end_offset


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_want_of_something_is_no_failure_and_keeps_the_log_id(place, disk, code):
    replica = place.replica()
    lead(replica, b"a")
    log_id = place.log_id
    disk.short_writes, disk.fail_writes_after = 20, (1, code)
    with pytest.raises(ResourceExhaustedError):
        lead(replica, b"b" * 100)
    disk.short_writes = disk.fail_writes_after = None
    assert not place.now.failed
    assert place.segments()[-1].stat().st_size == replica.size_bytes
    assert lead(replica, b"c") == 1
    place.kill()
    assert values_of(place.open().replicas[KEY].read(0, bytes_max=1)) == [b"a"]
    assert place.log_id == log_id


def test_a_truncation_without_room_is_refused_while_nothing_is_cut_and_done_later(place, disk):
    replica = place.replica()
    lead(replica, b"a", epoch=1)
    lead(replica, b"b", epoch=2)
    disk.fail_writes = errno.ENOSPC
    with pytest.raises(ResourceExhaustedError):
        replica.truncate(1)
    assert replica.fault is None
    assert (replica.log_end_offset, replica.epochs.entries) == (2, ((1, 0), (2, 1)))
    assert values_of(replica.read(0, bytes_max=1_000)) == [b"a", b"b"]
    disk.fail_writes = None
    assert place.now.make_reserve()
    assert replica.truncate(1) == 1
    assert lead(replica, b"c", epoch=3) == 1
    replica = place.kill_and_open()
    assert replica.epochs.entries == ((1, 0), (3, 1))
    assert values_of(replica.read(0, bytes_max=1_000)) == [b"a", b"c"]


def test_a_roll_without_a_descriptor_leaves_no_segment_behind_which_the_last_one_grows(place, disk):
    replica = place.replica()
    lead(replica, b"a" * 600)
    log_id = place.log_id
    disk.fail_folders = errno.EMFILE
    with pytest.raises(ResourceExhaustedError):
        lead(replica, b"b" * 600)
    disk.fail_folders = None
    assert lead(replica, b"small enough for the first segment") == 1
    assert len(place.segments()) == len(replica.segments) == 1
    assert place.kill_and_open().log_end_offset == 2
    assert place.log_id == log_id
    assert lead(place.replica(), b"c" * 600) == 2
    assert len(place.segments()) == 2, "there is a next segment once there are descriptors"


def test_a_start_that_moves_without_a_descriptor_for_a_new_segment_leaves_none(place, disk):
    replica = place.replica()
    for sequence, size in enumerate((600, 600, 100)):
        batch = batch_of(b"a" * size, producer_id=7, producer_epoch=0, base_sequence=sequence)
        replica.append_as_leader([batch], leader_epoch=LeaderEpoch(0))
    for snapshot in place.folder().glob("*.producers"):
        snapshot.unlink()
    starts = place.now.starts
    starts.record({KEY: 1})
    disk.fail_folders = errno.EMFILE
    assert starts.apply({KEY: 1}) == {KEY: 1}
    disk.fail_folders = None
    assert lead(replica, b"small enough for the last segment") == 3
    replica = place.kill_and_open()
    assert (replica.log_start_offset, replica.log_end_offset) == (1, 4)


def test_want_of_room_in_an_fsync_is_final(place, disk):
    """The kernel says so after it has dropped the pages: unlike a write, that cannot be taken back."""
    replica = place.replica()
    lead(replica, b"a")
    log_id = place.log_id
    disk.fail_syncs = errno.ENOSPC
    with pytest.raises(DirectoryFailedError):
        replica.flush()
    disk.fail_syncs = None
    place.kill()
    place.open()
    assert place.log_id != log_id


def test_a_disk_that_became_read_only_stops_the_directory_and_is_another_log(place, disk):
    """ext4 answers EROFS from a failed write-back on: what was in the page cache may be lost."""
    lead(place.replica(), b"a")
    log_id = place.log_id
    disk.fail_writes = errno.EROFS
    with pytest.raises(DirectoryFailedError):
        lead(place.replica(), b"b")
    disk.fail_writes = None
    place.kill()
    place.open()
    assert place.log_id != log_id


@pytest.mark.parametrize("cached", [True, False])
def test_a_file_that_was_removed_under_the_process_is_not_continued_as_a_hole(place, cached):
    replica = place.replica()
    lead(replica, b"a")
    place.segments()[-1].unlink()
    if not cached:
        for number in range(20):
            lead(place.replica(PartitionKey(OTHER.topic_id, number)), b"x")
    with pytest.raises(CorruptLogError, match="removed"):
        lead(replica, b"b")
    assert replica.fault is not None
    assert place.segments() == []
    assert lead(place.replica(OTHER), b"others go on") >= 0


def test_a_file_that_was_cut_under_the_process_is_not_continued_as_a_hole(place):
    replica = place.replica()
    lead(replica, b"a" * 100)
    with place.segments()[-1].open("r+b") as file:
        file.truncate(10)
    with pytest.raises(CorruptLogError, match="cut to 10 bytes"):
        lead(replica, b"b")


def test_a_segment_that_was_removed_stops_a_roll_and_not_the_broker(place):
    replica = place.replica()
    lead(replica, b"a" * 700)
    place.segments()[-1].unlink()
    with pytest.raises(CorruptLogError):
        lead(replica, b"b" * 700)
    assert not place.now.failed
