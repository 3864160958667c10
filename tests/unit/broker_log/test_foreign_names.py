"""What is in a log directory and not Regnum's: it proves nothing, holds nothing up, and stays."""

import asyncio
from pathlib import Path

import pytest
from regnum_broker.log.disk.names import (
    OFFSET_MAX,
    FileKind,
    FileName,
    FolderName,
    file_name,
    file_named,
    folder_name,
    folder_named,
)
from regnum_broker.log.errors import CorruptLogError
from regnum_broker.storage import Storage
from regnum_model.ids import PartitionKey, TopicId
from regnum_testing.batches import values_of
from regnum_testing.log_directories import KEY, ReopenedDirectory, lead
from regnum_testing.waiting import until
from structlog.testing import capture_logs

OTHER = PartitionKey(TopicId("CCCCCCCCCCCCCCCCCCCCCC"), 3)
SEGMENT = f"{file_name(0)}.log"

FOREIGN_FOLDERS = (
    *("lost+found", ".snapshot", ".DS_Store", ".nfs000000000001", "core.1234", "replicas", "notes.deleted", "x.stray"),
    *(f"{KEY.topic_id}-00", f"{KEY.topic_id}--1", f"{KEY.topic_id}-", f"{KEY.topic_id}-4294967296", "A-0"),
    *(f"{KEY.topic_id}-٣", f"{KEY.topic_id}-0.tar", f"{KEY.topic_id}-0.0.deleted", f"{KEY.topic_id}-0\n"),
)
FOREIGN_FILES = (
    *(f"{SEGMENT}.swp", f".{SEGMENT}.swx", ".nfs00000002", "0.log", "²².log", "x.deleted", "notes.new", "lost+found"),
    *(f"{OFFSET_MAX + 1:020d}.log", f"{file_name(0)}.log.1", f"{file_name(0)}.index.swap", "replica~", "Replica"),
)


@pytest.mark.parametrize("name", FOREIGN_FOLDERS)
def test_names_of_folders_that_are_not_ours(name: str) -> None:
    assert folder_named(name) is None


def test_names_of_folders_that_are_ours() -> None:
    name = folder_name(OTHER)
    assert folder_named(name) == FolderName(OTHER, "", 0)
    assert folder_named(f"{name}.deleted") == FolderName(OTHER, ".deleted", 0)
    assert folder_named(f"{name}.12.deleted") == FolderName(OTHER, ".deleted", 12)
    assert folder_named(f"{name}.2.stray") == FolderName(OTHER, ".stray", 2)


@pytest.mark.parametrize("name", FOREIGN_FILES)
def test_names_of_files_that_are_not_ours(name: str) -> None:
    assert file_named(name) is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (".log", FileKind.SEGMENT),
        (".index", FileKind.INDEX),
        (".producers", FileKind.SNAPSHOT),
        (".log.swap", FileKind.SWAP),
        (".log.cleaned", FileKind.UNFINISHED),
        (".producers.new", FileKind.UNFINISHED),
        (".log.7.deleted", FileKind.SET_ASIDE),
        (".index.7.deleted", FileKind.SET_ASIDE),
    ],
)
def test_names_of_files_that_are_ours(name: str, kind: FileKind) -> None:
    assert file_named(file_name(42) + name) == FileName(kind, 42)


def make(folder: Path, name: str, kind: str) -> Path:
    path = folder / name
    if kind == "folder":
        path.mkdir(mode=0o000)
    elif kind == "link":
        path.symlink_to(folder / "nowhere")
    else:
        path.write_bytes(b"x")
    return path


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_a_directory_with_guests_opens_with_its_log_proved(place: ReopenedDirectory, kind: str) -> None:
    lead(place.replica(), b"a", b"b")
    replicas, log_id = place.path / "replicas", place.log_id
    place.kill()
    guests = [make(replicas, name, kind) for name in FOREIGN_FOLDERS]
    guests += [make(place.folder(), name, kind) for name in FOREIGN_FILES]
    replica = place.open().replicas[KEY]
    assert values_of(replica.read(0, bytes_max=1000)) == [b"a", b"b"]
    assert place.log_id == log_id
    assert not place.now.notes
    assert sorted(place.now.foreign) == sorted(map(str, guests))
    assert all(path.is_symlink() or path.exists() for path in guests)


