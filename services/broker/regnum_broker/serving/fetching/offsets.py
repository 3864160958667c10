"""ListOffsets and OffsetForLeaderEpoch: where logs begin and end, offsets of times, ends of leader epochs.

The end of the log is not told before this leader knows what is committed (KIP-207): it would lie before records that
are acknowledged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import NO_EPOCH, LeaderEpoch
from regnum_model.wire_times import ceiling_unix_ms_of
from regnum_records.read import Placed

from regnum_broker.limits.turns_of_callers import turn_of
from regnum_broker.log.epochs import UNDEFINED_OFFSET
from regnum_broker.log.errors import StorageError
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.replicas import NotHere, Replicas
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.fetching.admission import Admission, end_of_epoch
from regnum_broker.storage import Storage

LOOKED_UP_AT_ONCE: Final = 8
"""Queries by time that are answered in one turn of a caller: each may unpack a batch of 64 MiB."""

TIMESTAMP_MS_MAX: Final = 2**63 - 1
"""Latest time that a record can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetLookup:
    """A query by time that needs the log."""

    leadership: Leadership
    """Where to look."""
    timestamp_ms: int | None
    """The time asked for; None: the largest timestamp is (KIP-734)."""
    result: log_pb2.OffsetResult
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

    def list_offsets(self, query: log_pb2.OffsetQuery) -> OffsetLookup | log_pb2.OffsetResult:
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
            case ("max_timestamp", _) if not found.knows_committed:
                _refuse_end(result, found)
            case ("max_timestamp", _):
                return OffsetLookup(leadership=found, timestamp_ms=None, result=result)
            case ("at_or_after", _):
                at_ms = min(max(0, ceiling_unix_ms_of(query.at_or_after)), TIMESTAMP_MS_MAX)
                return OffsetLookup(leadership=found, timestamp_ms=at_ms, result=result)
            case ("timestamp_ms", at_ms) if at_ms >= 0:
                return OffsetLookup(leadership=found, timestamp_ms=min(at_ms, TIMESTAMP_MS_MAX), result=result)
            case _:
                result.error_code = errors_pb2.ERROR_CODE_INVALID_REQUEST
                result.error_message = "say which offset: earliest, latest, at_or_after or max_timestamp"
        self._leaders.complete(result)
        return result

    async def look_up(self, lookups: Sequence[OffsetLookup], connection: str) -> None:
        """Fill the results of lookups in; a few in a turn, for each may unpack a batch."""
        for first in range(0, len(lookups), LOOKED_UP_AT_ONCE):
            await self._look_up(lookups[first : first + LOOKED_UP_AT_ONCE], connection)

    async def _look_up(self, lookups: Sequence[OffsetLookup], connection: str) -> None:
        partitions = [lookup.leadership.partition for lookup in lookups]
        asked = [(one.log, at.timestamp_ms, one.high_watermark) for one, at in zip(partitions, lookups, strict=True)]
        async with self._storage.turns.turn(turn_of(connection)):
            found = await self._storage.read(lambda: [_find_record(*one) for one in asked])
        for lookup, record in zip(lookups, found, strict=True):
            if isinstance(record, NotHere):
                lookup.result.error_code, lookup.result.error_message = record.code, record.message
            elif record is not None and record.offset < lookup.leadership.partition.high_watermark:
                lookup.result.offset = record.offset
                if record.timestamp_ms is not None:
                    lookup.result.timestamp_ms = record.timestamp_ms
            elif record is not None and not lookup.leadership.knows_committed:
                _refuse_end(lookup.result, lookup.leadership)
            self._leaders.complete(lookup.result)

    def end_of_epoch(self, query: log_pb2.EpochQuery) -> log_pb2.EpochEndResult:
        """Where a leader epoch ends."""
        result = log_pb2.EpochEndResult(
            topic=query.topic, partition=query.partition, leader_epoch=NO_EPOCH, end_offset=UNDEFINED_OFFSET
        )
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


def _find_record(log: ReplicaLog, timestamp_ms: int | None, committed: int) -> Placed | NotHere | None:
    """On a reader thread: the record that a query asks for."""
    try:
        if timestamp_ms is None:
            return log.record_of_max_timestamp(committed)
        return log.record_at_or_after(timestamp_ms)
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
