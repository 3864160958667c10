"""Where a replica grows: its last segment, when that is closed, and what is brought to the disk with it.

A part of each ``ReplicaLog``, and no object of its own: a broker has thousands of them.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from regnum_model.ids import LeaderEpoch

from regnum_broker.log.disk.disk import GuardedDisk
from regnum_broker.log.errors import ResourceExhaustedError
from regnum_broker.log.replica.folder import ReplicaFolder
from regnum_broker.log.replica.host import ReplicaHost
from regnum_broker.log.replica.leader_epochs import LeaderEpochs
from regnum_broker.log.replica.parts import Part
from regnum_broker.log.replica.producers.memory import ProducerMemory
from regnum_broker.log.replica.rolling import LogSettings
from regnum_broker.log.replica.segment import Segment
from regnum_broker.log.replica.shown import ShownLog

WRITE_BACK_BYTES: Final = 16 * 1024 * 1024
"""A segment that grew by so much is brought to the disk in the background: what the writer waits for when it closes a
segment is no more than that, and not a quarter of a gigabyte."""


class Tail:
    """What of a replica belongs to its growing end. For the writer thread; ``_settings`` are set by any."""

    __slots__ = (
        "_changed",
        "_disk",
        "_epochs",
        "_folder",
        "_host",
        "_producers",
        "_settings",
        "_shown",
        "_unsynced",
        "_unsynced_bytes",
        "_wall_ms",
    )

    def __init__(
        self,
        *,
        shown: ShownLog,
        epochs: LeaderEpochs,
        producers: ProducerMemory,
        folder: ReplicaFolder,
        disk: GuardedDisk,
        host: ReplicaHost,
        settings: LogSettings,
        wall_ms: Callable[[], int],
    ) -> None:
        self._shown = shown
        self._epochs = epochs
        self._producers = producers
        self._folder = folder
        self._disk = disk
        self._host = host
        self._wall_ms = wall_ms
        self._unsynced = False
        self._unsynced_bytes = 0
        self._settings = settings
        self._changed = False
        """Whether what quickens a start is older than the log."""

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
        if headers[0].leader_epoch < self._epochs.cache.latest:
            # This replica led in a newer epoch and wrote nothing in it: the log's leader knows no such epoch.
            self._epochs.cut(headers[0].base_offset)
        if self._shown.segments[-1].size_bytes == 0:
            self._host.segment_begun(self._folder.key)
        now_ms, buffers = self._wall_ms(), [buffer for part in parts for buffer in part.buffers]
        interval_bytes = self._settings.index_interval_bytes
        self._shown.segments[-1].append(buffers, headers, now_ms=now_ms, index_interval_bytes=interval_bytes)
        self._folder.note_files()
        self._producers.apply(headers, seen_ms=now_ms)
        for header in headers:
            self._epochs.show(LeaderEpoch(header.leader_epoch), header.base_offset)
        self._changed = self._unsynced = True
        self._shown.log_end_offset = headers[-1].next_offset
        self._grew(sum([header.size_bytes for header in headers]))

    def _grew(self, size_bytes: int) -> None:
        self._unsynced_bytes += size_bytes
        if self._unsynced_bytes >= WRITE_BACK_BYTES:
            self._unsynced_bytes = 0
            self._host.write_back(self._shown.segments[-1].path)
        self._producers.grew(
            size_bytes, self._shown.log_end_offset, self._shown.segments, segment_bytes=self._settings.segment_bytes
        )

    def _roll(self) -> None:
        """Close the last segment for good, with all that it holds on the disk, and begin the next one."""
        last = self._shown.segments[-1]
        last.sync()
        self._unsynced_bytes = 0
        self._save_what_quickens()
        self._epochs.write()
        following = Segment.empty(self._folder.path, self._disk, last.next_offset)
        following.create()
        self._folder.sync(changed=True)
        if self._shown.log_start_offset == following.base_offset:
            # A kill came between the start that was recorded and the removal of what lies before it.
            self._shown.segments = (following,)
            last.set_aside(self._host)
        else:
            self._shown.segments = (*self._shown.segments, following)

    def _save_what_quickens(self) -> None:
        """Save index and snapshot. A full disk has no room for what can be made again from the batches."""
        with suppress(ResourceExhaustedError):
            self._shown.segments[-1].save_index()
            self._producers.save(self._shown.log_end_offset, self._shown.segments, at_base=True)

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

    def _begin_after_all(self) -> None:
        """Begin a segment behind one that is about to go, and so need not be on the disk."""
        last = self._shown.segments[-1]
        self._host.before_change()
        # The batches that showed them go.
        self._epochs.write(sync=False)
        following = Segment.empty(self._folder.path, self._disk, last.next_offset)
        following.create()
        with suppress(ResourceExhaustedError):
            self._producers.save(last.next_offset, self._shown.segments, at_base=True)
        self._shown.segments = (*self._shown.segments, following)
        self._folder.changed()
        self._unsynced, self._unsynced_bytes = False, 0
