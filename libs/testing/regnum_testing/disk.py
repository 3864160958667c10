"""A disk that fails when told to."""

import errno
import threading
from collections.abc import Callable, Sequence

from regnum_broker.log.disk.system_calls import Disk, WriteBuffer


class FaultyDisk(Disk):
    """A real disk with faults: set an errno to make calls of that kind fail."""

    def __init__(self) -> None:
        self.fail_writes: int | None = None
        self.fail_syncs: int | None = None
        self.fail_reads: int | None = None
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

    def unlink(self, path: str) -> None:
        """Remove a file, once the disk removes any."""
        self.removes.wait()
        super().unlink(path)
        self.removed += 1
