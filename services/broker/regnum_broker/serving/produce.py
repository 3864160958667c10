"""Appending what clients produce.

Goals: a record is acknowledged only by a leader that led from the append to the answer; an idempotent producer's
repeat is answered with its first offset, and not before that is committed; bad input changes nothing.

Algorithm: admission on the event loop (leader, min.insync); then one job on the writer thread for every two hundred
partitions of the request: check the batch, check the sequence, assign offsets, append; then followers are woken. With
acks all the answer waits until the high watermark has passed the last record. A leader that is deposed after the append
answers NOT_ENOUGH_REPLICAS_AFTER_APPEND: the outcome is the next leader's to tell. NOT_LEADER_OR_FOLLOWER is kept for
what was not appended, because a producer may send that under another producer id.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, assert_never

import structlog
from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.topics import INTERNAL_TOPICS
from regnum_records.check import check_batch
from regnum_records.errors import BatchTooLargeError, CorruptBatchError, KeyMissingError
from regnum_service.clock import Clock
from regnum_service.errors import Code
from regnum_service.slices import Turns, slices
from regnum_service.supervisor import Supervisor
from regnum_telemetry import conventions, tracing
from regnum_telemetry.instruments import broker as instruments
from regnum_telemetry.metrics import Metrics

from regnum_broker.log.errors import DirectoryFailedError, ResourceExhaustedError, StorageError
from regnum_broker.log.replica.parts import Appended, AppendOutcome
from regnum_broker.log.replica.producers.states import Duplicate, Fenced, OutOfOrder
from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.purgatory import AckOutcome
from regnum_broker.replication.replicas import NotHere, Replicas
from regnum_broker.replication.sessions.fresh_appends import FreshAppends
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.error_counts import ErrorCounts
from regnum_broker.serving.produce_requests import batch_in, check_request, wrong_in
from regnum_broker.serving.topic_traffic import TopicTraffic
from regnum_broker.storage import Storage

TIMEOUT_MS_DEFAULT: Final = 30_000
TIMEOUT_MS_MAX: Final = 300_000
SLICE: Final = 200
"""Partitions looked at between two turns of the event loop (safety rule S22), and of one job of the writer."""

_BUSY: Final = (
    "more waits to be written here than this broker has memory for; nothing was appended: wait, and try again"
)
_DEPOSED: Final = "this broker was replaced as leader; refresh metadata and send the batch to the leader again"
_DEPOSED_AFTER_APPEND: Final = (
    "this broker was replaced as leader, or may have been, after it had appended the records; they may be committed:"
    " refresh metadata and send the batch to the leader again, with the same numbers"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """One admitted partition of a request."""

    index: int
    leadership: Leadership
    message: log_pb2.ProducePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refused:
    """Why nothing was appended."""

    code: Code
    message: str
    put_off: bool = False
    """The same may be taken later: there is no room now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """What was appended, now or at the first appearance of a duplicate."""

    base_offset: int
    last_offset: int
    duplicate: bool
    batch: bytes
    """As its producer made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnAppend:
    """What became of a batch of the broker's own."""

    code: Code
    """NONE: every in-sync replica has it."""
    message: str
    """Why not."""
    put_off: bool = False
    """Nothing was appended, and the same leader may take the same batch later."""


_Outcome = _Refused | _Done


