"""What is on the disk when it counts as written, by flush.messages and flush.ms."""

import errno
from pathlib import Path

import pytest
from regnum_broker.flushing import LogFlusher
from regnum_broker.log.errors import NotContiguousError, UnknownReplicaError
from regnum_broker.log.replica.producers.states import Duplicate
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.log.replica.tail import FLUSH_AGAIN_MS
from regnum_model.configs import ReplicaSettings
from regnum_model.ids import LeaderEpoch
from regnum_records.compacted import filler
from regnum_testing.batches import assigned_batch, batch_of
from regnum_testing.clock import FakeClock
from regnum_testing.compaction import records_of
from regnum_testing.disk import FaultyDisk, ForgetfulDisk
from regnum_testing.leading_replicas import LeadingReplicas
from regnum_testing.log_directories import KEY, ReopenedDirectory, lead


def place_on(path: Path, disk: FaultyDisk, **settings: int) -> tuple[ReopenedDirectory, ReplicaLog]:
    place = ReopenedDirectory(path, segment_bytes=1000, disk=disk)
    place.open()
    log = place.replica()
    log.configure(ReplicaSettings(**settings))
    return place, log


def test_an_append_counts_when_it_is_on_the_disk(tmp_path: Path) -> None:
    disk = ForgetfulDisk()
    place, log = place_on(tmp_path, disk, flush_messages=1)
    ends: list[int] = []
    disk.at_sync = lambda: ends.append(log.log_end_offset)
    lead(log, b"a", b"b")
    assert (log.log_end_offset, log.written_end_offset) == (0, 2)
    assert log.read(0, bytes_max=1000) == b"", "nobody sees the records before"
    assert place.flush() == 1
    assert (ends, log.log_end_offset) == ([0], 2)
    log.append_replicated(assigned_batch(b"c", base_offset=2) + assigned_batch(b"d", base_offset=3))
    assert place.flush() == 1
    assert (ends, log.log_end_offset) == ([0, 2], 4), "a follower's as well, several batches at once"
    assert place.flush() == 0, "and nothing waits any more"
    place.kill()


def test_what_comes_behind_records_that_are_flushed_is_not_shown_before_them(tmp_path: Path) -> None:
    disk = ForgetfulDisk()
    place, log = place_on(tmp_path, disk, flush_messages=1)
    lead(log, b"a")
    log.configure(ReplicaSettings())
    assert lead(log, b"b") == 1
    assert log.log_end_offset == 0

    def append_more() -> None:
        disk.at_sync = lambda: None
        lead(log, b"c")

    disk.at_sync = append_more
    assert place.flush() == 1
    assert log.log_end_offset == 2, "and nothing that was written after its flush began"
    assert place.flush() == 1
    assert log.log_end_offset == 3
    assert lead(log, b"d") == 3
    assert log.log_end_offset == 4, "from then on as the settings say"
    place.kill()


def test_what_is_cut_while_it_is_flushed_is_not_shown(tmp_path: Path) -> None:
    disk = ForgetfulDisk()
    place, log = place_on(tmp_path, disk, flush_messages=1)
    lead(log, b"a")
    place.flush()
    lead(log, b"b")
    lead(log, b"c")
    shown: list[int] = []

    def cut() -> None:
        disk.at_sync = lambda: shown.append(log.log_end_offset)
        assert log.truncate(2) == 2
        lead(log, b"d" * 50, b"e")

    disk.at_sync = cut
    assert place.flush() == 1
    assert shown == [1], "flushed again: what was on its way to the disk is not what is there"
    assert log.log_end_offset == 4
    assert [record.value for record in records_of(log)] == [b"a", b"b", b"d" * 50, b"e"]
    for cut_at, expected in ((1, 1), (0, 0)):
        lead(log, b"f")
        assert log.truncate(cut_at) == expected
        assert log.log_end_offset == expected
        assert lead(log, b"g") == expected
        place.flush()
        assert log.log_end_offset == expected + 1
    lead(log, b"h")
    log.truncate_fully_and_start_at(9)
    assert (log.log_start_offset, log.log_end_offset, log.written_end_offset) == (9, 9, 9)
    place.flush()
    assert log.log_end_offset == 9
    place.kill()


