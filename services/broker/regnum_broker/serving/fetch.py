"""Reading what is committed: Fetch (long poll), Consume (stream), ListOffsets.

Consumers see records below the high watermark only. An offset between the high watermark and the log end is not an
error: the high watermark of a new leader may be behind the true one for a moment. The end of the log is not told until
then (KIP-207): it would lie before records that are acknowledged.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.wire_times import ceiling_unix_ms_of
from regnum_records.errors import CorruptBatchError
from regnum_records.header import count_records, iterate
from regnum_records.read import read_records
from regnum_records.record import Record
from regnum_service.clock import Clock, SystemClock
from regnum_service.errors import RegnumError
from regnum_service.slices import Turns, slices
from regnum_telemetry import instruments
from regnum_telemetry.metrics import Metrics

from regnum_broker.log.errors import OffsetOutOfRangeError, StorageError
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.partition import Partition
from regnum_broker.replication.purgatory import LongPoll
from regnum_broker.replication.replicas import NotHere, Replicas
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.storage import Storage

FETCH_BYTES_DEFAULT: Final = 8 * 1024 * 1024
FETCH_BYTES_MAX: Final = 32 * 1024 * 1024
"""About the largest answer, whatever is asked for; leaves room below the message limit."""

RECORD_BYTES_MAX: Final = 32 * 1024 * 1024
"""Largest record that an answer of single records carries."""

RECORD_OVERHEAD_BYTES: Final = 48
"""At most so many bytes does an answer add to the content of a record, or of a header."""

CONSUME_BYTES: Final = 1024 * 1024
"""About how many bytes of batches one step of a stream carries."""

WAIT_S_MAX: Final = 60.0
PARTITIONS_MAX: Final = 10_000
SLICE: Final = 500
"""Partitions looked at between two turns of the event loop (safety rule S22)."""

TIMESTAMP_MS_MAX: Final = 2**63 - 1
"""Latest time that a record can have."""

IDLE_S: Final = 30.0
"""How often a stream without news looks whether it is still in the right place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """A partition to be read."""

    leadership: Leadership
    offset: int
    bytes_max: int

    @property
    def partition(self) -> Partition:
        """The replica."""
        return self.leadership.partition


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """What a reader thread is to read."""

    log: ReplicaLog
    offset: int
    bytes_max: int
    end_offset: int
    result: log_pb2.FetchResult
    """Where it goes; the thread's alone until it has finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What one round of reading found."""

    size_bytes: int = 0
    records: int = 0
    """Records in it; of batches as a whole, so a few before the wanted offset may be among them."""
    failed: bool = False
    """Whether there is an error among the results."""


