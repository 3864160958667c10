"""The lock of a log directory: whoever holds it knows that every earlier owner is dead (safety rule S5)."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from regnum_broker.log.errors import DirectoryInUseError


def acquire_lock(path: Path) -> int:
    """A descriptor that holds the lock until it is closed; the kernel closes it when the process dies.

    Raises:
        DirectoryInUseError: another open directory holds it.
        OSError: the file cannot be made.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(lock)
        raise DirectoryInUseError(
            f"{path.parent} is in use by the process with pid {owner}: stop it, or give this broker another directory"
        ) from None
    # Only for people to read, so a full disk may go without.
    with suppress(OSError):
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode("ascii"), 0)
    return lock