class ProduceHandler:
    """Serves Produce. Belongs to the event loop."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        leaders: CurrentLeaders,
        storage: Storage,
        clock: Clock,
        batch_bytes_max: int,
        supervisor: Supervisor,
        fresh: FreshAppends | None = None,
        metrics: Metrics | None = None,
        traffic: TopicTraffic | None = None,
    ) -> None:
        self._fresh: Final = fresh or FreshAppends()
        counted = metrics or Metrics()
        self._traffic: Final = traffic or TopicTraffic()
        self._errors: Final = ErrorCounts(counted, instruments.PRODUCE_ERRORS)
        self._bytes: Final = counted.counter(instruments.BYTES_IN)
        self._records: Final = counted.counter(instruments.RECORDS_IN)
        self._refused: Final = counted.counter(instruments.BATCHES_REFUSED)
        self._durations: Final = counted.histogram(instruments.PRODUCE_DURATION)
        self._replicas: Final = replicas
        self._leaders: Final = leaders
        self._storage: Final = storage
        self._clock: Final = clock
        self._batch_bytes_max: Final = batch_bytes_max
        self._supervisor: Final = supervisor
        self._log: Final = structlog.get_logger("produce")

    async def produce(
        self, request: log_pb2.ProduceRequest, *, waitable_s: float = math.inf
    ) -> log_pb2.ProduceResponse:
        """Append and wait for acks, for ``waitable_s`` at most: the caller hears no later answer.

        Raises:
            RegnumError: the request contradicts itself.
        """
        began_s = self._clock.monotonic()
        check_request(request)
        acks = request.acks or log_pb2.ACKS_ALL
        results: list[log_pb2.ProduceResult] = []
        admitted: list[_Item] = []
        turns = Turns(SLICE)
        for index, message in enumerate(request.partitions):
            await turns.took()
            result = log_pb2.ProduceResult(topic=message.topic, partition=message.partition, base_offset=-1)
            results.append(result)
            found = self._admit(message, acks=acks)
            if isinstance(found, Leadership):
                admitted.append(_Item(index=index, leadership=found, message=message))
            else:
                _refuse(result, found.code, found.message)
        if admitted:
            timeout_s = min(min(request.timeout_ms or TIMEOUT_MS_DEFAULT, TIMEOUT_MS_MAX) / 1000, waitable_s)
            deadline_s = asyncio.get_running_loop().time() + timeout_s
            await self._append(admitted, results, acks=acks, deadline_s=deadline_s)
        refused = 0
        async for part in slices(results, SLICE):
            for result in part:
                self._leaders.complete(result)
                if result.error_code != errors_pb2.ERROR_CODE_NONE:
                    refused += 1
                    self._errors.add(result.error_code)
        self._refused.add(refused)
        self._durations.record(self._clock.monotonic() - began_s)
        return log_pb2.ProduceResponse(results=results)

    async def append(self, leadership: Leadership, batch: bytes) -> OwnAppend:
        """Append a batch of the broker's own under one leadership, as a produce request with acks all would be.

        Returns when it is committed, however long that takes, or never will be by this leader. Once the writer has it,
        cancelling the caller changes nothing.
        """
        refused = self._own_refusal(leadership, len(batch))
        if refused is not None:
            return refused
        item = _Item(index=0, leadership=leadership, message=log_pb2.ProducePartition(record_batch=batch))
        appending = await self._hand_in((item,), len(batch), self._clock.wall_ms())
        try:
            (outcome,) = await asyncio.shield(appending)
        except StorageError as error:
            return OwnAppend(code=errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR, message=str(error))
        if isinstance(outcome, _Refused):
            return OwnAppend(code=outcome.code, message=outcome.message, put_off=outcome.put_off)
        if await _is_committed(leadership, outcome.last_offset + 1):
            return OwnAppend(code=errors_pb2.ERROR_CODE_NONE, message="")
        return OwnAppend(code=errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND, message=_DEPOSED_AFTER_APPEND)

    def _own_refusal(self, leadership: Leadership, size_bytes: int) -> OwnAppend | None:
        """Why a batch of the broker's own is not handed in."""
        if leadership.cut_off or leadership.partition.role is not leadership:
            return OwnAppend(code=errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER, message=_DEPOSED)
        if not leadership.isr_sufficient:
            message = leadership.insufficiency
            return OwnAppend(code=errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS, message=message, put_off=True)
        if not self._storage.takes(size_bytes):
            return OwnAppend(code=errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR, message=_BUSY, put_off=True)
        return None

    def causes(self, request: log_pb2.ProduceRequest) -> list[tuple[int, str]]:
        """What made this broker leader of the partitions of a request, by their places in it; only what is known."""
        causes: list[tuple[int, str]] = []
        for index, message in enumerate(request.partitions):
            found = self._replicas.find_leader(message.topic, message.topic_id, message.partition, known=True)
            if isinstance(found, Leadership) and found.cause:
                causes.append((index, found.cause))
        return causes

    def _admit(self, message: log_pb2.ProducePartition, *, acks: log_pb2.Acks.ValueType) -> Leadership | NotHere:
        wrong = wrong_in(message)
        if wrong:
            return NotHere(errors_pb2.ERROR_CODE_INVALID_REQUEST, wrong)
        if message.topic in INTERNAL_TOPICS:
            return NotHere(
                errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION,
                f"{message.topic} is an internal topic, written by coordinators of groups only: use OffsetCommit",
            )
        known = self._leaders.knows(message.topic, message.partition)
        found = self._replicas.find_leader(message.topic, message.topic_id, message.partition, known=known)
        if isinstance(found, Leadership) and acks == log_pb2.ACKS_ALL and not found.isr_sufficient:
            return NotHere(
                errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS,
                f"{found.insufficiency}; nothing was appended: try again",
            )
        return found

    async def _append(
        self,
        admitted: Sequence[_Item],
        results: Sequence[log_pb2.ProduceResult],
        *,
        acks: log_pb2.Acks.ValueType,
        deadline_s: float,
    ) -> None:
        now_ms = self._clock.wall_ms()
        sizes = [item.message.ByteSize() for item in admitted]
        if not self._storage.takes(sum(sizes)):
            for item in admitted:
                _refuse(results[item.index], errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED, _BUSY)
            return
        appending: list[tuple[tuple[_Item, ...], asyncio.Future[list[_Outcome]]]] = []
        together: list[tuple[_Item, int]] = []
        turns = Turns(SLICE)
        for item, size in zip(admitted, sizes, strict=True):
            await turns.took()
            if item.leadership.partition.log.settings.flush_messages is None:
                together.append((item, size))
            else:
                # A job of its own: it may have to wait for the disk, and the others' followers are not to wait with it.
                appending.append(((item,), await self._hand_in((item,), size, now_ms)))
        async for part in slices(together, SLICE):
            items = tuple(item for item, _ in part)
            appending.append((items, await self._hand_in(items, sum(size for _, size in part), now_ms)))
        if acks == log_pb2.ACKS_NONE:
            return
        waiting: dict[asyncio.Future[AckOutcome], _Item] = {}
        try:
            for items, outcomes in appending:
                waiting |= await self._take_up(items, outcomes, results, acks=acks)
            if waiting:
                await self._wait(waiting, results, deadline_s)
        finally:
            for future in waiting:
                future.cancel()

    async def _hand_in(self, items: tuple[_Item, ...], size_bytes: int, now_ms: int) -> asyncio.Future[list[_Outcome]]:
        """Hand a job to the writer; the future is its outcome."""
        bytes_max, directory = self._batch_bytes_max, self._storage.directory

        def append() -> list[_Outcome]:
            with directory.many_appends():
                return [_append_one(item, bytes_max=bytes_max, now_ms=now_ms) for item in items]

        appending = await self._storage.write_later(append, size_bytes=size_bytes)
        # The followers hear of it even when the caller is gone: the completion does not hang on this call.
        appending.add_done_callback(self._supervisor.guarded("append", lambda done: self._appended(items, done)))
        return appending

    async def _take_up(
        self,
        items: tuple[_Item, ...],
        appending: asyncio.Future[list[_Outcome]],
        results: Sequence[log_pb2.ProduceResult],
        *,
        acks: log_pb2.Acks.ValueType,
    ) -> dict[asyncio.Future[AckOutcome], _Item]:
        """Fill in what is known once a job is done; returns what has to be waited for."""
        waiting: dict[asyncio.Future[AckOutcome], _Item] = {}
        try:
            outcomes = await asyncio.shield(appending)
        except StorageError as error:
            for item in items:
                _refuse(results[item.index], errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR, str(error))
            return waiting
        for item, outcome in zip(items, outcomes, strict=True):
            missing = _fill_in(results[item.index], item.leadership, outcome, acks=acks)
            if missing is not None:
                waiting[item.leadership.partition.acks.wait_for(missing)] = item
        return waiting

    def _appended(self, admitted: Sequence[_Item], appending: asyncio.Future[list[_Outcome]]) -> None:
        """Wake followers and move high watermarks, as soon as the records are in the log."""
        error = appending.exception()
        if isinstance(error, StorageError):
            self._log.error("append failed", reason=str(error))
            return
        if error is not None:
            # Nobody else may be listening: a caller that does not wait, or that is gone.
            raise error
        now_s = self._clock.monotonic()
        outcomes = appending.result()
        self._count(admitted, outcomes)
        for item, outcome in zip(admitted, outcomes, strict=True):
            leadership = item.leadership
            if not isinstance(outcome, _Done) or leadership.partition.role is not leadership:
                continue
            if leadership.cause_pending:
                # A repeat counts: the leader before had replicated it, and this is what its producer waits for.
                _record_first_append(leadership, outcome)
            if not outcome.duplicate:
                if leadership.has_followers:
                    self._fresh.note(
                        leadership, outcome.batch, base_offset=outcome.base_offset, last_offset=outcome.last_offset
                    )
                leadership.appended(outcome.base_offset, now_s=now_s)

    def _count(self, admitted: Sequence[_Item], outcomes: Sequence[_Outcome]) -> None:
        """What was appended: all together once for the job, and for each batch only its topic's two additions."""
        records = size = 0
        for item, outcome in zip(admitted, outcomes, strict=True):
            if isinstance(outcome, _Done) and not outcome.duplicate:
                added, added_bytes = outcome.last_offset - outcome.base_offset + 1, len(outcome.batch)
                self._traffic.of(item.leadership.partition.topic).appended(added, added_bytes)
                records += added
                size += added_bytes
        self._records.add(records)
        self._bytes.add(size)

    async def _wait(
        self,
        waiting: dict[asyncio.Future[AckOutcome], _Item],
        results: Sequence[log_pb2.ProduceResult],
        deadline_s: float,
    ) -> None:
        remaining_s = max(0.0, deadline_s - asyncio.get_running_loop().time())
        await asyncio.wait(waiting, timeout=remaining_s)
        for future in waiting:
            future.cancel()
        turns = Turns(SLICE)
        for future, item in waiting.items():
            await turns.took()
            result, leadership = results[item.index], item.leadership
            if future.cancelled():
                if leadership.isr_sufficient:
                    _refuse(
                        result,
                        errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
                        "the in-sync replicas did not confirm in time; the records may still be committed",
                    )
                else:
                    _check_isr(result, leadership)
            elif future.result() is AckOutcome.DEPOSED:
                _refuse(result, errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND, _DEPOSED_AFTER_APPEND)
            else:
                _check_isr(result, leadership)


