"""System calls on open files, as a port: tests inject faults by another one."""

import os
from collections.abc import Sequence

WriteBuffer = bytes | bytearray | memoryview


class Disk:
    """The calls of the system this process runs on."""

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
