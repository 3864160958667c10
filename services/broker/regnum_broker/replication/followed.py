"""One followed partition in a fetch stream, and what its log takes of an answer."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from regnum.replication.v1 import replication_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerId, LeaderEpoch
from regnum_records.errors import CorruptBatchError
from regnum_records.header import end_of_batches
from regnum_telemetry import conventions, tracing

from regnum_broker.log.directory import LogDirectory
from regnum_broker.log.epochs import EpochEnd
from regnum_broker.log.errors import DirectoryFailedError, ResourceExhaustedError, StorageError
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.replication.decisions import truncation, watermark
from regnum_broker.replication.decisions.histories import contradict, leader_lacks, mark_of
from regnum_broker.replication.partition import Following, Partition
from regnum_broker.replication.sessions.marks import of_wire


@dataclass(slots=True, eq=False)
class Followed:
    """A followed partition in a stream."""

    partition: Partition
    """The replica."""
    following: Following
    """The role under which it is fetched."""
    taken_from: int | None = None
    """Number of the request that asked for records from its position on, whatever was on its way: answers of a leader
    that had not taken it up say nothing of the partition. None: the next request that names it will."""
    not_before_s: float = -math.inf
    """Not asked for before this moment."""
    refused_with: int = errors_pb2.ERROR_CODE_NONE
    """Error of the last answer."""
    not_stored: str | None = None
    """Why the records of the last answer were not stored; None: they were."""

    def takes(self, requests_taken: int) -> bool:
        """Whether an answer that was sent after so many requests is about the position that it has."""
        return self.taken_from is not None and self.taken_from <= requests_taken

    @property
    def stands(self) -> bool:
        """Whether the partition still follows under the same order."""
        return self.partition.role is self.following


BATCHES_AT_ONCE_MAX: Final = 300
"""Batches of one answer that are one job for the writer: each costs as much as the next, however small. Megabytes of
small ones would hold up every other partition of the broker for a second."""


class Stored(NamedTuple):
    """What a leader has answered of a partition, or a part of the records in that."""

    followed: Followed
    """The partition."""
    answer: replication_pb2.FetchedPartition
    """All of the answer."""
    batches: bytes
    """Its records. (To take them out of the answer is to copy them.)"""
    begin: int = 0
    """Where the part begins, in bytes."""
    end: int | None = None
    """Where it ends; None: with the last record."""

    @property
    def records(self) -> bytes:
        """The part; without a copy where it is all there is."""
        return self.batches[self.begin : self.end]

    @property
    def size_bytes(self) -> int:
        """Its length."""
        return (len(self.batches) if self.end is None else self.end) - self.begin

    @property
    def is_last(self) -> bool:
        """Whether the answer is taken up with it."""
        return self.end is None


def shared_out(work: Sequence[Stored]) -> tuple[list[Stored], list[Stored]]:
    """What is one job for the writer, and what is left for the next ones."""
    now: list[Stored] = []
    later: list[Stored] = []
    left = BATCHES_AT_ONCE_MAX
    for part in work:
        records = part.batches
        if records and not left:
            later.append(part)
            continue
        end, count = end_of_batches(records, part.begin, left)
        left -= count
        if end == len(records):
            now.append(part)
        else:
            now.append(part._replace(end=end))
            later.append(part._replace(begin=end))
    return now, later


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one partition of an answer."""

    followed: Followed
    """Which."""
    log_end_before: int
    """Log end before it was stored."""
    log_end: int
    """Log end afterwards."""
    high_watermark_before: int
    """High watermark as the writer saw it."""
    error: str | None
    """None: stored."""


async def stored(
    work: Sequence[Stored], hand_in: Callable[[Sequence[Stored]], Awaitable[asyncio.Future[list[Outcome]]]]
) -> AsyncIterator[tuple[Stored, Outcome]]:
    """Have answers stored, job after job, and tell the outcome of each: of the last part, or of what was refused."""
    left = list(work)
    while left:
        now, left = shared_out(left)
        storing = [(parts, await hand_in(parts)) for parts in waiting_apart(now) if parts]
        over: set[Followed] = set()
        for parts, outcomes in storing:
            for part, outcome in zip(parts, await asyncio.shield(outcomes), strict=True):
                if part.is_last or outcome.error is not None:
                    over.add(part.followed)
                    yield part, outcome
        left = [part for part in left if part.followed not in over]


def waiting_apart(work: Sequence[Stored]) -> tuple[list[Stored], list[Stored]]:
    """What is told as soon as the writer has done it, and appends that may have to wait for the disk (flush.messages).

    No truncation is among those: it has to be heard of before anything that the writer does behind it.
    """
    at_once: list[Stored] = []
    waiting: list[Stored] = []
    for part in work:
        appends = not (part.answer.HasField("diverging_epoch") or part.answer.error_code)
        flushes = part.followed.partition.log.settings.flush_messages is not None
        (waiting if appends and flushes else at_once).append(part)
    return at_once, waiting


def take_truncations(storing: asyncio.Future[list[Outcome]]) -> None:
    """On the event loop, as soon as an answer is stored: nothing that was cut is committed, whatever the roles are."""
    if storing.exception() is None:
        for outcome in storing.result():
            if outcome.log_end < outcome.log_end_before:
                outcome.followed.partition.truncated(outcome.log_end)


def recall_last_batches(logs: Sequence[ReplicaLog]) -> None:
    """On a reader thread: take the last batch of each log into memory. Of one that cannot be read, none is."""
    for log in logs:
        try:
            log.batch_at(log.log_end_offset - 1)
        except DirectoryFailedError:
            raise
        except StorageError:
            # A damaged one has been said to be that; the others are deleted, or refused for want of descriptors.
            continue


