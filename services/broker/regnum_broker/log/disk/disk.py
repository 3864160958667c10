"""The disk as storage uses it: files of one directory by path, and what each failure means.

A write or an fsync that failed once says that what the disk holds is unknown: the kernel drops the pages and the next
fsync succeeds all the same (reliability D32). So the first failure marks the directory, and every later write is
refused. Three things are no such failure. No room and no descriptors: the operation is undone and refused, and what
was there before is there still. A file that was removed or cut under the process, or a part of it that cannot be
read: that concerns who owns the file. An unreadable file that is *derived* from others counts as one that is not there.
"""

import errno
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from regnum_broker.log.disk.descriptors import Descriptors
from regnum_broker.log.disk.failing import EXHAUSTED, NOT_ASKED, Failing
from regnum_broker.log.disk.names import NEW_SUFFIX
from regnum_broker.log.disk.operations import Operations
from regnum_broker.log.disk.read_cache import ReadCache
from regnum_broker.log.disk.reserve import Reserve
from regnum_broker.log.disk.system_calls import Disk, WriteBuffer
from regnum_broker.log.errors import ResourceExhaustedError

IOV_MAX: Final = 1000
"""Buffers in one gathering write, below the system's 1024."""

CACHE_BYTES: Final = 128 * 1024 * 1024
"""What is kept of indexes, unless told otherwise."""

T = TypeVar("T")


class DamagedFileError(Exception):
    """A file is gone, shorter than it was written, or not readable in part. Its owner says what that means."""


