"""The entries of a log directory's journal, and the fold over them. Pure.

They say which replicas there are, and which leader epochs began where. The files are in ``journal_file``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never

from regnum_model.ids import NO_EPOCH, LeaderEpoch, PartitionKey, TopicId

from regnum_broker.log.epochs import NO_EPOCHS, EpochCache


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
    epochs: EpochCache = NO_EPOCHS
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
    """Bad lines that were followed by good ones, and that no copy could replace."""
    missing: bool = False
    """Whether there was no journal at all: then it names no replica, whatever there was."""
    repairs: tuple[str, ...] = ()
    """What the copy made good, for people."""

    @property
    def incomplete(self) -> bool:
        """Whether it may lack something."""
        return self.missing or self.damaged_lines > 0


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
    has_files, epochs, highest = replica.has_files, replica.epochs, replica.highest_epoch
    match entry:
        case FilesBegun():
            has_files = True
        case EpochBegun(epoch=epoch, start_offset=start):
            epochs, highest = epochs.assign(epoch, start), max(highest, epoch)
        case Truncated(offset=offset):
            epochs = epochs.truncate_from_end(offset)
        case _:
            assert_never(entry)
    return JournaledReplica(topic=replica.topic, has_files=has_files, epochs=epochs, highest_epoch=highest)


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
        case [str(kind), str(id), int(partition), *rest]:
            return _entry(kind, PartitionKey(TopicId(id), partition), rest)
        case _:
            return None


def _entry(kind: str, key: PartitionKey, rest: list[Any]) -> JournalEntry | None:
    match kind, rest:
        case "epoch", [int(epoch), int(start)] if epoch >= 0 and start >= 0:
            return EpochBegun(key=key, epoch=LeaderEpoch(epoch), start_offset=start)
        case "created", [str(topic), int(highest)]:
            return ReplicaCreated(key=key, topic=topic, highest_epoch=LeaderEpoch(highest))
        case "files", []:
            return FilesBegun(key=key)
        case "truncated", [int(offset)]:
            return Truncated(key=key, offset=offset)
        case "deleted", []:
            return ReplicaDeleted(key=key)
        case _:
            return None