async def _is_committed(leadership: Leadership, end: int) -> bool:
    """Wait until all below ``end`` is committed. False: the leadership ended before."""
    partition = leadership.partition
    if partition.role is not leadership or leadership.cut_off:
        return False
    return partition.high_watermark >= end or await partition.acks.wait_for(end) is AckOutcome.COMMITTED


def _record_first_append(leadership: Leadership, outcome: _Done) -> None:
    leadership.cause_pending = False
    tracing.between(
        conventions.FIRST_APPEND,
        leadership.began_unix_nano,
        tracing.now_unix_nano(),
        parent=leadership.cause,
        attributes={
            conventions.BROKER: leadership.broker,
            conventions.TOPIC: leadership.partition.topic,
            conventions.PARTITION: str(leadership.partition.key.partition),
            conventions.LEADER_EPOCH: leadership.state.leader_epoch,
            conventions.OFFSET: outcome.base_offset,
        },
    )


def _fill_in(
    result: log_pb2.ProduceResult, leadership: Leadership, outcome: _Outcome, *, acks: log_pb2.Acks.ValueType
) -> int | None:
    """Fill a result in; returns the high watermark that still has to be reached for it, None if nothing has."""
    if isinstance(outcome, _Refused):
        _refuse(result, outcome.code, outcome.message)
        return None
    partition = leadership.partition
    result.base_offset, result.log_start_offset = outcome.base_offset, partition.log.log_start_offset
    if partition.role is not leadership or leadership.cut_off:
        _refuse(result, errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND, _DEPOSED_AFTER_APPEND)
    elif acks == log_pb2.ACKS_ALL:
        if partition.high_watermark <= outcome.last_offset:
            return outcome.last_offset + 1
        _check_isr(result, leadership)
    return None


