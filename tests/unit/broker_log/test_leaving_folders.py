"""Deleted replicas: their names are free at once, their files go in the background, and no crash brings them back."""

import asyncio
import errno
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from regnum_broker.log.disk.names import DELETED_SUFFIX
from regnum_broker.log.disk.system_calls import Disk
from regnum_broker.log.errors import ResourceExhaustedError
from regnum_broker.storage import Storage
from regnum_model.ids import LeaderEpoch, PartitionKey, TopicId
from regnum_testing.batches import batch_of, values_of
from regnum_testing.disk import HangingDisk
from regnum_testing.leading_replicas import LeadingReplicas
from regnum_testing.log_directories import KEY, ReopenedDirectory, lead
from regnum_testing.waiting import eventually, within

OTHER = PartitionKey(TopicId("BBBBBBBBBBBBBBBBBBBBBB"), 0)


@pytest.fixture
def disk() -> HangingDisk:
    return HangingDisk()


@pytest.fixture
def place(tmp_path: Path, disk: HangingDisk) -> Iterator[ReopenedDirectory]:
    place = ReopenedDirectory(tmp_path / "logs", disk=disk)
    place.open()
    yield place
    disk.removes.set()
    place.kill()


@pytest.fixture
async def storage(place: ReopenedDirectory, disk: HangingDisk) -> AsyncIterator[Storage]:
    storage = Storage(place.now)
    storage.start()
    yield storage
    disk.removes.set()
    await storage.close(clean=False)


def folders(place: ReopenedDirectory) -> list[str]:
    return sorted(path.name for path in (place.path / "replicas").iterdir())


def test_a_kill_before_the_folder_is_renamed_leaves_nothing(place: ReopenedDirectory) -> None:
    lead(place.replica(), b"old")
    log_id = place.log_id
    place.now.retire_replicas([KEY])
    assert folders(place) == [place.folder().name]
    place.kill()
    assert not place.open().replicas
    assert not folders(place)
    assert place.log_id == log_id


def test_a_kill_before_the_files_are_removed_leaves_nothing(place: ReopenedDirectory) -> None:
    lead(place.replica(), b"old")
    log_id = place.log_id
    place.now.retire_replicas([KEY])
    assert not place.now.move_aside(1)
    assert [name.endswith(DELETED_SUFFIX) for name in folders(place)] == [True]
    place.kill()
    assert not place.open().replicas
    assert not folders(place)
    assert place.log_id == log_id


def test_a_kill_amid_the_removal_of_files_leaves_nothing(place: ReopenedDirectory) -> None:
    lead(place.replica(), b"old")
    place.now.retire_replicas([KEY])
    place.now.move_aside(1)
    (half,) = (place.path / "replicas").iterdir()
    next(half.glob("*.log")).unlink()
    place.kill()
    assert not place.open().replicas
    assert not folders(place)


@pytest.mark.parametrize("renamed", [False, True])
def test_a_replica_that_is_created_again_meets_nothing_of_the_old_one(place: ReopenedDirectory, renamed: bool) -> None:
    """Not even by way of a file that a reader still holds open; and the old files go without the new ones."""
    old = place.replica()
    for value in (b"old", b"old as well"):
        lead(old, value)
    old.flush()
    assert values_of(old.read(0, bytes_max=1_000)) == [b"old", b"old as well"]
    place.now.retire_replicas([KEY])
    if renamed:
        place.now.move_aside(1)
    new = place.replica()
    assert new.log_end_offset == 0
    lead(new, b"new")
    new.flush()
    assert values_of(new.read(0, bytes_max=1_000)) == [b"new"]
    place.now.remove_files()
    assert folders(place) == [place.folder().name]
    new = place.kill_and_open()
    assert values_of(new.read(0, bytes_max=1_000)) == [b"new"]
    assert new.log_end_offset == 1


