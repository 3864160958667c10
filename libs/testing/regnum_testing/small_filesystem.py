"""A real file system that is soon full.

A tmpfs is mounted in a mount namespace of its own, reached through /proc: it is gone with the process that holds it, so
that a test that is killed leaves no mount behind, whose folder nobody could remove. Where namespaces are not allowed it
is mounted in ours; where that is not allowed either (an ordinary container), /dev/shm is filled up but for the room
asked for.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the one tmpfs that every container has
SHARED_MEMORY_BYTES_MAX: Final = 1 << 30
"""A larger /dev/shm is not filled up: its pages are real memory."""


@contextmanager
def small_filesystem(at: Path, *, size_bytes: int) -> Iterator[Path]:
    """A folder on a file system with that much room; ``at`` is an empty folder to mount it at."""
    holder = _in_namespace(at, size_bytes)
    if holder is not None:
        with holder:
            try:
                yield Path(f"/proc/{holder.pid}/root{at}")
            finally:
                assert holder.stdin is not None
                holder.stdin.close()
        return
    if _mounted(at, size_bytes):
        try:
            yield at
        finally:
            subprocess.run(["umount", "--lazy", str(at)], check=True)
        return
    with _rest_of_shared_memory(size_bytes) as folder:
        yield folder


def fill(folder: Path, *, leave_bytes: int = 0) -> Path:
    """Take the room of a file system, but for so much; returns the file that takes it."""
    ballast = folder / "ballast"
    with ballast.open("ab", buffering=0) as file, suppress(OSError):
        while (free := _free_bytes(folder) - leave_bytes) > 0:
            file.write(bytes(min(free, 1 << 20)))
    return ballast


def _free_bytes(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def _mounted(at: Path, size_bytes: int) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "regnum-test", str(at)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _in_namespace(at: Path, size_bytes: int) -> "subprocess.Popen[bytes] | None":
    script = 'mount -t tmpfs -o "size=$1" regnum-test "$0" && echo mounted && read -r _'
    holder = subprocess.Popen(
        ["unshare", "-rm", "sh", "-c", script, str(at), str(size_bytes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert holder.stdout is not None
    if holder.stdout.readline() == b"mounted\n" and os.access(f"/proc/{holder.pid}/root{at}", os.W_OK):
        return holder
    holder.communicate(b"\n")
    return None


@contextmanager
def _rest_of_shared_memory(size_bytes: int) -> Iterator[Path]:
    free = _free_bytes(SHARED_MEMORY)
    assert size_bytes <= free <= SHARED_MEMORY_BYTES_MAX, (
        f"no small file system: mounting is not allowed, nor are namespaces, and /dev/shm has {free} bytes"
    )
    folder = SHARED_MEMORY / f"regnum-test-{os.getpid()}"
    folder.mkdir()
    try:
        fill(folder, leave_bytes=size_bytes).rename(folder / "held")
        yield folder
    finally:
        shutil.rmtree(folder)