def _append_one(item: _Item, *, bytes_max: int, now_ms: int) -> _Outcome:
    """On the writer thread: check and append one partition's batch."""
    leadership, message = item.leadership, item.message
    partition = leadership.partition
    if partition.role is not leadership:
        return _Refused(code=errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER, message=_DEPOSED)
    if partition.settings.max_message_bytes is not None:
        bytes_max = partition.settings.max_message_bytes
    try:
        batch = batch_in(message, now_ms)
        check_batch(batch, bytes_max=bytes_max, keys_required=partition.log.settings.is_compacted)
    except KeyMissingError as error:
        return _Refused(code=errors_pb2.ERROR_CODE_INVALID_RECORD, message=str(error))
    except BatchTooLargeError as error:
        return _Refused(code=errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE, message=str(error))
    except CorruptBatchError as error:
        return _Refused(code=errors_pb2.ERROR_CODE_CORRUPT_MESSAGE, message=str(error))
    try:
        (outcome,) = partition.log.append_as_leader([batch], leader_epoch=leadership.state.leader_epoch)
    except DirectoryFailedError:
        raise
    except StorageError as error:
        # Its own partition's trouble: what was appended to the others is to be told of.
        put_off = isinstance(error, ResourceExhaustedError)
        return _Refused(code=errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR, message=str(error), put_off=put_off)
    return _translate(outcome, batch)


