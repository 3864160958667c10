"""The journal of a log directory: which replicas there are, and which leader epochs began where.

Goals: creating a thousand replicas, or becoming leader of them, costs one append and one fsync (design section 8).
Constraints: a kill leaves at most a torn last line; nothing here is needed to read batches.
Algorithm: one
self-proving line for each entry; state is the fold over them; the file is rewritten without what is obsolete each
time the directory is opened. A torn tail is dropped. A bad line with good ones after it is damage: it is counted, and
the start then cannot prove that the logs are complete.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, assert_never

from regnum_model.ids import NO_EPOCH, LeaderEpoch, PartitionKey, TopicId

from regnum_broker.log.disk import GuardedDisk
from regnum_broker.log.epochs import EpochCache
from regnum_broker.log.lines import decode_line, encode_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCreated:
    """A replica came into being."""

    key: PartitionKey
    """Which."""
    topic: str
    """Name of its topic."""
    highest_epoch: LeaderEpoch = NO_EPOCH
    """Highest leader epoch that was recorded so far; -1 for a new replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDeleted:
    """A replica was deleted; its files may still be there."""

    key: PartitionKey
    """Which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesBegun:
    """A replica has files from here on: if they are missing later, they were lost."""

    key: PartitionKey
    """Which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochBegun:
    """A leader epoch began in a replica's log."""

    key: PartitionKey
    """Which."""
    epoch: LeaderEpoch
    """The epoch."""
    start_offset: int
    """Its first offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated:
    """A replica's log was cut."""

    key: PartitionKey
    """Which."""
    offset: int
    """First offset that was removed; 0: all of it."""


JournalEntry = ReplicaCreated | ReplicaDeleted | FilesBegun | EpochBegun | Truncated


@dataclass(frozen=True, slots=True, kw_only=True)
class JournaledReplica:
    """What the journal knows of a replica."""

    topic: str
    """Name of its topic."""
    has_files: bool = False
    """Whether something was ever appended."""
    epochs: EpochCache = field(default_factory=EpochCache)
    """Leader epochs."""
    highest_epoch: LeaderEpoch = NO_EPOCH
    """Highest leader epoch ever recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalState:
    """The fold over a journal."""

    replicas: Mapping[PartitionKey, JournaledReplica] = field(default_factory=dict)
    """Replicas that exist."""
    deleted: frozenset[PartitionKey] = frozenset()
    """Replicas that were deleted and not created again."""
    damaged_lines: int = 0
    """Bad lines that were followed by good ones."""


def fold(entries: Iterable[JournalEntry], *, damaged_lines: int = 0) -> JournalState:
    """The state after ``entries``. Entries about replicas that do not exist change nothing."""
    replicas: dict[PartitionKey, JournaledReplica] = {}
    deleted: set[PartitionKey] = set()
    for entry in entries:
        match entry:
            case ReplicaCreated(key=key, topic=topic, highest_epoch=highest):
                replicas.setdefault(key, JournaledReplica(topic=topic, highest_epoch=highest))
                deleted.discard(key)
            case ReplicaDeleted(key=key):
                replicas.pop(key, None)
                deleted.add(key)
            case _:
                if (replica := replicas.get(entry.key)) is not None:
                    replicas[entry.key] = _changed(replica, entry)
    return JournalState(replicas=replicas, deleted=frozenset(deleted), damaged_lines=damaged_lines)


def _changed(replica: JournaledReplica, entry: FilesBegun | EpochBegun | Truncated) -> JournaledReplica:
    match entry:
        case FilesBegun():
            return replace(replica, has_files=True)
        case EpochBegun(epoch=epoch, start_offset=start):
            highest = max(replica.highest_epoch, epoch)
            return replace(replica, epochs=replica.epochs.assign(epoch, start), highest_epoch=highest)
        case Truncated(offset=offset):
            return replace(replica, epochs=replica.epochs.truncate_from_end(offset))
        case _:
            assert_never(entry)


def compacted(state: JournalState) -> list[JournalEntry]:
    """The fewest entries whose fold has the same replicas."""
    entries: list[JournalEntry] = []
    for key, replica in state.replicas.items():
        entries.append(ReplicaCreated(key=key, topic=replica.topic, highest_epoch=replica.highest_epoch))
        if replica.has_files:
            entries.append(FilesBegun(key=key))
        for epoch, start in replica.epochs.entries:
            entries.append(EpochBegun(key=key, epoch=epoch, start_offset=start))
    return entries


def to_json(entry: JournalEntry) -> list[object]:
    """The JSON form of an entry: kind, topic id, partition, and what else it says."""
    where = [entry.key.topic_id, entry.key.partition]
    match entry:
        case ReplicaCreated():
            return ["created", *where, entry.topic, entry.highest_epoch]
        case ReplicaDeleted():
            return ["deleted", *where]
        case FilesBegun():
            return ["files", *where]
        case EpochBegun():
            return ["epoch", *where, entry.epoch, entry.start_offset]
        case Truncated():
            return ["truncated", *where, entry.offset]
        case _:
            assert_never(entry)


def from_json(value: Any) -> JournalEntry | None:
    """The entry of a JSON form; None if it is none."""
    match value:
        case ["created", str(id), int(partition), str(topic), int(highest)]:
            return ReplicaCreated(
                key=PartitionKey(TopicId(id), partition), topic=topic, highest_epoch=LeaderEpoch(highest)
            )
        case ["deleted", str(id), int(partition)]:
            return ReplicaDeleted(key=PartitionKey(TopicId(id), partition))
        case ["files", str(id), int(partition)]:
            return FilesBegun(key=PartitionKey(TopicId(id), partition))
        case ["epoch", str(id), int(partition), int(epoch), int(start)] if epoch >= 0 and start >= 0:
            return EpochBegun(key=PartitionKey(TopicId(id), partition), epoch=LeaderEpoch(epoch), start_offset=start)
        case ["truncated", str(id), int(partition), int(offset)]:
            return Truncated(key=PartitionKey(TopicId(id), partition), offset=offset)
        case _:
            return None


def parse(data: bytes) -> tuple[list[JournalEntry], int]:
    """The entries of a journal file, and how many bad lines stand before good ones."""
    entries: list[JournalEntry] = []
    damaged = bad = 0
    for line in data.split(b"\n"):
        if not line:
            continue
        entry = from_json(decode_line(line))
        if entry is None:
            bad += 1
            continue
        damaged, bad = damaged + bad, 0
        entries.append(entry)
    return entries, damaged


class Journal:
    """The open journal of a directory. For the writer thread."""

    def __init__(self, path: Path, disk: GuardedDisk) -> None:
        self._path = str(path)
        self._disk = disk
        self._size_bytes = 0

    def load(self) -> JournalState:
        """Read it; a journal that is not there is empty. Changes nothing."""
        data = self._disk.read_whole(self._path)
        entries, damaged = parse(data or b"")
        return fold(entries, damaged_lines=damaged)

    def rewrite(self, state: JournalState) -> None:
        """Replace the file by the fewest entries that make ``state``; to be called before the first ``append``."""
        data = encode_lines(map(to_json, compacted(state)))
        if data != self._disk.read_whole(self._path):
            self._disk.replace(self._path, data, sync=True)
        self._size_bytes = len(data)

    def append(self, entries: Iterable[JournalEntry], *, sync: bool) -> None:
        """Add entries in one write.

        Raises:
            DirectoryFailedError: the write or the fsync failed.
        """
        data = encode_lines(map(to_json, entries))
        if data:
            self._disk.write(self._path, [data], self._size_bytes)
            self._size_bytes += len(data)
        if sync:
            self._disk.sync(self._path)
