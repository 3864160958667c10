"""The disk as storage uses it: a port for faults, descriptors that are shared safely, and failure that is final.

A write or an fsync that failed once says that what the disk holds is unknown: the kernel drops the pages and the next
fsync succeeds all the same (reliability D32). So the first failure marks the directory, and every later write is
refused.
"""

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from regnum_broker.log.errors import DirectoryFailedError

IOV_MAX: Final = 1000
"""Buffers in one gathering write, below the system's 1024."""

WriteBuffer = bytes | bytearray | memoryview


class Disk:
    """System calls on open files. Tests inject faults by another one."""

    def pread(self, descriptor: int, size: int, position: int) -> bytes:
        """Read at a position; fewer bytes at the end of the file."""
        return os.pread(descriptor, size, position)

    def pwritev(self, descriptor: int, buffers: Sequence[WriteBuffer], position: int) -> int:
        """Write several buffers at a position; returns the bytes written, which may be fewer."""
        return os.pwritev(descriptor, buffers, position)

    def fdatasync(self, descriptor: int) -> None:
        """Bring data and size to the disk."""
        os.fdatasync(descriptor)

    def ftruncate(self, descriptor: int, size: int) -> None:
        """Cut the file."""
        os.ftruncate(descriptor, size)


class _OpenFile:
    """A descriptor and how many use it."""

    __slots__ = ("descriptor", "dropped", "pins")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.pins = 0
        self.dropped = False


