"""Deleting committed records on request: the log of a partition begins later, on its leader and then on the others.

Goals: what was answered is gone from every replica that may lead next, and never comes back; what is not committed
stays; a repeat with the same offset does no harm.

Algorithm: the leader moves its log start as retention does (``retention.mover``), and its followers take it up with
their next answers. The call waits until all that are in sync, or fetch, have said that they begin there: the low
watermark. A leader that is replaced meanwhile says so, and the call is to be repeated at the next one, which may not
have heard of the deletion. A new leader that does not know yet what is committed says so, as to ListOffsets (KIP-207).
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_service.errors import RegnumError
from regnum_service.slices import Turns, slices

from regnum_broker.log.errors import DirectoryFailedError, StorageError
from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.purgatory import LongPoll
from regnum_broker.replication.replicas import NotHere, Replicas
from regnum_broker.retention.expiry import KEPT_WHOLE
from regnum_broker.retention.mover import StartMover
from regnum_broker.serving.current_leaders import CurrentLeaders, tell_refusal
from regnum_broker.serving.fetching.offsets import refusal_of_end

TIMEOUT_MS_DEFAULT: Final = 30_000
TIMEOUT_MS_MAX: Final = 300_000
PARTITIONS_MAX: Final = 10_000
"""Partitions of one request."""
SLICE: Final = 200
"""Partitions looked at between two turns of the event loop (safety rule S22)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """A partition of which something is to be deleted."""

    leadership: Leadership
    offset: int
    """Where its log is to begin."""
    result: log_pb2.DeleteRecordsResult

    @property
    def stands(self) -> bool:
        """Whether this broker leads the partition still."""
        return self.leadership.partition.role is self.leadership and not self.leadership.cut_off

    @property
    def done(self) -> bool:
        """Whether the records are gone everywhere, or nobody here can tell any more."""
        return not self.stands or self.leadership.low_watermark >= self.offset


class DeleteRecordsHandler:
    """Serves DeleteRecords. Belongs to the event loop."""

    def __init__(self, *, replicas: Replicas, leaders: CurrentLeaders, mover: StartMover) -> None:
        """Only assigns.

        Args:
            replicas: what is led here.
            leaders: who leads what does not lead here.
            mover: moves log starts.
        """
        self._replicas: Final = replicas
        self._leaders: Final = leaders
        self._mover: Final = mover

    async def delete(
        self, request: log_pb2.DeleteRecordsRequest, *, waitable_s: float = math.inf
    ) -> log_pb2.DeleteRecordsResponse:
        """Delete, and wait for the other replicas, for ``waitable_s`` at most: the caller hears no later answer.

        Raises:
            RegnumError: the request contradicts itself.
        """
        _check(request)
        timeout_s = min(min(request.timeout_ms or TIMEOUT_MS_DEFAULT, TIMEOUT_MS_MAX) / 1000, waitable_s)
        until_s = asyncio.get_running_loop().time() + timeout_s
        results: list[log_pb2.DeleteRecordsResult] = []
        items: list[_Item] = []
        turns = Turns(SLICE)
        for message in request.partitions:
            await turns.took()
            item = self._admit(message)
            results.append(item.result if isinstance(item, _Item) else item)
            if isinstance(item, _Item):
                items.append(item)
        if not request.validate_only:
            await self._carry_out(items, until_s)
        for result in results:
            await turns.took()
            if result.error_code:
                tell_refusal(result, self._leaders.instead(result.error_code, result.topic, result.partition))
        return log_pb2.DeleteRecordsResponse(results=results)

    def _admit(self, message: log_pb2.DeleteRecordsPartition) -> "_Item | log_pb2.DeleteRecordsResult":
        result = log_pb2.DeleteRecordsResult(
            topic=message.topic, partition=message.partition, new_log_start_offset=-1, low_watermark=-1
        )
        known = self._leaders.knows(message.topic, message.partition)
        found = self._replicas.find_leader(message.topic, message.topic_id, message.partition, known=known)
        if isinstance(found, NotHere):
            result.error_code, result.error_message = found.code, found.message
            return result
        partition = found.partition
        if message.topic in KEPT_WHOLE:
            result.error_code = errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION
            result.error_message = f"{message.topic} keeps what consumer groups have committed; nothing was deleted"
            return result
        if not partition.log.settings.is_deleted:
            result.error_code = errors_pb2.ERROR_CODE_INVALID_REQUEST
            result.error_message = (
                f"{message.topic} is compacted only, and its newest records are kept; nothing was deleted: write"
                " records without a value for the keys that are to go, or set cleanup.policy=compact,delete"
            )
            return result
        offset = _until(message, found, result)
        if offset is not None:
            result.new_log_start_offset, result.low_watermark = (
                max(result.log_start_offset, offset),
                found.low_watermark,
            )
            return _Item(leadership=found, offset=offset, result=result)
        return result

    async def _carry_out(self, items: Sequence[_Item], until_s: float) -> None:
        async for part in slices(items, SLICE):
            try:
                await self._mover.move({item.leadership.partition.key: item.offset for item in part})
            except DirectoryFailedError:
                raise
            except StorageError as error:
                _refuse_unmoved(part, str(error))
        turns = Turns(SLICE)
        moved = [item for item in items if item.result.error_code == errors_pb2.ERROR_CODE_NONE]
        signals = [item.leadership.partition.committed for item in moved]
        waiting: Mapping[int, _Item] = dict(enumerate(moved))
        with LongPoll(signals, wait_s=max(0.0, until_s - asyncio.get_running_loop().time())) as poll:
            while True:
                left = {}
                for place, item in waiting.items():
                    await turns.took()
                    if not item.done:
                        left[place] = item
                waiting = left
                if not waiting or not await poll.moved():
                    break
        for item in moved:
            await turns.took()
            _tell(item)


