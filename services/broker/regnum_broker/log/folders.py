"""Folders of replicas: their names, what they say of themselves, and what becomes of those that nobody knows.

A folder names topic id and partition, and a small file in it names the topic. So a journal that forgot a replica costs
no records: the folder is taken up again. The log then has a new id (safety rule S10), because nobody knows what else
was forgotten. What does not say whose it is, is moved aside, and the broker says so.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from regnum_model.ids import PartitionKey, TopicId

from regnum_broker.log.disk.disk import DELETED_SUFFIX, GuardedDisk
from regnum_broker.log.disk.lines import decode_line, encode_line
from regnum_broker.log.journal.entries import JournalState

STRAY_SUFFIX: Final = ".stray"
"""Ending of a folder that nobody knows; kept for a person to look at."""
NAME_FILE: Final = "replica"
"""File in a folder that says whose it is."""
FORMAT_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tidied:
    """What was found in folders that the journal does not know."""

    adopted: dict[PartitionKey, str]
    """Replicas that name themselves, with the names of their topics."""
    strays: tuple[str, ...]
    """Folders that do not; moved aside."""


def folder_of(path: Path, key: PartitionKey) -> str:
    """Folder of a replica's files."""
    return f"{path}/replicas/{key.topic_id}-{key.partition}"


def name_folder(folder: str, key: PartitionKey, topic: str, disk: GuardedDisk) -> None:
    """Write down whose a folder is. Not synced; ``ReplicaLog.flush`` does that."""
    content = encode_line([FORMAT_VERSION, key.topic_id, key.partition, topic])
    path = f"{folder}/{NAME_FILE}"
    # Not by way of another name: the content proves itself, and this is on the way of each replica's first append.
    disk.write(path, [content], 0)
    disk.forget(path)


def named_by(folder: Path, disk: GuardedDisk) -> tuple[PartitionKey, str] | None:
    """Whose a folder is, and the name of its topic; None: it does not say, or its name says otherwise."""
    match decode_line((disk.read_whole(f"{folder}/{NAME_FILE}") or b"").rstrip(b"\n")):
        case [1, str(id), int(partition), str(topic)] if folder.name == f"{id}-{partition}":
            return PartitionKey(TopicId(id), partition), topic
        case _:
            return None


def tidy(replicas: Path, disk: GuardedDisk, state: JournalState) -> Tidied:
    """Remove folders of deleted replicas, take up those that the journal forgot, and move aside what says nothing."""
    known = {f"{key.topic_id}-{key.partition}" for key in state.replicas}
    deleted = {f"{key.topic_id}-{key.partition}" for key in state.deleted}
    adopted: dict[PartitionKey, str] = {}
    strays: list[str] = []
    folders = list(replicas.iterdir())
    for folder in folders:
        if folder.name.endswith(DELETED_SUFFIX):
            disk.remove_tree(str(folder))
    for folder in folders:
        if folder.name.endswith(DELETED_SUFFIX):
            continue
        if folder.name in deleted:
            # Renamed first: a kill never leaves half of it under its own name.
            doomed = f"{folder}{DELETED_SUFFIX}"
            disk.rename(str(folder), doomed)
            disk.remove_tree(doomed)
        elif folder.name not in known and not folder.name.endswith(STRAY_SUFFIX):
            named = named_by(folder, disk)
            if named is None:
                strays.append(folder.name)
            else:
                adopted[named[0]] = named[1]
    for name in strays:
        target = replicas / (name + STRAY_SUFFIX)
        number = 1
        while target.exists():
            number += 1
            target = replicas / f"{name}.{number}{STRAY_SUFFIX}"
        (replicas / name).rename(target)
    return Tidied(adopted=adopted, strays=tuple(strays))
