"""What a replica asks of the directory that it lies in."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from regnum_model.ids import PartitionKey

from regnum_broker.log.errors import CorruptLogError
from regnum_broker.log.journal.entries import JournalEntry


class Flushable(Protocol):
    """A log with records that are shown once they are on the disk."""

    def flush_beside(self) -> bool:
        """See ``Tail.flush_beside``."""


class ReplicaHost(Protocol):
    """What a replica needs of its directory."""

    @property
    def behind_with_flushes(self) -> bool:
        """Whether as much waits to be brought to the disk as there is memory for."""

    @property
    def swapping(self) -> AbstractContextManager[object]:
        """Held while segments of any replica get other files; readers that come in the middle of it wait for it."""

    def before_change(self) -> None:
        """Take back the proof of a clean stop, before the first change after it (safety rule S10)."""

    def before_append(self) -> None:
        """The same, and refuse while the disk is full."""

    def no_room(self) -> None:
        """Take up that records were refused because the disk is full."""

    def record(self, entries: Iterable[JournalEntry], *, sync: bool) -> None:
        """Write to the journal."""

    def note_files(self, key: PartitionKey, noted: Callable[[], None]) -> None:
        """Write to the journal that a replica has a file, at the end of the job at the latest; then call ``noted``."""

    def record_start(self, key: PartitionKey, offset: int) -> None:
        """Write down where the log of a replica begins."""

    def lower_start(self, key: PartitionKey, *, start: int, end: int) -> None:
        """Have nothing say that the log of a replica begins beyond ``end``, but that it begins at ``start``."""

    def set_aside(self, path: str) -> None:
        """Free the name of a file, which is then removed in the background; one that is not there is fine."""

    def segment_begun(self, key: PartitionKey) -> None:
        """Take up that a replica has its first records in a segment: those before it may be too many now."""

    def segment_closed(self, key: PartitionKey) -> None:
        """Take up that a replica that is compacted has closed a segment."""

    def flush_in_time(self, key: PartitionKey, delay_ms: int) -> None:
        """Have a replica be brought to the disk when so many milliseconds have passed."""

    def flush_now(self, log: Flushable) -> None:
        """Have a replica be brought to the disk at once: what the present job of the writer did waits for it."""

    def write_back(self, path: str) -> None:
        """Bring a segment that grows to the disk soon, so that little is left to be brought when it is closed."""

    def damaged(self, error: CorruptLogError) -> None:
        """Take up that a replica cannot be used any more. From any thread; once for each replica."""
