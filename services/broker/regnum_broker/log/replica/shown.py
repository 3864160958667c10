"""What a replica shows to those who read while its writer writes.

Algorithm: the writer publishes by replacing references, the log end last, so a reader that takes the log end first
sees everything below it. A truncation makes the generation odd while it works; a reader that saw it change reads
again. So does compaction where it puts a segment in place of others, for whose few system calls readers wait; a reader
that several of these have disturbed has the next one wait for it, so that swaps, however many come, never end a read
without what is there. Records are removed at the front after the log start was moved behind them, so a reader whose
segment goes while it reads finds that start, and says so; what it has read by then was in the log when it began.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from regnum_model.ids import PartitionKey
from regnum_records.decompress import DECOMPRESSED_BYTES_MAX
from regnum_records.errors import CorruptBatchError, UnpackingError
from regnum_records.header import BatchHeader
from regnum_records.read import Placed, first_at_or_after

from regnum_broker.log.disk.disk import DamagedFileError
from regnum_broker.log.errors import (
    CorruptLogError,
    OffsetOutOfRangeError,
    ResourceExhaustedError,
    UnknownReplicaError,
)
from regnum_broker.log.replica.host import ReplicaHost
from regnum_broker.log.replica.segment import Segment, segment_of, timestamp_ms_max_within

READ_ATTEMPTS: Final = 4
"""Times that a read starts again beside swaps before it has them wait, and then beside truncations before it returns
nothing: the log ends elsewhere after each, so that who asks again finds something else."""

DECODED_MAX: Final = 8
"""Batches that one search decodes in vain: their heads claim a timestamp that no record of theirs has."""

T = TypeVar("T")


class ShownLog:
    """Segments and end of one replica. Reads and ``damaged`` are for any thread, all else is for the writer."""

    __slots__ = (
        "_deleted",
        "_generation",
        "_host",
        "_key",
        "_last_batch",
        "fault",
        "log_end_offset",
        "log_start_offset",
        "segments",
    )

    def __init__(
        self, key: PartitionKey, host: ReplicaHost, segments: tuple[Segment, ...], log_start_offset: int
    ) -> None:
        self._key = key
        self._host = host
        self._generation = 0
        self._deleted = False
        self._last_batch: tuple[int, BatchHeader] | None = None
        """Head of a batch that was the last one, in which generation; None: of none."""
        self.segments = segments
        """All of them, by base offset; one at least."""
        self.log_start_offset = log_start_offset
        """Offset of the first record; in the first segment, where it may lie within a batch."""
        self.log_end_offset = segments[-1].next_offset
        """Offset after the last record."""
        self.fault: CorruptLogError | None = None
        """Why the replica cannot be used any more; None: it can. Set once, for good."""

    def read(self, offset: int, *, bytes_max: int, end_offset: int | None) -> bytes:
        """See ``ReplicaLog.read``."""

        def attempt(segments: tuple[Segment, ...], log_end_offset: int) -> bytes:
            # The writer moves the start before it drops segments.
            start = max(self.log_start_offset, segments[0].base_offset)
            if not start <= offset <= log_end_offset:
                raise OffsetOutOfRangeError(offset=offset, log_start_offset=start, log_end_offset=log_end_offset)
            limit = log_end_offset if end_offset is None else min(end_offset, log_end_offset)
            if offset >= limit:
                return b""
            return segment_of(segments, offset).read(offset, end_offset=limit, bytes_max=bytes_max)

        return self._beside_writer(attempt, b"")

    def record_at_or_after(
        self,
        timestamp_ms: int,
        *,
        unpacked_bytes_max: int = DECOMPRESSED_BYTES_MAX,
        is_gone: Callable[[], bool] = bool,
    ) -> Placed | None:
        """See ``ReplicaLog.record_at_or_after``."""

        def attempt(segments: tuple[Segment, ...], _log_end_offset: int) -> Placed | None:
            start = self.log_start_offset
            young = (one for segment in segments for one in segment.batches_since(timestamp_ms, start_offset=start))
            for tries, (header, batch) in enumerate(young):
                begin = Placed(max(header.base_offset, start), None)
                if tries == DECODED_MAX or is_gone():
                    return begin
                try:
                    found = first_at_or_after(
                        batch, timestamp_ms, from_offset=start, decompressed_bytes_max=unpacked_bytes_max
                    )
                except CorruptBatchError as error:
                    if isinstance(error, UnpackingError) and unpacked_bytes_max < DECOMPRESSED_BYTES_MAX:
                        raise
                    # Its reader meets it, and hears how to go on.
                    return begin
                if found is not None:
                    return found
            return None

        return self._beside_writer(attempt, None)

    def record_of_max_timestamp(
        self, end_offset: int, *, unpacked_bytes_max: int = DECOMPRESSED_BYTES_MAX
    ) -> Placed | None:
        """See ``ReplicaLog.record_of_max_timestamp``."""

        def attempt(segments: tuple[Segment, ...], log_end_offset: int) -> Placed | None:
            start, end = self.log_start_offset, min(end_offset, log_end_offset)
            largest_ms = max(timestamp_ms_max_within(one, start, end) for one in segments)
            if largest_ms < 0:
                return None
            claiming = (one for segment in segments for one in segment.batches_since(largest_ms, start_offset=start))
            for header, batch in claiming:
                try:
                    found = first_at_or_after(
                        batch, largest_ms, from_offset=start, decompressed_bytes_max=unpacked_bytes_max
                    )
                except CorruptBatchError as error:
                    if isinstance(error, UnpackingError) and unpacked_bytes_max < DECOMPRESSED_BYTES_MAX:
                        raise
                    found = None
                return found or Placed(max(header.base_offset, start), None)
            return None

        return self._beside_writer(attempt, None)

    @property
    def last_batch(self) -> BatchHeader | None:
        """See ``ReplicaLog.last_batch``."""
        generation, header = self._last_batch or (-1, None)
        is_last = header is not None and generation == self._generation and header.next_offset == self.log_end_offset
        return header if is_last else None

    def appended(self, header: BatchHeader) -> None:
        """Remember the batch that is the last one as soon as the log's end says so. By the writer."""
        self._last_batch = self._generation, header

    def batch_at(self, offset: int) -> BatchHeader | None:
        """See ``ReplicaLog.batch_at``."""

        def attempt(segments: tuple[Segment, ...], log_end_offset: int) -> tuple[int, BatchHeader | None]:
            generation = self._generation
            if not max(self.log_start_offset, segments[0].base_offset) <= offset < log_end_offset:
                return generation, None
            return generation, segment_of(segments, offset).find_offset(offset)[1]

        nothing: tuple[int, BatchHeader | None] = (-1, None)
        generation, header = self._beside_writer(attempt, nothing)
        if header is not None and header.next_offset == self.log_end_offset:
            self._last_batch = generation, header
        return header

    def begin_at(self, offset: int, segments: tuple[Segment, ...]) -> None:
        """Show a log that begins later, and has fewer segments."""
        self.log_start_offset = offset
        self.segments = segments

    @contextmanager
    def cutting(self) -> Iterator[None]:
        """Around what takes records away: who reads meanwhile reads again.

        Raises:
            CorruptLogError: there was no room for it, and the replica cannot be used any more.
        """
        self._generation += 1
        try:
            yield
        except ResourceExhaustedError as error:
            # Half cut, and no way on or back: what the files hold is for a start to find out.
            raise self.damaged(error) from error
        finally:
            self._generation += 1

    @contextmanager
    def swapping(self) -> Iterator[None]:
        """Around what puts a segment in place of others that say the same: who comes to read meanwhile waits."""
        with self._host.swapping:
            self._generation += 1
            try:
                yield
            finally:
                self._generation += 1

    @property
    def is_deleted(self) -> bool:
        """Whether the replica was deleted. For any thread."""
        return self._deleted

    def delete(self) -> None:
        """Refuse reads from now on, and what they find meanwhile."""
        self._deleted = True
        # Odd for ever: what a read that is under way found may be of a replica that was created again.
        self._generation |= 1

    def refuse_if_unusable(self) -> None:
        """Raises UnknownReplicaError where the replica was deleted, and its fault where it has one."""
        if self._deleted:
            raise UnknownReplicaError(self._key)
        if self.fault is not None:
            raise self.fault

    def undamaged(self, work: Callable[[], T]) -> T:
        """Work with the files. Raises CorruptLogError where they are not what they were."""
        try:
            return work()
        except DamagedFileError as error:
            raise self.damaged(error) from error

    def damaged(self, error: DamagedFileError | ResourceExhaustedError) -> CorruptLogError:
        """The replica's fault from now on. Threads that find it together find one of them."""
        fault = CorruptLogError(self._key, str(error))
        if self.fault is None:
            self.fault = fault
            self._host.damaged(fault)
        return fault

    def _beside_writer(self, attempt: Callable[[tuple[Segment, ...], int], T], nothing: T) -> T:
        """Run a read that the writer may disturb: again if so, ``nothing`` if truncations go on and on."""
        found = self._undisturbed(attempt)
        if not found:
            with self._host.swapping:
                found = self._undisturbed(attempt, alone=True)
        if found:
            return found[0]
        if self._deleted:
            raise UnknownReplicaError(self._key)
        return nothing

    def _undisturbed(self, attempt: Callable[[tuple[Segment, ...], int], T], *, alone: bool = False) -> tuple[T, ...]:
        """What a read found that nothing has disturbed; empty: each attempt was. ``alone``: nothing swaps meanwhile."""
        for _ in range(READ_ATTEMPTS):
            if self._generation % 2 and not self._deleted and not alone:
                with self._host.swapping:
                    # If it is that, it is over now.
                    pass
            generation, start = self._generation, self.log_start_offset
            self.refuse_if_unusable()
            log_end_offset = self.log_end_offset
            try:
                result = attempt(self.segments, log_end_offset)
            except (DamagedFileError, OffsetOutOfRangeError) as error:
                if self._deleted or generation % 2 or self._generation != generation:
                    continue
                if isinstance(error, DamagedFileError) and self.log_start_offset != start:
                    # Its segment was removed under it.
                    continue
                if isinstance(error, DamagedFileError):
                    raise self.damaged(error) from error
                raise
            if generation % 2 == 0 and self._generation == generation:
                return (result,)
        return ()
