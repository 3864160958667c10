"""What a log is after it was compacted, and who can go on with it."""

import errno

import pytest
from regnum_broker.log.errors import ResourceExhaustedError
from regnum_broker.log.replica.cleaned import cleaned_until
from regnum_broker.log.replica.parts import Appended
from regnum_broker.log.replica.producers.states import Duplicate
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.replication.decisions.truncation import diverges, misleads
from regnum_model.config_definition import CLEANUP_COMPACT, CLEANUP_DELETE
from regnum_model.configs import ReplicaSettings
from regnum_model.ids import LeaderEpoch, PartitionKey
from regnum_records.compacted import is_filler
from regnum_records.header import iterate
from regnum_testing.compaction import compact, keyed_batch, prepared, records_of
from regnum_testing.disk import FaultyDisk
from regnum_testing.log_directories import KEY, ReopenedDirectory

OTHER = PartitionKey(KEY.topic_id, 1)
COMPACT = ReplicaSettings(cleanup_policy=CLEANUP_COMPACT, min_cleanable_dirty_ratio=0, delete_retention_ms=60_000)
DAY_MS = 86_400_000


def write(log: ReplicaLog, *records: tuple[bytes | None, bytes | None], epoch: int = 0) -> None:
    """Append one batch."""
    log.append_as_leader([keyed_batch(*records)], leader_epoch=LeaderEpoch(epoch))


def compacted_log(place: ReopenedDirectory, rounds: int = 12, keys: int = 3) -> ReplicaLog:
    """A log with some values of each key, in several segments; nothing is compacted yet."""
    log = place.replica()
    log.configure(COMPACT)
    for number in range(rounds * keys):
        write(log, (b"key-%d" % (number % keys), b"%d" % number + b"." * 150))
    return log


def contents(log: ReplicaLog, offset: int | None = None) -> dict[int, tuple[bytes | None, bytes | None]]:
    """Key and value by offset."""
    return {record.offset: (record.key, record.value) for record in records_of(log, offset)}


def newest(found: dict[int, tuple[bytes | None, bytes | None]]) -> dict[bytes | None, bytes | None]:
    """What a table made of the log would hold."""
    table = {key: value for _, (key, value) in sorted(found.items())}
    return {key: value for key, value in table.items() if value is not None}


def copied(place: ReopenedDirectory, log: ReplicaLog, *, begin: int = 0) -> ReplicaLog:
    """A follower that fetches all of a log from an offset on."""
    follower = place.replica(OTHER)
    while data := log.read(max(follower.log_end_offset, begin), bytes_max=400):
        follower.append_replicated(data)
    return follower


def test_of_each_key_the_newest_record_stays_with_its_offset(place: ReopenedDirectory) -> None:
    log = compacted_log(place)
    before, end, bytes_before = contents(log), log.log_end_offset, log.size_bytes
    active = log.segments[-1].base_offset
    assert compact(log, now_ms=place.wall_ms)
    after = contents(log)
    assert log.log_end_offset == end
    assert {offset: before[offset] for offset in after} == after, "what stays is what it was, where it was"
    assert newest(after) == newest(before)
    below = [key for offset, (key, _) in after.items() if offset < active]
    assert len(below) == len(set(below)) == 3
    assert log.size_bytes < bytes_before / 3


def test_segments_that_became_small_become_one_the_next_time(place: ReopenedDirectory) -> None:
    log = compacted_log(place)
    assert compact(log, now_ms=place.wall_ms)
    expected, segments = newest(contents(log)), len(log.segments)
    for _ in range(6):
        write(log, (b"key-0", b"last" + b"." * 150))
    expected[b"key-0"] = b"last" + b"." * 150
    assert compact(log, now_ms=place.wall_ms)
    assert newest(contents(log)) == expected
    assert len(log.segments) == len(place.segments()) < segments
    place.now.remove_files()
    assert newest(contents(place.kill_and_open())) == expected


