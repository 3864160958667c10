"""Reading what is committed: Fetch (long poll), Consume (stream).

Consumers see records below the high watermark only. An offset between the high watermark and the log end is not an
error: the high watermark of a new leader may be behind the true one for a moment.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerId
from regnum_service.clock import Clock, SystemClock
from regnum_service.limits.held_bytes import Holding
from regnum_service.slices import Turns, slices
from regnum_telemetry.instruments import broker as instruments
from regnum_telemetry.metrics import Metrics

from regnum_broker.log.epochs import EpochEnd
from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.partition import Partition
from regnum_broker.replication.purgatory import LongPoll
from regnum_broker.replication.replicas import NotHere, Replicas
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.error_counts import ErrorCounts
from regnum_broker.serving.fetching.admission import Admission, check, check_form, check_new
from regnum_broker.serving.fetching.nearby import NearbyReplicas
from regnum_broker.serving.fetching.reader import Reader, Wanted
from regnum_broker.serving.fetching.reading import Found
from regnum_broker.serving.fetching.requests import Content, FetchPartition, FetchRequest, FetchResponse, FetchResult
from regnum_broker.serving.topic_traffic import TopicTraffic
from regnum_broker.storage import Storage

FETCH_BYTES_DEFAULT: Final = 8 * 1024 * 1024
FETCH_BYTES_MAX: Final = 32 * 1024 * 1024
"""About the largest answer, whatever is asked for; leaves room below the message limit."""

CONSUME_BYTES: Final = 1024 * 1024
"""About how many bytes of batches one step of a stream carries."""

WAIT_S_MAX: Final = 60.0
SLICE: Final = 500
"""Partitions looked at between two turns of the event loop (safety rule S22)."""

REST: Final = 4
"""So many times as long as a read took, a call that found too little waits at least before it reads all of it again:
however often something is committed, it takes a fifth of a reader thread at most."""

IDLE_S: Final = 30.0
"""How often a stream without news looks whether it is still in the right place."""


class Quota(Protocol):
    """What a call may read (``limits.throttling.ReadQuota``)."""

    @property
    def most_bytes(self) -> float:
        """No answer is to be larger."""

    @property
    def owed_s(self) -> float:
        """For so long nothing is to be read."""

    async def wait(self) -> None:
        """Return when something may be read."""


_LEADS_ANEW: Final = (
    "this broker leads in another epoch than when the stream began; ask again from the last record that was read"
)


class FetchHandler:
    """Serves Fetch and Consume. Belongs to the event loop."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        leaders: CurrentLeaders,
        storage: Storage,
        nearby: NearbyReplicas | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        traffic: TopicTraffic | None = None,
    ) -> None:
        """Only assigns.

        Args:
            replicas: what is read.
            leaders: who leads what does not lead here.
            storage: reads.
            nearby: sends consumers to replicas near them, and serves those who were sent; None: only leaders serve.
            clock: times the calls; the machine's when None.
            metrics: where they are counted; None: nobody asks.
            traffic: where what they send is counted by topic; None: nobody asks.
        """
        counted = metrics or Metrics()
        self._traffic: Final = traffic or TopicTraffic()
        self._errors: Final = ErrorCounts(counted, instruments.FETCH_ERRORS)
        self._clock: Final = clock or SystemClock()
        self._bytes: Final = counted.counter(instruments.BYTES_OUT)
        self._records: Final = counted.counter(instruments.RECORDS_OUT)
        self._durations: Final = counted.histogram(instruments.FETCH_DURATION)
        self._admission: Final = Admission(replicas, leaders)
        self._leaders: Final = leaders
        self._nearby: Final = nearby
        self._reader: Final = Reader(storage)

    def causes(self, request: FetchRequest) -> list[tuple[str, int, str]]:
        """What made this broker leader of the partitions of a request: topic id, number, cause; only what is known."""
        causes: list[tuple[str, int, str]] = []
        for item in request.partitions:
            found = self._admission.find(item)
            if isinstance(found, Leadership) and found.cause:
                causes.append((found.partition.key.topic_id, found.partition.key.partition, found.cause))
        return causes

    async def fetch(
        self,
        request: FetchRequest,
        *,
        waitable_s: float = math.inf,
        holding: Holding | None = None,
        quota: Quota | None = None,
    ) -> FetchResponse:
        """Read; wait for ``min_bytes`` as long as ``max_wait_ms`` says, and ``waitable_s`` at most.

        While its caller's quota allows nothing, the answer is made at once and has no records.

        Args:
            request: what is wanted.
            waitable_s: how long its caller waits for the answer.
            holding: counts the bytes of the answer, which its caller lets go of once it is sent; None: nobody does.
            quota: what may be read; None: everything.

        Raises:
            RegnumError: the request contradicts itself, or there is no memory for the answer.
        """
        began_s = self._clock.monotonic()
        check(request)
        total_max = min(request.max_bytes or FETCH_BYTES_DEFAULT, FETCH_BYTES_MAX)
        if quota is not None:
            total_max = int(min(total_max, max(1.0, quota.most_bytes)))
        results: list[FetchResult] = []
        wanted: dict[int, Wanted] = {}
        refused = False
        turns = Turns(SLICE)
        asked: set[tuple[str, str, int]] = set()
        for index, item in enumerate(request.partitions):
            await turns.took()
            check_new(item, asked)
            results.append(FetchResult(item.topic, item.partition, item.content))
            found = self._replica_of(item)
            replica = self._elsewhere(found, item, request.client_rack)
            if isinstance(found, NotHere | EpochEnd):
                refused = True
                _tell_why(results[index], found)
            elif replica is not None:
                refused = True
                results[index].preferred_read_replica = replica
            else:
                bytes_max = min(item.max_bytes or total_max, total_max)
                partition = found.partition if isinstance(found, Leadership) else found
                wanted[index] = Wanted(
                    partition=partition, role=partition.role, offset=item.offset, bytes_max=bytes_max
                )
        wait_s = 0.0 if refused else min(request.max_wait_ms / 1000, WAIT_S_MAX, waitable_s)
        read = await self._read_in_time(
            request, wanted, results, total_max=total_max, wait_s=wait_s, holding=holding, quota=quota
        )
        self._count(read)
        async for part in slices(results, SLICE):
            for result in part:
                self._complete(result)
        self._durations.record(self._clock.monotonic() - began_s)
        return FetchResponse(results)

    async def _read_in_time(
        self,
        request: FetchRequest,
        wanted: dict[int, Wanted],
        results: list[FetchResult],
        *,
        total_max: int,
        wait_s: float,
        holding: Holding | None,
        quota: Quota | None,
    ) -> Found:
        """Read until there are ``min_bytes``, or the time is over."""
        bytes_min = min(request.min_bytes, total_max)
        read = Found()
        with LongPoll([item.partition.committed for item in wanted.values()], wait_s=wait_s) as poll:
            while True:
                over = quota is not None and quota.owed_s > 0.0
                if over and read.size_bytes:
                    # Others have used up the quota meanwhile; what was found before is handed out.
                    return read
                room = 0 if over else total_max
                began_s = self._clock.monotonic()
                read = await self._reader.read(wanted, results, form=request.form, total_max=room, holding=holding)
                if over or read.failed or read.size_bytes >= bytes_min or not wait_s:
                    return read
                rest_s = (self._clock.monotonic() - began_s) * REST if read.size_bytes else 0.0
                if not await poll.moved(rest_s=rest_s):
                    return read

    def _replica_of(self, item: FetchPartition) -> Leadership | Partition | NotHere | EpochEnd:
        """What is read: as leader, or as a follower for whoever was sent here; or why not."""
        found = self._admission.compare(item)
        if isinstance(found, NotHere) and found.code == errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER and self._nearby:
            followed = self._nearby.followed(item)
            return found if followed is None else followed
        return found

    def _elsewhere(
        self, found: Leadership | Partition | NotHere | EpochEnd, item: FetchPartition, client_rack: str
    ) -> BrokerId | None:
        """The replica to read from instead; None: here."""
        if self._nearby is None or not isinstance(found, Leadership):
            return None
        return self._nearby.preferred(found, item, client_rack=client_rack)

    def _complete(self, result: FetchResult) -> None:
        """What an answer says besides what was read."""
        self._leaders.complete(result)
        if result.error_code:
            self._errors.add(result.error_code)

    def _count(self, found: Found) -> None:
        for topic, records, size_bytes in found.by_topic:
            self._traffic.of(topic).sent(records, size_bytes)
        self._bytes.add(found.size_bytes)
        self._records.add(found.records)

    async def consume(
        self,
        asked: FetchPartition,
        *,
        form: int,
        make_content: Callable[[], Content],
        waitable_s: float = math.inf,
        holding: Holding | None = None,
        quota: Quota | None = None,
    ) -> AsyncIterator[FetchResult]:
        """The records of one partition from an offset on, until an error ends the stream or ``waitable_s`` are over.

        A caller who gave a deadline and for whom nothing came gets one answer without records.

        Args:
            asked: where to begin; what the caller knows of epochs is compared once.
            form: one of ``RecordForm``.
            make_content: makes the place for the content of an answer.
            waitable_s: for so long it goes on.
            holding: counts the bytes of each answer until the next is asked for; a stream for which there is no memory
                waits. None: nobody counts.
            quota: a stream whose caller's quota allows nothing waits; None: there is none.

        Raises:
            RegnumError: there is no such form.
        """
        check_form(form)
        offset, answered, came = asked.offset, False, True
        first: Leadership | None = None
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + waitable_s
        while not answered or now_s() < until_s:
            item = asked if first is None else FetchPartition(asked.topic, asked.partition, offset, 0, asked.topic_id)
            result = FetchResult(asked.topic, asked.partition, make_content())
            found = self._admission.compare(item)
            if first is not None and isinstance(found, Leadership) and found is not first:
                # It may have lost what was read, and gone on with other records, between the two.
                found = NotHere(errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER, _LEADS_ANEW)
            if not isinstance(found, Leadership):
                _tell_why(result, found)
                self._complete(result)
                yield result
                return
            first = found
            wanted = Wanted(partition=found.partition, role=found, offset=offset, bytes_max=CONSUME_BYTES)
            with LongPoll([wanted.partition.committed], wait_s=min(IDLE_S, max(0.0, until_s - now_s()))) as poll:
                # Nothing comes also where compaction has left no record up to the high watermark.
                if wanted.offset >= wanted.partition.high_watermark or not came:
                    await poll.moved()
            if offset < wanted.partition.high_watermark:
                await _may_read(quota, holding)
            next_offset = await self._step(wanted, result, form=form, holding=holding)
            self._complete(result)
            came = next_offset > offset
            if result.error_code or came or (not answered and now_s() >= until_s):
                answered = True
                yield result
                if result.error_code:
                    return
            # A stream at rest keeps nothing of what it answered.
            del result
            if holding is not None:
                holding.become(0)
            offset = next_offset

    async def _step(self, wanted: Wanted, result: FetchResult, *, form: int, holding: Holding | None) -> int:
        """One read of a stream; returns the offset to go on from."""
        most = wanted.bytes_max
        self._count(
            await self._reader.read({0: wanted}, [result], form=form, total_max=most, holding=holding, waits=True)
        )
        next_offset = result.content.next_offset
        return wanted.offset if next_offset < 0 else next_offset


async def _may_read(quota: Quota | None, holding: Holding | None) -> None:
    """Return when a stream may read its next records, and there is memory for them."""
    if quota is not None:
        await quota.wait()
    if holding is not None:
        await holding.wait_for(CONSUME_BYTES)


def _tell_why(result: FetchResult, found: NotHere | EpochEnd) -> None:
    if isinstance(found, NotHere):
        result.error_code, result.error_message = found.code, found.message
        return
    # And nothing of where this log stands: what was lost is to be settled first (defect D5).
    result.diverging_epoch = found
