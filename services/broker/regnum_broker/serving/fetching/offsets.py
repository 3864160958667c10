"""ListOffsets and OffsetForLeaderEpoch: where logs begin and end, offsets of times, ends of leader epochs.

The end of the log is not told before this leader knows what is committed (KIP-207): it would lie before records that
are acknowledged.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_model.ids import LeaderEpoch
from regnum_records.decompress import DECOMPRESSED_BYTES_MAX
from regnum_records.errors import UnpackingError
from regnum_records.read import Placed
from regnum_service.limits.held_bytes import Holding

from regnum_broker.log.errors import StorageError
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.replicas import NotHere, Replicas
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.fetching.admission import Admission, end_of_epoch
from regnum_broker.serving.fetching.reading import GROWTH
from regnum_broker.serving.fetching.requests import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    EpochEndResult,
    EpochQuery,
    OffsetQuery,
    OffsetResult,
)
from regnum_broker.storage import Storage

LOOKED_UP_AT_ONCE: Final = 8
"""Queries by time that are answered in one turn of a caller."""

RESERVED_BYTES: Final = 1024 * 1024
"""What is reserved for the batches that they unpack, one at a time, until one has more."""

TIMESTAMP_MS_MAX: Final = 2**63 - 1
"""Latest time that a record can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetLookup:
    """A query by time that needs the log."""

    leadership: Leadership
    """Where to look."""
    timestamp_ms: int | None
    """The time asked for; None: the largest timestamp is (KIP-734)."""
    result: OffsetResult
    """Where the answer goes."""

    @property
    def wanted_ms(self) -> int:
        """Tells it from other queries of the partition."""
        return -1 if self.timestamp_ms is None else self.timestamp_ms


