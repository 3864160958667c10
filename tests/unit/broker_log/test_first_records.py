"""The first records of many replicas: what they cost, and what the journal says of them at each moment."""

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from regnum_model.ids import PartitionKey
from regnum_testing.batches import values_of
from regnum_testing.disk import FaultyDisk
from regnum_testing.log_directories import KEY, ReopenedDirectory, lead

COUNT = 50
KEYS = [PartitionKey(KEY.topic_id, number) for number in range(COUNT)]


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def place(tmp_path: Path, disk: FaultyDisk) -> Iterator[ReopenedDirectory]:
    place = ReopenedDirectory(tmp_path / "logs", disk=disk)
    place.open()
    yield place
    place.kill()


def test_each_costs_the_write_of_its_name_and_its_own_and_all_of_them_two_of_the_journal(
    place: ReopenedDirectory, disk: FaultyDisk
) -> None:
    place.now.create_replicas([(key, "topic") for key in KEYS])
    before = disk.writes
    with place.now.many_appends():
        for key in KEYS:
            lead(place.now.replicas[key], b"v")
    assert disk.writes - before == 2 * COUNT + 2
    before = disk.writes
    with place.now.many_appends():
        for key in KEYS:
            lead(place.now.replicas[key], b"v")
    assert disk.writes - before == COUNT, "a second record needs no note"


def test_files_that_are_gone_after_a_kill_are_missed(place: ReopenedDirectory) -> None:
    place.now.create_replicas([(key, "topic") for key in KEYS])
    with place.now.many_appends():
        for key in KEYS:
            lead(place.now.replicas[key], b"v")
    before = place.now.log_id
    place.kill()
    place.open()
    assert place.now.log_id == before
    place.kill()
    shutil.rmtree(place.path / "replicas" / f"{KEYS[7].topic_id}-7")
    place.open()
    assert place.now.log_id != before, "the log has lost records"


def test_a_replica_that_is_deleted_amid_them_leaves_no_note_to_the_next_of_its_name(place: ReopenedDirectory) -> None:
    with place.now.many_appends():
        lead(place.replica(), b"v")
        place.now.delete_replicas([KEY])
        place.replica()
    before = place.now.log_id
    place.kill()
    place.open()
    assert place.now.log_id == before, "the next one has no files, and lost none"


def test_a_note_for_which_there_was_no_room_comes_with_the_next_record(
    place: ReopenedDirectory, disk: FaultyDisk
) -> None:
    place.reserve_bytes = 0
    place.kill()
    place.open()
    replica = place.replica()
    with place.now.many_appends():
        lead(replica, b"v")
        disk.fail_writes = errno.ENOSPC
    disk.fail_writes = None
    with place.now.many_appends():
        lead(replica, b"v")
    before = place.now.log_id
    place.kill()
    shutil.rmtree(place.path / "replicas" / f"{KEY.topic_id}-0")
    place.open()
    assert place.now.log_id != before


def killed_amid_the_job(place: ReopenedDirectory, path: Path) -> ReopenedDirectory:
    """What is on the disk when a kill comes after the first records of all and before the journal has their notes."""
    place.now.create_replicas([(key, "topic") for key in KEYS])
    with place.now.many_appends():
        for key in KEYS:
            lead(place.now.replicas[key], b"v")
        shutil.copytree(place.path, path)
    left = ReopenedDirectory(path)
    left.boot_id = place.boot_id
    assert b"files" not in (path / "journal").read_bytes()
    assert b"files" in (place.path / "journal").read_bytes()
    return left


def test_a_kill_between_the_files_and_their_notes_loses_neither_records_nor_the_proof_that_none_are_lost(
    place: ReopenedDirectory, tmp_path: Path
) -> None:
    left = killed_amid_the_job(place, tmp_path / "left")
    left.open()
    assert left.log_id == place.log_id
    for key in KEYS:
        assert values_of(left.now.replicas[key].read(0, bytes_max=1_000)) == [b"v"]
        lead(left.now.replicas[key], b"w")
    left.kill()
    left.open()
    assert left.log_id == place.log_id
    assert {replica.log_end_offset for replica in left.now.replicas.values()} == {2}
    left.kill()


def test_files_that_such_a_kill_left_without_a_note_are_missed_from_the_next_start_on(
    place: ReopenedDirectory, tmp_path: Path
) -> None:
    left = killed_amid_the_job(place, tmp_path / "left")
    left.open()
    left.kill()
    shutil.rmtree(left.folder(KEYS[7]))
    left.open()
    assert left.log_id != place.log_id, "the log has lost records"
    left.kill()


@pytest.mark.parametrize("reached", ["the folder", "its name, half", "its name", "an empty file", "half a record"])
def test_a_kill_amid_the_first_files_of_a_replica_leaves_an_empty_one(
    place: ReopenedDirectory, tmp_path: Path, reached: str
) -> None:
    """Nobody has been told of a record: the replica goes on from its beginning, and the log is the one that it was."""
    left = killed_amid_the_job(place, tmp_path / "left")
    key = KEYS[7]
    folder = left.folder(key)
    name, (file,) = folder / "replica", left.segments(key)
    match reached:
        case "half a record":
            file.write_bytes(file.read_bytes()[:40])
        case "an empty file":
            file.write_bytes(b"")
        case "its name":
            file.unlink()
        case "its name, half":
            file.unlink()
            name.write_bytes(name.read_bytes()[:20])
        case _:
            file.unlink()
            name.unlink()
    left.open()
    assert left.log_id == place.log_id
    assert left.now.replicas[key].log_end_offset == 0
    lead(left.now.replicas[key], b"again")
    left.kill()
    left.open()
    assert left.log_id == place.log_id
    assert values_of(left.now.replicas[key].read(0, bytes_max=1_000)) == [b"again"]
    left.kill()
