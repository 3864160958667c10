"""Notes that replicas have files, written to the journal together.

A replica gets its files with its first record, and the journal says so: files that are missing from then on were lost.
Where a thousand partitions get their first records in a few jobs of the writer, a note for each would cost as much as
the records. So the notes of a job are one line after another in one write, at the end of the job at the latest: nobody
is told that a record is stored before its job is done. Whatever else goes to the journal meanwhile goes behind them:
a note never comes after the deletion of its replica, where it would be taken for one of the next replica of that name.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from regnum_model.ids import PartitionKey

from regnum_broker.log.errors import ResourceExhaustedError
from regnum_broker.log.journal.entries import FilesBegun, JournalEntry
from regnum_broker.log.journal.file import Journal


class BegunFiles:
    """What the journal is still to be told. For the writer thread."""

    def __init__(self, journal: Journal) -> None:
        self._journal: Final = journal
        self._unwritten: Final[dict[PartitionKey, Callable[[], None]]] = {}
        self._gathering = False

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Meanwhile notes wait for one another.

        Raises:
            DirectoryFailedError: they could not be written.
        """
        self._gathering = True
        try:
            yield
        finally:
            self._gathering = False
            self._write()

    def add(self, key: PartitionKey, noted: Callable[[], None]) -> None:
        """A replica has a file; ``noted`` is called when the journal says so. A full disk has no room for that.

        Raises:
            DirectoryFailedError: it could not be written.
        """
        self._unwritten[key] = noted
        if not self._gathering:
            self._write()

    def append(self, entries: Iterable[JournalEntry], *, sync: bool) -> None:
        """Write something else to the journal, behind the notes that wait.

        Raises:
            ResourceExhaustedError: no room; nothing was written.
            DirectoryFailedError: the write or the fsync failed.
        """
        self._journal.append([*(FilesBegun(key=key) for key in self._unwritten), *entries], sync=sync)
        for noted in self._unwritten.values():
            noted()
        self._unwritten.clear()

    def _write(self) -> None:
        if self._unwritten:
            # The batches are written: without room for the notes, the next batch of each replica brings its own.
            with suppress(ResourceExhaustedError):
                self.append((), sync=False)
            self._unwritten.clear()
