"""One replica: the log of one partition in one directory.

Goals: appends run at the speed of one gathering write; reads never wait for them.

Constraints: one writer thread for
each directory, any number of readers; what a reader returns are whole batches that were in the log together.

Algorithm: the writer publishes by replacing references, the log end last, so a reader that takes the log end first
sees everything below it. A truncation makes the generation odd while it works; a reader that saw it change reads
again.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from regnum_model.configs import ReplicaSettings
from regnum_model.ids import LeaderEpoch, PartitionKey

from regnum_broker.log.disk.disk import DamagedFileError, GuardedDisk
from regnum_broker.log.epochs import EpochCache
from regnum_broker.log.errors import (
    CorruptLogError,
    NotContiguousError,
    OffsetOutOfRangeError,
    ResourceExhaustedError,
    UnknownReplicaError,
)
from regnum_broker.log.folders import NAME_FILE, name_folder
from regnum_broker.log.journal.entries import EpochBegun, Truncated
from regnum_broker.log.replica.host import ReplicaHost
from regnum_broker.log.replica.parts import (
    Appended,
    AppendOutcome,
    Part,
    admitted,
    assigned_parts,
    check_continues,
    replicated_parts,
)
from regnum_broker.log.replica.producer_marks import ProducerMarks
from regnum_broker.log.replica.producers import ProducerStates
from regnum_broker.log.replica.recovery import CleanEnd, Recovered, cut_producers
from regnum_broker.log.replica.rolling import LogSettings
from regnum_broker.log.replica.segment import Segment, segment_of
from regnum_broker.log.replica.snapshots import INTERVAL_BYTES, remove_snapshots, save_snapshot

READ_ATTEMPTS: Final = 4
"""Times that a read starts again beside truncations before it returns nothing."""
WRITE_BACK_BYTES: Final = 16 * 1024 * 1024
"""A segment that grew by so much is brought to the disk in the background: what the writer waits for when it closes a
segment is no more than that, and not a quarter of a gigabyte."""

T = TypeVar("T")


class ReplicaLog:
    """One replica. Created by LogDirectory only.

    Properties (``producers`` excepted), ``read``, ``offset_for_timestamp`` and ``configure`` are for any thread; all
    else is for the directory's writer thread alone.
    """

    __slots__ = (
        "_changed",
        "_defaults",
        "_deleted",
        "_disk",
        "_epochs",
        "_fault",
        "_files_noted",
        "_folder",
        "_generation",
        "_has_files",
        "_high_watermark",
        "_highest_epoch",
        "_host",
        "_key",
        "_log_end_offset",
        "_marks",
        "_named",
        "_names_unsynced",
        "_producers",
        "_segments",
        "_settings",
        "_since_snapshot_bytes",
        "_topic",
        "_unjournaled",
        "_unsynced",
        "_unsynced_bytes",
        "_wall_ms",
    )

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
        self._key = key
        self._topic = topic
        self._folder = folder
        self._disk = disk
        self._host = host
        self._defaults = self._settings = settings
        self._wall_ms = wall_ms
        self._has_files = self._files_noted = bool(recovered.segments)
        self._segments = recovered.segments or (Segment.empty(folder, disk, 0),)
        self._named = recovered.named
        self._log_end_offset = self._segments[-1].next_offset
        self._epochs = recovered.epochs
        self._highest_epoch = recovered.highest_epoch
        self._unjournaled: tuple[EpochBegun, ...] = ()
        self._producers = recovered.producers
        self._marks = recovered.marks
        self._high_watermark = min(max(high_watermark, self._segments[0].base_offset), self._log_end_offset)
        self._generation = 0
        self._changed = False
        self._since_snapshot_bytes = 0
        self._unsynced = False
        self._unsynced_bytes = 0
        self._names_unsynced = False
        self._deleted = False
        self._fault: CorruptLogError | None = None

    @property
    def key(self) -> PartitionKey:
        """Topic id and partition."""
        return self._key

    @property
    def topic(self) -> str:
        """Topic name."""
        return self._topic

    @property
    def log_start_offset(self) -> int:
        """First offset of the log."""
        return self._segments[0].base_offset

    @property
    def log_end_offset(self) -> int:
        """Offset after the last record."""
        return self._log_end_offset

    @property
    def high_watermark(self) -> int:
        """The high watermark of the checkpoint when the directory was opened, within start and end of the log."""
        return self._high_watermark

    @property
    def epochs(self) -> EpochCache:
        """Which leader epoch began where."""
        return self._epochs

    @property
    def highest_leader_epoch(self) -> LeaderEpoch:
        """Highest leader epoch ever recorded here, also if its records were truncated; -1: none (safety rule S11)."""
        return self._highest_epoch

    @property
    def last_record_epoch(self) -> LeaderEpoch:
        """Leader epoch of the last record; -1 for an empty log."""
        return self._epochs.epoch_at(self._log_end_offset - 1)

    @property
    def producers(self) -> ProducerStates:
        """What is known of idempotent producers. For the writer thread."""
        return self._producers

    @property
    def fault(self) -> CorruptLogError | None:
        """Why the replica cannot be used any more; None: it can. Set once, for good."""
        return self._fault

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size_bytes for segment in self._segments)

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
        if leader_epoch < max(self._epochs.latest, 0):
            raise NotContiguousError(
                f"leader epoch {leader_epoch} is older than {self._epochs.latest}: another leader wrote since"
            )
        outcomes, parts = admitted(
            batches, base_offset=self._log_end_offset, leader_epoch=leader_epoch, producers=self._producers
        )
        if parts:
            self._write(parts)
        return outcomes

    def append(self, batches: Sequence[bytes | bytearray]) -> Appended:
        """Append batches that have their offsets and leader epoch already, in one write. Sequences are not checked.

        Raises:
            NotContiguousError: they do not continue the log.
            DirectoryFailedError: the write failed.
        """
        parts = assigned_parts(batches)
        if not parts:
            raise ValueError("give at least one batch")
        check_continues(parts, log_end_offset=self._log_end_offset, last_epoch=self.last_record_epoch)
        self._write(parts)
        return Appended(base_offset=parts[0].header.base_offset, last_offset=parts[-1].header.last_offset)

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
        parts = replicated_parts(buffer)
        if not parts:
            return None
        check_continues(parts, log_end_offset=self._log_end_offset, last_epoch=self.last_record_epoch)
        self._write(parts)
        return Appended(base_offset=parts[0].header.base_offset, last_offset=parts[-1].header.last_offset)

    def read(self, offset: int, *, bytes_max: int, end_offset: int | None = None) -> bytes:
        """Whole batches from the one that contains ``offset`` on, up to about ``bytes_max``, but at least one.

        Nothing at or after ``end_offset`` is returned (None: the log end); empty if nothing is there. One call may
        return less than is there: the next one goes on.

        Raises:
            OffsetOutOfRangeError: ``offset`` is before the log start or after the log end.
            CorruptLogError: the files contradict themselves, or cannot be read.
            ResourceExhaustedError: no descriptor for it now.
            UnknownReplicaError: it was deleted.
        """

        def attempt(segments: tuple[Segment, ...], log_end_offset: int) -> bytes:
            if not segments[0].base_offset <= offset <= log_end_offset:
                raise OffsetOutOfRangeError(
                    offset=offset, log_start_offset=segments[0].base_offset, log_end_offset=log_end_offset
                )
            limit = log_end_offset if end_offset is None else min(end_offset, log_end_offset)
            if offset >= limit:
                return b""
            return segment_of(segments, offset).read(offset, end_offset=limit, bytes_max=bytes_max)

        return self._beside_writer(attempt, b"")

    def offset_for_timestamp(self, timestamp_ms: int) -> int | None:
        """Base offset of the first batch with a timestamp at or after ``timestamp_ms``; None: no batch is that young.

        Raises:
            CorruptLogError: the files contradict themselves, or cannot be read.
            ResourceExhaustedError: no descriptor for it now.
            UnknownReplicaError: it was deleted.
        """

        def attempt(segments: tuple[Segment, ...], _log_end_offset: int) -> int | None:
            found = (segment.find_timestamp(timestamp_ms) for segment in segments)
            return next((offset for offset in found if offset is not None), None)

        return self._beside_writer(attempt, None)

    def _beside_writer(self, attempt: Callable[[tuple[Segment, ...], int], T], nothing: T) -> T:
        """Run a read that a truncation beside it may disturb: again if so, ``nothing`` if it goes on."""
        for _ in range(READ_ATTEMPTS):
            generation = self._generation
            if self._deleted:
                raise UnknownReplicaError(self._key)
            if self._fault is not None:
                raise self._fault
            log_end_offset = self._log_end_offset
            try:
                result = attempt(self._segments, log_end_offset)
            except (DamagedFileError, OffsetOutOfRangeError) as error:
                if self._deleted or generation % 2 or self._generation != generation:
                    continue
                if isinstance(error, DamagedFileError):
                    raise self._damaged(error) from error
                raise
            if generation % 2 == 0 and self._generation == generation:
                return result
        if self._deleted:
            raise UnknownReplicaError(self._key)
        return nothing

    def truncate(self, offset: int) -> int:
        """Remove records from ``offset`` on (from the batch on that contains it); returns the new log end.

        Epochs that begin at ``offset`` or later go too, also where no record does. Before the log start: removes
        everything.

        Raises:
            CorruptLogError: the files contradict themselves, or cannot be read.
            DirectoryFailedError: the disk failed.
        """
        self._refuse_if_unusable()
        if offset < self.log_start_offset:
            self.truncate_fully_and_start_at(max(offset, 0))
            return self._log_end_offset
        if offset >= self._log_end_offset:
            self._cut_epochs(offset)
            return self._log_end_offset
        segment = segment_of(self._segments, offset)
        kept = [other for other in self._segments if other.base_offset < segment.base_offset]
        position, new_end = self._undamaged(lambda: segment.find_offset(offset))
        self._host.before_change()
        self._generation += 1
        try:
            self._log_end_offset = new_end
            self._cut_epochs(new_end)
            for later in reversed(self._segments[len(kept) + 1 :]):
                later.delete()
            cut = self._undamaged(lambda: segment.cut(position, new_end))
            self._segments = (*kept, cut)
            remove_snapshots(self._folder, self._disk, above=new_end)
            states, now_ms = self._producers, self._wall_ms()
            self._producers = self._undamaged(
                lambda: cut_producers(states, self._marks, self._folder, self._disk, self._segments, now_ms=now_ms)
            )
        except ResourceExhaustedError as error:
            # Half cut, and no way on or back: what the files hold is for a start to find out.
            raise self._damaged(error) from error
        finally:
            self._generation += 1
        self._changed = self._unsynced = True
        return new_end

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything; the log is then empty and begins at ``offset``."""
        self._refuse_if_unusable()
        self._host.before_change()
        self._make_folder()
        self._generation += 1
        try:
            self._log_end_offset = offset
            self._cut_epochs(0)
            remove_snapshots(self._folder, self._disk, above=-1)
            for segment in reversed(self._segments):
                segment.delete()
            first = Segment.empty(self._folder, self._disk, offset)
            first.create()
            self._segments = (first,)
            self._note_files()
        except ResourceExhaustedError as error:
            raise self._damaged(error) from error
        finally:
            self._generation += 1
        self._producers, self._marks = ProducerStates(), ProducerMarks(offset)
        self._high_watermark = offset
        self._changed = self._unsynced = self._names_unsynced = True

    def assign_epoch(self, epoch: LeaderEpoch, start_offset: int) -> None:
        """Note an epoch that the journal has. For LogDirectory.record_leader_epochs only."""
        self._epochs = self._epochs.assign(epoch, start_offset)
        self._highest_epoch = max(self._highest_epoch, epoch)

    @property
    def unjournaled(self) -> Sequence[EpochBegun]:
        """Epochs that batches showed and the journal lacks. For LogDirectory only."""
        return self._unjournaled

    def journaled(self) -> None:
        """Take up that the journal lacks none. For LogDirectory only."""
        self._unjournaled = ()

    def expire_producers(self, before_ms: int) -> int:
        """Forget producers that have appended nothing since (milliseconds since 1970); returns how many."""
        expired = self._producers.expire(before_ms)
        self._marks.forget(expired, self._producers.entries)
        # Their last snapshot names them still, and is as old as they are.
        self._changed = self._changed or bool(expired)
        return len(expired)

    def flush(self) -> None:
        """Bring to the disk what was appended.

        Raises:
            CorruptLogError: the file was removed under the process.
            DirectoryFailedError: it failed.
        """
        if self._unsynced:
            self._undamaged(self._segments[-1].sync)
            self._unsynced = False
        if self._names_unsynced:
            self._undamaged(lambda: self._disk.sync(f"{self._folder}/{NAME_FILE}"))
            self._disk.sync_directory(self._folder)
            self._names_unsynced = False

    def close_cleanly(self) -> CleanEnd | None:
        """Flush, and save what makes the next start quick. For LogDirectory.close only.

        Returns where the log ends (None: no files).

        Raises:
            CorruptLogError: the file was removed under the process.
            DirectoryFailedError: the disk failed.
        """
        if not self._has_files:
            return None
        self.flush()
        last = self._segments[-1]
        if self._changed:
            self._save_what_quickens(last)
        return CleanEnd(base_offset=last.base_offset, size_bytes=last.size_bytes, log_end_offset=self._log_end_offset)

    def mark_deleted(self) -> None:
        """Refuse reads from now on, and what they find meanwhile. For LogDirectory.retire_replicas only."""
        self._deleted = True
        # Odd for ever: what a read that is under way found may be of a replica that was created again.
        self._generation |= 1

    def _write(self, parts: list[Part]) -> None:
        """Write batches that continue the log, with one system call for each segment that they touch."""
        self._refuse_if_unusable()
        self._host.before_append()
        self._make_folder()
        self._undamaged(lambda: self._write_on(parts))

    def _write_on(self, parts: list[Part]) -> None:
        last = self._segments[-1]
        too_old = self._settings.is_too_old(last.began_ms, self._wall_ms())
        for begins, portion in self._settings.portions(parts, last.base_offset, last.size_bytes, too_old=too_old):
            if begins:
                self._roll()
            self._write_to_segment(portion)

    def _write_to_segment(self, parts: list[Part]) -> None:
        headers = [part.header for part in parts]
        if headers[0].leader_epoch < self._epochs.latest:
            # This replica led in a newer epoch and wrote nothing in it: the log's leader knows no such epoch.
            self._cut_epochs(headers[0].base_offset)
        now_ms, buffers = self._wall_ms(), [buffer for part in parts for buffer in part.buffers]
        interval_bytes = self._settings.index_interval_bytes
        self._segments[-1].append(buffers, headers, now_ms=now_ms, index_interval_bytes=interval_bytes)
        self._note_files()
        for header in headers:
            self._producers.apply(header, seen_ms=now_ms)
            self._marks.note(1, header.next_offset, self._producers.entries)
            epoch = LeaderEpoch(header.leader_epoch)
            if epoch != self._epochs.latest:
                self._epochs = self._epochs.assign(epoch, header.base_offset)
                self._highest_epoch = max(self._highest_epoch, epoch)
                begun = EpochBegun(key=self._key, epoch=epoch, start_offset=header.base_offset)
                self._unjournaled = (*self._unjournaled, begun)
        self._changed = self._unsynced = True
        self._log_end_offset = headers[-1].next_offset
        self._grew(sum([header.size_bytes for header in headers]))

    def _grew(self, size_bytes: int) -> None:
        self._unsynced_bytes += size_bytes
        if self._unsynced_bytes >= WRITE_BACK_BYTES:
            self._unsynced_bytes = 0
            self._host.write_back(self._segments[-1].path)
        self._since_snapshot_bytes += size_bytes
        if (
            self._since_snapshot_bytes >= min(INTERVAL_BYTES, self._settings.segment_bytes // 4)
            and self._producers.entries
        ):
            with suppress(ResourceExhaustedError):
                self._save_snapshot()

    def _make_folder(self) -> None:
        if not self._has_files:
            self._disk.make_directory(self._folder)
        if not self._named:
            name_folder(self._folder, self._key, self._topic, self._disk)
            self._named = self._names_unsynced = True

    def _note_files(self) -> None:
        """Write down that there is a file, once there is one: a file that is missing from then on was lost."""
        if self._files_noted:
            return
        if not self._has_files:
            self._has_files = self._names_unsynced = True
        self._host.note_files(self._key, self._take_note)

    def _take_note(self) -> None:
        self._files_noted = True

    def _roll(self) -> None:
        """Close the last segment for good, with all that it holds on the disk, and begin the next one."""
        last = self._segments[-1]
        last.sync()
        self._unsynced_bytes = 0
        self._save_what_quickens(last)
        self._host.record(self._unjournaled, sync=True)
        self._unjournaled = ()
        following = Segment.empty(self._folder, self._disk, last.next_offset)
        following.create()
        self._disk.sync_directory(self._folder)
        self._segments = (*self._segments, following)
        self._names_unsynced = False

    def _cut_epochs(self, offset: int) -> None:
        epochs = self._epochs.truncate_from_end(offset)
        if epochs is not self._epochs:
            self._host.record([Truncated(key=self._key, offset=offset)], sync=False)
            self._unjournaled = tuple([entry for entry in self._unjournaled if entry.start_offset < offset])
            self._epochs = epochs

    def _save_what_quickens(self, last: Segment) -> None:
        """Save index and snapshot. A full disk has no room for what can be made again from the batches."""
        with suppress(ResourceExhaustedError):
            last.save_index()
            self._save_snapshot(at_base=True)

    def _save_snapshot(self, *, at_base: bool = False) -> None:
        self._since_snapshot_bytes = 0
        end = self._log_end_offset
        bases = {segment.base_offset for segment in self._segments} | ({end} if at_base else set())
        save_snapshot(self._folder, self._disk, end, self._producers, bases=bases)

    def _refuse_if_unusable(self) -> None:
        if self._deleted:
            raise UnknownReplicaError(self._key)
        if self._fault is not None:
            raise self._fault

    def _undamaged(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except DamagedFileError as error:
            raise self._damaged(error) from error

    def _damaged(self, error: DamagedFileError | ResourceExhaustedError) -> CorruptLogError:
        """The replica's fault from now on. Threads that find it together find one of them."""
        fault = CorruptLogError(self._key, str(error))
        if self._fault is None:
            self._fault = fault
            self._host.damaged(fault)
        return fault
