"""One replica: the log of one partition in one directory.

Goals: appends run at the speed of one gathering write; reads never wait for them.

Constraints: one writer thread for each directory, any number of readers; what a reader returns are whole batches that
were in the log together (``shown``).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from regnum_model.configs import ReplicaSettings
from regnum_model.ids import LeaderEpoch, PartitionKey

from regnum_broker.log.disk.disk import GuardedDisk
from regnum_broker.log.epochs import EpochCache
from regnum_broker.log.errors import CorruptLogError, ResourceExhaustedError
from regnum_broker.log.replica.folder import ReplicaFolder
from regnum_broker.log.replica.host import ReplicaHost
from regnum_broker.log.replica.leader_epochs import LeaderEpochs
from regnum_broker.log.replica.parts import (
    Appended,
    AppendOutcome,
    Part,
    admitted,
    check_continues,
    check_leads,
    replicated_parts,
)
from regnum_broker.log.replica.producer_marks import ProducerMarks
from regnum_broker.log.replica.producers import ProducerStates
from regnum_broker.log.replica.recovery import CleanEnd, Recovered, cut_producers
from regnum_broker.log.replica.rolling import LogSettings
from regnum_broker.log.replica.segment import Segment, segment_of
from regnum_broker.log.replica.shown import ShownLog
from regnum_broker.log.replica.snapshots import INTERVAL_BYTES, remove_snapshots, save_snapshot

WRITE_BACK_BYTES: Final = 16 * 1024 * 1024
"""A segment that grew by so much is brought to the disk in the background: what the writer waits for when it closes a
segment is no more than that, and not a quarter of a gigabyte."""


class ReplicaLog:
    """One replica. Created by LogDirectory only.

    Properties (``producers`` excepted), ``read``, ``offset_for_timestamp`` and ``configure`` are for any thread; all
    else is for the directory's writer thread alone.
    """

    __slots__ = (
        "_changed",
        "_defaults",
        "_disk",
        "_epochs",
        "_folder",
        "_high_watermark",
        "_host",
        "_key",
        "_marks",
        "_producers",
        "_settings",
        "_shown",
        "_since_snapshot_bytes",
        "_topic",
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
        self._disk = disk
        self._host = host
        self._defaults = self._settings = settings
        self._wall_ms = wall_ms
        has_files = bool(recovered.segments)
        self._folder = ReplicaFolder(
            folder, key=key, topic=topic, disk=disk, host=host, has_files=has_files, named=recovered.named
        )
        self._shown = ShownLog(key, host, recovered.segments or (Segment.empty(folder, disk, 0),))
        self._epochs = LeaderEpochs(key, host, recovered.epochs, recovered.highest_epoch)
        self._producers = recovered.producers
        self._marks = recovered.marks
        self._high_watermark = min(max(high_watermark, self.log_start_offset), self.log_end_offset)
        self._changed = False
        self._since_snapshot_bytes = 0
        self._unsynced = False
        self._unsynced_bytes = 0

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
        return self._shown.segments[0].base_offset

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
        """Leader epoch of the last record; -1 for an empty log."""
        return self.epochs.epoch_at(self.log_end_offset - 1)

    @property
    def producers(self) -> ProducerStates:
        """What is known of idempotent producers. For the writer thread."""
        return self._producers

    @property
    def fault(self) -> CorruptLogError | None:
        """Why the replica cannot be used any more; None: it can. Set once, for good."""
        return self._shown.fault

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size_bytes for segment in self._shown.segments)

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
        outcomes, parts = admitted(
            batches, base_offset=self.log_end_offset, leader_epoch=leader_epoch, producers=self._producers
        )
        if parts:
            self._write(parts)
        return outcomes

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
        check_continues(parts, log_end_offset=self.log_end_offset, last_epoch=self.last_record_epoch)
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
        return self._shown.read(offset, bytes_max=bytes_max, end_offset=end_offset)

    def offset_for_timestamp(self, timestamp_ms: int) -> int | None:
        """Base offset of the first batch with a timestamp at or after ``timestamp_ms``; None: no batch is that young.

        Raises:
            CorruptLogError: the files contradict themselves, or cannot be read.
            ResourceExhaustedError: no descriptor for it now.
            UnknownReplicaError: it was deleted.
        """
        return self._shown.offset_for_timestamp(timestamp_ms)

    def truncate(self, offset: int) -> int:
        """Remove records from ``offset`` on (from the batch on that contains it); returns the new log end.

        Epochs that begin at ``offset`` or later go too, also where no record does. Before the log start: removes
        everything.

        Raises:
            CorruptLogError: the files contradict themselves, or cannot be read.
            DirectoryFailedError: the disk failed.
        """
        shown = self._shown
        shown.refuse_if_unusable()
        if offset < self.log_start_offset:
            self.truncate_fully_and_start_at(max(offset, 0))
            return shown.log_end_offset
        if offset >= shown.log_end_offset:
            self._epochs.cut(offset)
            return shown.log_end_offset
        segment = segment_of(shown.segments, offset)
        kept = [other for other in shown.segments if other.base_offset < segment.base_offset]
        position, new_end = shown.undamaged(lambda: segment.find_offset(offset))
        self._host.before_change()
        with shown.cutting():
            shown.log_end_offset = new_end
            self._epochs.cut(new_end)
            for later in reversed(shown.segments[len(kept) + 1 :]):
                later.delete()
            shown.segments = (*kept, shown.undamaged(lambda: segment.cut(position, new_end)))
            cut = partial(cut_producers, self._producers, self._marks, self._folder.path, self._disk, shown.segments)
            self._producers = shown.undamaged(lambda: cut(now_ms=self._wall_ms()))
        self._changed = self._unsynced = True
        return new_end

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything; the log is then empty and begins at ``offset``."""
        shown = self._shown
        shown.refuse_if_unusable()
        self._host.before_change()
        self._folder.make()
        with shown.cutting():
            shown.log_end_offset = offset
            self._epochs.cut(0)
            remove_snapshots(self._folder.path, self._disk, above=-1)
            for segment in reversed(shown.segments):
                segment.delete()
            first = Segment.empty(self._folder.path, self._disk, offset)
            first.create()
            shown.segments = (first,)
            self._folder.note_files()
        self._producers, self._marks = ProducerStates(), ProducerMarks(offset)
        self._high_watermark = offset
        self._changed = self._unsynced = True
        self._folder.changed()

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
            self._shown.undamaged(self._shown.segments[-1].sync)
            self._unsynced = False
        self._shown.undamaged(self._folder.sync)

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
            self._save_what_quickens(last)
        return CleanEnd(base_offset=last.base_offset, size_bytes=last.size_bytes, log_end_offset=self.log_end_offset)

    def mark_deleted(self) -> None:
        """Refuse reads from now on, and what they find meanwhile. For LogDirectory.retire_replicas only."""
        self._shown.delete()

    def _write(self, parts: list[Part]) -> None:
        """Write batches that continue the log, with one system call for each segment that they touch."""
        self._shown.refuse_if_unusable()
        self._host.before_append()
        self._folder.make()
        self._shown.undamaged(lambda: self._write_on(parts))

    def _write_on(self, parts: list[Part]) -> None:
        last = self._shown.segments[-1]
        too_old = self._settings.is_too_old(last.began_ms, self._wall_ms())
        for begins, portion in self._settings.portions(parts, last.base_offset, last.size_bytes, too_old=too_old):
            if begins:
                self._roll()
            self._write_to_segment(portion)

    def _write_to_segment(self, parts: list[Part]) -> None:
        headers = [part.header for part in parts]
        if headers[0].leader_epoch < self.epochs.latest:
            # This replica led in a newer epoch and wrote nothing in it: the log's leader knows no such epoch.
            self._epochs.cut(headers[0].base_offset)
        now_ms, buffers = self._wall_ms(), [buffer for part in parts for buffer in part.buffers]
        interval_bytes = self._settings.index_interval_bytes
        self._shown.segments[-1].append(buffers, headers, now_ms=now_ms, index_interval_bytes=interval_bytes)
        self._folder.note_files()
        for header in headers:
            self._producers.apply(header, seen_ms=now_ms)
            self._marks.note(1, header.next_offset, self._producers.entries)
            self._epochs.show(LeaderEpoch(header.leader_epoch), header.base_offset)
        self._changed = self._unsynced = True
        self._shown.log_end_offset = headers[-1].next_offset
        self._grew(sum([header.size_bytes for header in headers]))

    def _grew(self, size_bytes: int) -> None:
        self._unsynced_bytes += size_bytes
        if self._unsynced_bytes >= WRITE_BACK_BYTES:
            self._unsynced_bytes = 0
            self._host.write_back(self._shown.segments[-1].path)
        self._since_snapshot_bytes += size_bytes
        if (
            self._since_snapshot_bytes >= min(INTERVAL_BYTES, self._settings.segment_bytes // 4)
            and self._producers.entries
        ):
            with suppress(ResourceExhaustedError):
                self._save_snapshot()

    def _roll(self) -> None:
        """Close the last segment for good, with all that it holds on the disk, and begin the next one."""
        last = self._shown.segments[-1]
        last.sync()
        self._unsynced_bytes = 0
        self._save_what_quickens(last)
        self._epochs.write()
        following = Segment.empty(self._folder.path, self._disk, last.next_offset)
        following.create()
        self._folder.sync(changed=True)
        self._shown.segments = (*self._shown.segments, following)

    def _save_what_quickens(self, last: Segment) -> None:
        """Save index and snapshot. A full disk has no room for what can be made again from the batches."""
        with suppress(ResourceExhaustedError):
            last.save_index()
            self._save_snapshot(at_base=True)

    def _save_snapshot(self, *, at_base: bool = False) -> None:
        self._since_snapshot_bytes = 0
        end = self.log_end_offset
        bases = {segment.base_offset for segment in self._shown.segments} | ({end} if at_base else set())
        save_snapshot(self._folder.path, self._disk, end, self._producers, bases=bases)