def test_a_new_directory_may_have_guests(tmp_path: Path) -> None:
    place = ReopenedDirectory(tmp_path / "logs")
    (place.path / "replicas" / "lost+found").mkdir(parents=True)
    (place.path / "lost+found").mkdir()
    assert place.open().foreign == (str(place.path / "replicas" / "lost+found"),)
    place.kill()


@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_has_the_name_of_a_replica_and_is_no_folder_makes_way(place: ReopenedDirectory, kind: str) -> None:
    log_id, replicas = place.log_id, place.path / "replicas"
    place.replica()
    place.kill()
    make(replicas, folder_name(KEY), kind)
    make(replicas, f"{folder_name(OTHER)}.1.deleted", kind)
    replica = place.open().replicas[KEY]
    assert place.log_id == log_id
    assert place.now.foreign
    lead(replica, b"a")
    lead(place.replica(OTHER), b"b")
    place.now.delete_replicas([KEY, OTHER])
    assert sorted(path.name for path in replicas.iterdir()) == sorted(
        [f"{folder_name(KEY)}.stray", f"{folder_name(OTHER)}.1.deleted.stray"]
    )


@pytest.mark.parametrize("name", [SEGMENT, f"{file_name(0)}.index", "replica", f"{file_name(9)}.producers"])
def test_a_folder_with_the_name_of_a_file_concerns_its_replica_only(place: ReopenedDirectory, name: str) -> None:
    lead(place.replica(), b"a")
    lead(place.replica(OTHER), b"b")
    place.kill()
    (place.folder() / name).unlink(missing_ok=True)
    (place.folder() / name).mkdir()
    now = place.open()
    assert isinstance(now.offline[KEY], CorruptLogError)
    assert name in str(now.offline[KEY])
    assert values_of(now.replicas[OTHER].read(0, bytes_max=1000)) == [b"b"]
    now.delete_replicas([KEY])
    assert not place.folder().exists()


def test_a_deleted_replica_leaves_what_was_not_its_own_and_says_so(place: ReopenedDirectory) -> None:
    replicas = place.path / "replicas"
    lead(place.replica(), b"a")
    (place.folder() / "lost+found").mkdir()
    (place.folder() / ".nfs0001").write_bytes(b"x")

    async def delete() -> None:
        storage = Storage(place.now)
        storage.start()
        await storage.delete([KEY])
        # A close may come first, and then the next start removes them.
        await until(lambda: any("folders" in line for line in lines), what="the files to be removed")
        await storage.close(clean=False)

    with capture_logs() as lines:
        asyncio.run(delete())
    left = replicas / f"{folder_name(KEY)}.1.deleted"
    assert [line["folders"] for line in lines if "folders" in line] == [[str(left)]]
    assert sorted(path.name for path in left.iterdir()) == [".nfs0001", "lost+found"]
    # It is made again, and deleted again, under a name that is free. What has gone of the guests has gone.
    assert place.open().foreign == (str(left),)
    lead(place.replica(), b"b")
    place.now.delete_replicas([KEY])
    assert [path.name for path in replicas.iterdir()] == [left.name]
    (left / "lost+found").rmdir()
    (left / ".nfs0001").unlink()
    place.kill()
    assert not place.open().foreign
    assert not list(replicas.iterdir())


def test_a_replica_on_another_disk_leaves_with_its_link(place: ReopenedDirectory, tmp_path: Path) -> None:
    lead(place.replica(), b"a")
    place.kill()
    elsewhere = tmp_path / "elsewhere"
    place.folder().rename(elsewhere)
    place.folder().symlink_to(elsewhere)
    assert values_of(place.open().replicas[KEY].read(0, bytes_max=1000)) == [b"a"]
    place.now.delete_replicas([KEY])
    assert not list((place.path / "replicas").iterdir())
    assert not list(elsewhere.iterdir())
