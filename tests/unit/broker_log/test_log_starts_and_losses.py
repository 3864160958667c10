"""What may look like a log start that was moved, and is a loss; what may look like a loss, and is none."""

import contextlib
import errno
import shutil
from pathlib import Path

import pytest
from regnum_broker.log.errors import ResourceExhaustedError
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_testing.disk import FaultyDisk
from regnum_testing.log_directories import KEY, ReopenedDirectory, lead


@pytest.fixture
def place(tmp_path: Path) -> ReopenedDirectory:
    made = ReopenedDirectory(tmp_path, segment_bytes=300)
    made.open()
    return made


def filled(place: ReopenedDirectory, count: int = 20) -> ReplicaLog:
    replica = place.replica()
    for number in range(count):
        lead(replica, b"x%d" % number)
    return replica


def move(place: ReopenedDirectory, start: int) -> None:
    starts = place.now.starts
    recorded = starts.record({KEY: start})
    starts.sync()
    starts.apply(recorded)


@pytest.mark.parametrize("start", [0, 1])
def test_a_first_segment_that_went_missing_is_no_start_that_was_moved(place: ReopenedDirectory, start: int) -> None:
    filled(place)
    if start:
        move(place, start)
    before = place.log_id
    place.kill()
    place.segments()[0].unlink()
    place.open()
    assert place.log_id != before, "who lost records proves nothing"


def test_starts_that_were_moved_and_a_follower_that_began_anew_are_no_loss(place: ReopenedDirectory) -> None:
    replica = filled(place)
    move(place, 9)
    before = place.log_id
    assert place.kill_and_open().log_start_offset == 9
    for offset in (30, 12):
        replica = place.now.replicas[KEY]
        replica.truncate_fully_and_start_at(offset)
        replica = place.kill_and_open()
        assert (replica.log_start_offset, replica.log_end_offset) == (offset, offset)
    assert place.log_id == before


def test_a_kill_between_the_record_and_beginning_anew_is_no_loss(place: ReopenedDirectory) -> None:
    filled(place)
    before = place.log_id
    place.now._host.record_start(KEY, 30)
    replica = place.kill_and_open()
    assert (replica.log_start_offset, replica.log_end_offset) == (30, 30)
    assert place.log_id == before


def test_a_start_that_waits_is_taken_back_by_a_cut_within_the_first_batch(tmp_path: Path) -> None:
    """Steps: a log begins within a batch; a later start is recorded; the leader's log ends within that first batch."""
    place = ReopenedDirectory(tmp_path)
    place.open()
    replica = place.replica()
    for first in range(0, 40, 10):
        lead(replica, *[b"v%d" % number for number in range(first, first + 10)])
    move(place, 15)
    place.now.starts.record({KEY: 30})
    replica.truncate(16)
    for number in range(5):
        lead(replica, b"acknowledged %d" % number, epoch=1)
    end, before = replica.log_end_offset, place.log_id
    replica = place.kill_and_open()
    assert (replica.log_start_offset, replica.log_end_offset) == (15, end)
    assert place.log_id == before


@pytest.mark.parametrize("writes", range(4))
def test_a_batch_that_has_no_room_leaves_the_start_where_it_was_told_to_be(tmp_path: Path, writes: int) -> None:
    """The disk is full after so many writes more."""
    source = ReopenedDirectory(tmp_path / "leader")
    source.open()
    of_leader = source.replica()
    lead(of_leader, *[b"v"] * 10)
    lead(of_leader, *[b"w"] * 10)
    straddling = of_leader.read(15, bytes_max=1)
    disk = FaultyDisk()
    place = ReopenedDirectory(tmp_path / "follower", disk=disk)
    place.open()
    replica = filled(place, 2)
    replica.truncate_fully_and_start_at(15)
    before = place.log_id
    disk.fail_writes_after = (writes, errno.ENOSPC)
    with contextlib.suppress(ResourceExhaustedError):
        replica.append_replicated(straddling)
    disk.fail_writes_after = None
    assert replica.log_start_offset == 15
    replica = place.kill_and_open()
    assert (replica.log_start_offset, place.log_id) == (15, before)
    if replica.log_end_offset == 15:
        replica.append_replicated(straddling)
    assert (replica.log_start_offset, replica.log_end_offset) == (15, 20)
    assert place.kill_and_open().log_start_offset == 15


def test_two_that_move_a_start_at_a_time_do_not_undo_one_another(place: ReopenedDirectory) -> None:
    replica = filled(place)
    starts = place.now.starts
    first = starts.record({KEY: 15})
    second = starts.record({KEY: 5})
    starts.sync()
    assert starts.apply(first) == {KEY: 15}
    assert starts.apply(second) == {}
    assert replica.log_start_offset == 15
    assert place.kill_and_open().log_start_offset == 15


def test_a_folder_that_is_gone_takes_its_replica_offline_and_nobody_else(place: ReopenedDirectory) -> None:
    filled(place)
    starts = place.now.starts
    recorded = starts.record({KEY: 20})
    starts.sync()
    shutil.rmtree(place.folder())
    assert starts.apply(recorded) == {}
    assert not place.now.failed
