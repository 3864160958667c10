"""Where a replica grows: its last segment, when that is closed, and what is brought to the disk with it.

A part of each ``ReplicaLog``, and no object of its own: a broker has thousands of them.

``flush.messages``: records that are to be on the disk when they count are written and not shown. The log's end stays
where it was for everybody but the writer, which goes on behind them (``written_end_offset``); other threads bring them
to the disk (``flush_beside``) and show them then, with all that was written before they began: one fsync for all who
wait. A truncation under such an fsync makes it worth nothing (``Aside.ends_moved_back``), and it is done again.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from regnum_model.ids import LeaderEpoch

from regnum_broker.log.disk.disk import DamagedFileError, GuardedDisk
from regnum_broker.log.errors import ResourceExhaustedError
from regnum_broker.log.replica.cleaned import CleanedMark
from regnum_broker.log.replica.folder import ReplicaFolder
from regnum_broker.log.replica.host import ReplicaHost
from regnum_broker.log.replica.leader_epochs import LeaderEpochs
from regnum_broker.log.replica.parts import Part
from regnum_broker.log.replica.producers.memory import ProducerMemory
from regnum_broker.log.replica.rolling import LogSettings
from regnum_broker.log.replica.segment import Segment
from regnum_broker.log.replica.shown import ShownLog

if TYPE_CHECKING:
    from regnum_broker.log.replica.starting.recovery import Recovered

WRITE_BACK_BYTES: Final = 16 * 1024 * 1024
"""A segment that grew by so much is brought to the disk in the background: what the writer waits for when it closes a
segment is no more than that, and not a quarter of a gigabyte."""

FLUSH_AGAIN_MS: Final = 1_000
"""A log that could not be flushed for want of a descriptor is flushed after this time."""


@dataclass(slots=True)
class Aside:
    """What replicas need that are flushed by settings, or compacted: others, by the thousand, have no room for it."""

    marks: tuple[CleanedMark, ...] = ()
    """How far it is compacted, and since when."""
    cuts: int = 0
    """Truncations that took away records of closed segments, in this run."""
    unflushed: int = 0
    """Records that may not be on the disk; counted where a setting asks for it."""
    flush_noted: bool = False
    """Whether somebody knows that there is something to be brought to the disk in time."""
    hidden: bool = False
    """Whether records are written that are shown once they are on the disk. Changed under ``showing``."""
    ends_moved_back: int = 0
    """Truncations of any kind: what was being flushed meanwhile is not what is there. Changed under ``showing``."""
    showing: threading.Lock = field(default_factory=threading.Lock)
    """Held by who hides records, shows them, or cuts them; for no longer than it takes to write that down."""
    names_changed: int = 1
    """Changes of names in its folder, but for those that were brought to the disk at once."""
    names_synced: int = 0
    """Those that are there."""


class Tail:
    """What of a replica belongs to its growing end. For the writer thread; ``_settings`` are set by any."""

    __slots__ = (
        "_aside",
        "_changed",
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
        host: ReplicaHost,
        settings: LogSettings,
        wall_ms: Callable[[], int],
    ) -> None:
        self._shown = shown
        self._epochs = epochs
        self._producers = producers
        self._folder = folder
        self._host = host
        self._wall_ms = wall_ms
        self._unsynced = False
        self._unsynced_bytes = 0
        self._aside: Aside | None = None
        """What few replicas need; None: it has needed none so far."""
        self._settings = settings
        self._changed = False
        """Whether what quickens a start is older than the log."""

    @property
    def has_files(self) -> bool:
        """Whether anything was ever written. For LogDirectory.close only."""
        return self._folder.has_files

    @property
    def _disk(self) -> GuardedDisk:
        return self._folder.disk

    def _take_up(self, recovered: "Recovered") -> None:
        """What a start has found out, besides what the parts of the log were made with.

        Where it had to go through the last segment, the next clean stop flushes and saves that as if it had grown. Else
        each start after a clean stop goes through it again, and that stop proves what is not on the disk.
        """
        if recovered.gone_through:
            self._changed = self._unsynced = True
            if recovered.named:
                self._folder.changed()
        if recovered.cleaned:
            self._aside = Aside(marks=recovered.cleaned)

    def _write(self, parts: list[Part]) -> None:
        """Write batches that continue the log, with one system call for each segment that they touch."""
        self._shown.refuse_if_unusable()
        self._host.before_append()
        try:
            self._folder.make()
            self._shown.undamaged(lambda: self._write_on(parts))
        except ResourceExhaustedError as error:
            if error.space:
                self._host.no_room()
            raise

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
        count = headers[-1].next_offset - headers[0].base_offset
        hidden = self._hides(count)
        self._shown.segments[-1].append(buffers, headers, now_ms=now_ms, index_interval_bytes=interval_bytes)
        self._folder.note_files()
        self._producers.apply(headers, seen_ms=now_ms)
        for header in headers:
            self._epochs.show(LeaderEpoch(header.leader_epoch), header.base_offset)
        self._shown.appended(headers[-1])
        self._changed = self._unsynced = True
        if hidden:
            self._hide()
        else:
            self._note_unflushed(count)
            self._shown.log_end_offset = headers[-1].next_offset
        self._grew(sum([header.size_bytes for header in headers]))

    @property
    def written_end_offset(self) -> int:
        """Offset after the last record that was written, also if it is not shown yet. For the writer thread."""
        return self._shown.segments[-1].next_offset

    def _hides(self, count: int) -> bool:
        """Whether so many records are to be on the disk before they are shown.

        So neither a fetch nor the high watermark nor an acknowledgement sees what is not flushed. What comes behind
        such records is not shown before them.
        """
        flush_messages, aside = self._settings.flush_messages, self._aside
        if aside is not None and aside.hidden:
            return True
        return flush_messages is not None and self._kept_aside().unflushed + count >= flush_messages

    def _hide(self) -> None:
        """What was written is shown once it is on the disk."""
        aside = self._kept_aside()
        with aside.showing:
            aside.hidden = True
        aside.unflushed = 0
        self._host.flush_now(self)

    def _refuse_if_behind(self) -> None:
        """Refuse what would wait for a disk that is too far behind.

        Raises:
            ResourceExhaustedError: it is; nothing was appended.
        """
        if self._host.behind_with_flushes and (
            self._settings.flush_messages is not None or (self._aside is not None and self._aside.hidden)
        ):
            raise ResourceExhaustedError(
                "the disk is behind with what flush.messages asks for; nothing was appended: try again, or ask for"
                " fewer flushes",
                space=False,
            )

    @contextmanager
    def _moving_back(self) -> Iterator[None]:
        """Around whatever cuts the log: nothing is shown meanwhile, and what is being flushed is not what is there."""
        aside = self._aside
        if aside is None:
            yield
            return
        with aside.showing:
            aside.ends_moved_back += 1
            yield

    def _ends_at(self, end_offset: int, *, shown_until: int) -> None:
        """The log was cut there, and is shown so far. Within ``_moving_back``."""
        self._shown.log_end_offset = shown_until
        if self._aside is not None:
            self._aside.hidden = shown_until < end_offset

    def _note_unflushed(self, count: int) -> None:
        """So many records were written and are to be brought to the disk in time, as the topic's settings say."""
        settings = self._settings
        if settings.flush_messages is None and settings.flush_ms is None:
            return
        aside = self._kept_aside()
        aside.unflushed += count
        if settings.flush_ms is not None and not aside.flush_noted:
            aside.flush_noted = True
            self._host.flush_in_time(self._folder.key, settings.flush_ms)

    def _kept_aside(self) -> Aside:
        if self._aside is None:
            self._aside = Aside()
        return self._aside

    def _sync_names(self, aside: Aside) -> None:
        """Bring the names of its folder and files to the disk, unless they are. Any thread."""
        changes = aside.names_changed
        if aside.names_synced < changes:
            self._folder.sync_names()
            # What changes under this thread is for the next time.
            aside.names_synced = changes

    def _names_changed(self) -> None:
        """Names in its folder are others, and not on the disk yet."""
        self._folder.changed()
        if self._aside is not None:
            self._aside.names_changed += 1

    def flush_beside(self) -> bool:
        """Bring to the disk what was written by now, and show it, while the writer goes on. Any thread.

        What was closed meanwhile is there already. False: there is no descriptor for it now; it is noted for later.

        Raises:
            CorruptLogError: the file was removed under the process.
            UnknownReplicaError: it was deleted.
            DirectoryFailedError: what was written may be lost.
        """
        aside, shown = self._aside, self._shown
        if aside is None:
            return True
        # First, so that what is appended from here on is noted anew.
        aside.flush_noted = False
        while True:
            with aside.showing:
                moved_back, last = aside.ends_moved_back, shown.segments[-1]
                end = last.next_offset
            try:
                last.sync()
                self._sync_names(aside)
            except ResourceExhaustedError:
                self._host.flush_in_time(self._folder.key, FLUSH_AGAIN_MS)
                return False
            except DamagedFileError as error:
                if not aside.hidden and moved_back == aside.ends_moved_back and last is shown.segments[-1]:
                    # Nobody waits for it. What is gone, or was cut, is for the writer to find.
                    return True
                shown.refuse_if_unusable()
                if moved_back == aside.ends_moved_back and last is shown.segments[-1]:
                    raise shown.damaged(error) from error
                continue
            with aside.showing:
                if moved_back != aside.ends_moved_back:
                    continue
                if aside.hidden:
                    shown.log_end_offset = max(shown.log_end_offset, end)
                    aside.hidden = shown.log_end_offset < shown.segments[-1].next_offset
            return True

    def _grew(self, size_bytes: int) -> None:
        self._unsynced_bytes += size_bytes
        if self._unsynced_bytes >= WRITE_BACK_BYTES:
            self._unsynced_bytes = 0
            self._host.write_back(self._shown.segments[-1].path)
        self._producers.grew(
            size_bytes, self.written_end_offset, self._shown.segments, segment_bytes=self._settings.segment_bytes
        )

    def _roll(self) -> None:
        """Close the last segment for good, with all that it holds on the disk, and begin the next one.

        Raises:
            ResourceExhaustedError: no room or no descriptor; the last segment is what it was, and grows on.
            DamagedFileError: it was removed under the process.
            DirectoryFailedError: the disk failed.
        """
        last = self._shown.segments[-1]
        last.sync()
        self._unsynced_bytes = 0
        if self._aside is not None:
            self._aside.unflushed = 0
        # A full disk has no room for what can be made again from the batches.
        with suppress(ResourceExhaustedError):
            last.save_index()
            self._producers.closed(self.written_end_offset, self._shown.segments)
        self._epochs.write()
        following = Segment.empty(self._folder.path, self._disk, last.next_offset)
        following.create()
        try:
            self._folder.sync(changed=True)
        except ResourceExhaustedError:
            # A smaller batch may still go into the last segment: a start would find that it ends behind the next one.
            following.delete()
            self._names_changed()
            raise
        if self._shown.log_start_offset == following.base_offset:
            # A kill came between the start that was recorded and the removal of what lies before it.
            self._shown.segments = (following,)
            last.set_aside(self._host)
        else:
            self._shown.segments = (*self._shown.segments, following)
        if self._settings.is_compacted:
            self._host.segment_closed(self._folder.key)

    def _save_what_quickens(self) -> None:
        """Save index and snapshot. A full disk has no room for what can be made again from the batches."""
        with suppress(ResourceExhaustedError):
            self._shown.segments[-1].save_index()
            self._producers.save(self.written_end_offset, self._shown.segments, at_base=True)

    def flush(self) -> None:
        """Bring to the disk what was appended, while the writer waits.

        Raises:
            CorruptLogError: the file was removed under the process.
            ResourceExhaustedError: no descriptor for it now.
            DirectoryFailedError: it failed.
        """
        if self._unsynced:
            self._shown.undamaged(self._shown.segments[-1].sync)
            self._unsynced = False
        self._shown.undamaged(self._folder.sync)
        if (aside := self._aside) is not None and aside.hidden:
            self._shown.undamaged(lambda: self._sync_names(aside))
            with aside.showing:
                self._shown.log_end_offset, aside.hidden = self.written_end_offset, False

    def _save_producers(self) -> None:
        """Save a snapshot where a start finds it: that is where the last segment begins, so it is a new one.

        Raises:
            ResourceExhaustedError: no room.
            DamagedFileError: the last segment was removed under the process.
            DirectoryFailedError: the disk failed.
        """
        if self._shown.segments[-1].size_bytes > 0:
            self._host.before_change()
            self._roll()
        self._producers.save(self.written_end_offset, self._shown.segments, at_base=True)

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
        self._names_changed()
        self._unsynced, self._unsynced_bytes = False, 0
