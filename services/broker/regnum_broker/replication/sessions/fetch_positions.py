"""One partition of a fetch session: what the follower said of it, and what may be answered.

The functions look and change nothing of it; the session acts.
"""

import itertools
from dataclasses import dataclass
from typing import Final, Protocol

from regnum.replication.v1 import replication_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import NO_EPOCH, BrokerId, LeaderEpoch, PartitionKey
from regnum_records.header import end_offset_of
from regnum_service.errors import Code

from regnum_broker.log.errors import DirectoryFailedError, OffsetOutOfRangeError, StorageError, UnknownReplicaError
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.replication.decisions import truncation
from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.partition import Partition
from regnum_broker.replication.sessions.fresh_appends import NO_BATCHES, Batches, FreshAppends
from regnum_broker.storage import Storage

UNSENT: Final = 0
"""In place of a high watermark that the follower is known to have. None is below 0, and one of 0 is no news to anybody:
a new partition is never named in an answer just for that.
"""


class Watched(Protocol):
    """A fetch session as its positions see it."""

    def moved(self, key: PartitionKey) -> None:
        """A partition of the session has something new."""


class Commits:
    """Notes that a partition's high watermark moved."""

    __slots__ = ("_key", "_moved")

    def __init__(self, key: PartitionKey, moved: dict[PartitionKey, None]) -> None:
        self._key: Final = key
        self._moved: Final = moved

    def set(self) -> None:
        """It moved."""
        self._moved[self._key] = None


class Position:
    """One partition of the session."""

    __slots__ = (
        "awaited",
        "commits",
        "counted",
        "epoch",
        "key",
        "last_epoch",
        "log_start",
        "named_in",
        "next_offset",
        "offset",
        "sent_high_watermark",
        "sent_log_start",
        "session",
        "subscribed",
    )

    def __init__(self, session: Watched, key: PartitionKey, commits: Commits) -> None:
        self.session: Final = session
        self.key: Final = key
        self.commits: Final = commits
        self.epoch = 0
        self.offset = 0
        """Where the follower's log ends, as it said: all that counts as acknowledged."""
        self.next_offset = 0
        """Where what is sent next begins: behind what is on its way."""
        self.named_in = 0
        """Number of the answer that named it last with more than a high watermark; 0: none did."""
        self.last_epoch = 0
        self.sent_high_watermark = UNSENT
        """What the follower was told since it named its position."""
        self.log_start = 0
        """Where its own log begins."""
        self.sent_log_start = 0
        """Where its own log begins, or the leader's as it was told since."""
        self.awaited = False
        """Whether the follower has to name its position before it is answered again."""
        self.counted = False
        """Whether the leadership has taken the position up."""
        self.subscribed: Partition | None = None

    def set(self) -> None:
        """The partition moved."""
        self.session.moved(self.key)

    def take(self, wanted: replication_pb2.FetchPosition, *, answers_taken: int) -> None:
        """Take up what the follower says of it, who has carried out so many answers."""
        self.epoch = wanted.current_leader_epoch
        self.offset = wanted.fetch_offset
        self.last_epoch = wanted.last_fetched_epoch
        self.log_start = self.sent_log_start = wanted.log_start_offset
        self.counted = False
        if not wanted.continues or self.named_in <= answers_taken:
            # Nothing is on its way, or nothing of it will be taken.
            self.next_offset = self.offset
            self.awaited = False
        if not wanted.continues:
            # What was sent before may have been meant for another role of the follower, which took nothing from it.
            self.sent_high_watermark = UNSENT


@dataclass(frozen=True, slots=True)
class Read:
    """A position from which there are records to be read."""

    position: Position
    """Where the follower is."""
    partition: Partition
    """What it follows."""
    leadership: Leadership
    """Under which they are read: they are sent only if it still stands afterwards."""


def records_left(read: Read) -> int:
    """How far a follower's log is behind what is there to be sent."""
    return read.partition.log.log_end_offset - read.position.next_offset


def waits_since(read: Read) -> int:
    """The number of the answer that brought it something last."""
    return read.position.named_in


