"""Files of backups: written under another name until they are whole, for their owner's eyes only; read line by line."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from regnum_model.backup.lines import End, Entry, Header, LineReader, MalformedBackupError

LINE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Longest line: a node has a megabyte at most, and no form of it is ten times as long."""

MODE: Final = 0o600
"""A backup holds the secrets of delegation tokens."""


class BackupFile:
    """A backup on its way to a file. ``finish`` gives it its name; without it there is none."""

    def __init__(self, path: Path, *, link: Callable[[Path, Path], None] = os.link) -> None:
        """Only assigns.

        Args:
            path: its name in the end.
            link: gives a file a second name, and raises FileExistsError where that is another's.
        """
        self._link: Final = link
        self._path: Final = path
        self._partial: Final = path.with_name(f"{path.name}.{os.getpid()}.partial")
        self._file: BinaryIO | None = None

    def begin(self) -> Callable[[bytes], object]:
        """An empty file; returns what writes to it. Raises OSError."""
        self.abandon()
        self._file = os.fdopen(os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE), "wb")
        return self._file.write

    def finish(self) -> None:
        """The file is whole, on the disk, and has its name. Raises OSError; FileExistsError if another has it."""
        if self._file is None:
            raise AssertionError("a file begins before it is finished")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._file = None
        # A link, not a renaming: it never takes another file's place.
        try:
            self._link(self._partial, self._path)
        except FileExistsError:
            raise
        except OSError:
            # Shares of other systems have no links: the name is taken first, and then replaced.
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE))
            self._partial.replace(self._path)
        self._partial.unlink(missing_ok=True)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def abandon(self) -> None:
        """What was written so far is removed; nothing if it has its name."""
        file, self._file = self._file, None
        try:
            if file is not None:
                # On a full disk the rest cannot be written here either, and what there is has to go all the more.
                file.close()
        finally:
            self._partial.unlink(missing_ok=True)


def lines_of(path: Path) -> Iterator[Header | Entry | End]:
    """What the lines of a backup say; the last is its end. Raises MalformedBackupError, OSError."""
    reader = LineReader()
    with path.open("rb") as file:
        while line := file.readline(LINE_BYTES_MAX + 1):
            if len(line) > LINE_BYTES_MAX:
                raise MalformedBackupError(f"a line has more than {LINE_BYTES_MAX} bytes: it is no backup")
            yield reader.take(line)
    reader.finish()


def entries_of(path: Path) -> Iterator[Entry]:
    """The nodes of a backup that was checked before."""
    return (one for one in lines_of(path) if isinstance(one, Entry))
