"""Following: one fetch stream for each leader broker, for all partitions that are followed there.

Goals: an acknowledgement waits for as few hops as possible; a follower's log becomes and stays a prefix of its
leader's.

Algorithm: a request names the partitions whose position changed, an answer only those with something to say; once it
is stored, the next request goes out at once and tells the leader so. Meanwhile the leader may have sent more, which
follows what came before: answers are stored in their order, and each is followed by a request. A partition of which an
answer was not stored *restarts*: what is on its way is passed over until the leader has been told where to begin.

When there is more to name (partitions that were added) while the leader waits for something to say, one more request is
sent, and the leader answers at once; what comes after that goes with the next.

Before a leader sends records, or counts what the follower has, it compares the epoch of the follower's last batch with
its own log and answers ``diverging_epoch`` where they differ (KIP-279, KIP-320; the high watermark decides nothing,
defect D1): the follower then truncates, takes nothing else from that answer (D5), and asks again. The leader epoch that
a position carries fences both ways (D4).
"""

import asyncio
import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import grpc
import structlog
from regnum.replication.v1 import replication_pb2, replication_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_model.nodes import Address
from regnum_service import addressee
from regnum_service.cancellation import heeding
from regnum_service.channel import Channels
from regnum_service.clock import Clock
from regnum_service.errors import Code, reason_of
from regnum_service.slices import Turns, slices
from regnum_service.status import from_rpc_error
from regnum_telemetry.metrics import Counter

from regnum_broker.identity import Identity
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.replication.decisions.answer_size import AnswerSize
from regnum_broker.replication.decisions.histories import mark_of
from regnum_broker.replication.filling import Filling
from regnum_broker.replication.followed import (
    Followed,
    Outcome,
    Stored,
    recall_last_batches,
    record_truncation,
    store,
    stored,
    take_high_watermark,
    take_truncations,
)
from regnum_broker.replication.partition import Following, Partition
from regnum_broker.replication.pauses import Pauses
from regnum_broker.replication.sessions.breaks import Breaks, TellBreak, untold
from regnum_broker.replication.sessions.marks import to_wire
from regnum_broker.replication.throttle import UNLIMITED, Meter
from regnum_broker.storage import Storage

MAX_WAIT_MS: Final = 500
"""How long a leader may hold a request back."""

ANSWER_TIMEOUT_S: Final = 5.0
"""An answer that has not come after this time and MAX_WAIT_MS never will."""

SLICE: Final = 500
"""Partitions named, or taken up, between two turns of the event loop (safety rule S22)."""

STORED_AT_ONCE_MAX: Final = 200
"""Partitions of one answer that are one job for the writer: appends of others go between two of them."""

RECONNECT_S_MIN: Final = 0.05
RECONNECT_S_MAX: Final = 1.0

PAUSES_S: Final[Mapping[int, float]] = {
    errors_pb2.ERROR_CODE_UNKNOWN_LEADER_EPOCH: 0.02,
    errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID: 0.1,
    errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER: 0.1,
}
"""Pause before a partition is asked for again after an error that ends by itself."""

STORED: Final = frozenset(
    {
        errors_pb2.ERROR_CODE_NONE,
        errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE,
        errors_pb2.ERROR_CODE_CORRUPT_MESSAGE,
    }
)
"""Errors after which the log here is looked at, or changed, by the writer."""

PAUSE_S: Final = 1.0
"""The same after any other error."""

REFUSED_FOR_S: Final = 10.0
"""A partition that was refused so shortly ago counts as one that is not served: it is asked for again every second."""

StreamCall = Any
"""grpc.aio.StreamStreamCall, whose stubs are generic and whose class is not."""