def test_a_repeat_of_what_is_not_on_the_disk_waits_as_well(tmp_path: Path) -> None:
    place, log = place_on(tmp_path, ForgetfulDisk(), flush_messages=1)
    batch = batch_of(b"a", producer_id=7, base_sequence=0)
    log.append_as_leader([batch], leader_epoch=LeaderEpoch(0))
    waited_for = place.now.take_flushed_now()
    assert isinstance(log.append_as_leader([batch], leader_epoch=LeaderEpoch(0))[0], Duplicate)
    assert place.now.take_flushed_now() == waited_for == (log,)
    log.flush_beside()
    assert isinstance(log.append_as_leader([batch], leader_epoch=LeaderEpoch(0))[0], Duplicate)
    assert place.flush() == 0
    place.kill()


@pytest.mark.parametrize("is_shown_meanwhile", [False, True])
def test_a_record_that_was_hidden_when_a_follower_asked_does_not_stay_under_what_the_leader_has_there(
    tmp_path: Path, is_shown_meanwhile: bool
) -> None:
    place, log = place_on(tmp_path, ForgetfulDisk(), flush_messages=1)
    log.append_replicated(assigned_batch(b"a", base_offset=0, leader_epoch=1))
    place.flush()
    log.append_replicated(assigned_batch(b"of the former leader only", base_offset=1, leader_epoch=1))
    assert (log.log_end_offset, log.last_record_epoch) == (1, 1), "it asks there, and so far the logs are the same"
    compacted = filler(base_offset=1, last_offset=9, leader_epoch=2)
    if is_shown_meanwhile:
        place.flush()
    with pytest.raises(NotContiguousError):
        log.append_replicated(compacted)
    place.flush()
    assert (log.log_end_offset, log.last_record_epoch) == (2, 1), "so that the leader finds it when it is asked again"
    log.truncate(1)
    log.append_replicated(compacted)
    place.flush()
    assert [record.value for record in records_of(log)] == [b"a"]
    assert log.log_end_offset == 10
    place.kill()


def test_a_clean_stop_brings_what_waits_to_the_disk(tmp_path: Path) -> None:
    place, log = place_on(tmp_path, ForgetfulDisk(), flush_messages=1)
    lead(log, b"a")
    assert place.stop_and_open().log_end_offset == 1
    place.kill()


def test_after_a_loss_of_power_all_is_there_that_counted(tmp_path: Path) -> None:
    disk = ForgetfulDisk()
    place, log = place_on(tmp_path, disk, flush_messages=1)
    expected = [b"%d" % number + b"." * 90 for number in range(30)]
    for number, value in enumerate(expected):
        lead(log, value)
        place.flush()
        if number == 12:
            log.truncate_fully_and_start_at(13)
    place.kill()
    disk.lose_power(place.folder())
    place.boot_id += "+"
    log = place.open().replicas[KEY]
    assert (log.log_start_offset, log.log_end_offset) == (13, 30)
    assert [record.value for record in records_of(log)] == expected[13:]
    assert len(place.segments()) > 1
    place.kill()


def test_without_the_setting_a_loss_of_power_takes_what_the_system_had_not_written(tmp_path: Path) -> None:
    disk = ForgetfulDisk()
    place, log = place_on(tmp_path, disk)
    lead(log, b"a")
    place.kill()
    disk.lose_power(place.folder())
    place.boot_id += "+"
    assert place.open().replicas[KEY].log_end_offset == 0, "so the test above can fail"
    place.kill()


def test_so_many_records_may_wait_and_no_more(tmp_path: Path) -> None:
    disk = ForgetfulDisk()
    place, log = place_on(tmp_path, disk, flush_messages=5)
    syncs: list[int] = []
    disk.at_sync = lambda: syncs.append(log.log_end_offset)
    for _ in range(4):
        lead(log, b"a")
    assert syncs == []
    lead(log, b"a")
    place.flush()
    assert syncs == [4]
    lead(log, b"a", b"b", b"c", b"d")
    assert place.flush() == 0
    assert log.log_end_offset == 9
    lead(log, b"a", b"b")
    place.flush()
    assert syncs == [4, 9]
    place.kill()


