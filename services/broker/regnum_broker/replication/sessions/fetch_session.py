"""The leader's side of a fetch stream: what one follower broker was told of which partitions, and what is new.

A session costs what changes: idle partitions are neither sent nor looked at. A partition whose records, divergence or
error were sent is left alone until the follower names its new position. A high watermark that moved wakes nobody, but
rides on the next answer, whatever that is about: a follower that may lead next must not be behind by more than a wait.

What a throttle holds back is set aside until there is room again: else each record of another partition would have
all of a broker's moving replicas looked at.

One task answers, a request at a time, and gives the loop turns while it looks at thousands of partitions: roles and
logs may change between two partitions, as they may between two answers.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from typing import Final

from regnum.replication.v1 import replication_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerEpoch, BrokerId, PartitionKey, Registration, TopicId
from regnum_service.clock import Clock
from regnum_service.errors import Code, RegnumError
from regnum_service.slices import Turns

from regnum_broker.replication.leader import FollowerStream, Leadership
from regnum_broker.replication.partition import Partition
from regnum_broker.replication.purgatory import Signal
from regnum_broker.replication.sessions.fetch_positions import (
    UNSENT,
    Commits,
    Position,
    Read,
    add_to,
    divergence,
    read_logs,
    refusal,
    unsubscribe,
)
from regnum_broker.replication.sessions.follower_streams import FollowerStreams
from regnum_broker.replication.sessions.fresh_appends import FreshAppends
from regnum_broker.replication.throttle import UNLIMITED, Meter
from regnum_broker.storage import Storage

ANSWER_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of records in one answer, whatever the follower asks for; leaves room below the message limit."""

AWAITED: Final = frozenset({errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID, errors_pb2.ERROR_CODE_UNKNOWN_LEADER_EPOCH})
"""Errors that the next order of the controller ends: the partition stays unanswered until then."""

WATERMARKS_MAX: Final = 1_000
"""High watermarks without records in one answer (safety rule S22). So many are news enough not to wait."""

CHANGES_MAX: Final = 2_000
"""Partitions with something to say in one answer; the others are first in the next."""

SLICE: Final = 200
"""Partitions looked at between two turns of the event loop (safety rule S22)."""

WAIT_S_MAX: Final = 5.0
"""Longest time that a request is held back, whatever the follower asks for."""

HELD_S_MAX: Final = 1.0
"""Longest time that what a throttle holds back is not looked at: its leader may be another one by then."""


