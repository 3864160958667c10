"""The first records of many replicas: what they cost, and what the journal says of them at each moment."""

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from regnum_model.ids import PartitionKey
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
