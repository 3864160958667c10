"""Where a log begins, moved forward: what is told holds after each kind of stop, and what was not deleted is there."""

from pathlib import Path

import pytest
from regnum_broker.log.errors import OffsetOutOfRangeError
from regnum_broker.log.replica.parts import Appended
from regnum_broker.log.replica.producers.states import Duplicate
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_model.ids import LeaderEpoch
from regnum_records.header import iterate
from regnum_testing.batches import assigned_batch, batch_of, values_of
from regnum_testing.disk import FaultyDisk
from regnum_testing.log_directories import KEY, ReopenedDirectory, lead, offset_at

VALUE = b"v" * 300


def filled(place: ReopenedDirectory, batches: int = 12) -> ReplicaLog:
    """Batches of two records each, in segments of two batches."""
    log = place.replica()
    for number in range(batches):
        lead(log, b"%d" % (2 * number) + VALUE, b"%d" % (2 * number + 1), timestamp_ms=1_000 + 10 * number)
    assert len(place.segments()) == batches // 2
    return log


def begin(place: ReopenedDirectory, offset: int) -> None:
    starts = place.now.starts
    recorded = starts.record({KEY: offset})
    starts.sync()
    assert starts.apply(recorded) == {KEY: offset}


def offsets(log: ReplicaLog) -> list[int]:
    """Base offsets of all batches that can be read."""
    found: list[int] = []
    offset = log.log_start_offset
    while data := log.read(offset, bytes_max=500):
        heads = [header for _, header in iterate(data)]
        found += [header.base_offset for header in heads]
        offset = heads[-1].next_offset
    return found


def test_what_lies_before_the_start_cannot_be_read_and_what_lies_behind_it_can(place: ReopenedDirectory) -> None:
    log = filled(place)
    begin(place, 9)
    assert (log.log_start_offset, log.log_end_offset) == (9, 24)
    for offset in (0, 7, 8):
        with pytest.raises(OffsetOutOfRangeError, match="from 9 to 24"):
            log.read(offset, bytes_max=100)
    assert values_of(log.read(9, bytes_max=1)) == [b"8" + VALUE, b"9"], "it lies within a batch, which comes whole"
    assert offsets(log) == list(range(8, 24, 2))


def test_only_whole_segments_go_and_their_files_are_removed_off_the_writer(place: ReopenedDirectory) -> None:
    log = filled(place)
    begin(place, 9)
    assert [int(file.stem) for file in place.segments()] == [8, 12, 16, 20]
    assert len(list(place.folder().glob("*.deleted"))) >= 2, "renamed, and not yet removed"
    place.now.remove_files()
    assert not list(place.folder().glob("*.deleted"))
    assert log.size_bytes == sum(file.stat().st_size for file in place.segments())


@pytest.mark.parametrize("stop", ["kill_and_open", "stop_and_open", "lose_power_and_open"])
def test_a_start_that_was_told_holds_after_every_kind_of_stop(place: ReopenedDirectory, stop: str) -> None:
    filled(place)
    begin(place, 9)
    for _ in range(2):
        log: ReplicaLog = getattr(place, stop)()
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (9, 24, 9)
        assert offsets(log) == list(range(8, 24, 2))
        assert place.now.files_left or not list(place.folder().glob("*.deleted"))


def test_a_log_that_begins_at_its_end_holds_nothing_and_goes_on_there(place: ReopenedDirectory) -> None:
    log, log_id = filled(place), place.log_id
    begin(place, 24)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (24, 24, 0)
    assert [int(file.stem) for file in place.segments()] == [24]
    assert log.last_record_epoch == 0, "the epoch of the last record is known, though it is deleted"
    log = place.kill_and_open()
    assert (log.log_start_offset, log.log_end_offset) == (24, 24)
    assert lead(log, b"x") == 24
    log = place.stop_and_open()
    assert offsets(log) == [24]
    assert place.log_id == log_id, "nothing was lost"