def test_the_offsets_of_the_log_have_no_hole_and_epochs_begin_where_they_did(place: ReopenedDirectory) -> None:
    log = place.replica()
    log.configure(COMPACT)
    for number in range(40):
        write(log, (b"k", b"%d" % number + b"." * 150), epoch=number // 7)
    epochs = log.epochs
    assert compact(log, now_ms=place.wall_ms)
    offset = 0
    while data := log.read(offset, bytes_max=500):
        for _, header in iterate(data):
            assert header.base_offset == offset
            assert header.leader_epoch == offset // 7, "nothing stands for offsets of two epochs"
            offset = header.next_offset
    assert offset == 40
    assert (place.kill_and_open().epochs, place.lose_power_and_open().epochs) == (epochs, epochs)


def test_nothing_beyond_the_high_watermark_is_touched_nor_the_segment_that_grows(place: ReopenedDirectory) -> None:
    log = compacted_log(place)
    untouched, committed = log.segments[3].base_offset, log.segments[3].next_offset - 1
    before = contents(log)
    assert compact(log, now_ms=place.wall_ms, high_watermark=committed)
    after = contents(log)
    assert {at: record for at, record in after.items() if at >= untouched} == {
        at: record for at, record in before.items() if at >= untouched
    }
    assert cleaned_until(log.cleaned) == untouched
    assert not compact(log, now_ms=place.wall_ms, high_watermark=committed), "there is nothing new"


def test_a_deletion_outlives_what_it_deletes_for_as_long_as_the_topic_says(place: ReopenedDirectory) -> None:
    log = compacted_log(place, rounds=6)
    write(log, (b"key-1", None))
    for _ in range(8):
        write(log, (b"other", b"." * 150))
    assert compact(log, now_ms=place.wall_ms)
    assert [key for key, value in contents(log).values() if value is None] == [b"key-1"]
    assert b"key-1" not in [key for key, value in contents(log).values() if value is not None]
    for elapsed_ms, there in ((59_999, True), (60_000, False)):
        for _ in range(8):
            write(log, (b"other", b"." * 150))
        assert compact(log, now_ms=place.wall_ms + elapsed_ms)
        assert (b"key-1" in [key for key, _ in contents(log).values()]) == there


def test_what_is_known_of_a_compaction_outlives_a_kill_and_a_stop(place: ReopenedDirectory) -> None:
    log = compacted_log(place)
    assert compact(log, now_ms=place.wall_ms)
    marks, after = log.cleaned, contents(log)
    for reopened in (place.kill_and_open, place.stop_and_open, place.lose_power_and_open):
        log = reopened()
        log.configure(COMPACT)
        assert (log.cleaned, contents(log)) == (marks, after)
        assert not compact(log, now_ms=place.wall_ms), "it is compacted as far as that goes"


def test_a_truncation_into_what_was_compacted_takes_back_that_it_is(place: ReopenedDirectory) -> None:
    log = compacted_log(place)
    assert compact(log, now_ms=place.wall_ms)
    assert log.cleaned
    end = log.truncate(10)
    assert end <= 10
    assert log.cleaned == ()
    assert place.kill_and_open().cleaned == ()


def test_a_truncation_that_comes_before_the_swap_wins(place: ReopenedDirectory) -> None:
    log = compacted_log(place)
    work = prepared(log, now_ms=place.wall_ms)
    assert work is not None
    made = work.rewrite(work.groups[0], went_on=lambda: None)
    assert made is not None
    end = log.truncate(work.groups[0][-1].base_offset + 1)
    before = contents(log)
    assert not log.swap(work.groups[0], made, cuts=work.cuts)
    assert (log.log_end_offset, contents(log)) == (end, before)
    log = place.kill_and_open()
    assert (log.log_end_offset, contents(log)) == (end, before)
    assert not list(place.folder().glob("*.cleaned")), "what was begun is removed"


def test_a_record_does_not_go_for_the_sake_of_one_that_was_cut_meanwhile(place: ReopenedDirectory) -> None:
    log = compacted_log(place)
    work = prepared(log, now_ms=place.wall_ms)
    assert work is not None
    assert len(work.groups) > 2
    made = work.rewrite(work.groups[0], went_on=lambda: None)
    assert made is not None
    log.truncate(work.groups[1][0].base_offset)
    before = contents(log)
    for number in range(40):
        write(log, (b"other", b"%d" % number + b"." * 150))
    assert log.is_made_of(work.groups[0]), "its own segments are as they were, and closed"
    assert not log.swap(work.groups[0], made, cuts=work.cuts)
    log.note_cleaned(work.until, now_ms=place.wall_ms, cuts=work.cuts)
    assert log.cleaned == ()
    assert before.items() <= contents(log).items()


def test_on_a_full_disk_nothing_is_left_of_what_was_begun(place: ReopenedDirectory, disk: FaultyDisk) -> None:
    log = compacted_log(place)
    before = contents(log)
    disk.fail_writes_after = (1, errno.ENOSPC)
    with pytest.raises(ResourceExhaustedError):
        compact(log, now_ms=place.wall_ms)
    disk.fail_writes_after = None
    assert not list(place.folder().glob("*.cleaned"))
    assert newest(contents(log)) == newest(before)
    assert log.fault is None
    assert compact(log, now_ms=place.wall_ms)


def test_a_follower_copies_a_compacted_log_byte_for_byte(place: ReopenedDirectory) -> None:
    log = compacted_log(place)
    assert compact(log, now_ms=place.wall_ms)
    follower = copied(place, log)
    assert contents(follower) == contents(log)
    assert follower.log_end_offset == log.log_end_offset
    assert follower.epochs == log.epochs
    assert b"".join(file.read_bytes() for file in place.segments()) == b"".join(
        file.read_bytes() for file in place.segments(OTHER)
    )


def test_whoever_read_or_copied_a_compacted_log_is_compared_by_epochs_as_with_any_other(
    place: ReopenedDirectory,
) -> None:
    """Every epoch begins where it did, also those of which no record is left, in the log and in a copy of it."""
    log = place.replica()
    log.configure(COMPACT)
    epoch_of = [min(at // 5, 7) for at in range(60)]
    for at, epoch in enumerate(epoch_of):
        write(log, (b"key-%d" % (at % 2), b"%d" % at + b"." * 150), epoch=epoch)
    assert compact(log, now_ms=place.wall_ms)
    assert {epoch_of[offset] for offset in contents(log)} == {7}, "of most epochs, nothing is left"
    follower = copied(place, log)
    for leader in (log, follower):
        assert leader.epochs.entries == tuple((epoch, epoch * 5) for epoch in range(8))
        for at, epoch in enumerate(epoch_of):
            end = leader.epochs.end_offset_for(LeaderEpoch(epoch), log_end_offset=60)
            assert not misleads(end, last_fetched_epoch=LeaderEpoch(epoch), fetch_offset=at + 1, log_start=0)
            assert not diverges(end, last_fetched_epoch=LeaderEpoch(epoch), fetch_offset=at + 1)


def test_a_follower_that_is_behind_the_cleaner_goes_on(place: ReopenedDirectory) -> None:
    log = compacted_log(place)
    follower = place.replica(OTHER)
    follower.configure(COMPACT)
    while follower.log_end_offset < 17:
        follower.append_replicated(log.read(follower.log_end_offset, bytes_max=1))
    assert compact(log, now_ms=place.wall_ms)
    within = next(header for _, header in iterate(log.read(17, bytes_max=1)))
    assert is_filler(within)
    assert within.base_offset < 17 < within.next_offset
    copied(place, log)
    assert follower.log_end_offset == log.log_end_offset
    assert newest(contents(follower)) == newest(contents(log))
    assert compact(follower, now_ms=place.wall_ms)
    assert newest(contents(follower)) == newest(contents(log))
    assert len(contents(follower)) < 10
    assert follower.epochs == log.epochs


def test_an_idempotent_producer_is_known_by_a_copy_of_a_compacted_log(place: ReopenedDirectory) -> None:
    log = place.replica()
    log.configure(COMPACT)
    batches = [keyed_batch((b"k", b"%d" % at + b"." * 150), producer_id=9, base_sequence=at) for at in range(20)]
    for batch in batches:
        log.append_as_leader([batch], leader_epoch=LeaderEpoch(0))
    for _ in range(20):
        write(log, (b"k", b"." * 150))
    assert compact(log, now_ms=place.wall_ms)
    assert list(contents(log)) == [38, 39] or len(contents(log)) <= 7, "none of the producer's records is left"
    assert all(offset >= 20 for offset in contents(log))
    follower = copied(place, log)
    (outcome,) = follower.append_as_leader([batches[-1]], leader_epoch=LeaderEpoch(0))
    assert outcome == Duplicate(base_offset=19, last_offset=19)
    following = keyed_batch((b"k", b"next"), producer_id=9, base_sequence=20)
    (outcome,) = follower.append_as_leader([following], leader_epoch=LeaderEpoch(0))
    assert outcome == Appended(base_offset=40, last_offset=40)


def test_records_without_a_key_from_before_stay(place: ReopenedDirectory) -> None:
    log = place.replica()
    for number in range(20):
        write(log, (None, b"%d" % number + b"." * 100), (b"k", b"." * 50))
    log.configure(COMPACT)
    assert compact(log, now_ms=place.wall_ms)
    assert [at for at, (key, _) in contents(log).items() if key is None] == list(range(0, 40, 2))


def test_more_keys_than_there_is_memory_for_are_compacted_in_several_goes(place: ReopenedDirectory) -> None:
    log = place.replica()
    log.configure(COMPACT)
    for number in range(90):
        write(log, (b"key-%d" % (number % 30), b"%d" % number + b"." * 60))
    expected, rounds = newest(contents(log)), 0
    while compact(log, now_ms=place.wall_ms, keys_max=10):
        rounds += 1
        assert newest(contents(log)) == expected
    assert rounds > 3
    active = log.segments[-1].base_offset
    below = [key for offset, (key, _) in contents(log).items() if offset < active]
    assert len(below) == len(set(below))


def test_a_log_that_is_compacted_only_has_no_limit_and_one_that_is_both_has(place: ReopenedDirectory) -> None:
    log = place.replica()
    limited = ReplicaSettings(retention_ms=DAY_MS, retention_bytes=1 << 30, cleanup_policy=CLEANUP_COMPACT)
    log.configure(limited)
    assert (log.settings.is_compacted, log.settings.is_limited) == (True, False)
    log.configure(ReplicaSettings(retention_ms=DAY_MS, cleanup_policy=CLEANUP_COMPACT | CLEANUP_DELETE))
    assert (log.settings.is_compacted, log.settings.is_limited) == (True, True)
    log.configure(ReplicaSettings(retention_ms=DAY_MS))
    assert (log.settings.is_compacted, log.settings.is_limited) == (False, True)
