"""The leader's side of a fetch stream: what one follower broker was told of which partitions, and what is new.

A session costs what changes: idle partitions are neither sent nor looked at. A partition whose records, divergence or
error were sent is left alone until the follower names its new position. A high watermark that moved wakes nobody, but
rides on the next answer, whatever that is about: a follower that may lead next must not be behind by more than a wait.

What a throttle holds back is set aside until there is room again (``held_back``): else each record of another
partition would have all of a broker's moving replicas looked at.

One task takes requests up and answers, and gives the loop turns while it looks at thousands of partitions: roles and
logs may change between two partitions, as they may between two answers. When an answer may go is for ``window`` to say.
"""

import asyncio
import itertools
import math
from collections import deque
from collections.abc import Callable
from typing import Final

from regnum.replication.v1 import replication_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import PartitionKey, TopicId
from regnum_service.clock import Clock
from regnum_service.errors import Code, RegnumError
from regnum_service.slices import Turns
from regnum_telemetry.metrics import Counter

from regnum_broker.replication.decisions.window import Window
from regnum_broker.replication.leader import FollowerStream, Leadership
from regnum_broker.replication.partition import Partition
from regnum_broker.replication.purgatory import Signal
from regnum_broker.replication.sessions.allowance import Allowance
from regnum_broker.replication.sessions.fetch_positions import (
    UNSENT,
    Answer,
    Commits,
    Position,
    Read,
    add_refusal,
    add_to,
    compared,
    data_of,
    divergence,
    has_moved,
    is_compared,
    refusal,
    to_compare,
    unsubscribe,
)
from regnum_broker.replication.sessions.follower_streams import FollowerStreams
from regnum_broker.replication.sessions.fresh_appends import Batches, FreshAppends
from regnum_broker.replication.sessions.held_back import HeldBack
from regnum_broker.replication.sessions.marks import to_wire
from regnum_broker.replication.throttle import Meter
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
        sent_bytes: Counter | None = None,
    ) -> None:
        self._fresh: Final = fresh or FreshAppends()
        self._sent_bytes: Final = sent_bytes or Counter()
        self._allowance: Final = Allowance(throttle or Meter(clock))
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
        self._window: Final = Window()
        self._patience_s = 0.0
        """When an answer is sent with nothing in it."""
        self._busy, self._moved_s = False, -math.inf
        self._attentive = False
        """Whether what is new would be sent now: else it is noted, and nobody is woken for it."""
        self._stream: FollowerStream | None = None
        self._unordered: Final[set[PartitionKey]] = set()
        """Partitions for which this broker has no order yet. They are looked at each time."""
        self._held_back: Final = HeldBack(self._allowance, clock)
        self.answer_bytes = 0
        """Bytes of records in the newest answer, counted as they go in: to take them out again is to copy them."""
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
        self._allowance.rest()
        if self._stream is not None:
            self._streams.closed(self._stream)
        for position in self._positions.values():
            unsubscribe(position)
        self._positions.clear()

    def moved(self, key: PartitionKey) -> None:
        """A partition of the session has something new."""
        self._dirty[key] = None
        self._moved_s = self._clock.monotonic()
        if self._attentive:
            self._wake.set()

    async def next_answer(self) -> Answer | None:
        """The next answer, as soon as there is something to say and the follower may be sent it; None: the end.

        Raises:
            RegnumError: the requests do not belong together, or come from an earlier life of the follower.
        """
        window = self._window
        while True:
            self._wake.clear()
            while self._requests and self._may_take_up(self._requests[0]):
                await self._take_up(self._requests.popleft())
            if self._ended and not window.idle:
                return None
            now_s = self._clock.monotonic()
            opens_s = window.opens_s(busy=self._busy, moved_s=self._moved_s)
            if opens_s <= now_s:
                self._attentive = True
                answer = await self._collect(window.room_bytes)
                if self._is_due(answer):
                    return self._sent(answer)
                opens_s = self._patience_s if window.idle else math.inf
                opens_s = min(opens_s, now_s + self._held_back.pause_s())
            await _set_by(self._wake, opens_s - now_s)

    @property
    def is_busy(self) -> bool:
        """Whether there was something to send when the newest request came: more is to be expected."""
        return self._busy

    def _may_take_up(self, request: replication_pb2.FetchReplicaRequest) -> bool:
        """Whether the next request is looked at now.

        A follower that does not say what it has taken (one of before) counts an answer for each request, and throws
        away what an answer says of a partition that it named after the request which that answers.
        """
        return request.HasField("answers_taken") or self._window.sent >= self._window.requests

    async def _take_up(self, request: replication_pb2.FetchReplicaRequest) -> None:
        self._stream = stream = self._streams.identify(request, self._stream, now_s=self._clock.monotonic())
        taken = request.answers_taken if request.HasField("answers_taken") else None
        if not self._window.asked(taken, bytes_max=min(max(request.max_bytes, 1), ANSWER_BYTES_MAX)):
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST,
                f"{taken} answers taken: {self._window.sent} were sent, and {self._window.taken} were taken before",
            )
        self._allowance.take(request)
        self._patience_s = self._clock.monotonic() + min(request.max_wait_ms / 1000, WAIT_S_MAX)
        await self._take_positions(request, stream)
        # What waits for an order says nothing of the load.
        self._busy = len(self._dirty) > len(self._unordered.intersection(self._dirty))

    def _is_due(self, answer: Answer) -> bool:
        """Whether it is sent now; else what there is to say waits for more."""
        if answer.partitions or self._ended or len(self._watermarks) >= WATERMARKS_MAX:
            return True
        hurried = self._window.hurried or bool(self._requests)
        return self._window.idle and (hurried or self._clock.monotonic() >= self._patience_s)

    def _sent(self, answer: Answer) -> Answer:
        self._attentive = False
        self._add_watermarks(answer)
        answer.requests_taken = self._window.requests
        self._window.answered(self.answer_bytes, now_s=self._clock.monotonic())
        return answer

    async def _take_positions(self, request: replication_pb2.FetchReplicaRequest, stream: FollowerStream) -> None:
        turns = Turns(SLICE)
        for forgotten in request.forgotten:
            key = PartitionKey(TopicId(forgotten.topic_id), forgotten.partition)
            if (position := self._positions.pop(key, None)) is not None:
                unsubscribe(position)
                self._dirty.pop(key, None)
                self._held_back.forget(key)
                self._watermarks.pop(key, None)
                self._unordered.discard(key)
            await turns.took()
        for wanted in request.positions:
            key = PartitionKey(TopicId(wanted.topic_id), wanted.partition)
            position = self._positions.get(key)
            if position is None:
                position = self._positions[key] = Position(self, key, Commits(key, self._watermarks))
            position.take(wanted, answers_taken=self._window.taken)
            partition = self._subscribe(position)
            self._count(position, partition, stream)
            if not position.counted or partition is None or position.next_offset != partition.log.log_end_offset:
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
        leadership = _leadership(partition)
        if is_compared(position, partition) and divergence(position, partition) is None:
            position.counted, position.last_batch, position.own_batch = True, None, None
            now_s = self._clock.monotonic()
            if leadership.record_fetch(stream, offset=position.offset, now_s=now_s):
                leadership.record_log_start(stream.broker, position.log_start)
            if leadership.wanted_change(now_s) is not None:
                self._caught_up(leadership)

    def _refusal(self, position: Position, partition: Partition | None) -> Code | None:
        return refusal(position, partition, None if self._stream is None else self._stream.broker)

    async def _collect(self, bytes_max: int) -> Answer:
        """Everything new that needs an answer now; what did not fit stays for the next one."""
        answer, self.answer_bytes = Answer(), 0
        reads: list[Read] = []
        turns = Turns(SLICE)
        if self._held_back.may_go(bytes_max):
            self._dirty = {**self._held_back.let_go(), **self._dirty}
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
                self._unordered.add(key)
                continue
            self._unordered.discard(key)
            if (read := to_compare(position, partition, refused)) is not None:
                reads.append(read)
            elif partition is None or refused is not None:
                self._refuse(answer, position, partition, refused or errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID)
            else:
                self._look(answer, reads, position, partition)
            if len(reads) + len(answer.partitions) >= CHANGES_MAX:
                self._dirty = dict.fromkeys((*looking, *self._dirty))
        await self._compare(answer, reads)
        throttled, free = _parted(reads, self._is_throttled)
        if throttled:
            room = await self._read(answer, free, bytes_max) if free else bytes_max
            await self._read_throttled(answer, throttled, room)
        elif reads:
            await self._read(answer, reads, bytes_max)
        return answer

    def _is_throttled(self, read: Read) -> bool:
        return self._stream is not None and read.leadership.is_throttled(self._stream.broker, self._clock.monotonic())

    async def _read_throttled(self, answer: Answer, reads: list[Read], bytes_max: int) -> None:
        """What goes to new replicas, as far as this broker and the follower allow."""
        self._allowance.want()
        room, first, before = self._allowance.room(bytes_max), len(answer.partitions), self.answer_bytes
        if room > 0:
            await self._read(answer, self._held_back.portion(reads), room)
            for item in answer.partitions[first:]:
                item.throttled = bool(item.records)
            self._allowance.count(self.answer_bytes - before)
        kept = [read.position.key for read in reads if _goes_on(read)]
        for key in kept:
            self._dirty.pop(key, None)
        self._held_back.hold(kept)
        if not kept:
            self._allowance.rest()

    def _look(self, answer: Answer, reads: list[Read], position: Position, partition: Partition) -> None:
        """What a partition that may be answered has to say."""
        leadership = _leadership(partition)
        diverging = divergence(position, partition)
        if diverging is not None:
            item = add_to(answer, position, partition)
            item.diverging_epoch.CopyFrom(diverging)
            if (own_batch := to_wire(position.own_batch)) is not None:
                item.own_batch.CopyFrom(own_batch)
            # The follower goes back and takes nothing else from this answer.
            position.sent_high_watermark = UNSENT
            self._await(position)
            return
        if not position.counted and self._stream is not None:
            # It waited for this broker to become leader, or was compared.
            self._count(position, partition, self._stream)
            self._watermarks[position.key] = None
        if position.next_offset < partition.log.log_end_offset:
            reads.append(Read(position, partition, leadership))

    async def _compare(self, answer: Answer, reads: list[Read]) -> None:
        """Take those that are to be compared out of the reads, compare them, and look at them again."""
        uncompared = [read for read in reads if read.position.last_batch is not None]
        if not uncompared:
            return
        reads[:] = [read for read in reads if read.position.last_batch is None]
        turns = Turns(SLICE)
        for read, refused in await compared(uncompared, storage=self._storage, refusal=self._refusal):
            await turns.took()
            if read.partition.role is not read.leadership:
                self._dirty[read.position.key] = None
            elif refused is None:
                self._look(answer, reads, read.position, read.partition)
            else:
                self._refuse(answer, read.position, read.partition, refused)

    def _refuse(self, answer: Answer, position: Position, partition: Partition | None, code: Code) -> None:
        add_refusal(answer, position, partition, code)
        position.sent_high_watermark = UNSENT
        self._await(position)

    def _await(self, position: Position) -> None:
        """Say no more of it until the follower has taken the present answer and named it."""
        position.awaited = True
        position.named_in = self._window.sent + 1

    async def _read(self, answer: Answer, reads: list[Read], bytes_max: int) -> int:
        """Add records to an answer; how many bytes of what it may have are left."""
        left = bytes_max
        turns = Turns(SLICE)
        for read, data in await data_of(reads, bytes_max, fresh=self._fresh, storage=self._storage):
            await turns.took()
            position, partition = read.position, read.partition
            if data is None:
                # No room any more; these are first in the next answer.
                self._dirty[position.key] = None
                continue
            if partition.role is not read.leadership or position.key not in self._positions:
                self._dirty[position.key] = None
            elif isinstance(data, Batches):
                if data.data:
                    add_to(answer, position, partition).records = data.data
                    left -= len(data.data)
                    self._follow_up(read, data.end_offset)
            else:
                self._refuse(answer, position, partition, data)
        self._sent_bytes.add(bytes_max - left)
        self.answer_bytes += bytes_max - left
        return left

    def _follow_up(self, read: Read, end_offset: int) -> None:
        """Batches up to there are in the answer."""
        position = read.position
        if not self._window.piped or self._is_throttled(read):
            self._await(position)
            return
        position.named_in = self._window.sent + 1
        position.next_offset = end_offset
        if end_offset < read.partition.log.log_end_offset:
            self._dirty[position.key] = None

    def _add_watermarks(self, answer: Answer) -> None:
        """Add high watermarks and log starts that moved since they were sent; more than fit ride on the next one."""
        for key in tuple(itertools.islice(self._watermarks, WATERMARKS_MAX)):
            del self._watermarks[key]
            position, partition = self._positions.get(key), self._find(key)
            # What is awaited is looked at again when the follower names it.
            if (
                position is not None
                and not position.awaited
                and position.last_batch is None
                and partition is not None
                and has_moved(position, partition)
                and self._refusal(position, partition) is None
                and divergence(position, partition) is None
            ):
                add_to(answer, position, partition)


def _leadership(partition: Partition) -> Leadership:
    """That of a partition of which fetches are not refused, or only for their offset."""
    assert isinstance(partition.role, Leadership), "no refusal means leading"  # noqa: S101
    return partition.role


def _goes_on(read: Read) -> bool:
    """Whether it has more to say, under the leadership under which it was looked at."""
    return not read.position.awaited and read.partition.role is read.leadership


def _parted(reads: list[Read], is_throttled: Callable[[Read], bool]) -> tuple[list[Read], list[Read]]:
    """Those that a throttle concerns, and the others. Each is asked about once."""
    throttled: list[Read] = []
    free: list[Read] = []
    for read in reads:
        (throttled if is_throttled(read) else free).append(read)
    return throttled, free


async def _set_by(wake: asyncio.Event, within_s: float) -> None:
    """Return when it is set, or as if it had been after that time."""
    if within_s == math.inf:
        await wake.wait()
        return
    # A timer, and no time-out: idle streams are what a broker at rest spends its time on.
    timer = asyncio.get_running_loop().call_later(within_s, wake.set)
    try:
        await wake.wait()
    finally:
        timer.cancel()