def _until(
    message: log_pb2.DeleteRecordsPartition, leadership: Leadership, result: log_pb2.DeleteRecordsResult
) -> int | None:
    """Where the log is to begin; None: the result says why not."""
    partition = leadership.partition
    start, high_watermark = partition.log.log_start_offset, partition.high_watermark
    result.log_start_offset = start
    match message.WhichOneof("until"):
        case "all_committed" if leadership.knows_committed:
            return high_watermark
        case "before_offset" if 0 <= message.before_offset <= high_watermark:
            return message.before_offset
        case "all_committed":
            _refuse_end(result, leadership)
        case "before_offset" if message.before_offset > 0 and not leadership.knows_committed:
            _refuse_end(result, leadership)
        case "before_offset":
            result.error_code = errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE
            result.error_message = (
                f"records are committed from {start} to {high_watermark}, which {message.before_offset} is beyond;"
                " nothing was deleted: name an offset up to that, or all_committed"
            )
        case _:
            result.error_code = errors_pb2.ERROR_CODE_INVALID_REQUEST
            result.error_message = "say up to where: before_offset or all_committed; nothing was deleted"
    return None


def _refuse_end(result: log_pb2.DeleteRecordsResult, leadership: Leadership) -> None:
    refusal = refusal_of_end(leadership)
    result.error_code, result.error_message = refusal.code, refusal.message


def _tell(item: _Item) -> None:
    """Fill a result in, of a partition whose log start was to be moved."""
    result, log = item.result, item.leadership.partition.log
    if not item.stands:
        result.error_code = errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
        result.error_message = (
            "this broker was replaced as leader before all replicas had deleted the records; refresh metadata and give"
            f" the call again with before_offset {item.offset}"
        )
        return
    result.new_log_start_offset, result.low_watermark = log.log_start_offset, item.leadership.low_watermark
    if log.log_start_offset < item.offset:
        result.error_code = errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR
        result.error_message = "the log could not be cut; nothing was deleted: see the log of the broker, and try again"
    elif result.low_watermark < item.offset:
        result.error_code = errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT
        result.error_message = (
            f"the leader deleted the records, and not every replica has yet: none has what lies before"
            f" {result.low_watermark}; they will when they fetch. Give the call again with before_offset"
            f" {item.offset} to wait for it"
        )


def _refuse_unmoved(items: Sequence[_Item], reason: str) -> None:
    for item in items:
        if item.leadership.partition.log.log_start_offset < item.offset:
            item.result.error_code, item.result.error_message = errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR, reason
            item.result.new_log_start_offset = item.result.low_watermark = -1


def _check(request: log_pb2.DeleteRecordsRequest) -> None:
    if request.timeout_ms < 0:
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REQUEST, "timeout_ms is negative; give a positive one, or 0 for the default"
        )
    if len(request.partitions) > PARTITIONS_MAX:
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REQUEST, f"more than {PARTITIONS_MAX} partitions: split the request"
        )
    named = {(item.topic, item.partition) for item in request.partitions}
    if len(named) != len(request.partitions):
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REQUEST, "a partition is named twice; nothing was deleted: name each once"
        )
