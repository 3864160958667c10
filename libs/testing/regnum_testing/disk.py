"""A disk that fails when told to."""

import errno
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from regnum_broker.log.disk.system_calls import Disk, WriteBuffer


class FaultyDisk(Disk):
    """A real disk with faults: set an errno to make calls of that kind fail."""

    def __init__(self) -> None:
        self.fail_writes: int | None = None
        self.fail_syncs: int | None = None
        self.fail_reads: int | None = None
        self.fail_folders: int | None = None
        """For opening folders."""
        self.fail_writes_after: tuple[int, int] | None = None
        """How many more writes succeed, and the errno of those that follow."""
        self.short_writes: int | None = None
        """Bytes that one write takes at most."""
        self.amid_read: Callable[[], None] | None = None
        """Runs once, in the middle of the next read."""
        self.syncs = 0
        """Syncs asked for so far."""
        self.writes = 0
        """Writes asked for so far."""
        self.reads = 0
        """Reads asked for so far."""
        self.read_bytes = 0
        """Bytes that they brought."""

    def pread(self, descriptor: int, size: int, position: int) -> bytes:
        """Read, or fail."""
        data = self._pread(descriptor, size, position)
        self.reads += 1
        self.read_bytes += len(data)
        return data

    def _pread(self, descriptor: int, size: int, position: int) -> bytes:
        if self.fail_reads is not None:
            raise OSError(self.fail_reads, errno.errorcode[self.fail_reads])
        if self.amid_read is None:
            return super().pread(descriptor, size, position)
        half = size // 2
        data = super().pread(descriptor, half, position)
        happening, self.amid_read = self.amid_read, None
        happening()
        return data + super().pread(descriptor, size - half, position + half)

    def pwritev(self, descriptor: int, buffers: Sequence[WriteBuffer], position: int) -> int:
        """Write, write less, or fail."""
        self.writes += 1
        if self.fail_writes is not None:
            raise OSError(self.fail_writes, errno.errorcode[self.fail_writes])
        if self.fail_writes_after is not None:
            left, code = self.fail_writes_after
            if left == 0:
                raise OSError(code, errno.errorcode[code])
            self.fail_writes_after = (left - 1, code)
        if self.short_writes is not None:
            return super().pwritev(descriptor, [b"".join(buffers)[: self.short_writes]], position)
        return super().pwritev(descriptor, buffers, position)

    def fdatasync(self, descriptor: int) -> None:
        """Sync, or fail."""
        self.syncs += 1
        if self.fail_syncs is not None:
            raise OSError(self.fail_syncs, errno.errorcode[self.fail_syncs])
        super().fdatasync(descriptor)

    def open_folder(self, path: str) -> int:
        """Open a folder, or fail."""
        if self.fail_folders is not None:
            raise OSError(self.fail_folders, errno.errorcode[self.fail_folders])
        return super().open_folder(path)


class ForgetfulDisk(FaultyDisk):
    """A disk that, when power fails, has of each file only what was synced; it says when segments are."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[str, int] = {}
        """Synced bytes by path."""
        self.at_sync: Callable[[], None] = lambda: None
        """Called before a segment is synced."""
        self.at_name_sync: Callable[[], None] = lambda: None
        """Called when a replica's name has been."""

    def fdatasync(self, descriptor: int) -> None:
        """Sync."""
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        if path.endswith(".log"):
            self.at_sync()
        super().fdatasync(descriptor)
        self.sizes[path] = os.fstat(descriptor).st_size
        if path.endswith("/replica"):
            self.at_name_sync()

    def lose_power(self, folder: Path) -> None:
        """Forget what was not synced."""
        for path in folder.glob("*.log"):
            os.truncate(path, self.sizes.get(str(path), 0))


class HangingDisk(Disk):
    """A disk that stops answering writes when told to, until it is told to go on."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()
        self.asked = False
        """Whether it was asked to write since it stopped answering."""
        self.syncs = threading.Event()
        """Cleared: nothing is brought to the disk until it is set."""
        self.syncs.set()
        self.syncing = threading.Event()
        """Whether it was asked for that since."""
        self.synced = 0
        """Times that it has done it."""
        self.removes = threading.Event()
        """Cleared: files are not removed until it is set."""
        self.removes.set()
        self.removed = 0
        """Files removed so far."""

    def pwritev(self, descriptor: int, buffers: Sequence[WriteBuffer], position: int) -> int:
        """Write, once the disk answers."""
        self.asked = not self.answers.is_set()
        self.answers.wait()
        return super().pwritev(descriptor, buffers, position)

    def fdatasync(self, descriptor: int) -> None:
        """Sync, once the disk does."""
        if not self.syncs.is_set():
            self.syncing.set()
        self.syncs.wait()
        super().fdatasync(descriptor)
        self.synced += 1

    def unlink(self, path: str) -> None:
        """Remove a file, once the disk removes any."""
        self.removes.wait()
        super().unlink(path)
        self.removed += 1


class KilledError(BaseException):
    """The process was killed there: nothing of it catches this."""


class KillingDisk(Disk):
    """A disk under a process that is killed before one of its operations; a write is done by half."""

    def __init__(self) -> None:
        self.done = 0
        """Operations that change something, so far."""
        self.kill_at: int | None = None
        """Number of the operation that is not done any more."""

    def pwritev(self, descriptor: int, buffers: Sequence[WriteBuffer], position: int) -> int:
        """Write, or half of it."""
        if self.done == self.kill_at:
            data = b"".join(buffers)
            super().pwritev(descriptor, [data[: len(data) // 2]], position)
        self._next()
        return super().pwritev(descriptor, buffers, position)

    def fdatasync(self, descriptor: int) -> None:
        """Sync."""
        self._next()
        super().fdatasync(descriptor)

    def ftruncate(self, descriptor: int, size: int) -> None:
        """Cut."""
        self._next()
        super().ftruncate(descriptor, size)

    def rename(self, source: str, target: str) -> None:
        """Give another name."""
        self._next()
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        self._next()
        super().unlink(path)

    def _next(self) -> None:
        if self.kill_at is not None and self.done >= self.kill_at:
            raise KilledError
        self.done += 1


class RememberingDisk(KillingDisk):
    """Knows what of each file is on the disk, whatever happens to the power."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[str, int] = {}
        """Bytes by path."""
        self.amid_sync: Callable[[], None] | None = None
        """Runs before the next segment is synced."""

    def fdatasync(self, descriptor: int) -> None:
        """Sync; what is appended meanwhile is not on the disk for sure."""
        path, size = str(Path(f"/proc/self/fd/{descriptor}").readlink()), os.fstat(descriptor).st_size
        super().fdatasync(descriptor)
        self.sizes[path] = size
        if self.amid_sync is not None and path.endswith(".log"):
            self.amid_sync()

    def ftruncate(self, descriptor: int, size: int) -> None:
        """Cut."""
        super().ftruncate(descriptor, size)
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        self.sizes[path] = min(self.sizes.get(path, 0), size)

    def rename(self, source: str, target: str) -> None:
        """Give another name."""
        super().rename(source, target)
        self.sizes[target] = self.sizes.pop(source, 0)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        super().unlink(path)
        self.sizes.pop(path, None)
