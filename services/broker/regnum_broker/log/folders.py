"""Folders of replicas: their names, what they say of themselves, and what becomes of those that the journal lacks.

A folder names topic id and partition, and a small file in it names the topic. So a journal that forgot a replica costs
no records: the folder is taken up again. The log then has a new id (safety rule S10), because it is unknown what else
was forgotten. What does not say whose it is, is moved aside, and the broker says so. What has no name of ours is no
evidence of anything: it is left alone (see ``disk.names``).
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from regnum_model.ids import PartitionKey, TopicId

from regnum_broker.log.disk.disk import DamagedFileError, GuardedDisk
from regnum_broker.log.disk.lines import decode_line, encode_line
from regnum_broker.log.disk.names import (
    DELETED_SUFFIX,
    NAME_FILE,
    STRAY_SUFFIX,
    FileKind,
    FolderName,
    file_named,
    folder_name,
    folder_named,
)
from regnum_broker.log.journal.entries import JournalState

FORMAT_VERSION: Final = 1

_PROVING: Final = frozenset({FileKind.SEGMENT, FileKind.SWAP, FileKind.NAME})
"""What other files of a replica are made from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tidied:
    """What was found in folders that the journal does not know."""

    adopted: dict[PartitionKey, str]
    """Replicas that name themselves, with the names of their topics."""
    strays: tuple[str, ...]
    """Folders that do not; moved aside."""
    foreign: tuple[str, ...]
    """Paths of what is not ours; left alone. Of what had a name of ours, the one that it was given instead."""
    number: int
    """The highest in a name that is still there; 0: none is."""


def folder_of(path: Path, key: PartitionKey) -> str:
    """Folder of a replica's files."""
    return f"{path}/replicas/{folder_name(key)}"


def is_own(name: str) -> bool:
    """Whether a file in a replica's folder is ours, by its name."""
    return file_named(name) is not None


def synced_as_it_is(folder: str, disk: GuardedDisk) -> bool:
    """Bring the files of a replica that is out of use to the disk, whatever they are; False: not all of them can be.

    What is known of such a replica is in its files: as after a kill, once nothing of these can be gone.

    Raises:
        ResourceExhaustedError: no descriptor for it now.
        DirectoryFailedError: what was written may be lost.
    """
    try:
        with os.scandir(folder) as files:
            named = [(file, file_named(file.name)) for file in files]
        proving = [file for file, name in named if name is not None and name.kind in _PROVING]
        if not all(file.is_file() and os.access(file.path, os.R_OK | os.W_OK) for file in proving):
            return False
        for file in proving:
            disk.sync(file.path)
            disk.forget(file.path)
        disk.sync_folder(folder)
    except FileNotFoundError:
        # Nobody has written anything yet, or it is gone: then the journal knows.
        return True
    except (DamagedFileError, OSError):
        return False
    return True


def holds_replicas(replicas: Path) -> bool:
    """Whether there is anything with a name of ours. Raises OSError."""
    with os.scandir(replicas) as entries:
        return any(folder_named(entry.name) is not None for entry in entries)


def name_folder(folder: str, key: PartitionKey, topic: str, disk: GuardedDisk) -> None:
    """Write down whose a folder is. Not synced; ``ReplicaLog.flush`` does that."""
    content = encode_line([FORMAT_VERSION, key.topic_id, key.partition, topic])
    path = f"{folder}/{NAME_FILE}"
    # Not by way of another name: the content proves itself, and this is on the way of each replica's first append.
    disk.write(path, [content], 0)
    disk.forget(path)


def named_by(folder: Path, disk: GuardedDisk) -> tuple[PartitionKey, str] | None:
    """Whose a folder is, and the name of its topic; None: it does not say, or its name says otherwise."""
    path = folder / NAME_FILE
    # False also where it may not be looked at.
    if not os.path.isfile(path):  # noqa: PTH113
        return None
    match decode_line((disk.read_whole(str(path)) or b"").rstrip(b"\n")):
        case [1, str(id), int(partition), str(topic)] if folder.name == f"{id}-{partition}":
            return PartitionKey(TopicId(id), partition), topic
        case _:
            return None


def tidy(replicas: Path, disk: GuardedDisk, state: JournalState) -> Tidied:
    """Remove folders of deleted replicas, take up those that the journal forgot, and move aside what says nothing.

    Raises:
        DirectoryFailedError: the disk failed.
    """
    adopted: dict[PartitionKey, str] = {}
    strays: list[str] = []
    folders, foreign = _listed(replicas, disk)
    leaving = [str(replicas / name) for name, named in folders.items() if named.suffix == DELETED_SUFFIX]
    kept = [path for path in leaving if not disk.remove_folder(path, is_own=is_own)]
    for name, named in folders.items():
        if named.suffix:
            continue
        if named.key in state.deleted:
            # Renamed first: a kill never leaves half of it under its own name.
            doomed = _renamed(replicas, name, DELETED_SUFFIX, disk)
            if not disk.remove_folder(doomed, is_own=is_own):
                kept.append(doomed)
        elif named.key not in state.replicas:
            found = named_by(replicas / name, disk)
            if found is None:
                strays.append(name)
            else:
                adopted[found[0]] = found[1]
    for name in strays:
        _renamed(replicas, name, STRAY_SUFFIX, disk)
    return Tidied(
        adopted=adopted,
        strays=tuple(strays),
        foreign=(*foreign, *kept),
        number=max((left.number for path in kept if (left := folder_named(Path(path).name))), default=0),
    )


def _listed(replicas: Path, disk: GuardedDisk) -> tuple[dict[str, FolderName], list[str]]:
    """Folders that have names of ours, and paths of what else is there."""
    folders: dict[str, FolderName] = {}
    foreign: list[str] = []
    taken: list[str] = []
    with os.scandir(replicas) as entries:
        for entry in entries:
            named = folder_named(entry.name)
            if named is None:
                foreign.append(entry.path)
            elif named.suffix != STRAY_SUFFIX and not entry.is_dir():
                taken.append(entry.name)
            else:
                folders[entry.name] = named
    # A replica, or one that leaves, may need the name.
    return folders, foreign + [_renamed(replicas, name, STRAY_SUFFIX, disk) for name in taken]


def _renamed(replicas: Path, name: str, suffix: str, disk: GuardedDisk) -> str:
    """Give a folder a name with that suffix that is free; returns its new path."""
    target, number = f"{replicas}/{name}{suffix}", 1
    while os.path.lexists(target):
        number += 1
        target = f"{replicas}/{name}.{number}{suffix}"
    disk.rename(f"{replicas}/{name}", target)
    return target
