"""What answers of leaders mean for the partitions that were asked for: records, another position, trouble, the end."""

import logging
import random
from collections.abc import Callable
from typing import Final, assert_never

from regnum.broker.v1.log_pb2 import DivergingEpoch, FetchResult
from regnum.types.v1 import errors_pb2
from regnum_records.errors import CorruptBatchError
from regnum_service.clock import Clock
from regnum_service.errors import Code, RegnumError, traits_of

from regnum_client.cluster.metadata import Metadata
from regnum_client.cluster.offsets import FIRST, HIGH_WATERMARK, OffsetLookup
from regnum_client.cluster.view import LeaderTerm
from regnum_client.consumer.cursor import Cursor
from regnum_client.consumer.positions import ResetPolicy
from regnum_client.errors import LogTruncationError, OffsetOutOfRangeError, UnreadableBatchError

_LOG: Final = logging.getLogger("regnum_client")

STORAGE_ERROR_S: Final = 30.0
"""A leader that cannot read its own disk for so long, with nobody to take over, is the reader's to know."""


class Intake:
    """Takes in results for one consumer."""

    def __init__(
        self,
        metadata: Metadata,
        lookup: OffsetLookup,
        *,
        arrived: Callable[[Cursor], None],
        reset: ResetPolicy,
        request_timeout_s: float,
        clock: Clock,
        chance: random.Random,
    ) -> None:
        """``arrived`` hears of every partition with something to read, were it an error."""
        self._metadata: Final = metadata
        self._lookup: Final = lookup
        self._arrived: Final = arrived
        self._reset: Final = reset
        self._request_timeout_s: Final = request_timeout_s
        self._clock: Final = clock
        self._chance: Final = chance

    async def take_in(self, cursor: Cursor, term: LeaderTerm, result: FetchResult) -> None:
        """One partition of an answer."""
        if result.HasField("diverging_epoch"):
            self._truncated(cursor, term, result.diverging_epoch)
        elif result.error_code == errors_pb2.ERROR_CODE_NONE:
            cursor.trouble.succeeded()
            try:
                if result.record_batches and cursor.take_in(result.record_batches):
                    self._arrived(cursor)
            except CorruptBatchError as error:
                cursor.error = UnreadableBatchError(
                    cursor.partition, offset=cursor.fetch_offset, next_offset=error.next_offset, reason=str(error)
                )
                self._arrived(cursor)
        elif result.error_code == errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE:
            await self._out_of_range(cursor, result)
        else:
            self.failed(cursor, term, result.error_code, result.error_message)

    def _truncated(self, cursor: Cursor, term: LeaderTerm, diverging: DivergingEpoch) -> None:
        """The log lost records that were fetched: an unclean election. Nobody goes on as if nothing had happened."""
        lost_to, position = cursor.fetch_offset, cursor.position
        at = cursor.read_epochs.equal_until(epoch=diverging.epoch, end_offset=diverging.end_offset)
        if at >= lost_to:
            self.failed(
                cursor,
                term,
                errors_pb2.ERROR_CODE_UNKNOWN_LEADER_EPOCH,
                f"the leader says that its log differs, and it does not differ before offset {lost_to}",
            )
            return
        cursor.trouble.succeeded()
        if position <= at:
            # Nothing of it was handed out yet: what is there instead is read in its place.
            cursor.go_back(position)
            return
        error = LogTruncationError(
            cursor.partition, offset=position, divergent_offset=at, leader_epoch=cursor.read_epochs.before(at)
        )
        if self._reset is ResetPolicy.FAIL:
            cursor.go_back(position)
            cursor.error = error
            self._arrived(cursor)
            return
        _LOG.warning("%s; reading goes on at %d, as reset=%s asks for", error.finding, at, self._reset.value)
        cursor.go_back(at)

    async def _out_of_range(self, cursor: Cursor, result: FetchResult) -> None:
        match self._reset:
            case ResetPolicy.FAIL:
                cursor.error = OffsetOutOfRangeError(
                    cursor.partition, offset=cursor.fetch_offset, answer=result.error_message
                )
                self._arrived(cursor)
                return
            case ResetPolicy.EARLIEST:
                query = FIRST
            case ResetPolicy.LATEST:
                query = HIGH_WATERMARK
            case _:
                assert_never(self._reset)
        generation = cursor.generation
        try:
            found = await self._lookup.look_up([cursor.partition], query, timeout_s=self._request_timeout_s)
        except RegnumError as error:
            if not error.traits.retriable:
                cursor.error = error
                self._arrived(cursor)
            return
        if cursor.generation == generation:
            offset = found[cursor.partition]
            _LOG.warning(
                "%s/%d: offset %d is not in the log (%s); reading goes on at %d, as reset=%s asks for",
                *cursor.partition,
                cursor.fetch_offset,
                result.error_message,
                offset,
                self._reset.value,
            )
            cursor.go_on_at(offset)

    def failed(self, cursor: Cursor, term: LeaderTerm, code: Code, message: str, *, whole_call: bool = False) -> None:
        """A partition could not be read, alone or with all of its call: a pause, or the reader's to know."""
        traits = traits_of(code)
        # Reading may always be repeated; a call that fails as a whole is a broken connection or a broker about to end.
        if not traits.retriable and not (whole_call and code == errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR):
            where = f"{cursor.partition.topic}/{cursor.partition.partition}"
            self.give_up(cursor, code, f"{where}: {message}")
            return
        throttled = code == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED
        refresh = traits.refresh_metadata or (whole_call and not throttled)
        now_s = self._clock.monotonic()
        cursor.trouble.failed(term, message, refresh=refresh, now_s=now_s, chance=self._chance.random())
        self._tell(cursor, code, message, now_s)
        if refresh:
            self._metadata.request()

    def _tell(self, cursor: Cursor, code: Code, message: str, now_s: float) -> None:
        """Trouble that lasts is not kept from people."""
        lasted_s = cursor.trouble.lasted_s(now_s)
        where = f"{cursor.partition.topic}/{cursor.partition.partition}"
        if code == errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR and lasted_s >= STORAGE_ERROR_S:
            # Whoever goes on by seek() has as long again.
            cursor.trouble.succeeded()
            self.give_up(
                cursor,
                code,
                f"{where} cannot be read for {lasted_s:.0f} s, because of its leader's disk: {message}. See "
                f"`regnum topics describe {cursor.partition.topic}`; seek() to go on trying",
            )
        elif cursor.trouble.is_to_be_told(now_s):
            _LOG.warning("%s cannot be read for %.0f s and is tried again: %s", where, lasted_s, message)

    def give_up(self, cursor: Cursor, code: Code, message: str) -> None:
        """The reader is told instead of records."""
        cursor.error = RegnumError(code, message, metadata={"topic": cursor.partition.topic})
        self._arrived(cursor)