def _translate(outcome: AppendOutcome, batch: bytes) -> _Outcome:
    match outcome:
        case Appended(base_offset=base, last_offset=last):
            return _Done(base_offset=base, last_offset=last, duplicate=False, batch=batch)
        case Duplicate(base_offset=base, last_offset=last):
            return _Done(base_offset=base, last_offset=last, duplicate=True, batch=batch)
        case OutOfOrder(expected=expected, found=found):
            return _Refused(
                code=errors_pb2.ERROR_CODE_OUT_OF_ORDER_SEQUENCE_NUMBER,
                message=f"sequence {found} does not follow: {expected} is next; start the producer anew",
            )
        case Fenced(current=current, found=found):
            return _Refused(
                code=errors_pb2.ERROR_CODE_INVALID_PRODUCER_EPOCH,
                message=f"producer epoch {found} is past: {current} has been seen; start the producer anew",
            )
        case _:
            assert_never(outcome)


def _check_isr(result: log_pb2.ProduceResult, leadership: Leadership) -> None:
    if not leadership.isr_sufficient:
        _refuse(
            result,
            errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            "the records were appended and too few replicas are in sync now; they may still be committed",
        )


def _refuse(result: log_pb2.ProduceResult, code: Code, message: str) -> None:
    result.error_code, result.error_message, result.base_offset = code, message, -1
