"""The checkpoint of high watermarks after each kind of stop, and what it says of replicas that are gone."""

import errno
from pathlib import Path

import pytest
from regnum_broker.log.errors import ResourceExhaustedError
from regnum_model.ids import PartitionKey, TopicId
from regnum_testing.disk import FaultyDisk
from regnum_testing.log_directories import KEY, ReopenedDirectory, lead

OTHER = PartitionKey(TopicId("BBBBBBBBBBBBBBBBBBBBBB"), 0)


def written(place: ReopenedDirectory) -> Path:
    """Two replicas of three records each, a checkpoint of both in one line and two lines of one; the file."""
    for key in (KEY, OTHER):
        for value in (b"a", b"b", b"c"):
            lead(place.replica(key), value)
    place.now.checkpoint_high_watermarks({KEY: 1, OTHER: 1})
    place.now.checkpoint_high_watermarks({KEY: 2})
    place.now.checkpoint_high_watermarks({KEY: 3})
    file = place.path / "high-watermarks"
    assert file.read_bytes().count(b"\n") == 3
    return file


def opened(place: ReopenedDirectory) -> tuple[int, int]:
    place.kill()
    directory = place.open()
    return directory.stored_high_watermark(KEY), directory.stored_high_watermark(OTHER)


def test_lines_stand_over_those_before_them(place: ReopenedDirectory) -> None:
    written(place)
    assert opened(place) == (3, 1)


def test_a_line_that_a_kill_tore_counts_as_not_written(place: ReopenedDirectory) -> None:
    file = written(place)
    data = file.read_bytes()
    for cut in range(1, len(data.splitlines()[-1])):
        place.kill()
        file.write_bytes(data[:-cut])
        # All of the line but its newline is the line.
        assert opened(place) == ((3, 1) if cut == 1 else (2, 1))
    place.now.checkpoint_high_watermarks({OTHER: 2})
    assert opened(place) == (2, 2), "the torn line is gone with the first save"


def test_a_bad_line_before_a_good_one_takes_all_of_it_away(place: ReopenedDirectory) -> None:
    file = written(place)
    lines = file.read_bytes().splitlines(keepends=True)
    for number in (0, 1):
        place.kill()
        file.write_bytes(b"".join(line.replace(b" ", b"_") if at == number else line for at, line in enumerate(lines)))
        assert opened(place) == (0, 0)


def test_one_that_went_back_is_back_after_a_kill(place: ReopenedDirectory) -> None:
    written(place)
    place.now.checkpoint_high_watermarks({KEY: 0})
    assert opened(place) == (0, 1)


def test_a_clean_stop_makes_it_anew(place: ReopenedDirectory) -> None:
    file = written(place)
    place.now.close()
    assert file.read_bytes().count(b"\n") == 1
    place.open()
    assert opened(place) == (3, 1)


@pytest.mark.parametrize("spoil", [Path.unlink, lambda file: file.write_bytes(b"")])
def test_a_file_that_was_removed_or_cut_under_the_process_is_made_anew(place: ReopenedDirectory, spoil) -> None:
    file = written(place)
    spoil(file)
    place.now.checkpoint_high_watermarks({OTHER: 2})
    assert opened(place) == (3, 2)


def test_a_deletion_writes_none(place: ReopenedDirectory) -> None:
    file = written(place)
    before = file.read_bytes()
    place.now.delete_replicas([KEY])
    assert file.read_bytes() == before
    assert place.now.stored_high_watermark(KEY) == 0


@pytest.mark.parametrize("started_between", [False, True])
def test_a_replica_that_is_created_again_is_not_believed_to_have_had_records(
    place: ReopenedDirectory, started_between: bool
) -> None:
    """What the file says of the one before would make the next start think that the new one lost them."""
    written(place)
    log_id = place.log_id
    place.now.delete_replicas([KEY])
    if started_between:
        place.kill()
        place.open()
    lead(place.replica(), b"new")
    assert opened(place) == (0, 1)
    assert place.log_id == log_id


def test_without_room_to_take_that_back_the_replica_is_not_created(place: ReopenedDirectory, disk: FaultyDisk) -> None:
    written(place)
    place.now.delete_replicas([KEY])
    disk.fail_writes = errno.ENOSPC
    with pytest.raises(ResourceExhaustedError):
        place.replica()
    disk.fail_writes = None
    assert KEY not in place.now.replicas
    assert place.now.make_reserve()
    lead(place.replica(), b"new")
    assert opened(place) == (0, 1)


def test_without_room_for_a_line_what_was_saved_last_stands(place: ReopenedDirectory, disk: FaultyDisk) -> None:
    written(place)
    disk.fail_writes = errno.ENOSPC
    with pytest.raises(ResourceExhaustedError):
        place.now.checkpoint_high_watermarks({OTHER: 3})
    disk.fail_writes = None
    assert place.now.stored_high_watermark(OTHER) == 1
    place.now.checkpoint_high_watermarks({OTHER: 2})
    assert opened(place) == (3, 2)