def test_a_kill_at_each_step_leaves_the_start_before_or_the_one_that_was_recorded(place: ReopenedDirectory) -> None:
    filled(place)
    place.now.starts.record({KEY: 9})
    log = place.kill_and_open()
    assert (log.log_start_offset, offsets(log)) == (9, list(range(8, 24, 2)))
    assert [int(file.stem) for file in place.segments()] == [8, 12, 16, 20]
    begin(place, 17)
    place.kill()
    # Some of the names were freed, and any.
    aside = next(place.folder().glob("*00012.log.*"))
    aside.rename(place.folder() / f"{12:020d}.log")
    log = place.open().replicas[KEY]
    assert (log.log_start_offset, offsets(log)) == (17, list(range(16, 24, 2)))
    place.now.remove_files()
    assert not list(place.folder().glob("*.deleted"))
    assert [int(file.stem) for file in place.segments()] == [16, 20]


def test_a_log_that_lost_its_end_behind_its_start_begins_anew_there(place: ReopenedDirectory) -> None:
    filled(place)
    begin(place, 23)
    log_id = place.log_id
    place.kill()
    place.segments()[-1].write_bytes(b"")
    place.boot_id += "+"
    log = place.open().replicas[KEY]
    assert (log.log_start_offset, log.log_end_offset) == (23, 23)
    assert place.log_id != log_id
    assert lead(log, b"x", epoch=1) == 23
    assert place.kill_and_open().log_end_offset == 24


def test_a_truncation_below_the_start_is_not_undone_by_what_was_recorded(place: ReopenedDirectory) -> None:
    log = filled(place)
    begin(place, 9)
    log.truncate(4)
    assert (log.log_start_offset, log.log_end_offset) == (4, 4)
    for _ in range(4):
        lead(log, b"x")
    assert place.now.starts.record({KEY: 9}) == {}, "nothing beyond the end is ever recorded"
    log = place.kill_and_open()
    assert (log.log_start_offset, log.log_end_offset) == (4, 8)


def test_a_truncation_between_recording_and_applying_counts(place: ReopenedDirectory) -> None:
    log = filled(place)
    recorded = place.now.starts.record({KEY: 20})
    log.truncate(10)
    place.now.starts.sync()
    assert place.now.starts.apply(recorded) == {}
    assert (log.log_start_offset, log.log_end_offset) == (0, 10)
    lead(log, b"x")
    log = place.kill_and_open()
    assert (log.log_start_offset, log.log_end_offset) == (0, 11)


def test_a_truncation_into_the_batch_that_the_log_begins_in_empties_it(place: ReopenedDirectory) -> None:
    log = filled(place, 2)
    begin(place, 3)
    assert log.truncate(3) == 3
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)
    assert place.kill_and_open().log_end_offset == 3


def test_a_follower_whose_leader_begins_within_a_batch_takes_it_whole(
    place: ReopenedDirectory,
) -> None:
    log = place.replica()
    log.truncate_fully_and_start_at(5)
    batch = assigned_batch(b"a", b"b", b"c", base_offset=4, leader_epoch=3)
    assert log.append_replicated(batch) == Appended(base_offset=4, last_offset=6)
    assert (log.log_start_offset, log.log_end_offset) == (5, 7)
    log = place.kill_and_open()
    assert (log.log_start_offset, log.log_end_offset, offsets(log)) == (5, 7, [4])
    with pytest.raises(OffsetOutOfRangeError):
        log.read(4, bytes_max=100)


def test_a_replica_that_is_created_again_begins_at_0(place: ReopenedDirectory) -> None:
    filled(place)
    begin(place, 9)
    place.now.delete_replicas([KEY])
    log = place.replica()
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    lead(log, b"x")
    log = place.lose_power_and_open()
    assert (log.log_start_offset, log.log_end_offset) == (0, 1)


def test_a_reader_whose_segment_is_removed_is_told_so(place: ReopenedDirectory, disk: FaultyDisk) -> None:
    log = place.replica()
    lead(log, b"x" * 50_000)
    lead(log, VALUE)
    disk.amid_read = lambda: begin(place, 1)
    with pytest.raises(OffsetOutOfRangeError, match="from 1 to 2"):
        log.read(0, bytes_max=1)
    assert log.fault is None
    assert values_of(log.read(1, bytes_max=1)) == [VALUE]