class OffsetsHandler:
    """Serves ListOffsets and OffsetForLeaderEpoch. Belongs to the event loop."""

    def __init__(self, *, replicas: Replicas, leaders: CurrentLeaders, storage: Storage) -> None:
        """Only assigns.

        Args:
            replicas: what is asked about.
            leaders: who leads what does not lead here.
            storage: reads.
        """
        self._replicas: Final = replicas
        self._admission: Final = Admission(replicas, leaders)
        self._leaders: Final = leaders
        self._storage: Final = storage

    def list_offsets(self, query: OffsetQuery) -> OffsetLookup | OffsetResult:
        """The answer to a query, or what has to be looked up in the log for it."""
        result = OffsetResult(query.topic, query.partition)
        found = self._replicas.find_leader(
            query.topic, "", query.partition, known=self._leaders.knows(query.topic, query.partition)
        )
        if isinstance(found, NotHere):
            result.error_code, result.error_message = found.code, found.message
            self._leaders.complete(result)
            return result
        result.leader_epoch = found.state.leader_epoch
        at_ms = query.timestamp_ms
        if at_ms == EARLIEST:
            _tell_record(result, found, found.partition.log.log_start_offset)
        elif at_ms == LATEST:
            _tell_end(result, found)
        elif at_ms == MAX_TIMESTAMP:
            if found.knows_committed:
                return OffsetLookup(leadership=found, timestamp_ms=None, result=result)
            _refuse_end(result, found)
        elif at_ms is not None and at_ms >= 0:
            return OffsetLookup(leadership=found, timestamp_ms=min(at_ms, TIMESTAMP_MS_MAX), result=result)
        else:
            result.error_code = errors_pb2.ERROR_CODE_INVALID_REQUEST
            result.error_message = "say which offset: earliest, latest, at_or_after or max_timestamp"
        self._leaders.complete(result)
        return result

    async def look_up(self, lookups: Sequence[OffsetLookup], holding: Holding) -> None:
        """Fill the results of lookups in; a few in a turn, for each may unpack a batch, into memory that is reserved.

        Raises:
            RegnumError: there is no memory for a batch.
        """
        first, needs = 0, RESERVED_BYTES
        while first < len(lookups) and not holding.call.is_gone:
            found = await self._look_up(lookups[first : first + LOOKED_UP_AT_ONCE], holding, needs)
            self._tell(lookups[first : first + len(found.records)], found.records)
            first += len(found.records)
            needs = found.lacks_bytes or RESERVED_BYTES

    async def _look_up(self, lookups: Sequence[OffsetLookup], holding: Holding, needs: int) -> "_Found":
        partitions = [lookup.leadership.partition for lookup in lookups]
        asked = [(one.log, at.timestamp_ms, one.high_watermark) for one, at in zip(partitions, lookups, strict=True)]
        call = holding.call
        async with self._storage.turns.turn(call.payer) as turn:
            granted = holding.grant(needs, needs)
            found = await turn.run(
                self._storage.read,
                lambda: _find_records(asked, unpacked_bytes_max=granted, is_gone=lambda: call.is_gone),
                call=call,
                holding=holding,
            )
        holding.become(0)
        return found

    def _tell(self, lookups: Sequence[OffsetLookup], found: "Sequence[Placed | NotHere | None]") -> None:
        for lookup, record in zip(lookups, found, strict=True):
            if isinstance(record, NotHere):
                lookup.result.error_code, lookup.result.error_message = record.code, record.message
            elif record is not None and record.offset < lookup.leadership.partition.high_watermark:
                _tell_record(lookup.result, lookup.leadership, record.offset)
                if record.timestamp_ms is not None:
                    lookup.result.timestamp_ms = record.timestamp_ms
            elif record is not None and not lookup.leadership.knows_committed:
                _refuse_end(lookup.result, lookup.leadership)
            self._leaders.complete(lookup.result)

    def end_of_epoch(self, query: EpochQuery) -> EpochEndResult:
        """Where a leader epoch ends."""
        result = EpochEndResult(query.topic, query.partition)
        leadership = self._admission.find(query)
        if isinstance(leadership, Leadership):
            end = end_of_epoch(leadership, LeaderEpoch(query.leader_epoch))
        else:
            end = leadership
        if isinstance(end, NotHere):
            result.error_code, result.error_message = end.code, end.message
        else:
            result.leader_epoch, result.end_offset = end.epoch, end.end_offset
        self._leaders.complete(result)
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What one turn found."""

    records: Sequence[Placed | NotHere | None]
    """Of the first queries, as many as there was memory and time for."""
    lacks_bytes: int = 0
    """So much is to be reserved for the next one; 0: no more than before."""


def _find_records(
    asked: Sequence[tuple[ReplicaLog, int | None, int]], *, unpacked_bytes_max: int, is_gone: Callable[[], bool]
) -> _Found:
    """On a reader thread: the records that queries ask for, until one needs more memory."""
    records: list[Placed | NotHere | None] = []
    allowed = min(unpacked_bytes_max, DECOMPRESSED_BYTES_MAX)
    for log, timestamp_ms, committed in asked:
        if is_gone():
            break
        try:
            if timestamp_ms is None:
                records.append(log.record_of_max_timestamp(committed, unpacked_bytes_max=allowed))
            else:
                records.append(log.record_at_or_after(timestamp_ms, unpacked_bytes_max=allowed, is_gone=is_gone))
        except StorageError as error:
            records.append(NotHere(errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR, str(error)))
        except UnpackingError:
            return _Found(records=records, lacks_bytes=min(unpacked_bytes_max * GROWTH, DECOMPRESSED_BYTES_MAX))
    return _Found(records=records)


def _tell_record(result: OffsetResult, leadership: Leadership, offset: int) -> None:
    result.offset = offset
    _tell_epoch(result, leadership.partition.log.epochs.epoch_at(offset))


def _tell_epoch(result: OffsetResult, epoch: LeaderEpoch) -> None:
    if epoch >= 0:
        result.offset_leader_epoch = epoch


def _tell_end(result: OffsetResult, leadership: Leadership) -> None:
    if leadership.knows_committed:
        result.offset = end = leadership.partition.high_watermark
        _tell_epoch(result, leadership.partition.log.epochs.epoch_at(end - 1))
    else:
        _refuse_end(result, leadership)


def _refuse_end(result: OffsetResult, leadership: Leadership) -> None:
    refusal = refusal_of_end(leadership)
    result.error_code, result.error_message = refusal.code, refusal.message


def refusal_of_end(leadership: Leadership) -> NotHere:
    """KIP-207: what this leader knows to be committed may end before what was acknowledged."""
    if leadership.isr_sufficient:
        message = "this leader is new and its followers have not told it yet what they have: try again"
    else:
        message = (
            f"min.insync.replicas is not met ({leadership.insufficiency}): this leader learns what is committed when it"
            " is; try again"
        )
    return NotHere(errors_pb2.ERROR_CODE_OFFSET_NOT_AVAILABLE, message)