class Descriptors:
    """Open files by path, at most so many, least recently used closed first. For any thread.

    A file in use is closed by its last user, so a descriptor number never comes to mean another file under a reader.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._files: OrderedDict[str, _OpenFile] = OrderedDict()
        self._lock = threading.Lock()

    def pin(self, path: str, *, create: bool = False) -> _OpenFile:
        """An open file, to be given back by ``unpin``."""
        with self._lock:
            file = self._files.get(path)
            if file is None:
                flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
                file = self._files[path] = _OpenFile(os.open(path, flags, 0o644))
                file.pins = 1
                self._evict()
            else:
                file.pins += 1
                self._files.move_to_end(path)
            return file

    def unpin(self, file: _OpenFile) -> None:
        """Give it back."""
        with self._lock:
            file.pins -= 1
            if file.dropped and file.pins == 0:
                os.close(file.descriptor)

    def drop(self, path: str) -> None:
        """Close the file once nobody uses it; it was or will be deleted."""
        with self._lock:
            if (file := self._files.pop(path, None)) is not None:
                self._close(file)

    def drop_all(self) -> None:
        """Close all."""
        with self._lock:
            while self._files:
                self._close(self._files.popitem()[1])

    def _evict(self) -> None:
        while len(self._files) > self._capacity:
            self._close(self._files.popitem(last=False)[1])

    @staticmethod
    def _close(file: _OpenFile) -> None:
        if file.pins == 0:
            os.close(file.descriptor)
        else:
            file.dropped = True


class GuardedDisk:
    """Files of one directory by path. Any error marks the directory as failed, for good. Reads are for any thread."""

    def __init__(self, root: Path, disk: Disk, *, open_files_max: int) -> None:
        self._root = root
        self._disk = disk
        self._files = Descriptors(open_files_max)
        self._failure: str | None = None
        self._on_failure: Callable[[], None] | None = None

    @property
    def failed(self) -> bool:
        """Whether an operation failed."""
        return self._failure is not None

    def on_failure(self, callback: Callable[[], None]) -> None:
        """Call back once, in the thread of the operation that fails first."""
        self._on_failure = callback

    def read(self, path: str, position: int, size: int) -> bytes:
        """Up to ``size`` bytes at ``position``; fewer at the end of the file. FileNotFoundError if there is none."""
        try:
            file = self._files.pin(path)
            try:
                data = self._disk.pread(file.descriptor, size, position)
                while len(data) < size and (
                    more := self._disk.pread(file.descriptor, size - len(data), position + len(data))
                ):
                    data += more
                return data
            finally:
                self._files.unpin(file)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._fail("reading", path, error) from error

    def read_whole(self, path: str) -> bytes | None:
        """All of a small file; None if there is none."""
        try:
            return Path(path).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._fail("reading", path, error) from error

    def write(self, path: str, buffers: Sequence[WriteBuffer], position: int, *, create: bool = True) -> None:
        """Write all of ``buffers`` at ``position``."""
        self._refuse_if_failed()
        try:
            file = self._files.pin(path, create=create)
            try:
                self._write_all(file.descriptor, buffers, position)
            finally:
                self._files.unpin(file)
        except OSError as error:
            raise self._fail("writing", path, error) from error

    def _write_all(self, descriptor: int, buffers: Sequence[WriteBuffer], position: int) -> None:
        for start in range(0, len(buffers), IOV_MAX):
            part = buffers[start : start + IOV_MAX]
            wanted = sum(map(len, part))
            written = self._disk.pwritev(descriptor, part, position)
            if written < wanted:
                rest = memoryview(b"".join(part))
                while written < wanted:
                    more = self._disk.pwritev(descriptor, [rest[written:]], position + written)
                    if more <= 0:
                        raise OSError(errno.EIO, "the write makes no progress")
                    written += more
            position += wanted

    def truncate(self, path: str, size: int) -> None:
        """Cut the file."""
        self._refuse_if_failed()
        try:
            file = self._files.pin(path)
            try:
                self._disk.ftruncate(file.descriptor, size)
            finally:
                self._files.unpin(file)
        except OSError as error:
            raise self._fail("truncating", path, error) from error

    def sync(self, path: str) -> None:
        """Bring the file to the disk."""
        self._refuse_if_failed()
        try:
            file = self._files.pin(path)
            try:
                self._disk.fdatasync(file.descriptor)
            finally:
                self._files.unpin(file)
        except OSError as error:
            raise self._fail("syncing", path, error) from error

    def sync_directory(self, path: str) -> None:
        """Bring the names in a directory to the disk."""
        self._refuse_if_failed()
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self._disk.fdatasync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._fail("syncing", path, error) from error

    def replace(self, path: str, data: bytes, *, sync: bool) -> None:
        """Put a small file in place of another, at once."""
        self._refuse_if_failed()
        temporary = path + ".new"
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                self._write_all(descriptor, [data], 0)
                if sync:
                    self._disk.fdatasync(descriptor)
            finally:
                os.close(descriptor)
            Path(temporary).replace(path)
        except OSError as error:
            raise self._fail("replacing", path, error) from error
        self._files.drop(path)
        if sync:
            self.sync_directory(str(Path(path).parent))

    def delete(self, path: str) -> None:
        """Remove a file; one that is not there is fine."""
        self._refuse_if_failed()
        self._files.drop(path)
        try:
            Path(path).unlink(missing_ok=True)
        except OSError as error:
            raise self._fail("deleting", path, error) from error

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents; one that is there is fine."""
        self._refuse_if_failed()
        try:
            Path(path).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._fail("creating", path, error) from error

    def remove_tree(self, path: str) -> None:
        """Remove a folder with its files, renamed first: a kill never leaves half of it under its own name."""
        self._refuse_if_failed()
        doomed = Path(path if path.endswith(DELETED_SUFFIX) else path + DELETED_SUFFIX)
        try:
            if doomed != Path(path) and Path(path).exists():
                if doomed.exists():
                    self._remove_files(doomed)
                Path(path).rename(doomed)
            if doomed.exists():
                self._remove_files(doomed)
        except OSError as error:
            raise self._fail("deleting", path, error) from error

    def _remove_files(self, folder: Path) -> None:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()

    def forget(self, path: str) -> None:
        """Close the descriptor of a file that is about to go."""
        self._files.drop(path)

    def close(self) -> None:
        """Close all descriptors."""
        self._files.drop_all()

    def _refuse_if_failed(self) -> None:
        if self._failure is not None:
            raise DirectoryFailedError(self._failure)

    def _fail(self, doing: str, path: str, error: OSError) -> DirectoryFailedError:
        message = (
            f"log directory {self._root} failed: {doing} {path}: {error}; the broker must stop. Check the disk and its"
            " free space, then start the broker again: its replicas are compared with their leaders"
        )
        if self._failure is None:
            self._failure = message
            if self._on_failure is not None:
                self._on_failure()
        return DirectoryFailedError(message)


DELETED_SUFFIX: Final = ".deleted"
"""Ending of a folder that is being removed."""
