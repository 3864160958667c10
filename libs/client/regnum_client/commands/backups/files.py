"""Files of backups: written under another name until they are whole, for their owner's eyes only; read line by line."""

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from regnum_coordination.errors import InvalidRequest
from regnum_coordination.paths import check_written_path
from regnum_model.backup.lines import End, Entry, Header, LineReader, MalformedBackupError

LINE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Longest line: a node has a megabyte at most, and no form of it is ten times as long."""

MODE: Final = 0o600
"""A backup says who may do what and who owns tokens, and an edit of it would give rights."""

STDOUT_NAMES: Final = frozenset({"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"})
"""What people call the standard output."""

COPIED_BYTES: Final = 1024 * 1024
"""Bytes that are sent on at a time."""


class Target(Protocol):
    """Where a backup goes."""

    def begin(self) -> Callable[[bytes], object]:
        """Empty, whatever was written before; returns what writes to it. Raises OSError."""
        ...

    def finish(self) -> None:
        """All of it was written. Raises OSError."""
        ...

    def abandon(self) -> None:
        """What was not finished goes."""
        ...


class BackupSpool:
    """A backup that is to go to a pipe: in a file without a name until it is whole, so that no half of one goes out."""

    def __init__(self) -> None:
        self._file: BinaryIO | None = None

    def begin(self) -> Callable[[bytes], object]:
        """See ``Target``. The file is where the environment's TMPDIR says, for its owner alone, and gone with us."""
        self.close()
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed by its owner
        return self._file.write

    def finish(self) -> None:
        """See ``Target``."""
        self._whole().flush()

    def abandon(self) -> None:
        """See ``Target``: until it is sent it is needed, and ``close`` lets go of it."""

    def send(self, descriptor: int) -> None:
        """All of it to a descriptor, and nothing kept back in a buffer. Raises OSError."""
        file = self._whole()
        file.seek(0)
        while some := memoryview(file.read(COPIED_BYTES)):
            while some:
                some = some[os.write(descriptor, some) :]

    def close(self) -> None:
        """Let go of the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _whole(self) -> BinaryIO:
        if self._file is None:
            raise AssertionError("a backup begins before it is finished or sent")
        return self._file


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


def why_unreadable(path: Path) -> str | None:
    """Why a restore cannot read a backup from there; None: it can. Raises OSError where there is nothing."""
    if stat.S_ISREG(path.stat().st_mode):
        return None
    return (
        f"{path} is no ordinary file, and a backup is read twice: checked to its end before anything is written. "
        "Save it into a file first, which only you can read"
    )


def lines_of(path: Path) -> Iterator[Header | Entry | End]:
    """What the lines of a backup say; the last is its end. Raises MalformedBackupError, OSError."""
    reader = LineReader()
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LINE_BYTES_MAX + 1):
            if len(line) > LINE_BYTES_MAX:
                raise MalformedBackupError(f"a line has more than {LINE_BYTES_MAX} bytes: it is no backup")
            number += 1
            one = reader.take(line)
            if isinstance(one, Entry):
                try:
                    check_written_path(one.path)
                except InvalidRequest as error:
                    raise MalformedBackupError(f"line {number}: {error}: no store has such a node") from None
            yield one
    reader.finish()


def entries_of(path: Path) -> Iterator[Entry]:
    """The nodes of a backup that was checked before."""
    return (one for one in lines_of(path) if isinstance(one, Entry))