class FetchSession:
    """One follower's stream. Belongs to the handler of the stream; closed by it."""

    def __init__(
        self,
        *,
        find: Callable[[PartitionKey], Partition | None],
        arrivals: Signal,
        streams: FollowerStreams,
        caught_up: Callable[[Leadership], None],
        storage: Storage,
        clock: Clock,
        throttle: Meter | None = None,
        fresh: FreshAppends | None = None,
    ) -> None:
        self._fresh: Final = fresh or FreshAppends()
        self._throttle: Final = throttle or Meter(clock)
        self._throttled_max = UNLIMITED
        """Bytes of new replicas that the present request takes."""
        self._find: Final = find
        self._arrivals: Final = arrivals
        self._streams: Final = streams
        self._caught_up: Final = caught_up
        self._storage: Final = storage
        self._clock: Final = clock
        self._positions: Final[dict[PartitionKey, Position]] = {}
        self._dirty: dict[PartitionKey, None] = {}
        self._watermarks: Final[dict[PartitionKey, None]] = {}
        """Partitions whose high watermark moved, or may have, since it was sent."""
        self._wake: Final = asyncio.Event()
        self._requests: Final[deque[replication_pb2.FetchReplicaRequest]] = deque()
        self._ended = False
        self._skipped = False
        """Whether the last request was answered with nothing because another waited."""
        self._stream: FollowerStream | None = None
        self._held_back: dict[PartitionKey, None] = {}
        """New replicas for which there was no room."""
        self._held_since_s = 0.0
        arrivals.attach(self._wake)

    def push(self, request: replication_pb2.FetchReplicaRequest) -> None:
        """Hand in a request that arrived; one that is being held back is then answered at once."""
        self._requests.append(request)
        self._wake.set()

    def end(self) -> None:
        """No further request will come."""
        self._ended = True
        self._wake.set()

    def close(self) -> None:
        """Leave all partitions."""
        self._arrivals.detach(self._wake)
        if self._stream is not None:
            self._streams.closed(self._stream)
        for position in self._positions.values():
            unsubscribe(position)
        self._positions.clear()

    def moved(self, key: PartitionKey) -> None:
        """A partition of the session has something new."""
        self._dirty[key] = None
        self._wake.set()

    async def next_answer(self) -> replication_pb2.FetchReplicaResponse | None:
        """The answer to the next request; None when the stream has ended.

        Raises:
            RegnumError: the requests do not belong together, or come from an earlier life of the follower.
        """
        while not self._requests:
            if self._ended:
                return None
            self._wake.clear()
            await self._wake.wait()
        request = self._requests.popleft()
        stream = self._identify(request)
        await self._take_positions(request, stream)
        bytes_max = min(max(request.max_bytes, 1), ANSWER_BYTES_MAX)
        self._throttled_max = max(request.throttled_bytes_max, 0) if request.HasField("throttled_bytes_max") else -1
        deadline_s = self._clock.monotonic() + min(request.max_wait_ms / 1000, WAIT_S_MAX)
        loop = asyncio.get_running_loop()
        answer = replication_pb2.FetchReplicaResponse()
        # One that another follows is told no more than that it was heard, so that soon only one is under way again. But
        # not two in a row: while partitions are added without end, records of the others are not to wait for that end.
        self._skipped = bool(self._requests) and not self._skipped
        while not self._skipped:
            self._wake.clear()
            answer = await self._collect(bytes_max)
            if answer.partitions or self._requests or self._ended or len(self._watermarks) >= WATERMARKS_MAX:
                break
            remaining_s = deadline_s - self._clock.monotonic()
            if remaining_s <= 0:
                break
            # A timer, and no time-out: idle streams are what a broker at rest spends its time on.
            pause_s = min(remaining_s, self._held_pause_s()) if self._held_back else remaining_s
            patience = loop.call_later(pause_s, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                patience.cancel()
            if loop.time() >= patience.when() and pause_s == remaining_s:
                break
        self._add_watermarks(answer)
        return answer

    def _identify(self, request: replication_pb2.FetchReplicaRequest) -> FollowerStream:
        broker, epoch = BrokerId(request.replica_id), BrokerEpoch(request.broker_epoch)
        if broker < 0 or epoch < 0 or request.max_wait_ms < 0:
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST, "replica id, broker epoch and wait are not negative"
            )
        newest = self._streams.newest_epoch_of(broker)
        if newest is not None and epoch < newest:
            raise RegnumError(
                errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH,
                f"broker {broker} fetches with broker epoch {newest}; {epoch} is an earlier life of it",
            )
        stream, now_s = self._stream, self._clock.monotonic()
        if stream is None:
            stream = self._stream = FollowerStream(
                broker=broker, broker_epoch=epoch, registration=Registration(request.registration), polled_s=now_s
            )
            self._streams.opened(stream)
        elif stream.broker != broker:
            raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, "a fetch stream belongs to one follower")
        stream.broker_epoch, stream.registration = epoch, Registration(request.registration)
        stream.polled_s = now_s
        return stream

    async def _take_positions(self, request: replication_pb2.FetchReplicaRequest, stream: FollowerStream) -> None:
        turns = Turns(SLICE)
        for forgotten in request.forgotten:
            key = PartitionKey(TopicId(forgotten.topic_id), forgotten.partition)
            position = self._positions.pop(key, None)
            if position is not None:
                unsubscribe(position)
                self._dirty.pop(key, None)
                self._held_back.pop(key, None)
                self._watermarks.pop(key, None)
            await turns.took()
        for wanted in request.positions:
            key = PartitionKey(TopicId(wanted.topic_id), wanted.partition)
            position = self._positions.get(key)
            if position is None:
                position = self._positions[key] = Position(self, key, Commits(key, self._watermarks))
            # What was sent before may have been meant for another role of the follower, which took nothing from it.
            position.sent_high_watermark = UNSENT
            position.epoch = wanted.current_leader_epoch
            position.offset = wanted.fetch_offset
            position.last_epoch = wanted.last_fetched_epoch
            position.log_start = position.sent_log_start = wanted.log_start_offset
            position.awaited = position.counted = False
            partition = self._subscribe(position)
            self._count(position, partition, stream)
            if not position.counted or partition is None or position.offset != partition.log.log_end_offset:
                # Else there is nothing to say: it stands at the end of a log like its own, and hears of what comes.
                self._dirty[key] = None
            if partition is None or partition.high_watermark != UNSENT:
                self._watermarks[key] = None
            await turns.took()

    def _subscribe(self, position: Position) -> Partition | None:
        """Hear of what happens to the partition; returns it."""
        partition = self._find(position.key)
        if position.subscribed is not partition:
            unsubscribe(position)
            if partition is not None:
                partition.appended.attach(position)
                partition.committed.attach(position.commits)
            position.subscribed = partition
            position.sent_high_watermark = UNSENT
            if partition is None or partition.high_watermark != UNSENT:
                self._watermarks[position.key] = None
        return partition

    def _count(self, position: Position, partition: Partition | None, stream: FollowerStream) -> None:
        """Tell the leadership how far the follower is, once for each position, as soon as it can be counted."""
        if position.counted or partition is None or self._refusal(position, partition) is not None:
            return
        leadership = partition.role
        assert isinstance(leadership, Leadership), "no refusal means leading"  # noqa: S101
        if divergence(position, partition) is None:
            position.counted = True
            now_s = self._clock.monotonic()
            if leadership.record_fetch(stream, offset=position.offset, now_s=now_s):
                leadership.record_log_start(stream.broker, position.log_start)
            if leadership.wanted_change(now_s) is not None:
                self._caught_up(leadership)

    def _refusal(self, position: Position, partition: Partition | None) -> Code | None:
        return refusal(position, partition, None if self._stream is None else self._stream.broker)

    async def _collect(self, bytes_max: int) -> replication_pb2.FetchReplicaResponse:
        """Everything new that needs an answer now; what did not fit stays for the next one."""
        answer = replication_pb2.FetchReplicaResponse()
        reads: list[Read] = []
        turns = Turns(SLICE)
        if self._held_back and self._may_be_let_go(bytes_max):
            self._dirty, self._held_back = {**self._held_back, **self._dirty}, {}
        looking, self._dirty = iter(self._dirty), {}
        for key in looking:
            await turns.took()
            position = self._positions.get(key)
            if position is None or position.awaited:
                continue
            partition = self._subscribe(position)
            refused = self._refusal(position, partition)
            if refused in AWAITED:
                # The follower heard of the new leader before the leader itself did: the order is on its way.
                self._dirty[key] = None
                continue
            if partition is None or refused is not None:
                self._refuse(answer, position, partition, refused or errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID)
            else:
                self._look(answer, reads, position, partition)
            if len(reads) + len(answer.partitions) >= CHANGES_MAX:
                self._dirty = dict.fromkeys((*looking, *self._dirty))
        throttled = [read for read in reads if self._is_throttled(read)]
        if throttled:
            free = [read for read in reads if not self._is_throttled(read)]
            room = await self._read(answer, free, bytes_max) if free else bytes_max
            await self._read_throttled(answer, throttled, room)
        elif reads:
            await self._read(answer, reads, bytes_max)
        return answer

    def _is_throttled(self, read: Read) -> bool:
        return self._stream is not None and read.leadership.is_throttled(self._stream.broker)

    async def _read_throttled(
        self, answer: replication_pb2.FetchReplicaResponse, reads: list[Read], bytes_max: int
    ) -> None:
        """What goes to new replicas, as far as this broker and the follower allow."""
        room, first = self._throttled_room(bytes_max), len(answer.partitions)
        if room > 0:
            await self._read(answer, reads, room)
            for item in answer.partitions[first:]:
                item.throttled = bool(item.records)
            self._throttle.count(sum(len(item.records) for item in answer.partitions[first:]))
        if not self._held_back:
            self._held_since_s = self._clock.monotonic()
        for read in reads:
            if not read.position.awaited and read.partition.role is read.leadership:
                self._dirty.pop(read.position.key, None)
                self._held_back[read.position.key] = None

    def _throttled_room(self, bytes_max: int) -> int:
        """Bytes that may go to new replicas now."""
        return min(one for one in (self._throttle.allowance(), self._throttled_max, bytes_max) if one != UNLIMITED)

    def _may_be_let_go(self, bytes_max: int) -> bool:
        return self._throttled_room(bytes_max) > 0 or self._clock.monotonic() >= self._held_since_s + HELD_S_MAX

    def _held_pause_s(self) -> float:
        """Seconds until what is held back is looked at; where the follower has no room, its next request tells."""
        return min(self._throttle.pause_s() or HELD_S_MAX, HELD_S_MAX)

    def _look(
        self,
        answer: replication_pb2.FetchReplicaResponse,
        reads: list[Read],
        position: Position,
        partition: Partition,
    ) -> None:
        """What a partition that may be answered has to say."""
        leadership = partition.role
        assert isinstance(leadership, Leadership), "no refusal means leading"  # noqa: S101
        diverging = divergence(position, partition)
        if diverging is not None:
            add_to(answer, position, partition).diverging_epoch.CopyFrom(diverging)
            # The follower goes back and takes nothing else from this answer.
            position.sent_high_watermark = UNSENT
            position.awaited = True
            return
        if not position.counted and self._stream is not None:
            # It waited for this broker to become leader.
            self._count(position, partition, self._stream)
        if position.offset < partition.log.log_end_offset:
            reads.append(Read(position, partition, leadership))

    def _refuse(
        self,
        answer: replication_pb2.FetchReplicaResponse,
        position: Position,
        partition: Partition | None,
        code: Code,
    ) -> None:
        refused = answer.partitions.add(
            topic_id=position.key.topic_id, partition=position.key.partition, error_code=code
        )
        if partition is not None:
            refused.log_start_offset = partition.log.log_start_offset
            refused.log_end_offset = partition.log.log_end_offset
        position.sent_high_watermark = UNSENT
        position.awaited = True

    async def _read(self, answer: replication_pb2.FetchReplicaResponse, reads: list[Read], bytes_max: int) -> int:
        """Add records to an answer; how many bytes of what it may have are left."""
        left = bytes_max
        turns = Turns(SLICE)
        for read, data in await _data_of(reads, bytes_max, fresh=self._fresh, storage=self._storage):
            await turns.took()
            position, partition = read.position, read.partition
            if data is None:
                # No room any more; these are first in the next answer.
                self._dirty[position.key] = None
                continue
            if partition.role is not read.leadership or position.key not in self._positions:
                self._dirty[position.key] = None
            elif isinstance(data, bytes):
                if data:
                    add_to(answer, position, partition).records = data
                    position.awaited = True
                    left -= len(data)
            else:
                self._refuse(answer, position, partition, data)
        return left

    def _add_watermarks(self, answer: replication_pb2.FetchReplicaResponse) -> None:
        """Add high watermarks and log starts that moved since they were sent; more than fit ride on the next one."""
        for key in tuple(itertools.islice(self._watermarks, WATERMARKS_MAX)):
            del self._watermarks[key]
            position, partition = self._positions.get(key), self._find(key)
            # What is awaited is looked at again when the follower names it.
            if (
                position is not None
                and not position.awaited
                and partition is not None
                and _has_moved(position, partition)
                and self._refusal(position, partition) is None
                and divergence(position, partition) is None
            ):
                add_to(answer, position, partition)


def _has_moved(position: Position, partition: Partition) -> bool:
    """Whether the follower is to hear of a high watermark or a log start."""
    return (
        partition.high_watermark != position.sent_high_watermark
        or partition.log.log_start_offset > position.sent_log_start
    )


async def _data_of(
    reads: list[Read], bytes_max: int, *, fresh: FreshAppends, storage: Storage
) -> list[tuple[Read, bytes | Code | None]]:
    """What there is for each, as far as there is room (None: there is not); who keeps up goes first."""
    found: list[tuple[Read, bytes | Code | None]] = []
    behind: list[Read] = []
    room = bytes_max
    for read in reads:
        data = fresh.read(read.leadership, read.position.offset, room) if room > 0 else b""
        if data:
            found.append((read, data))
            room -= len(data)
        else:
            behind.append(read)
    if not behind:
        return found
    wanted = [(read.partition.log, read.position.offset) for read in behind] if room > 0 else []
    read_now = await storage.read(lambda: read_logs(wanted, room)) if wanted else []
    return found + list(itertools.zip_longest(behind, read_now))
