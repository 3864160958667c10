"""One partition of a fetch session: what the follower said of it, and what may be answered.

The functions look and change nothing of it; the session acts.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

from regnum.replication.v1 import replication_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import NO_EPOCH, BrokerId, LeaderEpoch, PartitionKey
from regnum_records.header import BatchHeader, end_offset_of
from regnum_service.errors import Code

from regnum_broker.log.errors import DirectoryFailedError, OffsetOutOfRangeError, StorageError, UnknownReplicaError
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.replication.decisions import truncation
from regnum_broker.replication.decisions.histories import BatchMark, contradict, mark_of
from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.partition import Partition
from regnum_broker.replication.sessions.fresh_appends import NO_BATCHES, Batches, FreshAppends
from regnum_broker.replication.sessions.marks import of_wire, to_wire
from regnum_broker.storage import Storage

T = TypeVar("T")

COMPARED: Final = frozenset({None, errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE})
"""Refusals (None: there is none) upon which a follower changes its log."""

Answer = replication_pb2.FetchReplicaResponse
"""What a follower is sent."""

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
        "last_batch",
        "last_epoch",
        "log_start",
        "named_in",
        "next_offset",
        "offset",
        "own_batch",
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
        self.last_batch: BatchMark | None = None
        """The follower's last batch until it was compared with the log here, and as long as the position counts for
        nothing. None: there is nothing to compare (any more)."""
        self.own_batch: BatchMark | None = None
        """What that was compared with, for the follower to compare its log with before it changes that."""
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
            self.last_batch, self.own_batch = of_wire(wanted), None
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


def _or_code(read: Callable[[], T]) -> T | Code:
    """What was read, or why it was not."""
    try:
        return read()
    except OffsetOutOfRangeError:
        return errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE
    except UnknownReplicaError:
        # Deleted while the read waited for a thread.
        return errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID
    except DirectoryFailedError:
        raise
    except StorageError:
        return errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR


def read_logs(wanted: list[tuple[ReplicaLog, int]], bytes_max: int) -> list[Batches | Code]:
    """On a reader thread: read one log after another until the answer is full; at least one."""
    found: list[Batches | Code] = []
    room = bytes_max
    for log, offset in wanted:
        if found and room <= 0:
            break
        data = _or_code(partial(log.read, offset, bytes_max=max(room, 1)))
        if isinstance(data, bytes):
            found.append(Batches(data, end_offset_of(data) if data else offset))
            room -= len(data)
        else:
            found.append(data)
    return found


async def compared(
    reads: Sequence[Read], *, storage: Storage, refusal: Callable[[Position, Partition], Code | None]
) -> list[tuple[Read, Code | None]]:
    """Compare last batches of followers with the logs here, which takes looks into their files.

    The batch here at the last one there or, where that leader epoch ends before it, the last of that. Of each why the
    position cannot be answered with records; None: it can, or its leadership is over.
    """
    wanted = [(read.partition.log, _compared_at(read.position, read.partition.log)) for read in reads]
    found = await storage.read_for_brokers(lambda: [_or_code(partial(log.batch_at, offset)) for log, offset in wanted])
    return [(read, _verdict(read, batch, refusal)) for read, batch in zip(reads, found, strict=True)]


def _verdict(
    read: Read, found: BatchHeader | Code | None, refusal: Callable[[Position, Partition], Code | None]
) -> Code | None:
    position, partition = read.position, read.partition
    if partition.role is not read.leadership:
        return None
    if isinstance(found, int):
        return found
    refused, own = refusal(position, partition), mark_of(found)
    position.own_batch = own
    if (
        refused is None
        and divergence(position, partition) is None
        and contradict(position.last_batch, own, agreed=True)
    ):
        return errors_pb2.ERROR_CODE_CORRUPT_MESSAGE
    position.last_batch = None
    return refused


def _compared_at(position: Position, log: ReplicaLog) -> int:
    assert position.last_batch is not None, "there is something to compare"  # noqa: S101
    last_epoch = LeaderEpoch(position.last_epoch)
    of_leader = log.epochs.end_offset_for(last_epoch, log_end_offset=log.log_end_offset)
    return min(position.last_batch.base_offset, of_leader.end_offset - 1) if of_leader.epoch == last_epoch else -1


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
    read_now = await storage.read_for_brokers(lambda: read_logs(wanted, room)) if wanted else []
    return found + list(itertools.zip_longest(behind, read_now))


def is_compared(position: Position, partition: Partition) -> bool:
    """Whether there is nothing to compare, or nothing to be read for it: the follower's last batch is the last here."""
    return position.last_batch is None or position.last_batch == mark_of(partition.log.last_batch)


def to_compare(position: Position, partition: Partition | None, refused: Code | None) -> Read | None:
    """The position, if the follower acts on what it is told, and its last batch has to be compared before."""
    if partition is None or refused not in COMPARED or is_compared(position, partition):
        return None
    assert isinstance(partition.role, Leadership), "such a refusal, or none, means leading"  # noqa: S101
    return Read(position, partition, partition.role)


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


def add_to(answer: Answer, position: Position, partition: Partition) -> replication_pb2.FetchedPartition:
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


def add_refusal(
    answer: Answer,
    position: Position,
    partition: Partition | None,
    code: Code,
) -> None:
    """Name a partition in an answer, with why there is nothing else."""
    refused = answer.partitions.add(
        topic_id=position.key.topic_id,
        partition=position.key.partition,
        error_code=code,
        own_batch=to_wire(position.own_batch),
    )
    if partition is not None:
        refused.log_start_offset = partition.log.log_start_offset
        refused.log_end_offset = partition.log.log_end_offset


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