def store(directory: LogDirectory, part: Stored, *, broker: BrokerId) -> Outcome:
    """On the writer thread: append or truncate. A partition whose role changed meanwhile is left alone.

    So is one whose log turns out to be of another history than its leader's: it is damaged from then on, as it is.
    """
    followed, answer = part.followed, part.answer
    partition = followed.partition
    log = partition.log
    error: str | None = None
    before, high_watermark = log.log_end_offset, partition.high_watermark
    if followed.stands:
        try:
            other_history = _other_history(followed, answer, broker=broker)
            if other_history is not None:
                error = log.found_damaged(other_history).reason
            elif answer.error_code == errors_pb2.ERROR_CODE_CORRUPT_MESSAGE:
                error = "the leader has another batch than one that was the last here, and is not any more"
            elif answer.HasField("diverging_epoch"):
                _truncate(partition, answer.diverging_epoch)
            elif answer.error_code == errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE:
                _return_into_range(partition, answer)
            else:
                log.append_replicated(part.records)
        except DirectoryFailedError:
            raise
        except (CorruptBatchError, StorageError) as refusal:
            # A replica that is damaged goes offline by itself; the others of the answer go on, and so does the broker.
            error = str(refusal)
    if log.log_end_offset < high_watermark:
        # Whoever opens the directory next takes the checkpoint's word, and the log may have grown again by then.
        with contextlib.suppress(ResourceExhaustedError):
            # On a full disk the next checkpoint that fits says it.
            directory.checkpoint_high_watermarks({partition.key: log.log_end_offset})
    return Outcome(followed, before, log.log_end_offset, high_watermark, error)


def _other_history(followed: Followed, answer: replication_pb2.FetchedPartition, *, broker: BrokerId) -> str | None:
    """Why the log here and its leader's are of two histories, though their epochs agree; None: they may be of one."""
    log, leader, epoch = followed.partition.log, followed.following.leader, followed.following.leader_epoch
    place = f"{followed.partition.topic}-{followed.partition.key.partition}"
    of_leader = of_wire(answer)
    if of_leader is not None:
        own = mark_of(log.batch_at(min(of_leader.next_offset, log.log_end_offset) - 1))
        if contradict(own, of_leader, agreed=answer.error_code == errors_pb2.ERROR_CODE_CORRUPT_MESSAGE):
            return _two_histories(f"{place}: broker {broker} has {own}, and broker {leader}, which leads, {of_leader}")
    end = log.written_end_offset
    if answer.error_code == errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE and leader_lacks(
        leader_end=answer.log_end_offset, leader_epoch=epoch, end=end, last_epoch=log.epochs.epoch_at(end - 1)
    ):
        return _two_histories(
            f"{place}: broker {broker} has records of leader epoch {epoch} up to offset {end - 1}, and broker {leader},"
            f" which leads in it, has none from offset {answer.log_end_offset} on"
        )
    return None


def _two_histories(what: str) -> str:
    return (
        f"{what}. Two brokers led one leader epoch, as after the coordination store was put back to an earlier copy."
        " Nothing is cut: the records stay on this disk until a person says which log counts"
        ' (docs/operations/recovery.md, "Two logs of one partition")'
    )


def _truncate(partition: Partition, diverging: replication_pb2.DivergingEpoch) -> None:
    log = partition.log
    of_leader = EpochEnd(epoch=LeaderEpoch(diverging.epoch), end_offset=diverging.end_offset)
    log_end = log.written_end_offset
    decision = truncation.decide(
        of_leader,
        of_follower=log.epochs.end_offset_for(of_leader.epoch, log_end_offset=log_end),
        log_end=log_end,
        high_watermark=partition.high_watermark,
    )
    # Not done means: ask again from there, which the next request does in any case.
    log.truncate(decision.offset)


def _return_into_range(partition: Partition, answer: replication_pb2.FetchedPartition) -> None:
    log = partition.log
    if answer.log_end_offset < log.written_end_offset:
        log.truncate(answer.log_end_offset)
    elif answer.log_start_offset > log.written_end_offset:
        log.truncate_fully_and_start_at(answer.log_start_offset)


def take_high_watermark(partition: Partition, answer: replication_pb2.FetchedPartition) -> int | None:
    """Take up what the leader says is committed, as far as it is here; returns where the log is to begin, if later.

    A follower decides nothing of its own: its log begins where its leader's does, as far as it knows that committed.
    """
    log = partition.log
    partition.confirmed = partition.role
    before = partition.high_watermark
    partition.take_high_watermark(
        watermark.of_follower(
            before,
            leader_high_watermark=answer.high_watermark,
            log_start=log.log_start_offset,
            log_end=log.log_end_offset,
        )
    )
    if partition.high_watermark != before:
        # Consumers may wait here, too (KIP-392).
        partition.committed.fire()
    start = min(answer.log_start_offset, partition.high_watermark)
    return start if start > log.log_start_offset else None


def record_truncation(outcome: Outcome, *, broker: BrokerId) -> None:
    """A point in the trace of the failover that made it necessary."""
    now_unix_nano = tracing.now_unix_nano()
    partition = outcome.followed.partition
    tracing.between(
        conventions.TRUNCATION,
        now_unix_nano,
        now_unix_nano,
        parent=outcome.followed.following.cause,
        attributes={
            conventions.BROKER: broker,
            conventions.TOPIC: partition.topic,
            conventions.PARTITION: str(partition.key.partition),
            conventions.TRUNCATED_FROM: outcome.log_end_before,
            conventions.TRUNCATED_TO: outcome.log_end,
        },
    )
