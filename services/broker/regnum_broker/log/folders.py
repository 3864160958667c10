"""Folders of replicas: their names, and what becomes of those that should not be there."""

from pathlib import Path
from typing import Final

from regnum_model.ids import PartitionKey

from regnum_broker.log.disk import DELETED_SUFFIX, GuardedDisk
from regnum_broker.log.journal import JournalState

STRAY_SUFFIX: Final = ".stray"
"""Ending of a folder that the journal does not know; kept for a person to look at."""


def folder_of(path: Path, key: PartitionKey) -> str:
    """Folder of a replica's files."""
    return f"{path}/replicas/{key.topic_id}-{key.partition}"


def tidy(replicas: Path, disk: GuardedDisk, state: JournalState) -> list[str]:
    """Remove folders of deleted replicas, and move those aside that the journal does not know; returns these."""
    known = {f"{key.topic_id}-{key.partition}" for key in state.replicas}
    deleted = {f"{key.topic_id}-{key.partition}" for key in state.deleted}
    strays: list[str] = []
    for folder in replicas.iterdir():
        if folder.name.endswith(DELETED_SUFFIX) or folder.name in deleted:
            disk.remove_tree(str(folder))
        elif folder.name not in known and not folder.name.endswith(STRAY_SUFFIX):
            strays.append(folder.name)
    for name in strays:
        target = replicas / (name + STRAY_SUFFIX)
        number = 1
        while target.exists():
            number += 1
            target = replicas / f"{name}.{number}{STRAY_SUFFIX}"
        (replicas / name).rename(target)
    return strays