class NoRoomForTheSecondName(Disk):
    """A full disk, of which one more name finds room."""

    def __init__(self) -> None:
        self.named = 0
        self.full = False

    def rename(self, source: str, target: str) -> None:
        if self.full and target.endswith(DELETED_SUFFIX):
            self.named += 1
            if self.named > 1:
                raise OSError(errno.ENOSPC, "No space left on device")
        super().rename(source, target)


def test_a_replica_created_again_writes_into_its_own_file_also_where_renaming_stopped_half_way(tmp_path: Path) -> None:
    """Its records went through the descriptor of the old file, were acknowledged, and were removed with that."""
    disk = NoRoomForTheSecondName()
    place = ReopenedDirectory(tmp_path / "logs", disk=disk)
    place.open()
    lead(place.replica(), b"old")
    place.now.create_replicas([(OTHER, "topic")])
    lead(place.now.replicas[OTHER], b"other")
    place.now.retire_replicas([KEY, OTHER])
    disk.full = True
    with pytest.raises(ResourceExhaustedError):
        place.now.move_aside(2)
    disk.full = False
    new = place.replica()
    lead(new, b"new")
    place.now.remove_files()
    new.flush()
    new = place.kill_and_open()
    assert values_of(new.read(0, bytes_max=1_000)) == [b"new"]
    place.kill()


def test_the_old_name_is_free_on_the_disk_before_the_journal_knows_the_new_replica(place: ReopenedDirectory) -> None:
    """A loss of power between the two must not give the new replica the old one's records."""
    lead(place.replica(), b"old")
    place.now.retire_replicas([KEY])
    journal = (place.path / "journal").read_bytes()
    place.now.create_replicas([(KEY, "topic")])
    assert not place.folder().exists()
    assert (place.path / "journal").read_bytes().startswith(journal)
    # The loss of power: the journal's last line is gone, the renaming is not.
    place.kill()
    (place.path / "journal").write_bytes(journal)
    (place.path / "journal.copy").write_bytes(journal)
    place.boot_id += "+"
    assert not place.open().replicas
    assert not folders(place)


def test_deleted_and_created_again_many_times(place: ReopenedDirectory) -> None:
    for number in range(5):
        lead(place.replica(), b"%d" % number)
        place.now.retire_replicas([KEY])
        if number % 2:
            place.now.move_aside(1)
    place.now.move_aside(1)
    place.now.remove_files()
    assert not folders(place)


@pytest.mark.full
async def test_appends_go_on_while_the_files_of_deleted_replicas_are_removed(
    place: ReopenedDirectory, storage: Storage, disk: HangingDisk
) -> None:
    doomed = [PartitionKey(TopicId("C" * 22), number) for number in range(500)]
    for key in doomed:
        lead(place.replica(key), b"old")
    kept = place.replica(OTHER)
    disk.removes.clear()
    await within(storage.delete(doomed))
    for _ in range(10):
        await within(storage.write(lambda: kept.append_as_leader([batch_of(b"new")], leader_epoch=LeaderEpoch(0))))
    assert kept.log_end_offset == 10
    assert disk.removed == 0
    disk.removes.set()

    async def gone() -> bool:
        return folders(place) == [place.folder(OTHER).name]

    await eventually(gone, what="the folders are gone")


@pytest.mark.full
async def test_no_job_of_the_writer_renames_more_than_a_few_folders(place: ReopenedDirectory, storage: Storage) -> None:
    """What is appended meanwhile goes between two of them."""
    doomed = [PartitionKey(TopicId("C" * 22), number) for number in range(1_000)]
    for key in doomed:
        lead(place.replica(key), b"old")
    kept = place.replica(OTHER)
    appended: list[int] = []

    async def append() -> None:
        while not deleting.done():
            await storage.write(lambda: kept.append_as_leader([batch_of(b"new")], leader_epoch=LeaderEpoch(0)))
            appended.append(kept.log_end_offset)

    deleting = asyncio.create_task(storage.delete(doomed))
    await within(append())
    await deleting
    assert len(appended) >= 4