@pytest.mark.parametrize("before", [0, 3])
def test_an_append_that_cannot_be_flushed_for_want_of_a_descriptor_is_not_shown(tmp_path: Path, before: int) -> None:
    disk = ForgetfulDisk()
    place, log = place_on(tmp_path, disk)
    expected = [b"%d" % number for number in range(before)]
    for value in expected:
        lead(log, value)
    log.configure(ReplicaSettings(flush_messages=1))
    disk.fail_folders = errno.EMFILE
    assert lead(log, b"waits", epoch=1) == before
    assert place.flush() == 1
    assert log.log_end_offset == before
    assert place.now.unflushed.popleft() == (KEY, FLUSH_AGAIN_MS), "and it is tried again"
    assert lead(log, b"behind it", epoch=2) == before + 1
    disk.fail_folders = None
    assert place.flush() == 1
    assert log.log_end_offset == before + 2
    expected += [b"waits", b"behind it"]
    assert [record.value for record in records_of(log)] == expected
    place.kill()
    disk.lose_power(place.folder())
    place.boot_id += "+"
    log = place.open().replicas[KEY]
    assert [record.value for record in records_of(log)] == expected
    place.kill()


def test_a_replica_that_is_deleted_while_it_is_flushed_in_time_takes_nothing_down(tmp_path: Path) -> None:
    disk = ForgetfulDisk()
    place, log = place_on(tmp_path, disk, flush_ms=1)
    lead(log, b"a")

    def delete() -> None:
        place.now.retire_replicas([KEY])
        place.now.move_aside(10)

    disk.at_name_sync = delete
    log.flush_beside()
    assert not place.now.failed
    assert lead(place.replica(), b"b") == 0
    with pytest.raises(UnknownReplicaError):
        log.read(0, bytes_max=1)
    place.kill()


async def test_what_was_appended_is_on_the_disk_in_time_once_for_all_that_came(tmp_path: Path) -> None:
    clock, disk = FakeClock(), ForgetfulDisk()
    async with LeadingReplicas(tmp_path, partitions=3, clock=clock, disk=disk) as leader:
        leader.files.wall_ms = clock.wall_ms()
        flusher = LogFlusher(storage=leader.storage, clock=clock)
        for number in (0, 1):
            leader.replicas.configure(leader.partition(number), ReplicaSettings(flush_ms=1_000))
        syncs: list[int] = []
        disk.at_sync = lambda: syncs.append(1)

        async def append_everywhere() -> None:
            for number in (0, 1, 2, 0):
                await leader.append(number)
            await flusher.look()

        await append_everywhere()
        clock.skip(0.999)
        await append_everywhere()
        assert syncs == []
        clock.skip(0.001)
        await flusher.look()
        assert len(syncs) == 2, "once for each log that asks for it"
        for _ in range(5):
            clock.skip(60.0)
            await flusher.look()
        assert len(syncs) == 2, "a log at rest costs nothing"
        leader.files.wall_ms = clock.wall_ms()
        await append_everywhere()
        clock.skip(1.0)
        await flusher.look()
        assert len(syncs) == 4


@pytest.mark.parametrize("jump_s", [-3_600.0, 3_600.0])
async def test_a_wall_clock_that_is_set_does_not_change_when_it_is_on_the_disk(tmp_path: Path, jump_s: float) -> None:
    clock, disk = FakeClock(), ForgetfulDisk()
    async with LeadingReplicas(tmp_path, clock=clock, disk=disk) as leader:
        leader.files.wall_ms = clock.wall_ms()
        flusher = LogFlusher(storage=leader.storage, clock=clock)
        leader.replicas.configure(leader.partition(), ReplicaSettings(flush_ms=1_000))
        syncs: list[int] = []
        disk.at_sync = lambda: syncs.append(1)
        await leader.append(0)
        await flusher.look()
        clock.jump(jump_s)
        clock.skip(0.999)
        await flusher.look()
        assert syncs == []
        clock.skip(0.001)
        await flusher.look()
        assert syncs == [1]