class LeaderStream:
    """The fetch stream to one leader broker."""

    def __init__(
        self,
        leader: BrokerId,
        *,
        broker: BrokerId,
        address: Callable[[], Address | None],
        identity: Callable[[], Identity | None],
        channels: Channels,
        storage: Storage,
        clock: Clock,
        move_start: Callable[[PartitionKey, int], None],
        throttle: Meter | None = None,
        received_bytes: Counter | None = None,
        tell_break: TellBreak = untold,
    ) -> None:
        """Only assigns.

        Args:
            leader: the broker at the other end.
            broker: this one.
            address: its internal listener; None: not known.
            identity: the present registration of this broker; None: there is none.
            channels: connections to others.
            storage: where records go.
            clock: source of time.
            move_start: has the log of a replica begin later, soon.
            throttle: how fast new replicas may be filled.
            received_bytes: where what comes is counted.
            tell_break: told when a stream that was answered breaks, and when another one is answered.
        """
        self._breaks: Final = Breaks(leader, tell_break)
        self._received_bytes: Final = received_bytes or Counter()
        self._move_start: Final = move_start
        self._filling: Final = Filling(throttle or Meter(clock))
        self._size: Final = AnswerSize()
        self._leader: Final = leader
        self._broker: Final = broker
        self._address: Final = address
        self._identity: Final = identity
        self._channels: Final = channels
        self._storage: Final = storage
        self._clock: Final = clock
        self._log: Final = structlog.get_logger("follower").bind(leader=leader)
        self._followed: Final[dict[PartitionKey, Followed]] = {}
        self._changed: dict[PartitionKey, None] = {}
        """Those whose position the leader has to be told, but for some that pause."""
        self._pauses: Final = Pauses()
        self._forgotten: Final[dict[PartitionKey, None]] = {}
        self._moved: Final = asyncio.Event()
        self._due = False
        """Whether a request would name what the one before did not."""
        self._sending: Final = asyncio.Lock()
        self._sent = self._answered = self._taken = 0
        """Requests sent, answers that came, and answers that were carried out, on the present stream."""
        self._interrupted = False
        """Whether one more request was sent since the last answer."""
        self._heard = 0
        self.heard_s = -math.inf
        """Moment of the newest answer, monotonic seconds."""
        self._storing = False

    def add(self, partition: Partition, following: Following) -> None:
        """Fetch a partition from now on."""
        self._forgotten.pop(partition.key, None)
        self._followed[partition.key] = Followed(partition, following)
        if following.filled:
            self._filling.add(partition.key)
        else:
            self._filling.remove(partition.key)
        self._changed[partition.key] = None
        self._due = True
        self._moved.set()

    def remove(self, key: PartitionKey) -> None:
        """Fetch it no longer."""
        if self._followed.pop(key, None) is not None:
            self._changed.pop(key, None)
            self._forgotten[key] = None
            self._filling.remove(key)

    def serves(self, key: PartitionKey) -> bool:
        """Whether the leader answers, and has not refused a partition lately. An idle partition is served, too."""
        followed = self._followed.get(key)
        if followed is None or followed.taken_from is None or not self._answered or self._address() is None:
            return False
        return self._clock.monotonic() - followed.not_before_s >= REFUSED_FOR_S

    @property
    def answers(self) -> int | None:
        """How many answers the leader has given so far; None while it is not this leader that is waited for."""
        idle = not self._followed or self._storing or self._address() is None or self._identity() is None
        return None if idle else self._heard

    async def run(self) -> None:
        """Fetch for ever; a task of the supervisor."""
        pause_s = RECONNECT_S_MIN
        while True:
            if not self._followed:
                await self._moved.wait()
            self._moved.clear()
            address = self._address()
            if address is None or self._identity() is None:
                await self._clock.sleep(RECONNECT_S_MIN)
                continue
            try:
                reason = await self._stream(address)
            except (grpc.RpcError, asyncio.InvalidStateError) as error:
                states = (followed.partition.ordered for followed in self._followed.values())
                self._breaks.broke(states, answers=self._answered)
                known = from_rpc_error(error) if isinstance(error, grpc.RpcError) else "the connection broke"
                reason = str(known)
            except TimeoutError:
                reason = "no answer in time"
            self._log.info("fetch stream ended", reason=reason, answers=self._answered)
            # A channel of its own for each attempt: this loop paces, not the channel.
            await self._channels.drop(address, addressee.broker(self._leader))
            pause_s = RECONNECT_S_MIN if self._answered else min(pause_s * 2, RECONNECT_S_MAX)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._moved.wait()

    async def _stream(self, address: Address) -> str:
        """Run one stream to its end; returns why it ended."""
        for followed in self._followed.values():
            followed.taken_from = None
        self._changed = dict.fromkeys(self._followed)
        self._forgotten.clear()
        self._sent = self._answered = self._taken = 0
        self._interrupted = False
        channel = self._channels.get(address, addressee.broker(self._leader))
        call: StreamCall = replication_pb2_grpc.ReplicationServiceStub(channel).FetchReplica()
        sender = asyncio.create_task(self._interrupt(call), name=f"fetch from {self._leader}: additions")
        try:
            await self._send(call)
            while True:
                async with asyncio.timeout(ANSWER_TIMEOUT_S + MAX_WAIT_MS / 1000):
                    answer = await heeding(call.read())
                if sender.cancelled():
                    return "the task that adds partitions to the stream was cancelled from outside"
                if answer is grpc.aio.EOF:
                    return "the leader ended the stream"
                self._answered += 1
                self._breaks.answered()
                self._filling.answered()
                self._heard += 1
                self.heard_s = self._clock.monotonic()
                self._storing = True
                try:
                    # A leader of before answers requests one by one.
                    requests_taken = answer.requests_taken or self._answered
                    await self._take(answer.partitions, requests_taken)
                    self._filling.taken(answer.partitions, requests_taken=requests_taken)
                finally:
                    self._storing = False
                self._taken = self._answered
                if self._identity() is None or self._address() != address:
                    return "the registration or the leader's address changed"
                ahead = 0 if answer.requests_taken else self._sent - self._answered
                self._interrupted = ahead > 0
                if ahead <= 0 or (self._due and ahead == 1):
                    await self._send(call)
        finally:
            sender.cancel()
            call.cancel()
            self._filling.ended()

    async def _interrupt(self, call: StreamCall) -> None:
        """Send one more request when partitions were added while the leader waits for something to say."""
        while True:
            await self._moved.wait()
            self._moved.clear()
            if self._due and self._sent and not self._storing and not self._interrupted:
                self._interrupted = True
                try:
                    await self._send(call)
                except (grpc.RpcError, asyncio.InvalidStateError):
                    # The reader sees the end of the stream as well, and the reason.
                    return

    async def _send(self, call: StreamCall) -> None:
        identity = self._identity()
        if identity is None:
            return
        async with self._sending:
            await call.write(await self._request(identity))

    async def _request(self, identity: Identity) -> replication_pb2.FetchReplicaRequest:
        """The next request. What is added, or removed, while it is put together goes with the one after it."""
        now_s, taken = self._clock.monotonic(), self._taken
        self._sent = number = self._sent + 1
        self._due = False
        forgotten = [
            replication_pb2.ForgottenPartition(topic_id=key.topic_id, partition=key.partition)
            for key in self._forgotten
        ]
        self._forgotten.clear()
        positions = []
        turns = Turns(SLICE)
        while (ended := self._pauses.ended(now_s)) is not None:
            self._changed[ended] = None
            await turns.took()
        keys = tuple(self._changed)
        async for logs in slices(_without_last_batch(self._followed, keys), SLICE):
            await self._storage.read_for_brokers(partial(recall_last_batches, logs))
        for key in keys:
            await turns.took()
            followed = self._followed.get(key)
            if followed is None or key not in self._changed:
                self._changed.pop(key, None)
                continue
            del self._changed[key]
            if followed.not_before_s > now_s:
                # It comes up by itself. In a failover thousands pause while requests are made for some others.
                continue
            if not (continues := followed.taken_from is not None):
                followed.taken_from = number
            positions.append(_position(key, followed, continues=continues))
        if self._answered > taken:
            # Positions may be of after an answer that is not counted, which the leader waits for: named once more.
            self._changed.update(dict.fromkeys(keys))
        # A partition that pauses is asked for again when its pause is over, not when the leader's patience is.
        wait_s = self._pauses.soonest_s - now_s
        wait_ms = MAX_WAIT_MS if wait_s == math.inf else min(MAX_WAIT_MS, math.ceil(wait_s * 1000))
        allowance = self._filling.allowance(number)
        if allowance == 0:
            wait_ms = self._filling.wait_ms(wait_ms)
        return replication_pb2.FetchReplicaRequest(
            replica_id=self._broker,
            broker_epoch=identity.broker_epoch,
            registration=identity.registration,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=self._size.wanted,
            positions=positions,
            forgotten=forgotten,
            throttled_bytes_max=None if allowance == UNLIMITED else allowance,
            answers_taken=taken,
            stores_nothing_because=self._storage.directory.no_room,
        )

    async def _take(self, answers: Sequence[replication_pb2.FetchedPartition], requests_taken: int) -> None:
        """Carry an answer out, sent after so many requests: jobs for the writer, and the high watermarks."""
        now_s = self._clock.monotonic()
        work: list[Stored] = []
        refused: dict[Code, list[Followed]] = {}
        turns = Turns(SLICE)
        for answer in answers:
            await turns.took()
            followed = self._followed.get(PartitionKey(TopicId(answer.topic_id), answer.partition))
            # An answer from before the present order, or to before a restart, is about another position.
            if followed is None or not followed.takes(requests_taken) or not followed.stands:
                continue
            if answer.error_code not in STORED:
                if self._pause(followed, answer, now_s):
                    refused.setdefault(answer.error_code, []).append(followed)
                continue
            followed.refused_with = errors_pb2.ERROR_CODE_NONE
            batches = answer.records
            if answer.throttled:
                self._filling.count(len(batches))
            if batches or answer.HasField("diverging_epoch") or answer.error_code:
                work.append(Stored(followed, answer, batches))
            else:
                self._take_watermarks(followed.partition, answer)
        for code, some in refused.items():
            # One line, however many they are: with a topic's deletion its leader refuses all that have not heard of it.
            partition = _name(some[0].partition)
            self._log.info("fetch refused", partition=partition, partitions=len(some), reason=reason_of(code))
        began_s = self._clock.monotonic()
        async for parts in slices(work, STORED_AT_ONCE_MAX):
            async for part, outcome in stored(parts, self._hand_in):
                self._settle(outcome, part)
        self._size.stored(sum(part.size_bytes for part in work), self._clock.monotonic() - began_s)

    async def _hand_in(self, work: Sequence[Stored]) -> asyncio.Future[list[Outcome]]:
        directory = self._storage.directory

        def append() -> list[Outcome]:
            with directory.many_appends():
                return [store(directory, part, broker=self._broker) for part in work]

        size_bytes = sum(part.size_bytes for part in work)
        self._received_bytes.add(size_bytes)
        storing = await self._storage.write_later(append, size_bytes=size_bytes, replicated=True)
        # Before anything that waits behind it in the writer's queue is heard of, and even if this stream is ended.
        storing.add_done_callback(take_truncations)
        return storing

    def _settle(self, outcome: Outcome, part: Stored) -> None:
        followed, answer = outcome.followed, part.answer
        if outcome.high_watermark_before > outcome.log_end:
            # The leader never had what this replica took for committed: an unclean election, or defect D6.
            self._log.error(
                "truncated below the high watermark",
                partition=_name(followed.partition),
                high_watermark=outcome.high_watermark_before,
                log_end=outcome.log_end,
            )
        if not followed.stands:
            return
        partition = followed.partition
        self._changed[partition.key] = None
        if outcome.error is not None or not part.batches:
            followed.taken_from = None
        if outcome.error is not None:
            self._ask_not_before(followed, self._clock.monotonic() + PAUSE_S)
            # On a full disk every partition is refused once a second: the first time says it all.
            if followed.not_stored != outcome.error:
                followed.not_stored = outcome.error
                self._log.warning("records not stored", partition=_name(partition), reason=outcome.error)
            return
        followed.not_stored = None
        self._due = True
        if answer.HasField("diverging_epoch") or answer.error_code:
            self._log.info("truncated", partition=_name(partition), log_end=outcome.log_end)
            if followed.following.cause and outcome.log_end < outcome.log_end_before:
                record_truncation(outcome, broker=self._broker)
        else:
            self._take_watermarks(partition, answer)

    def _take_watermarks(self, partition: Partition, answer: replication_pb2.FetchedPartition) -> None:
        start = take_high_watermark(partition, answer)
        if start is not None:
            self._move_start(partition.key, start)

    def start_moved(self, key: PartitionKey) -> None:
        """The log of a replica begins later now: the leader is told with the next request."""
        if key in self._followed:
            self._changed[key] = None
            self._due = True
            self._moved.set()

    def _pause(self, followed: Followed, answer: replication_pb2.FetchedPartition, now_s: float) -> bool:
        """Ask for a partition again later; returns whether it is refused so for the first time."""
        code = answer.error_code
        # At a fenced epoch only a newer order helps, which brings the partition here anew: PAUSE_S, if it is lost.
        self._ask_not_before(followed, now_s + PAUSES_S.get(code, PAUSE_S))
        followed.taken_from = None
        # Without a controller every partition is refused ten times a second: the first time says it all.
        first = followed.refused_with != code
        followed.refused_with = code
        return first

    def _ask_not_before(self, followed: Followed, moment_s: float) -> None:
        followed.not_before_s = moment_s
        self._pauses.add(followed.partition.key, moment_s)


