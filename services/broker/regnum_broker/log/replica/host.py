"""What a replica asks of the directory that it lies in."""

from collections.abc import Callable, Iterable
from typing import Protocol

from regnum_model.ids import PartitionKey

from regnum_broker.log.errors import CorruptLogError
from regnum_broker.log.journal.entries import JournalEntry


class ReplicaHost(Protocol):
    """What a replica needs of its directory."""

    def before_change(self) -> None:
        """Take back the proof of a clean stop, before the first change after it (safety rule S10)."""

    def before_append(self) -> None:
        """The same, and refuse while the disk is full."""

    def record(self, entries: Iterable[JournalEntry], *, sync: bool) -> None:
        """Write to the journal."""

    def note_files(self, key: PartitionKey, noted: Callable[[], None]) -> None:
        """Write to the journal that a replica has a file, at the end of the job at the latest; then call ``noted``."""

    def write_back(self, path: str) -> None:
        """Bring a segment that grows to the disk soon, so that little is left to be brought when it is closed."""

    def damaged(self, error: CorruptLogError) -> None:
        """Take up that a replica cannot be used any more. From any thread; once for each replica."""