class FetchHandler:
    """Serves Fetch, Consume and ListOffsets. Belongs to the event loop."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        leaders: CurrentLeaders,
        storage: Storage,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """Only assigns.

        Args:
            replicas: what is read.
            leaders: who leads what does not lead here.
            storage: reads.
            clock: times the calls; the machine's when None.
            metrics: where they are counted; None: nobody asks.
        """
        counted = metrics or Metrics()
        self._clock: Final = clock or SystemClock()
        self._bytes: Final = counted.counter(instruments.BYTES_OUT)
        self._records: Final = counted.counter(instruments.RECORDS_OUT)
        self._durations: Final = counted.histogram(instruments.FETCH_DURATION)
        self._replicas: Final = replicas
        self._leaders: Final = leaders
        self._storage: Final = storage

    async def fetch(self, request: log_pb2.FetchRequest, *, waitable_s: float = math.inf) -> log_pb2.FetchResponse:
        """Read; wait for ``min_bytes`` as long as ``max_wait_ms`` says, and ``waitable_s`` at most.

        Raises:
            RegnumError: the request contradicts itself.
        """
        began_s = self._clock.monotonic()
        _check(request)
        total_max = min(request.max_bytes or FETCH_BYTES_DEFAULT, FETCH_BYTES_MAX)
        response = log_pb2.FetchResponse()
        # Filled in where they are: what they carry is too large to be copied on the loop (safety rule S22).
        results: list[log_pb2.FetchResult] = []
        wanted: dict[int, _Wanted] = {}
        refused = False
        turns = Turns(SLICE)
        for index, item in enumerate(request.partitions):
            await turns.took()
            results.append(response.results.add(topic=item.topic, partition=item.partition))
            found = self._admit(item)
            if isinstance(found, NotHere):
                refused = True
                results[index].error_code, results[index].error_message = found.code, found.message
            else:
                bytes_max = min(item.max_bytes or total_max, total_max)
                wanted[index] = _Wanted(leadership=found, offset=item.offset, bytes_max=bytes_max)
        wait_s = 0.0 if refused else min(request.max_wait_ms / 1000, WAIT_S_MAX, waitable_s)
        signals = [item.partition.committed for item in wanted.values()]
        with LongPoll(signals, wait_s=wait_s) as poll:
            while True:
                read = await self._read(wanted, results, form=request.form, total_max=total_max)
                if read.failed or read.size_bytes >= request.min_bytes or not wait_s or not await poll.moved():
                    break
        self._count(read)
        async for part in slices(results, SLICE):
            for result in part:
                self._leaders.complete(result)
        self._durations.record(self._clock.monotonic() - began_s)
        return response

    def _count(self, found: _Found) -> None:
        self._bytes.add(found.size_bytes)
        self._records.add(found.records)

    async def consume(
        self, request: log_pb2.ConsumeRequest, *, waitable_s: float = math.inf
    ) -> AsyncIterator[log_pb2.ConsumeResponse]:
        """The records of one partition from an offset on, until an error ends the stream or ``waitable_s`` are over.

        A caller who gave a deadline and for whom nothing came gets one answer without records.
        """
        _check_form(request.form)
        offset, answered = request.offset, False
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + waitable_s
        while not answered or now_s() < until_s:
            item = log_pb2.FetchPartition(
                topic=request.topic, topic_id=request.topic_id, partition=request.partition, offset=offset
            )
            result = log_pb2.FetchResult(topic=request.topic, partition=request.partition)
            found = self._admit(item)
            if isinstance(found, NotHere):
                result.error_code, result.error_message = found.code, found.message
                self._leaders.complete(result)
                yield log_pb2.ConsumeResponse(result=result)
                return
            wanted = _Wanted(leadership=found, offset=offset, bytes_max=CONSUME_BYTES)
            with LongPoll([wanted.partition.committed], wait_s=min(IDLE_S, max(0.0, until_s - now_s()))) as poll:
                if wanted.offset >= wanted.partition.high_watermark:
                    await poll.moved()
            next_offset = await self._step(wanted, result, form=request.form)
            self._leaders.complete(result)
            if result.error_code or next_offset > offset or (not answered and now_s() >= until_s):
                answered = True
                yield log_pb2.ConsumeResponse(result=result)
            if result.error_code:
                return
            offset = next_offset

    def list_offsets(self, query: log_pb2.OffsetQuery) -> "OffsetLookup | log_pb2.OffsetResult":
        """The answer to a query, or what has to be looked up in the log for it."""
        result = log_pb2.OffsetResult(topic=query.topic, partition=query.partition, offset=-1, leader_epoch=-1)
        found = self._replicas.find_leader(
            query.topic, "", query.partition, known=self._leaders.knows(query.topic, query.partition)
        )
        if isinstance(found, NotHere):
            result.error_code, result.error_message = found.code, found.message
            self._leaders.complete(result)
            return result
        result.leader_epoch = found.state.leader_epoch
        match query.WhichOneof("offset"), query.timestamp_ms:
            case ("earliest", _) | ("timestamp_ms", -2):
                result.offset = found.partition.log.log_start_offset
            case ("latest", _) | ("timestamp_ms", -1):
                _tell_end(result, found)
            case ("at_or_after", _):
                at_ms = min(max(0, ceiling_unix_ms_of(query.at_or_after)), TIMESTAMP_MS_MAX)
                return OffsetLookup(leadership=found, timestamp_ms=at_ms, result=result)
            case ("timestamp_ms", at_ms) if at_ms >= 0:
                return OffsetLookup(leadership=found, timestamp_ms=min(at_ms, TIMESTAMP_MS_MAX), result=result)
            case _:
                result.error_code = errors_pb2.ERROR_CODE_INVALID_REQUEST
                result.error_message = "say which offset: earliest, latest or at_or_after"
        self._leaders.complete(result)
        return result

    async def look_up(self, lookups: Sequence["OffsetLookup"]) -> None:
        """Fill the results of lookups in."""
        logs = [(lookup.leadership.partition.log, lookup.timestamp_ms) for lookup in lookups]
        found = await self._storage.read(lambda: [_find_timestamp(log, at_ms) for log, at_ms in logs])
        for lookup, offset in zip(lookups, found, strict=True):
            if isinstance(offset, NotHere):
                lookup.result.error_code, lookup.result.error_message = offset.code, offset.message
            elif offset is not None and offset < lookup.leadership.partition.high_watermark:
                lookup.result.offset = offset
            elif offset is not None and not lookup.leadership.knows_committed:
                _refuse_end(lookup.result, lookup.leadership)
            self._leaders.complete(lookup.result)

    def _admit(self, item: log_pb2.FetchPartition) -> Leadership | NotHere:
        found = self._replicas.find_leader(
            item.topic, item.topic_id, item.partition, known=self._leaders.knows(item.topic, item.partition)
        )
        # Epochs are compared before roles (semantics 4.2), so a replica that does not lead is asked for its epoch too.
        if isinstance(found, NotHere) and found.code == errors_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID:
            return found
        epoch = self._replicas.epoch_of(item.topic, item.partition)
        if item.HasField("current_leader_epoch") and epoch is not None:
            if item.current_leader_epoch < epoch:
                return NotHere(
                    errors_pb2.ERROR_CODE_FENCED_LEADER_EPOCH,
                    f"leader epoch {item.current_leader_epoch} is past, {epoch} is current; refresh metadata",
                )
            if item.current_leader_epoch > epoch:
                return NotHere(
                    errors_pb2.ERROR_CODE_UNKNOWN_LEADER_EPOCH,
                    f"leader epoch {item.current_leader_epoch} is not known here yet; try again",
                )
        if isinstance(found, Leadership):
            log = found.partition.log
            if not log.log_start_offset <= item.offset <= log.log_end_offset:
                return _out_of_range(item.offset, log)
        return found

    async def _read(
        self,
        wanted: dict[int, _Wanted],
        results: Sequence[log_pb2.FetchResult],
        *,
        form: log_pb2.RecordForm.ValueType,
        total_max: int,
    ) -> _Found:
        """Read everything that is wanted."""
        reads: list[_Read] = []
        turns = Turns(SLICE)
        for index, item in wanted.items():
            await turns.took()
            result, partition = results[index], item.partition
            if partition.role is not item.leadership or item.leadership.cut_off:
                result.error_code = errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
                result.error_message = "this broker was replaced as leader; refresh metadata and go to the leader"
                return _Found(failed=True)
            result.high_watermark = partition.high_watermark
            result.log_start_offset = partition.log.log_start_offset
            if item.offset < partition.high_watermark:
                reads.append(
                    _Read(
                        log=partition.log,
                        offset=item.offset,
                        bytes_max=item.bytes_max,
                        end_offset=partition.high_watermark,
                        result=result,
                    )
                )
        if not reads:
            return _Found()
        return await self._storage.read(lambda: _read_logs(reads, form=form, total_max=total_max))

    async def _step(self, wanted: _Wanted, result: log_pb2.FetchResult, *, form: log_pb2.RecordForm.ValueType) -> int:
        """One read of a stream; returns the offset to go on from."""
        self._count(await self._read({0: wanted}, [result], form=form, total_max=wanted.bytes_max))
        if result.records:
            return result.records[-1].offset + 1
        if result.record_batches:
            return _next_offset(result.record_batches)
        return wanted.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetLookup:
    """A query by time that needs the log."""

    leadership: Leadership
    """Where to look."""
    timestamp_ms: int
    """The time asked for."""
    result: log_pb2.OffsetResult
    """Where the answer goes."""


def _read_logs(reads: Sequence[_Read], *, form: log_pb2.RecordForm.ValueType, total_max: int) -> _Found:
    """On a reader thread: read one log after another until the answer is full; the first always gets its batch."""
    room = total_max
    size = records = 0
    for index, item in enumerate(reads):
        result = item.result
        result.ClearField("records")
        result.ClearField("record_batches")
        if index and room <= 0:
            continue
        try:
            batches = item.log.read(
                item.offset, bytes_max=max(1, min(item.bytes_max, room)), end_offset=item.end_offset
            )
        except OffsetOutOfRangeError:
            refusal = _out_of_range(item.offset, item.log)
            result.error_code, result.error_message = refusal.code, refusal.message
            continue
        except StorageError as error:
            result.error_code, result.error_message = errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR, str(error)
            continue
        if form == log_pb2.RECORD_FORM_RECORDS:
            _decode(batches, item.offset, result, bytes_max=min(item.bytes_max, room))
            found = result.ByteSize()
            records += len(result.records)
        else:
            result.record_batches = batches
            found = len(batches)
            records += count_records(batches)
        room -= found
        size += found
    return _Found(size_bytes=size, records=records, failed=any(item.result.error_code for item in reads))


def _find_timestamp(log: ReplicaLog, timestamp_ms: int) -> int | NotHere | None:
    """On a reader thread: the offset that a query by time asks for."""
    try:
        return log.offset_for_timestamp(timestamp_ms)
    except StorageError as error:
        return NotHere(errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR, str(error))


def _tell_end(result: log_pb2.OffsetResult, leadership: Leadership) -> None:
    if leadership.knows_committed:
        result.offset = leadership.partition.high_watermark
    else:
        _refuse_end(result, leadership)


def _refuse_end(result: log_pb2.OffsetResult, leadership: Leadership) -> None:
    """KIP-207: what this leader knows to be committed may end before what was acknowledged."""
    result.error_code = errors_pb2.ERROR_CODE_OFFSET_NOT_AVAILABLE
    if leadership.isr_sufficient:
        result.error_message = "this leader is new and its followers have not told it yet what they have: try again"
    else:
        result.error_message = (
            f"min.insync.replicas is not met ({leadership.insufficiency}): this leader learns what is committed when it"
            " is; try again"
        )


def _decode(batches: bytes, offset: int, result: log_pb2.FetchResult, *, bytes_max: int) -> None:
    """Single records, about ``bytes_max`` of them and at least one, however many a batch decompresses to.

    A bad batch, or a record larger than any answer, is an error only where no record comes before it, so that a reader
    gets up to it; the answer says where to read on.
    """
    size = 0
    try:
        for record in read_records(batches, from_offset=offset):
            size += _answered_bytes(record)
            if result.records and size > bytes_max:
                return
            if size > RECORD_BYTES_MAX:
                result.error_code, result.next_offset = errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE, record.offset + 1
                result.error_message = (
                    f"the record at offset {record.offset} is larger than an answer; read it as a batch, or skip it:"
                    f" read on at offset {record.offset + 1}"
                )
                return
            message = result.records.add(timestamp_ms=record.timestamp_ms, offset=record.offset)
            if record.key is not None:
                message.key = record.key
            if record.value is not None:
                message.value = record.value
            for name, value in record.headers:
                header = message.headers.add(key=name)
                if value is not None:
                    header.value = value
    except CorruptBatchError as error:
        if not result.records:
            result.error_code, result.error_message = errors_pb2.ERROR_CODE_CORRUPT_MESSAGE, str(error)
            result.next_offset = error.next_offset or 0


def _answered_bytes(record: Record) -> int:
    """About the bytes of a record in an answer, and never fewer."""
    headers = sum(len(name) * 4 + len(value or b"") + RECORD_OVERHEAD_BYTES for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + RECORD_OVERHEAD_BYTES


def _next_offset(batches: bytes) -> int:
    """Offset after the last of some whole batches."""
    next_offset = 0
    for _, header in iterate(batches):
        next_offset = header.next_offset
    return next_offset


def _out_of_range(offset: int, log: ReplicaLog) -> NotHere:
    return NotHere(
        errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE,
        f"offset {offset} is outside the log, which goes from {log.log_start_offset} to {log.log_end_offset}",
    )


def _check_form(form: log_pb2.RecordForm.ValueType) -> None:
    """Raise RegnumError for a form of a later release: to answer in another one than was asked for is no answer."""
    if form not in log_pb2.RecordForm.values():
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REQUEST,
            f"form is {form}; give RECORD_FORM_BATCHES (so does leaving it out) or RECORD_FORM_RECORDS",
        )


def _check(request: log_pb2.FetchRequest) -> None:
    _check_form(request.form)
    if min(request.max_wait_ms, request.min_bytes, request.max_bytes) < 0:
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REQUEST,
            "one of max_wait_ms, min_bytes and max_bytes is negative; give 0 or more",
        )
    if len(request.partitions) > PARTITIONS_MAX:
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REQUEST, f"more than {PARTITIONS_MAX} partitions: split the request"
        )
