"""One replica: the log of one partition in one directory.

Goals: appends run at the speed of one gathering write; reads never wait for them.

Constraints: one writer thread for each directory, any number of readers; what a reader returns are whole batches that
were in the log together (``shown``).
"""

from collections.abc import Callable, Sequence

from regnum_model.configs import ReplicaSettings
from regnum_model.ids import NO_EPOCH, LeaderEpoch, PartitionKey
from regnum_records.decompress import DECOMPRESSED_BYTES_MAX
from regnum_records.header import BatchHeader
from regnum_records.read import Placed

from regnum_broker.log.disk.disk import DamagedFileError, GuardedDisk
from regnum_broker.log.epochs import EpochCache
from regnum_broker.log.errors import CorruptLogError, ResourceExhaustedError
from regnum_broker.log.replica.cutting import Cutting
from regnum_broker.log.replica.folder import ReplicaFolder
from regnum_broker.log.replica.host import ReplicaHost
from regnum_broker.log.replica.leader_epochs import LeaderEpochs
from regnum_broker.log.replica.parts import (
    Appended,
    AppendOutcome,
    admitted,
    check_continues,
    check_leads,
    continuing,
    replicated_parts,
)
from regnum_broker.log.replica.producers.memory import ProducerMemory
from regnum_broker.log.replica.producers.states import Duplicate, ProducerStates
from regnum_broker.log.replica.rolling import LogSettings
from regnum_broker.log.replica.segment import Segment
from regnum_broker.log.replica.shown import ShownLog
from regnum_broker.log.replica.starting.recovery import CleanEnd, Recovered