class GuardedDisk(Failing):
    """Files of one directory by path. A failed write marks the directory as failed, for good. Reads: for any thread."""

    def __init__(
        self,
        root: Path,
        disk: Disk,
        *,
        open_files_max: int,
        reserve_bytes: int = 0,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        super().__init__(root)
        self._disk = disk
        self.threads: Final = disk.threads
        """Threads among which a job shares out what it does here."""
        self._files = Descriptors(open_files_max, disk)
        self.cache: Final = ReadCache(cache_bytes)
        """What was read of files and is kept."""
        self.operations: Final = Operations()
        """What is being asked of the system."""
        self.reserve: Final = Reserve(root / "reserve", reserve_bytes, disk)
        """Room for the directory's own bookkeeping."""

    def refuse_if_full(self) -> None:
        """Refuse what is not bookkeeping while the room held back is needed.

        Raises:
            ResourceExhaustedError: it is.
        """
        if self.reserve.full:
            raise ResourceExhaustedError(
                f"log directory {self._root} is full: nothing is appended until there is room for its reserve again;"
                " delete topics, or make room on the disk",
                space=True,
            )

    def room(self) -> tuple[int, int] | None:
        """Bytes that are free for this process, and bytes of the whole disk; None: it does not say. May hang."""
        with self.operations, suppress(OSError):
            return self._disk.room(str(self._root))
        return None

    def read(self, path: str, position: int, size: int) -> bytes:
        """Up to ``size`` bytes at ``position``; fewer at the end of the file. FileNotFoundError if there is none.

        Raises:
            DamagedFileError: that part of the file cannot be read.
            ResourceExhaustedError: no descriptor for it now.
        """
        try:
            with self.operations, self._files.pinned(path) as descriptor:
                data = self._disk.pread(descriptor, size, position)
                while len(data) < size and (
                    more := self._disk.pread(descriptor, size - len(data), position + len(data))
                ):
                    data += more
                return data
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno in EXHAUSTED:
                raise self._exhausted("reading", path, error) from error
            raise DamagedFileError(f"byte {position} of {path} cannot be read: {error}") from error

    def read_whole(self, path: str, *, derived: bool = False) -> bytes | None:
        """All of a small file; None if there is none, or, of one that is ``derived``, if the disk cannot read it.

        Raises:
            ResourceExhaustedError: no descriptor for it now.
            DirectoryFailedError: it cannot be read, and is not derived.
        """
        try:
            with self.operations:
                return Path(path).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            if derived and error.errno not in EXHAUSTED | NOT_ASKED:
                return None
            raise self._refusal("reading", path, error) from error

    def read_start(self, path: str, size: int) -> tuple[bytes, int] | None:
        """The first ``size`` bytes of a file, or fewer, and how many it has; None if none can be read."""
        try:
            with self.operations:
                descriptor = self._disk.open(path, os.O_RDONLY)
                try:
                    return self._disk.pread(descriptor, size, 0), self._disk.status(descriptor).st_size
                finally:
                    self._disk.close(descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in EXHAUSTED | NOT_ASKED:
                return None
            raise self._refusal("reading", path, error) from error

    def write(
        self,
        path: str,
        buffers: Sequence[WriteBuffer],
        position: int,
        *,
        bookkeeping: bool = False,
    ) -> None:
        """Write all of ``buffers`` at ``position``, where the file ends; creates it only where it begins.

        Args:
            path: the file.
            buffers: what to write.
            position: how long the file is.
            bookkeeping: whether it may use the room that is held back.

        Raises:
            DamagedFileError: the file is gone, or shorter than that.
            ResourceExhaustedError: no room; the file is as it was.
        """
        if bookkeeping:
            self._with_reserve(lambda: self._write(path, buffers, position))
        else:
            self._write(path, buffers, position)

    def _write(self, path: str, buffers: Sequence[WriteBuffer], position: int) -> None:
        self._refuse_if_failed()
        try:
            with self.operations:
                file = self._files.pin(path, create=position == 0)
                try:
                    if position > 0 or file.seen:
                        _check_length(self._disk, file.descriptor, path, position)
                    # Else it was opened just now, and made if it was not there: no call more than a first record takes.
                    _write_at_end(self._disk, file.descriptor, buffers, position)
                finally:
                    self._files.unpin(file)
        except FileNotFoundError as error:
            raise DamagedFileError(f"{path} was removed while it was in use: {error}") from error
        except OSError as error:
            raise self._refusal("writing", path, error) from error

    def set_written(self, path: str, written_ms: int) -> None:
        """Have a file say that it was written to last at that time, where the system allows it."""
        with self.operations, suppress(OSError):
            os.utime(path, ns=(written_ms * 1_000_000, written_ms * 1_000_000))

    def truncate(self, path: str, size: int) -> None:
        """Cut the file.

        Raises:
            DamagedFileError: it is gone.
        """
        self._refuse_if_failed()
        try:
            with self.operations, self._files.pinned(path) as descriptor:
                self._disk.ftruncate(descriptor, size)
        except FileNotFoundError as error:
            raise DamagedFileError(f"{path} was removed while it was in use: {error}") from error
        except OSError as error:
            raise self._refusal("truncating", path, error) from error

    def sync(self, path: str) -> None:
        """Bring the file to the disk.

        Raises:
            DamagedFileError: it is gone.
            DirectoryFailedError: what was written may be lost.
        """
        self._refuse_if_failed()
        try:
            with self.operations, self._files.pinned(path) as descriptor:
                self._sync_named(descriptor, path)
        except FileNotFoundError as error:
            raise DamagedFileError(f"{path} was removed while it was in use: {error}") from error
        except OSError as error:
            raise self._refusal("syncing", path, error) from error

    def sync_folder(self, path: str) -> None:
        """Bring the names in a folder to the disk that somebody may delete meanwhile. Raises as ``folder_open``."""
        with self.folder_open(path) as sync_names:
            sync_names()

    def sync_directory(self, path: str) -> None:
        """Bring the names in a directory to the disk, which must be there."""
        try:
            self.sync_folder(path)
        except DamagedFileError as error:
            raise self.fail(str(error)) from error

    @contextmanager
    def folder_open(self, path: str) -> Iterator[Callable[[], None]]:
        """A folder that stays open; what is given brings the names in it to the disk, and lacks no descriptor for that.

        Raises:
            DamagedFileError: it is gone.
            ResourceExhaustedError: no descriptor for it now.
            DirectoryFailedError: the disk failed; where what is given raises it, what was written may be lost.
        """
        self._refuse_if_failed()
        try:
            with self.operations:
                descriptor = self._disk.open_folder(path)
        except FileNotFoundError as error:
            raise DamagedFileError(f"{path} was removed while it was in use: {error}") from error
        except OSError as error:
            raise self._refusal("syncing", path, error) from error

        def sync_names() -> None:
            self._refuse_if_failed()
            with self.operations:
                self._sync(descriptor, path)

        try:
            yield sync_names
        finally:
            with self.operations:
                self._disk.close(descriptor)

    def _sync_named(self, descriptor: int, path: str) -> None:
        self._sync(descriptor, path)
        if self._disk.status(descriptor).st_nlink == 0:
            raise DamagedFileError(f"{path} was removed while it was in use")

    def _sync(self, descriptor: int, path: str) -> None:
        """A failed fsync is final whatever the reason, want of room included: the kernel has dropped the pages."""
        try:
            self._disk.fdatasync(descriptor)
        except OSError as error:
            raise self._fail("syncing", path, error, lost=True) from error

    def replace(self, path: str, data: bytes, *, sync: bool, bookkeeping: bool = False) -> None:
        """Put a small file in place of another, at once."""
        if bookkeeping:
            self._with_reserve(lambda: self._replace(path, data, sync=sync))
        else:
            self._replace(path, data, sync=sync)

    def _replace(self, path: str, data: bytes, *, sync: bool) -> None:
        self._refuse_if_failed()
        temporary = path + NEW_SUFFIX
        try:
            with self.operations:
                descriptor = self._disk.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                try:
                    _write_all(self._disk, descriptor, [data], 0)
                    if sync:
                        self._sync(descriptor, path)
                except OSError:
                    # What it takes of a full disk is needed.
                    with suppress(FileNotFoundError):
                        self._disk.unlink(temporary)
                    raise
                finally:
                    self._disk.close(descriptor)
                self._disk.rename(temporary, path)
        except OSError as error:
            raise self._refusal("replacing", path, error) from error
        self._files.drop(path)
        if sync:
            self.sync_directory(str(Path(path).parent))

    def delete(self, path: str) -> None:
        """Remove a file; one that is not there is fine."""
        self._refuse_if_failed()
        try:
            with self.operations:
                self._disk.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._refusal("deleting", path, error) from error
        # Afterwards: a reader that comes between would bring the file that is gone back under its name.
        self._files.drop(path)

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents; one that is there is fine."""
        self._refuse_if_failed()
        try:
            with self.operations:
                try:
                    self._disk.make_folder(path)
                except FileExistsError:
                    return
                except FileNotFoundError:
                    self.make_directory(str(Path(path).parent))
                    self.make_directory(path)
        except OSError as error:
            raise self._refusal("creating", path, error) from error

    def rename(self, path: str, target: str) -> bool:
        """Give a folder another name; False: there is none."""
        self._refuse_if_failed()
        try:
            with self.operations:
                self._disk.rename(path, target)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._refusal("renaming", path, error) from error
        return True

    def remove_folder(self, path: str, *, is_own: Callable[[str], bool], expected: Collection[str] = ()) -> bool:
        """Remove a folder and the files that are ours; what is not there is fine. A kill may leave half of it.

        False: something else is in it, which is left alone, and so is the folder.

        Args:
            path: the folder, or a link to one.
            is_own: of a file's name, whether it is ours.
            expected: names of all files that most of such folders have: those are not asked what they hold.
        """
        self._refuse_if_failed()
        try:
            _unlink(self._disk, self.operations, (f"{path}/{name}" for name in expected))
            if expected and _remove_folder(self._disk, self.operations, path):
                return True
            with self.operations:
                files = self._disk.list_folder(path)
            _unlink(self._disk, self.operations, (file for file in files if is_own(file.rpartition("/")[2])))
            return _remove_folder(self._disk, self.operations, path)
        except FileNotFoundError:
            return True
        except OSError as error:
            raise self._refusal("deleting", path, error) from error

    def forget(self, path: str) -> None:
        """Close the descriptor of a file that is about to go."""
        self._files.drop(path)

    def forget_folders(self, paths: Iterable[str]) -> None:
        """The same for all files of some folders."""
        self._files.drop_folders(frozenset(paths))

    def close(self) -> None:
        """Close all descriptors."""
        self._files.drop_all()

    def _with_reserve(self, work: Callable[[], T]) -> T:
        """Do it, on a full disk once more with the room that is held back."""
        try:
            return work()
        except ResourceExhaustedError as error:
            if not error.space or not self.reserve.release():
                raise
            return work()


def _write_at_end(disk: Disk, descriptor: int, buffers: Sequence[WriteBuffer], position: int) -> None:
    try:
        _write_all(disk, descriptor, buffers, position)
    except OSError as error:
        if error.errno in EXHAUSTED:
            disk.ftruncate(descriptor, position)
        raise


def _write_all(disk: Disk, descriptor: int, buffers: Sequence[WriteBuffer], position: int) -> None:
    for start in range(0, len(buffers), IOV_MAX):
        part = buffers[start : start + IOV_MAX]
        wanted = sum(map(len, part))
        written = disk.pwritev(descriptor, part, position)
        if written < wanted:
            rest = memoryview(b"".join(part))
            while written < wanted:
                more = disk.pwritev(descriptor, [rest[written:]], position + written)
                if more <= 0:
                    raise OSError(errno.EIO, "the write makes no progress")
                written += more
        position += wanted


def _unlink(disk: Disk, operations: Operations, files: Iterable[str]) -> None:
    for file in files:
        # A folder with a file's name is not ours.
        with operations, suppress(FileNotFoundError, IsADirectoryError):
            disk.unlink(file)


def _remove_folder(disk: Disk, operations: Operations, path: str) -> bool:
    """False: it is not empty."""
    try:
        with operations:
            disk.remove_folder(path)
    except NotADirectoryError:
        # A link to a folder on another disk: what it leads to was ours.
        with operations:
            disk.unlink(path)
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
            # Systems differ in which they say.
            return False
        raise
    return True


def _check_length(disk: Disk, descriptor: int, path: str, position: int) -> None:
    """Refuse to write at the end of a file that has no name any more, or does not reach so far."""
    status = disk.status(descriptor)
    if status.st_nlink == 0 or status.st_size < position:
        raise DamagedFileError(
            f"{path} was removed, or cut to {status.st_size} bytes, while it was in use; it had {position}"
        )
