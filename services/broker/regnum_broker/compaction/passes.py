"""One log's compaction, a segment at a time: between two of them others have their turn.

What takes long is a job of the cleaner's thread, and what changes the log a short job of the writer, one for each
segment. What is given up in the middle has changed nothing but what is whole.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog
from regnum_records.errors import CorruptBatchError
from regnum_service.clock import Clock

from regnum_broker.compaction.cleanable import AGAIN_MS
from regnum_broker.compaction.pace import Pace
from regnum_broker.compaction.work import NoRoomForKeysError, Noting, Work, look
from regnum_broker.log.disk.disk import DamagedFileError
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.log.replica.segment import Segment
from regnum_broker.log.replica.swapping import CleanedSegment
from regnum_broker.storage import Storage

_COPY_ANEW: Final = (
    "its files are damaged here: while another replica is in sync, have this one copied again: `regnum partitions"
    " reassign` to the others, and back"
)
_MORE_MEMORY: Final = "give the cleaner more memory (--log-cleaner-dedupe-buffer-bytes), and start the broker anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a pass ended."""

    again_ms: int | None
    """When to look at the log again, milliseconds since 1970; None: when something is written."""
    is_damaged: bool = False
    """It cannot be compacted as it is, and is not tried again."""


class Pass:
    """Belongs to the event loop."""

    def __init__(
        self,
        log: ReplicaLog,
        *,
        high_watermark: int,
        keys_max: int,
        salt: int,
        storage: Storage,
        pace: Pace,
        clock: Clock,
        expiry_now_ms: Callable[[], int | None],
    ) -> None:
        """Only assigns.

        Args:
            log: which.
            high_watermark: everything below is committed.
            keys_max: so many keys are kept in memory.
            salt: of the map of keys.
            storage: has the threads.
            pace: of the cleaner's.
            clock: source of time.
            expiry_now_ms: milliseconds since 1970, as far as anything is old by that; None: nothing is.
        """
        self._expiry_now_ms: Final = expiry_now_ms
        self.log: Final = log
        """Which."""
        self.read_bytes = self.written_bytes = 0
        """Bytes of segments gone through so far, and of what was made of them."""
        self._high_watermark: Final = high_watermark
        self._keys_max: Final = keys_max
        self._salt: Final = salt
        self._storage: Final = storage
        self._pace: Final = pace
        self._clock: Final = clock
        self._noting: Noting | None = None
        self._work: Work | None = None
        self._reading: tuple[Segment, ...] = ()
        """Segments that are gone through."""
        self._groups: Final[deque[tuple[Segment, ...]]] = deque()
        self._after_bytes = 0
        self._log: Final = structlog.get_logger("log cleaner")

    async def step(self) -> Ended | None:
        """Go through the next segment, or those that become one; None: there is more to do.

        Raises:
            CompactionStoppedError: the broker stops.
            UnknownReplicaError: the log was deleted.
            CorruptLogError: it cannot be used any more.
            ResourceExhaustedError: no room for what is made of it.
            DirectoryFailedError: the disk failed.
        """
        if not self.log.settings.is_compacted:
            return Ended(again_ms=None)
        try:
            return await self._step()
        except (DamagedFileError, CorruptBatchError) as error:
            return await self._given_up(error, _COPY_ANEW)
        except NoRoomForKeysError as error:
            return await self._given_up(error, _MORE_MEMORY)

    async def _step(self) -> Ended | None:
        if self._work is None:
            ended = await self._storage.clean(self._noted)
            if self._work is not None:
                self._groups.extend(self._work.groups)
            return ended
        if self._groups:
            return await self._rewrite(self._work, self._groups.popleft())
        return await self._finish(self._work)

    def _noted(self) -> Ended | None:
        """On the cleaner's thread."""
        log, expiry_ms = self.log, self._expiry_now_ms()
        now_ms = self._clock.wall_ms() if expiry_ms is None else expiry_ms
        self._pace.begin()
        if self._noting is None:
            closed, found = look(log, high_watermark=self._high_watermark, now_ms=now_ms, by_age=expiry_ms is not None)
            if not found.is_due:
                return Ended(again_ms=found.again_ms)
            self._reading = closed
            self._noting = Noting(log, closed, found, keys_max=self._keys_max, salt=self._salt)
        self.read_bytes += self._noting.next_bytes
        if self._noting.step(went_on=self._pace.went_on):
            self._work = self._noting.work(now_ms=expiry_ms)
        return None

    async def _rewrite(self, work: Work, group: tuple[Segment, ...]) -> Ended | None:
        made = await self._storage.clean(partial(self._rewritten, work, group))
        if isinstance(made, Ended):
            return made
        size_bytes = sum(segment.size_bytes for segment in group)
        self.read_bytes += size_bytes
        if made is None:
            self._after_bytes += size_bytes
            return None
        self.written_bytes += made.summary.size_bytes
        self._after_bytes += made.summary.size_bytes
        if not await self._storage.write(partial(self.log.swap, group, made, cuts=work.cuts)):
            return Ended(again_ms=self._clock.wall_ms() + AGAIN_MS)
        return None

    def _rewritten(self, work: Work, group: tuple[Segment, ...]) -> CleanedSegment | Ended | None:
        """On the cleaner's thread: what takes the place of some segments; None: they stay."""
        self._pace.begin()
        if not self.log.is_made_of(group):
            return Ended(again_ms=self._clock.wall_ms() + AGAIN_MS)
        self._reading = group
        return work.rewrite(group, went_on=self._pace.went_on)

    async def _finish(self, work: Work) -> Ended:
        storage, log = self._storage, self.log
        if storage.directory.files_left:
            storage.remove_files()
        if work.retention.left_count:
            self._log.warning(
                "batches left as they are",
                topic=log.topic,
                partition=log.key.partition,
                offsets=work.retention.left,
                count=work.retention.left_count,
                reason="they cannot be decoded, or not be made smaller; their checksums are right",
                effect="they stay, here and in every copy; `regnum consume --skip-unreadable` reads past those that"
                " cannot be decoded",
            )
        # Here, and not where appends wait for it.
        await storage.clean(log.sync_swapped)
        await storage.write(partial(log.note_cleaned, work.until, now_ms=self._clock.wall_ms(), cuts=work.cuts))
        self._log.info(
            "log compacted",
            topic=log.topic,
            partition=log.key.partition,
            until=work.until,
            bytes_before=work.size_bytes,
            bytes_after=self._after_bytes,
        )
        # There may be more than there was memory for, or more by now.
        return Ended(again_ms=self._clock.wall_ms())

    async def _given_up(self, error: Exception, advice: str) -> Ended:
        """Segments could not be read: they are not in the log any more, or the log is not compacted any more."""
        reading = self._reading
        # Asked of the writer: a truncation that is under way takes files away before it shows what is left.
        if not reading or not await self._storage.write(partial(self.log.is_made_of, reading)):
            # They were truncated, or deleted, while they were read.
            return Ended(again_ms=self._clock.wall_ms() + AGAIN_MS)
        self._log.error(
            "log cannot be compacted",
            topic=self.log.topic,
            partition=self.log.key.partition,
            reason=str(error),
            effect=f"it grows; {advice}",
        )
        return Ended(again_ms=None, is_damaged=True)
