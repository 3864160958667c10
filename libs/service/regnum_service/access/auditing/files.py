"""The file of an audit log: appended to, for its owner alone, set aside when it is full."""

import fcntl
import os
from itertools import pairwise
from pathlib import Path
from typing import Final

MODE: Final = 0o600
"""Nobody else reads who did what."""


class RotatedFile:
    """``audit.log``, and behind it ``audit.log.1`` (the newest that is full) to ``audit.log.N``. Everything blocks.

    A file that somebody else moved or removed is made again.
    """

    def __init__(self, path: Path, *, bytes_max: int, files: int) -> None:
        """Only assigns.

        Args:
            path: the file.
            bytes_max: when it would become larger, it is set aside.
            files: how many that were set aside are kept.
        """
        self._path: Final = path
        self._bytes_max: Final = bytes_max
        self._files: Final = files
        self._lock: int | None = None
        self._file: int | None = None
        self._size = 0

    def open(self) -> None:
        """Take the file for this process. Raises BlockingIOError when another one has it, OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise
        self._lock = lock
        self._reopen()

    def append(self, lines: bytes) -> None:
        """Append whole lines. Raises OSError; then none of them is there, or the file ends within one of them."""
        file = self._current()
        if self._size and self._size + len(lines) > self._bytes_max:
            self._set_aside()
            file = self._reopen()
        written = 0
        try:
            while written < len(lines):
                written += os.write(file, lines[written:])
        except OSError:
            if written:
                os.ftruncate(file, self._size)
            raise
        self._size += written

    def sync(self) -> None:
        """What was appended survives a loss of power. Raises OSError."""
        if self._file is not None:
            os.fdatasync(self._file)

    def close(self) -> None:
        """Let the file go."""
        for descriptor in (self._file, self._lock):
            if descriptor is not None:
                os.close(descriptor)
        self._file = self._lock = None

    def _current(self) -> int:
        """The file of that name, which may be another one than before."""
        if self._file is None:
            return self._reopen()
        ours = os.fstat(self._file)
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return self._reopen()
        if (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino):
            return self._reopen()
        return self._file

    def _reopen(self) -> int:
        before, self._file = self._file, None
        if before is not None:
            os.close(before)
        file = self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, MODE)
        os.fchmod(file, MODE)
        self._size = os.fstat(file).st_size
        if self._size and os.pread(file, 1, self._size - 1) != b"\n":
            # A kill or a full disk left half a line: what comes next begins a line of its own.
            self._size += os.write(file, b"\n")
        return file

    def _set_aside(self) -> None:
        self.sync()
        # A folder that has the name of one that was set aside is not ours: files are moved past it.
        places = [self._path]
        places += [one for number in range(1, self._files + 1) if not (one := self._numbered(number)).is_dir()]
        for newer, older in reversed(tuple(pairwise(places))):
            if newer.exists():
                newer.replace(older)
        if len(places) == 1:
            self._path.unlink()

    def _numbered(self, number: int) -> Path:
        return Path(f"{self._path}.{number}")