async def test_a_stop_does_not_wait_for_thousands_of_folders(place: ReopenedDirectory, disk: HangingDisk) -> None:
    storage = Storage(place.now)
    storage.start()
    doomed = [PartitionKey(TopicId("C" * 22), number) for number in range(50)]
    for key in doomed:
        lead(place.replica(key), b"old")
    disk.removes.clear()
    await within(storage.delete(doomed))
    closing = asyncio.create_task(storage.close(clean=True))
    # Runs when the closing has begun.
    asyncio.get_running_loop().call_soon(disk.removes.set)
    await within(closing)
    assert disk.removed < 50
    place.open()
    assert not folders(place)


def test_a_folder_that_somebody_else_removed_is_fine(place: ReopenedDirectory) -> None:
    lead(place.replica(), b"old")
    place.now.retire_replicas([KEY])
    place.now.move_aside(1)
    (leaving,) = (place.path / "replicas").iterdir()
    shutil.rmtree(leaving)
    place.now.remove_files()
    assert not place.now.failed


def test_both_the_folder_of_a_deleted_replica_and_what_an_earlier_deletion_left_go_at_start(
    place: ReopenedDirectory,
) -> None:
    lead(place.replica(), b"old")
    place.now.retire_replicas([KEY])
    place.kill()
    left = place.folder().with_name(f"{place.folder().name}{DELETED_SUFFIX}")
    left.mkdir()
    (left / "replica").write_bytes(b"older")
    assert not place.open().replicas
    assert not folders(place)


class ListingDisk(Disk):
    """A disk that counts how often a folder is asked what it holds."""

    def __init__(self) -> None:
        self.listed = 0

    def list_folder(self, path: str) -> list[str]:
        self.listed += 1
        return super().list_folder(path)


def test_a_folder_that_holds_what_most_do_is_not_asked_what_that_is(tmp_path: Path) -> None:
    disk = ListingDisk()
    place = ReopenedDirectory(tmp_path / "logs", disk=disk)
    place.open()
    lead(place.replica(), b"old")
    place.now.delete_replicas([KEY])
    assert (folders(place), disk.listed) == ([], 0)
    lead(place.replica(), b"old")
    place.now.close()
    place.open()
    assert len(list(place.folder().iterdir())) > 2, "a clean stop leaves what makes a start quick"
    place.now.delete_replicas([KEY])
    assert (folders(place), disk.listed) == ([], 1)
    place.kill()


class WatchedDisk(Disk):
    """Remembers which files it removed."""

    def __init__(self) -> None:
        self.removed: list[str] = []

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self.removed.append(path)

    @property
    def segments(self) -> int:
        return len([path for path in self.removed if ".log" in path])


def test_a_log_that_begins_anew_or_is_cut_removes_no_segment_on_the_writers_thread(tmp_path: Path) -> None:
    disk = WatchedDisk()
    place = ReopenedDirectory(tmp_path / "logs", segment_bytes=1000, disk=disk)
    place.open()
    log = place.replica()
    for _ in range(60):
        lead(log, b"v" * 200)
    segments = len(log.segments)
    assert segments > 10
    log.truncate(log.segments[5].base_offset + 1)
    log.truncate_fully_and_start_at(500)
    assert disk.segments == 0
    assert len(place.segments()) == 1
    place.now.remove_files()
    assert not list(place.folder().glob("*.deleted"))
    assert disk.segments == segments
    log = place.kill_and_open()
    assert (log.log_start_offset, log.log_end_offset) == (500, 500)
    place.kill()


async def test_what_the_writer_sets_aside_is_removed_in_the_background(tmp_path: Path) -> None:
    async with LeadingReplicas(tmp_path) as leader:
        log = leader.partition().log
        await leader.append()
        await leader.storage.write(lambda: log.truncate_fully_and_start_at(500))

        async def is_removed() -> bool:
            return not list(Path(log.segments[0].path).parent.glob("*.deleted"))

        await eventually(is_removed)
        assert not leader.storage.directory.files_left
