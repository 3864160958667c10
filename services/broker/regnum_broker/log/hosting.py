"""What the replicas of a log directory ask of it."""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from regnum_model.ids import PartitionKey

from regnum_broker.log.disk.disk import DamagedFileError, GuardedDisk
from regnum_broker.log.errors import CorruptLogError, ResourceExhaustedError
from regnum_broker.log.journal.begun_files import BegunFiles
from regnum_broker.log.journal.entries import JournalEntry
from regnum_broker.log.leaving import Leaving
from regnum_broker.log.offset_file import OffsetFile
from regnum_broker.log.proof import Proof
from regnum_broker.log.replica.host import Flushable


class Host:
    """``ReplicaHost`` of one directory."""

    def __init__(
        self, disk: GuardedDisk, proof: Proof, begun_files: BegunFiles, *, starts: OffsetFile, leaving: Leaving
    ) -> None:
        self._disk: Final = disk
        self._starts: Final = starts
        self._leaving: Final = leaving
        self._proof: Final = proof
        self._begun_files: Final = begun_files
        self._growing: Final[deque[str]] = deque()
        self.begun: Final[deque[PartitionKey]] = deque()
        """Replicas that have begun a segment; whoever looks after retention takes them out. Any thread."""
        self.closed: Final[deque[PartitionKey]] = deque()
        """Replicas with compaction that have closed one; the cleaner takes them out. Any thread."""
        self.unflushed: Final[deque[tuple[PartitionKey, int]]] = deque()
        """Replicas, and in how many milliseconds they are to be brought to the disk; for the flusher. Any thread."""
        self._flushed_now: Final[dict[Flushable, None]] = {}
        self.behind_with_flushes = False
        """Whether appends that would wait for the disk are refused. Set by who flushes."""
        self.swapping: Final = threading.Lock()
        """Held while segments of any replica get other files."""
        self.on_damage: Callable[[CorruptLogError], None] | None = None
        """Who hears of damaged replicas."""

    def before_change(self) -> None:
        """Take back the proof of a clean stop (safety rule S10)."""
        self._proof.take_back()

    def before_append(self) -> None:
        """The same, and refuse while the disk is full."""
        self._disk.refuse_if_full()
        self.before_change()

    def no_room(self) -> None:
        """Note that records were refused because the disk is full."""
        self._disk.reserve.refused()

    def record(self, entries: Iterable[JournalEntry], *, sync: bool) -> None:
        """Write to the journal."""
        self._begun_files.append(entries, sync=sync)

    def note_files(self, key: PartitionKey, noted: Callable[[], None]) -> None:
        """Write to the journal that a replica has a file, by the end of ``LogDirectory.many_appends``."""
        self._begun_files.add(key, noted)

    def record_start(self, key: PartitionKey, offset: int) -> None:
        """Write down where a log begins."""
        self._starts.save({key: offset})

    def lower_start(self, key: PartitionKey, *, start: int, end: int) -> None:
        """Have nothing say that a log begins beyond its end: the next start would take what follows for deleted."""
        if self._starts.of(key) > end:
            self._starts.save({key: start})

    def set_aside(self, path: str) -> None:
        """Free the name of a file, which is then removed in the background."""
        self._leaving.set_aside(path)

    def segment_begun(self, key: PartitionKey) -> None:
        """Note a replica whose retention is to be looked at."""
        self.begun.append(key)

    def segment_closed(self, key: PartitionKey) -> None:
        """Note a replica that may have something to be compacted."""
        self.closed.append(key)

    def flush_in_time(self, key: PartitionKey, delay_ms: int) -> None:
        """Note a replica that is to be brought to the disk in so many milliseconds."""
        self.unflushed.append((key, delay_ms))

    def flush_now(self, log: Flushable) -> None:
        """Note a replica that the present job waits for."""
        self._flushed_now[log] = None

    def take_flushed_now(self) -> tuple[Flushable, ...]:
        """Logs that were noted since the last call: what was done counts once ``flush_beside`` was called for each."""
        noted = self._flushed_now
        if not noted:
            return ()
        taken = tuple(noted)
        noted.clear()
        return taken

    def refuse_flushed(self, refused: bool) -> None:  # noqa: FBT001 - a callback
        """Set ``behind_with_flushes``."""
        self.behind_with_flushes = refused

    def write_back(self, path: str) -> None:
        """Note that a segment should be brought to the disk in the background."""
        self._growing.append(path)

    def damaged(self, error: CorruptLogError) -> None:
        """Tell whoever looks after the directory. From any thread."""
        if self.on_damage is not None:
            self.on_damage(error)

    @property
    def grown(self) -> bool:
        """Whether there are segments for ``sync_grown``."""
        return bool(self._growing)

    def sync_grown(self) -> None:
        """Bring segments that grew to the disk. For one thread at a time, and that need not be the writer.

        Raises:
            DirectoryFailedError: what was written may be lost.
        """
        while self._growing:
            # One that is gone, or was cut, is its replica's to find.
            with suppress(DamagedFileError, ResourceExhaustedError):
                self._disk.sync(self._growing.popleft())
