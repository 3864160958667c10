"""A real ext4 file system that loses power: what was not synced is gone, what was is there after the journal's replay.

The kernel is asked to shut the file system down (``EXT4_IOC_SHUTDOWN``): from then on every call on it fails, and
nothing that is in memory reaches the device. It lies on a loop device over a file, and is mounted in a mount namespace
of its own, reached through /proc, so that a test that is killed leaves no mount behind.
"""

import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SHUTDOWN: Final = 0x8004587D
"""``EXT4_IOC_SHUTDOWN``: _IOR('X', 125, __u32)."""
WITH_LOG: Final = 1
"""The journal is flushed first: what is lost is data alone."""
WITHOUT_LOG: Final = 2
"""Nothing is flushed."""
SIZE_BYTES: Final = 256 << 20

_HOLDER: Final = """
mount -t ext4 -o loop "$1" "$0" && echo mounted || exit 1
while read -r _; do umount "$0" && mount -t ext4 -o loop "$1" "$0" && echo mounted || exit 1; done
"""


class CannotMountError(Exception):
    """This machine does not allow it: no loop device, no ext4, or no right to mount."""


class LosingFilesystem:
    """One that is mounted."""

    def __init__(self, holder: "subprocess.Popen[bytes]", at: Path) -> None:
        """Only assigns."""
        self._holder: Final = holder
        self.folder: Final = Path(f"/proc/{holder.pid}/root{at}")
        """Where it is."""

    def lose_power(self, *, flushes: int) -> None:
        """Shut it down; ``flushes``: WITH_LOG or WITHOUT_LOG."""
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", flushes))
        finally:
            os.close(descriptor)

    def mount_again(self) -> None:
        """Mount it as after a start of the machine. No process may have anything open on it."""
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        self._holder.stdin.write(b"\n")
        self._holder.stdin.flush()
        if self._holder.stdout.readline() != b"mounted\n":
            raise CannotMountError("it cannot be mounted again; is anything open on it?")


@contextmanager
def losing_filesystem(place: Path) -> Iterator[LosingFilesystem]:
    """A new one, of 256 MiB; ``place``: an empty folder. Raises CannotMountError."""
    image, at = place / "image", place / "at"
    at.mkdir()
    with image.open("wb") as file:
        file.truncate(SIZE_BYTES)
    try:
        subprocess.run(["mkfs.ext4", "-q", str(image)], check=True, capture_output=True)
        holder = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", _HOLDER, str(at), str(image)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise CannotMountError(str(error)) from error
    with holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            if holder.stdout.readline() != b"mounted\n":
                raise CannotMountError("a loop device cannot be mounted")
            yield LosingFilesystem(holder, at)
        finally:
            holder.stdin.close()
