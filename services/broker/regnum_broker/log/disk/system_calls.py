"""System calls on files, and the threads that make many of them, as a port: tests inject faults by another one."""

import errno
import fcntl
import os
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor

WriteBuffer = bytes | bytearray | memoryview


class Disk:
    """The calls of the system this process runs on."""

    def threads(self, name: str, count: int) -> Executor:
        """Threads among which a job shares out its calls, and for which it waits."""
        return ThreadPoolExecutor(max_workers=count, thread_name_prefix=name)

    def open(self, path: str, flags: int) -> int:
        """Open a file; its descriptor goes with the process, as those of all that are opened here."""
        return os.open(path, flags | os.O_CLOEXEC, 0o644)

    def close(self, descriptor: int) -> None:
        """Close what ``open`` or ``open_folder`` opened."""
        os.close(descriptor)

    def lock(self, descriptor: int) -> None:
        """Lock an open file until it is closed. Raises BlockingIOError: another descriptor holds it."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def status(self, descriptor: int) -> os.stat_result:
        """Size of an open file, and how many names it has."""
        return os.fstat(descriptor)

    def pread(self, descriptor: int, size: int, position: int) -> bytes:
        """Read at a position; fewer bytes at the end of the file."""
        return os.pread(descriptor, size, position)

    def pwritev(self, descriptor: int, buffers: Sequence[WriteBuffer], position: int) -> int:
        """Write several buffers at a position; returns the bytes written, which may be fewer."""
        return os.pwritev(descriptor, buffers, position)

    def put(self, path: str, suffix: str, content: bytes) -> None:
        """Put a small file in place of another, by way of a name with that suffix: the last thing that is tried."""
        descriptor = os.open(path + suffix, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            if os.write(descriptor, content) < len(content):
                raise OSError(errno.ENOSPC, f"no room for all of {path}")
        finally:
            os.close(descriptor)
        os.replace(path + suffix, path)  # noqa: PTH105 - as the other calls

    def fdatasync(self, descriptor: int) -> None:
        """Bring data and size to the disk."""
        os.fdatasync(descriptor)

    def ftruncate(self, descriptor: int, size: int) -> None:
        """Cut the file."""
        os.ftruncate(descriptor, size)

    def allocate(self, descriptor: int, size: int) -> None:
        """Take room for a file of that size."""
        os.posix_fallocate(descriptor, 0, size)

    def room(self, path: str) -> tuple[int, int]:
        """Bytes that are free for this process on the file system of a path, and bytes that it has."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize

    def open_folder(self, path: str) -> int:
        """Open a folder, to bring the names in it to the disk."""
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def rename(self, source: str, target: str) -> None:
        """Give a file or a folder another name."""
        os.rename(source, target)  # noqa: PTH104 - thousands of folders, as they are

    def make_folder(self, path: str) -> None:
        """Create a folder. Raises FileExistsError, and FileNotFoundError: its parent is missing."""
        os.mkdir(path)  # noqa: PTH102 - on the way of each replica's first append

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""
        os.rmdir(path)  # noqa: PTH106 - thousands of names, as they are

    def list_folder(self, path: str) -> list[str]:
        """Paths of what is in a folder."""
        with os.scandir(path) as found:
            return [entry.path for entry in found]

    def unlink(self, path: str) -> None:
        """Remove a file's name."""
        os.unlink(path)  # noqa: PTH108 - thousands of names, as they are