class ReplicaLog(Cutting):
    """One replica. Created by LogDirectory only.

    Properties (``producers`` excepted), ``read``, ``batch_at``, ``record_...`` and ``configure`` are for any
    thread; all else is for the directory's writer thread alone.
    """

    __slots__ = ("_defaults",)

    def __init__(
        self,
        *,
        key: PartitionKey,
        topic: str,
        folder: str,
        disk: GuardedDisk,
        host: ReplicaHost,
        recovered: Recovered,
        high_watermark: int,
        settings: LogSettings,
        wall_ms: Callable[[], int],
    ) -> None:
        self._defaults = settings
        own_folder = ReplicaFolder(
            folder,
            key=key,
            topic=topic,
            disk=disk,
            host=host,
            has_files=bool(recovered.segments),
            named=recovered.named,
        )
        super().__init__(
            shown=ShownLog(
                key, host, recovered.segments or (Segment.empty(folder, disk, 0),), recovered.log_start_offset
            ),
            epochs=LeaderEpochs(key, host, recovered.epochs, recovered.highest_epoch),
            producers=ProducerMemory(own_folder, recovered.producers, recovered.marks),
            folder=own_folder,
            host=host,
            settings=settings,
            wall_ms=wall_ms,
        )
        self._take_up(recovered)
        self._high_watermark = min(max(high_watermark, self.log_start_offset), self.log_end_offset)

    @property
    def key(self) -> PartitionKey:
        """Topic id and partition."""
        return self._folder.key

    @property
    def topic(self) -> str:
        """Topic name."""
        return self._folder.topic

    @property
    def log_start_offset(self) -> int:
        """First offset of the log."""
        return self._shown.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """Offset after the last record."""
        return self._shown.log_end_offset

    @property
    def high_watermark(self) -> int:
        """The high watermark of the checkpoint when the directory was opened, within start and end of the log."""
        return self._high_watermark

    @property
    def epochs(self) -> EpochCache:
        """Which leader epoch began where."""
        return self._epochs.cache

    @property
    def highest_leader_epoch(self) -> LeaderEpoch:
        """Highest leader epoch ever recorded here, also if its records were truncated; -1: none (safety rule S11)."""
        return self._epochs.highest

    @property
    def leader_epochs(self) -> LeaderEpochs:
        """The same, and what of them the journal lacks. For LogDirectory only."""
        return self._epochs

    @property
    def last_record_epoch(self) -> LeaderEpoch:
        """Leader epoch of the last record, also if it was deleted since; -1: there was none in the log as it is."""
        return self.epochs.epoch_at(self.log_end_offset - 1)

    @property
    def last_batch(self) -> BatchHeader | None:
        """Head of the last batch, where it is in memory; ``batch_at`` takes it there. None: it is not, or none is."""
        return self._shown.last_batch

    @property
    def producers(self) -> ProducerStates:
        """What is known of idempotent producers. For the writer thread."""
        return self._producers.states

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Its segments, by base offset; one at least. To be looked at only."""
        return self._shown.segments

    @property
    def settings(self) -> LogSettings:
        """How it is kept."""
        return self._settings

    @property
    def fault(self) -> CorruptLogError | None:
        """Why the replica cannot be used any more; None: it can. Set once, for good."""
        return self._shown.fault

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size_bytes for segment in self._shown.segments)

    def found_damaged(self, reason: str) -> CorruptLogError:
        """Use the replica no more: somebody who has read it says that its records are damaged. For any thread."""
        return self._shown.damaged(DamagedFileError(reason))

    def configure(self, settings: ReplicaSettings) -> None:
        """Keep the log by these settings from the next append on. For any thread."""
        self._settings = self._defaults.told(settings)

    def append_as_leader(self, batches: Sequence[bytes], *, leader_epoch: LeaderEpoch) -> list[AppendOutcome]:
        """Append what was accepted (``check_batch``): check sequences, assign offsets and epoch, write all at once.

        One outcome for each batch, in order. A batch that is refused or a duplicate is not written; the others are.

        Raises:
            NotContiguousError: a newer leader epoch is known here; nothing was appended.
            ResourceExhaustedError: no room for all of it; of several batches, the first may have been appended.
            CorruptLogError: a file was removed or cut under the process.
            DirectoryFailedError: the write failed.
        """
        check_leads(leader_epoch, latest=self.epochs.latest)
        self._refuse_if_behind()
        outcomes, parts = admitted(
            batches, base_offset=self.written_end_offset, leader_epoch=leader_epoch, producers=self._producers.states
        )
        if parts:
            self._write(parts)
        else:
            self._flush_hidden()
        return outcomes

    def appended_before(self, header: BatchHeader) -> Duplicate | None:
        """Where a batch with that head stands, if it came before and is remembered; it is brought to the disk."""
        found = self._producers.states.check(header)
        if not isinstance(found, Duplicate):
            return None
        self._flush_hidden()
        return found

    def _flush_hidden(self) -> None:
        # What is repeated may not be on the disk yet, and then counts no more than it did the first time.
        if self._aside is not None and self._aside.hidden:
            self._host.flush_now(self)

    def append_replicated(self, buffer: bytes) -> Appended | None:
        """Append what a follower fetched: verify checksums and continuity first, record new epochs.

        A torn batch at the end is left out (it will be fetched again). None: there was no whole batch.

        Raises:
            CorruptBatchError: a checksum or a field is wrong; nothing was appended.
            NotContiguousError: they do not continue the log; nothing was appended.
            ResourceExhaustedError: no room for all of it; the first batches may have been appended.
            CorruptLogError: a file was removed or cut under the process.
            DirectoryFailedError: the write failed.
        """
        end = self.written_end_offset
        parts = continuing(replicated_parts(buffer), log_end_offset=end, last_epoch=self.epochs.epoch_at(end - 1))
        if not parts:
            return None
        first, start = parts[0].header, self.log_start_offset
        within = first.base_offset < start == self.written_end_offset < first.next_offset
        if within:
            # The leader's log begins within this batch. It is taken whole, and the log begins in it here as well.
            check_continues(parts, log_end_offset=first.base_offset, last_epoch=NO_EPOCH)
            self._host.before_append()
            self._start_anew(first.base_offset, begins=start)
        end = self.written_end_offset
        check_continues(parts, log_end_offset=end, last_epoch=self.epochs.epoch_at(end - 1))
        try:
            self._write(parts)
        except ResourceExhaustedError:
            if within:
                self._start_anew(start)
            raise
        if within:
            if self.written_end_offset > self.log_end_offset:
                self.flush()
            self.begin_at(start)
        return Appended(base_offset=parts[0].header.base_offset, last_offset=parts[-1].header.last_offset)

    def read(self, offset: int, *, bytes_max: int, end_offset: int | None = None) -> bytes:
        """Whole batches from the one that contains ``offset`` on, up to about ``bytes_max``, but at least one.

        Nothing at or after ``end_offset`` (None: the log end). It may be less than is there: the next call goes on.

        Raises:
            OffsetOutOfRangeError: ``offset`` is before the log start or after the log end.
            CorruptLogError: the files contradict themselves, or cannot be read.
            ResourceExhaustedError: no descriptor for it now.
            UnknownReplicaError: it was deleted.
        """
        return self._shown.read(offset, bytes_max=bytes_max, end_offset=end_offset)

    def batch_at(self, offset: int) -> BatchHeader | None:
        """Head of the batch that contains an offset; None: the log has none, or what it has changes all the time.

        Raises:
            CorruptLogError: the files contradict themselves, or cannot be read.
            ResourceExhaustedError: no descriptor for it now.
            UnknownReplicaError: it was deleted.
        """
        return self._shown.batch_at(offset)

    def record_at_or_after(
        self,
        timestamp_ms: int,
        *,
        unpacked_bytes_max: int = DECOMPRESSED_BYTES_MAX,
        is_gone: Callable[[], bool] = bool,
    ) -> Placed | None:
        """The first record with a timestamp at or after ``timestamp_ms``; None: none is that young.

        Reads and decodes one batch, which the index finds; further ones only behind heads that claim what no record of
        theirs has. Where a batch cannot be decoded, or too many heads claim too much, it is the begin of the batch,
        without a timestamp: nothing at or after the moment lies before it.

        Args:
            timestamp_ms: milliseconds since 1970.
            unpacked_bytes_max: no batch is decompressed to more.
            is_gone: whether nobody waits any more; then what is returned is not what was asked for.

        Raises:
            UnpackingError: a batch has more than ``unpacked_bytes_max``, which is less than any may have.
            CorruptLogError: the files contradict themselves, or cannot be read.
            ResourceExhaustedError: no descriptor for it now.
            UnknownReplicaError: it was deleted.
        """
        return self._shown.record_at_or_after(timestamp_ms, unpacked_bytes_max=unpacked_bytes_max, is_gone=is_gone)

    def record_of_max_timestamp(
        self, end_offset: int, *, unpacked_bytes_max: int = DECOMPRESSED_BYTES_MAX
    ) -> Placed | None:
        """The first record below ``end_offset`` with the largest timestamp; None: none has one.

        By what heads of batches say: where no record of the batch has it, or it cannot be decoded, it is the begin of
        the batch, without a timestamp. Raises as ``record_at_or_after``.
        """
        return self._shown.record_of_max_timestamp(end_offset, unpacked_bytes_max=unpacked_bytes_max)

    def expire_producers(self, before_ms: int) -> int:
        """Forget producers that have appended nothing since (milliseconds since 1970); returns how many."""
        expired = self._producers.expire(before_ms)
        # Their last snapshot names them still, and is as old as they are.
        self._changed = self._changed or bool(expired)
        return len(expired)

    def close_cleanly(self) -> CleanEnd | None:
        """Flush, and save what makes the next start quick. For LogDirectory.close only.

        Returns where the log ends (None: no files).

        Raises:
            CorruptLogError: the file was removed under the process.
            DirectoryFailedError: the disk failed.
        """
        if not self._folder.has_files:
            return None
        self.flush()
        last = self._shown.segments[-1]
        if self._changed:
            self._save_what_quickens()
        return CleanEnd(base_offset=last.base_offset, size_bytes=last.size_bytes, log_end_offset=self.log_end_offset)

    def mark_deleted(self) -> None:
        """Refuse reads from now on, and what they find meanwhile. For LogDirectory.retire_replicas only."""
        self._shown.delete()
        for segment in self._shown.segments:
            segment.retire()