def test_a_producer_is_known_as_long_as_a_snapshot_or_a_batch_tells_of_it(place: ReopenedDirectory) -> None:
    log = place.replica()
    batches = [
        batch_of(b"%d" % number + VALUE, producer_id=5, producer_epoch=0, base_sequence=number) for number in range(9)
    ]
    for batch in batches:
        log.append_as_leader([batch], leader_epoch=LeaderEpoch(0))
    begin(place, log.log_end_offset)
    (again,) = log.append_as_leader([batches[-1]], leader_epoch=LeaderEpoch(0))
    assert again == Duplicate(base_offset=8, last_offset=8)
    log = place.kill_and_open()
    (again,) = log.append_as_leader([batches[-1]], leader_epoch=LeaderEpoch(0))
    assert again == Duplicate(base_offset=8, last_offset=8)


def test_a_producer_of_whom_only_an_older_snapshot_tells_is_forgotten(place: ReopenedDirectory) -> None:
    log = place.replica()

    def produced(sequence: int) -> bytes:
        return batch_of(VALUE, producer_id=5, producer_epoch=0, base_sequence=sequence)

    for sequence in range(9):
        log.append_as_leader([produced(sequence)], leader_epoch=LeaderEpoch(0))
    begin(place, log.log_end_offset)
    place.kill()
    snapshots = sorted(place.folder().glob("*.producers"))
    assert len(snapshots) > 1
    snapshots[-1].unlink()
    log = place.open().replicas[KEY]
    (outcome,) = log.append_as_leader([produced(9)], leader_epoch=LeaderEpoch(0))
    assert outcome == Appended(base_offset=9, last_offset=9), "what the older one says it had reached is wrong"


def test_an_offset_for_a_time_is_never_before_the_start(place: ReopenedDirectory) -> None:
    log = filled(place)
    begin(place, 9)
    assert offset_at(log, 0) == 9
    assert offset_at(log, 1_040) == 9, "of the batch that the log begins in"
    assert offset_at(log, 1_041) == 10
    assert offset_at(log, 2_000) is None


@pytest.mark.parametrize("lines", [1, 3])
def test_a_damaged_file_of_starts_is_said(place: ReopenedDirectory, lines: int) -> None:
    filled(place)
    begin(place, 9)
    place.kill()
    (place.path / "log-starts").write_bytes(b"garbage\n" * lines)
    directory = place.open()
    assert directory.replicas[KEY].log_start_offset == 8, "where the first segment does"
    assert any("log-starts is damaged" in note for note in directory.notes)


def test_a_line_of_starts_that_a_kill_tore_is_no_damage(place: ReopenedDirectory) -> None:
    filled(place)
    begin(place, 9)
    begin(place, 10)
    place.kill()
    file = place.path / "log-starts"
    file.write_bytes(file.read_bytes()[:-3])
    directory = place.open()
    assert directory.replicas[KEY].log_start_offset == 9
    assert not directory.notes


def test_a_directory_whose_logs_begin_at_0_has_no_file_of_starts(place: ReopenedDirectory) -> None:
    filled(place)
    place.stop_and_open()
    assert not (place.path / "log-starts").exists()


def test_many_starts_are_one_write_and_none_costs_a_sync_of_the_writer(tmp_path: Path) -> None:
    disk = FaultyDisk()
    place = ReopenedDirectory(tmp_path / "many", disk=disk)
    place.open()
    keys = [KEY._replace(partition=number) for number in range(20)]
    for key in keys:
        lead(place.replica(key), b"a", b"b")
    starts = place.now.starts
    starts.record({keys[0]: 1})
    writes, syncs = disk.writes, disk.syncs
    recorded = starts.record(dict.fromkeys(keys, 1))
    assert (disk.writes, disk.syncs) == (writes + 1, syncs)
    starts.sync()
    assert starts.apply(recorded) == dict.fromkeys(keys, 1)
    assert disk.writes == writes + 1
    place.kill()