def _without_last_batch(known: Mapping[PartitionKey, Followed], keys: Sequence[PartitionKey]) -> list[ReplicaLog]:
    """Logs whose last batch the leader is to be told, and is not in memory."""
    named = (known[key] for key in keys if key in known)
    logs = [followed.partition.log for followed in named if followed.taken_from is None]
    return [log for log in logs if log.last_batch is None and log.log_end_offset > log.log_start_offset]


def _name(partition: Partition) -> str:
    return f"{partition.topic}-{partition.key.partition}"


def _position(key: PartitionKey, followed: Followed, *, continues: bool) -> replication_pb2.FetchPosition:
    """Where a partition is to be fetched from, as its leader is told."""
    log = followed.partition.log
    end, epoch = _end_of(log)
    last = None if continues else mark_of(log.last_batch)
    if last is not None and (last.next_offset, last.leader_epoch) != (end, epoch):
        # The writer went on between the two.
        last = None
    return replication_pb2.FetchPosition(
        topic_id=key.topic_id,
        partition=key.partition,
        current_leader_epoch=followed.following.leader_epoch,
        fetch_offset=end,
        last_fetched_epoch=epoch,
        log_start_offset=log.log_start_offset,
        continues=continues,
        last_batch=to_wire(last),
    )


def _end_of(log: ReplicaLog) -> tuple[int, int]:
    """Log end and the epoch of the last record, of one moment: the writer may truncate between the two."""
    while True:
        end, epoch = log.log_end_offset, log.last_record_epoch
        if log.log_end_offset == end:
            return end, epoch