def refusal(position: Position, partition: Partition | None, follower: BrokerId | None) -> Code | None:
    """Why the position cannot be answered with records; epochs are compared before roles (semantics 4.2)."""
    if partition is None:
        return errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID
    role = partition.role
    if position.epoch != partition.leader_epoch:
        newer = position.epoch > partition.leader_epoch
        return errors_pb2.ERROR_CODE_UNKNOWN_LEADER_EPOCH if newer else errors_pb2.ERROR_CODE_FENCED_LEADER_EPOCH
    if not isinstance(role, Leadership):
        # One that is promised leads as soon as that is recorded; the follower's order is on its way like its own.
        promised = partition.promised is not None
        return errors_pb2.ERROR_CODE_UNKNOWN_LEADER_EPOCH if promised else errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
    if follower is None or role.progress_of(follower) is None:
        return errors_pb2.ERROR_CODE_UNKNOWN_LEADER_EPOCH
    log = partition.log
    if not log.log_start_offset <= position.offset <= log.log_end_offset:
        return errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE
    return None


def read_logs(wanted: list[tuple[ReplicaLog, int]], bytes_max: int) -> list[Batches | Code]:
    """On a reader thread: read one log after another until the answer is full; at least one."""
    found: list[Batches | Code] = []
    room = bytes_max
    for log, offset in wanted:
        if found and room <= 0:
            break
        try:
            data = log.read(offset, bytes_max=max(room, 1))
        except OffsetOutOfRangeError:
            found.append(errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE)
        except UnknownReplicaError:
            # Deleted while the read waited for a thread.
            found.append(errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID)
        except DirectoryFailedError:
            raise
        except StorageError:
            found.append(errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR)
        else:
            found.append(Batches(data, end_offset_of(data) if data else offset))
            room -= len(data)
    return found


async def data_of(
    reads: list[Read], bytes_max: int, *, fresh: FreshAppends, storage: Storage
) -> list[tuple[Read, Batches | Code | None]]:
    """What there is for each, as far as there is room (None: there is not); who keeps up goes first."""
    found: list[tuple[Read, Batches | Code | None]] = []
    behind: list[Read] = []
    room = bytes_max
    for read in reads:
        batches = fresh.read(read.leadership, read.position.next_offset, room) if room > 0 else NO_BATCHES
        if batches.data:
            found.append((read, batches))
            room -= len(batches.data)
        else:
            behind.append(read)
    if not behind:
        return found
    wanted = [(read.partition.log, read.position.next_offset) for read in behind] if room > 0 else []
    read_now = await storage.read(lambda: read_logs(wanted, room)) if wanted else []
    return found + list(itertools.zip_longest(behind, read_now))


def divergence(position: Position, partition: Partition) -> replication_pb2.DivergingEpoch | None:
    """Where the follower's log left the log here; None: as far as its last batch shows, it did not."""
    last_epoch = LeaderEpoch(position.last_epoch)
    log = partition.log
    if last_epoch == NO_EPOCH or (last_epoch == log.epochs.latest and position.offset <= log.log_end_offset):
        # What the rule below says of nearly every position, at less cost: nothing to compare, or the present epoch.
        return None
    of_leader = log.epochs.end_offset_for(last_epoch, log_end_offset=log.log_end_offset)
    if not truncation.diverges(of_leader, last_fetched_epoch=last_epoch, fetch_offset=position.offset):
        return None
    return replication_pb2.DivergingEpoch(epoch=of_leader.epoch, end_offset=of_leader.end_offset)


def add_to(
    answer: replication_pb2.FetchReplicaResponse, position: Position, partition: Partition
) -> replication_pb2.FetchedPartition:
    """Name a partition in an answer, with its high watermark and the ends of its log."""
    position.sent_high_watermark = partition.high_watermark
    position.sent_log_start = partition.log.log_start_offset
    return answer.partitions.add(
        topic_id=position.key.topic_id,
        partition=position.key.partition,
        high_watermark=partition.high_watermark,
        log_start_offset=partition.log.log_start_offset,
        log_end_offset=partition.log.log_end_offset,
    )


def has_moved(position: Position, partition: Partition) -> bool:
    """Whether the follower is to hear of a high watermark or a log start."""
    return (
        partition.high_watermark != position.sent_high_watermark
        or partition.log.log_start_offset > position.sent_log_start
    )


def unsubscribe(position: Position) -> None:
    """Hear of the partition no longer."""
    if position.subscribed is not None:
        position.subscribed.appended.detach(position)
        position.subscribed.committed.detach(position.commits)
        position.subscribed = None
