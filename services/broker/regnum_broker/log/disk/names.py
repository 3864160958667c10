"""Names that a log directory gives to its files and folders, and by which it knows its own again. Pure.

A folder on a disk has other inhabitants: ``lost+found``, ``.snapshot``, ``core.1234``, ``.nfs0000000a``, an editor's
``00000000000000000000.log.swp``. What has none of these names is theirs: it proves nothing, and is not touched. A name
that nearly looks like one (``ID-00``, ``ID--1``, ``7.log``) is theirs too, since the files of replica ``ID-0`` are
looked for under that name only.

In ``replicas``: ``ID-PARTITION`` is a replica, ``ID-PARTITION.2.deleted`` one on its way out, ``ID-PARTITION.2.stray``
one that was moved aside for a person to look at. In a replica's folder: ``replica`` says whose it is, ``cleaned`` how
far it is compacted; ``00000000000000000042.log`` is a segment that begins at offset 42, beside its ``.index`` and a
snapshot (``.producers``); with ``.new`` or ``.cleaned`` behind, a file is not finished, with ``.swap`` it takes the
place of several, with ``.3.deleted`` it is on its way out.
"""

import re
from enum import Enum, auto
from typing import Final, NamedTuple

from regnum_model.ids import PartitionKey, TopicId

DELETED_SUFFIX: Final = ".deleted"
"""Ending of a folder, or a file, that is being removed."""
STRAY_SUFFIX: Final = ".stray"
"""Ending of a folder that does not say whose it is; kept for a person to look at."""
NEW_SUFFIX: Final = ".new"
"""Ending of a small file that is to take the place of another."""
NAME_FILE: Final = "replica"
"""File in a replica's folder that says whose it is."""
CLEANED_FILE: Final = "cleaned"
"""File in a replica's folder that says how far it is compacted."""
LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
SNAPSHOT_SUFFIX: Final = ".producers"
"""Ending of a snapshot of idempotent producers."""
CLEANED_SUFFIX: Final = ".cleaned"
"""Added to the name of a segment's file: what compaction makes of it, until that is whole."""
SWAP_SUFFIX: Final = ".swap"
"""Added likewise: it is whole, and takes the place of several segments."""

OFFSET_MAX: Final = 2**63 - 1
PARTITION_MAX: Final = 2**31 - 1


def file_name(offset: int) -> str:
    """An offset as file names carry it: 20 digits, so that names sort as offsets do."""
    return f"{offset:020d}"


def folder_name(key: PartitionKey) -> str:
    """Name of a replica's folder."""
    return f"{key.topic_id}-{key.partition}"


class FolderName(NamedTuple):
    """What the name of a folder in ``replicas`` says."""

    key: PartitionKey
    suffix: str
    """DELETED_SUFFIX, STRAY_SUFFIX, or empty."""
    number: int
    """The one before the suffix; 0: there is none."""


_FOLDER: Final = re.compile(
    r"([A-Za-z0-9_-]{22})-(0|[1-9][0-9]{0,9})(?:(?:\.([1-9][0-9]*))?(\.deleted|\.stray))?", re.ASCII
)


def folder_named(name: str) -> FolderName | None:
    """What a name in ``replicas`` says; None: it is no name that a log directory gives."""
    match = _FOLDER.fullmatch(name)
    if match is None or int(match[2]) > PARTITION_MAX:
        return None
    return FolderName(PartitionKey(TopicId(match[1]), int(match[2])), match[4] or "", int(match[3] or 0))


class FileKind(Enum):
    """What a file in a replica's folder is."""

    SEGMENT = auto()
    INDEX = auto()
    SNAPSHOT = auto()
    SWAP = auto()
    """A compacted segment that takes the place of several."""
    UNFINISHED = auto()
    SET_ASIDE = auto()
    """On its way out."""
    NAME = auto()
    """NAME_FILE."""
    CLEANED = auto()
    """CLEANED_FILE."""


class FileName(NamedTuple):
    """What the name of a file in a replica's folder says."""

    kind: FileKind
    offset: int
    """Where it begins; 0 of what begins nowhere."""


_FILE: Final = re.compile(
    r"(?:(?P<fixed>replica|cleaned)|(?P<offset>[0-9]{20})(?P<content>\.log|\.index|\.producers))"
    r"(?P<state>\.new|\.cleaned|\.swap)?(?P<aside>\.[1-9][0-9]*\.deleted)?",
    re.ASCII,
)
_KINDS: Final = {
    LOG_SUFFIX: FileKind.SEGMENT,
    INDEX_SUFFIX: FileKind.INDEX,
    SNAPSHOT_SUFFIX: FileKind.SNAPSHOT,
    NAME_FILE: FileKind.NAME,
    CLEANED_FILE: FileKind.CLEANED,
}


def file_named(name: str) -> FileName | None:
    """What a name in a replica's folder says; None: it is no name that a log directory gives."""
    match = _FILE.fullmatch(name)
    if match is None:
        return None
    content, state, offset = match["fixed"] or match["content"], match["state"], int(match["offset"] or 0)
    if offset > OFFSET_MAX or (state in {CLEANED_SUFFIX, SWAP_SUFFIX} and content != LOG_SUFFIX):
        return None
    if match["aside"]:
        kind = FileKind.SET_ASIDE
    elif state == SWAP_SUFFIX:
        kind = FileKind.SWAP
    elif state is not None:
        kind = FileKind.UNFINISHED
    else:
        kind = _KINDS[content]
    return FileName(kind, offset)
