"""What stays after a kill, a loss of power, and damage; and when the log gets a new id (safety rule S10)."""

from pathlib import Path

import pytest
from regnum_broker.log.disk.names import CLEANED_FILE
from regnum_broker.log.errors import CorruptLogError
from regnum_broker.log.replica.producers.states import Duplicate
from regnum_model.ids import LeaderEpoch, PartitionKey, TopicId
from regnum_testing.batches import assigned_batch, batch_of, values_of
from regnum_testing.log_directories import KEY, ReopenedDirectory, lead

OTHER = PartitionKey(TopicId("BBBBBBBBBBBBBBBBBBBBBB"), 1)


def fill(place: ReopenedDirectory, count: int = 30, key: PartitionKey = KEY) -> None:
    replica = place.replica(key)
    for number in range(count):
        lead(replica, b"v%d" % number, epoch=number // 8)


def values(replica) -> list[bytes | None]:
    found: list[bytes | None] = []
    while replica.log_start_offset + len(found) < replica.log_end_offset:
        found += values_of(replica.read(replica.log_start_offset + len(found), bytes_max=300))
    return found


EXPECTED = [b"v%d" % number for number in range(30)]
EPOCHS = ((0, 0), (1, 8), (2, 16), (3, 24))


@pytest.mark.parametrize("stop", ["kill_and_open", "stop_and_open", "lose_power_and_open"])
def test_records_and_epochs_stay(place, stop):
    fill(place)
    for _ in range(2):
        replica = getattr(place, stop)()
        assert values(replica) == EXPECTED
        assert replica.epochs.entries == EPOCHS
        assert replica.topic == "topic"
    assert lead(replica, b"on", epoch=3) == 30


def test_a_kill_and_a_clean_stop_keep_the_log_id_and_a_loss_of_power_does_not(place):
    directory_id, log_id = place.now.directory_id, place.log_id
    fill(place)
    place.kill_and_open()
    assert place.log_id == log_id
    lead(place.stop_and_open(), b"more", epoch=3)
    place.kill_and_open()
    assert place.log_id == log_id
    place.lose_power_and_open()
    assert place.log_id != log_id
    renewed = place.log_id
    place.kill_and_open()
    assert place.log_id == renewed
    assert place.now.directory_id == directory_id


def test_a_clean_stop_outlives_a_boot_until_the_first_append(place):
    fill(place)
    log_id = place.log_id
    place.now.close()
    place.boot_id = "boot-2"
    place.open()
    assert place.log_id == log_id
    place.lose_power_and_open()
    assert place.log_id == log_id
    lead(place.now.replicas[KEY], b"more", epoch=3)
    place.lose_power_and_open()
    assert place.log_id != log_id


def test_an_unknown_boot_id_proves_nothing(place):
    place.kill()
    place.boot_id = ""
    place.open()
    log_id = place.log_id
    place.kill()
    place.open()
    assert place.log_id != log_id


def test_a_marker_of_another_content_proves_nothing(place):
    fill(place)
    place.now.close()
    marker = (place.path / "clean-stop").read_bytes()
    place.open()
    lead(place.now.replicas[KEY], b"more", epoch=3)
    place.lose_power_and_open()
    log_id = place.log_id
    place.kill()
    (place.path / "clean-stop").write_bytes(marker)
    place.boot_id = "boot-9"
    place.open()
    assert place.log_id != log_id


@pytest.mark.parametrize("tail", [b"\0", b"\0" * 11, b"\0" * 60, "batch"])
def test_a_torn_tail_is_cut_and_the_log_id_stays(place, tail):
    fill(place)
    log_id = place.log_id
    place.kill()
    with place.segments()[-1].open("ab") as file:
        file.write(assigned_batch(b"torn", base_offset=30, leader_epoch=3)[:-1] if tail == "batch" else tail)
    replica = place.open().replicas[KEY]
    assert place.log_id == log_id
    assert values(replica) == EXPECTED
    assert lead(replica, b"on", epoch=3) == 30
    assert values(place.kill_and_open()) == [*EXPECTED, b"on"]


def test_a_loss_of_power_may_take_any_tail(place, tmp_path):
    """At every length of the last segment, with garbage after it: what remains is a prefix, and the log goes on."""
    fill(place)
    place.kill()
    last = place.segments()[-1]
    whole = last.read_bytes()
    base = int(last.stem)
    for kept in range(0, len(whole), 37):
        place.boot_id += "+"
        last.write_bytes(whole[:kept] + b"\xee" * 100)
        log_id = place.log_id
        replica = place.open().replicas[KEY]
        assert place.log_id != log_id
        remaining = values(replica)
        assert remaining == EXPECTED[: len(remaining)]
        assert len(remaining) >= base
        assert replica.epochs.latest == EPOCHS[-1][0] if len(remaining) > 24 else replica.epochs.latest <= 3
        assert lead(replica, b"on", epoch=4) == len(remaining)
        place.kill()
        last.write_bytes(whole)


def test_damage_in_the_last_segment_in_the_same_boot_puts_only_that_replica_offline(place):
    fill(place)
    fill(place, key=OTHER)
    log_id = place.log_id
    place.kill()
    last = place.segments()[-1]
    data = bytearray(last.read_bytes())
    data[70] ^= 1
    last.write_bytes(bytes(data))
    directory = place.open()
    assert list(directory.offline) == [KEY]
    assert "checksum" in str(directory.offline[KEY])
    assert values(directory.replicas[OTHER]) == EXPECTED
    assert place.log_id == log_id
    with pytest.raises(CorruptLogError):
        directory.create_replicas([(KEY, "topic")])
    directory.close()
    assert list(place.open().offline) == [KEY]
    # As the controller orders it where the partition is moved away; the folder that is removed by hand: see below.
    place.now.delete_replicas([KEY])
    assert place.replica().log_end_offset == 0
    place.kill_and_open()
    assert place.log_id == log_id
    assert not place.now.offline


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_damage_in_an_earlier_segment_puts_the_replica_offline(place, damage):
    fill(place, 60)
    place.kill()
    earlier = place.segments()[1]
    earlier.with_suffix(".index").unlink()
    match damage:
        case "flip":
            data = bytearray(earlier.read_bytes())
            data[100] ^= 1
            earlier.write_bytes(bytes(data))
        case "cut":
            earlier.write_bytes(earlier.read_bytes()[:-10])
        case "remove":
            earlier.unlink()
    assert list(place.open().offline) == [KEY]


@pytest.mark.parametrize("stop", ["kill", "clean"])
@pytest.mark.parametrize("damage", ["missing", "garbage", "empty"])
def test_index_snapshot_and_checkpoint_files_never_block_a_start(place, stop, damage):
    fill(place)
    log_id = place.log_id
    place.now.checkpoint_high_watermarks({KEY: 20})
    place.now.close(clean=stop == "clean")
    files = [*place.folder().glob("*.index"), *place.folder().glob("*.producers"), place.path / "high-watermarks"]
    assert len(files) > 3
    for file in files:
        if damage == "missing":
            file.unlink()
        else:
            file.write_bytes(b"garbage" if damage == "garbage" else b"")
    replica = place.open().replicas[KEY]
    assert values(replica) == EXPECTED
    assert replica.epochs.entries == EPOCHS
    assert place.log_id == log_id


@pytest.mark.parametrize("stop", ["kill", "clean"])
def test_a_file_made_from_others_that_the_disk_cannot_read_blocks_no_start(place, stop):
    fill(place)
    log_id = place.log_id
    place.now.close(clean=stop == "clean")
    files = [*place.folder().glob("*.index"), *place.folder().glob("*.producers"), place.folder() / CLEANED_FILE]
    assert len(files) > 3
    for file in files:
        make_unreadable(file)
    replica = place.open().replicas[KEY]
    assert values(replica) == EXPECTED
    assert replica.epochs.entries == EPOCHS
    replica.truncate(replica.segments[-1].base_offset)
    assert not place.now.failed
    assert place.log_id == log_id


def test_an_index_that_the_disk_cannot_read_ends_no_broker(place):
    fill(place)
    place.stop_and_open()
    for file in place.folder().glob("*.index"):
        make_unreadable(file)
    replica = place.now.replicas[KEY]
    assert values(replica) == EXPECTED
    assert replica.fault is None
    assert not place.now.failed


def make_unreadable(file: Path) -> None:
    """Have its first byte give EIO, as a bad sector does."""
    file.unlink(missing_ok=True)
    file.symlink_to("/proc/self/mem")


def test_lost_files_give_the_log_a_new_id(place):
    fill(place)
    log_id = place.log_id
    place.kill()
    for file in place.folder().iterdir():
        file.unlink()
    place.folder().rmdir()
    replica = place.open().replicas[KEY]
    assert place.log_id != log_id
    assert replica.log_end_offset == 0


def test_a_log_behind_its_high_watermark_gets_a_new_id(place):
    fill(place)
    place.now.checkpoint_high_watermarks({KEY: 30})
    log_id = place.log_id
    place.kill()
    place.segments()[-1].write_bytes(b"")
    place.open()
    assert place.log_id != log_id


def test_a_segment_changed_after_a_clean_stop_gives_the_log_a_new_id(place):
    fill(place)
    log_id = place.log_id
    place.now.close()
    place.segments()[-1].write_bytes(place.segments()[-1].read_bytes()[:80])
    replica = place.open().replicas[KEY]
    assert place.log_id != log_id
    assert values(replica) == EXPECTED[: replica.log_end_offset]


def test_a_damaged_journal_gives_the_log_a_new_id_and_epochs_come_from_batches(place):
    fill(place)
    log_id = place.log_id
    place.kill()
    journal = place.path / "journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    damaged = [line if b"epoch" not in line else b"x" + line[1:] for line in lines]
    assert damaged != lines
    for copy in (journal, place.path / "journal.copy"):
        copy.write_bytes(b"".join([*damaged, lines[1]]))
    replica = place.open().replicas[KEY]
    assert place.log_id != log_id
    assert replica.epochs.entries == EPOCHS
    assert values(replica) == EXPECTED


def test_folders_unknown_to_the_journal_are_kept_aside(place):
    fill(place)
    place.kill()
    stray = place.path / "replicas" / "CCCCCCCCCCCCCCCCCCCCCC-0"
    stray.mkdir()
    (stray / "00000000000000000000.log").write_bytes(b"something")
    log_id = place.log_id
    place.open()
    assert place.log_id != log_id
    assert (stray.parent / (stray.name + ".stray") / "00000000000000000000.log").exists()
    log_id = place.log_id
    place.kill_and_open()
    assert place.log_id == log_id


def test_a_newest_epoch_without_records_is_remembered(place):
    fill(place)
    place.now.record_leader_epochs([(KEY, LeaderEpoch(9), 30)])
    for stop in ("kill_and_open", "stop_and_open", "kill_and_open"):
        replica = getattr(place, stop)()
        assert replica.epochs.entries == (*EPOCHS, (9, 30))
        assert replica.highest_leader_epoch == 9


def test_epochs_that_batches_showed_go_into_the_journal_before_later_ones(place):
    lead(place.replica(), b"a", epoch=1)
    place.now.record_leader_epochs([(KEY, LeaderEpoch(2), 1)])
    assert place.stop_and_open().epochs.entries == ((1, 0), (2, 1))


def test_the_highest_epoch_outlives_truncation(place):
    fill(place)
    place.now.replicas[KEY].truncate(10)
    for stop in ("kill_and_open", "stop_and_open", "kill_and_open"):
        replica = getattr(place, stop)()
        assert replica.epochs.entries == ((0, 0), (1, 8))
        assert replica.highest_leader_epoch == 3


@pytest.mark.parametrize("stop", ["kill_and_open", "stop_and_open", "lose_power_and_open"])
def test_producers_are_remembered(place, stop):
    replica = place.replica()
    batches = [batch_of(b"v", producer_id=5, producer_epoch=1, base_sequence=number) for number in range(30)]
    replica.append_as_leader(batches, leader_epoch=LeaderEpoch(0))
    replica = getattr(place, stop)()
    again = replica.append_as_leader(batches[25:], leader_epoch=LeaderEpoch(0))
    assert again == [Duplicate(base_offset=number, last_offset=number) for number in range(25, 30)]
    assert replica.log_end_offset == 30


def test_high_watermarks_come_from_the_checkpoint_and_stay_within_the_log(place):
    fill(place)
    fill(place, key=OTHER)
    place.now.checkpoint_high_watermarks({KEY: 12, OTHER: 7})
    place.now.checkpoint_high_watermarks({OTHER: 9})
    directory = place.kill_and_open() and place.now
    assert (directory.replicas[KEY].high_watermark, directory.replicas[OTHER].high_watermark) == (12, 9)
    directory.checkpoint_high_watermarks({KEY: 999})
    assert place.kill_and_open().high_watermark == 30


def test_deleted_replicas_stay_deleted_whenever_the_kill_comes(place):
    fill(place)
    kept = {path.name: path.read_bytes() for path in place.folder().iterdir()}
    place.now.delete_replicas([KEY])
    place.kill()
    place.folder().mkdir()
    for name, data in kept.items():
        (place.folder() / name).write_bytes(data)
    assert KEY not in place.open().replicas
    assert not place.folder().exists()
    assert place.replica().log_end_offset == 0
    assert place.kill_and_open().log_end_offset == 0
