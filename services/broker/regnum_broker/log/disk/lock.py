"""The lock of a log directory: whoever holds it knows that every earlier owner is dead (safety rule S5).

What is written into the file is for people only. It has to mean something in a container, where the same process id and
the same host name belong to one process after another: so it says since when, and in which space of process ids.
"""

import datetime as dt
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from regnum_broker.log.disk.system_calls import Disk
from regnum_broker.log.errors import DirectoryInUseError

PID_NAMESPACE: Final = Path("/proc/self/ns/pid")
"""Names the space of process ids that this process lives in."""

BYTES_MAX: Final = 512
"""What is read of a lock file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    """Who holds the lock, as it says of itself."""

    pid: int
    """Its process id where it runs."""
    host: str
    """Name of its host; in a Pod, the name of the Pod."""
    pid_namespace: str
    """The space of process ids that ``pid`` belongs to; empty: the system does not say."""
    since_ms: int
    """When it took the lock, milliseconds since 1970 by its clock."""

    @classmethod
    def here(cls, since_ms: int) -> Self:
        """This process."""
        namespace = ""
        with suppress(OSError):
            namespace = str(PID_NAMESPACE.readlink())
        return cls(pid=os.getpid(), host=socket.gethostname(), pid_namespace=namespace, since_ms=since_ms)

    def encode(self) -> bytes:
        """As a lock file has it: a line of words."""
        since = dt.datetime.fromtimestamp(self.since_ms / 1000, dt.UTC).isoformat(timespec="seconds")
        return f"{self.pid} {self.host} {self.pid_namespace or '-'} {since}\n".encode("utf-8", "replace")


def described(content: bytes, reader: LockHolder) -> str:
    """What a lock file says of who holds it, for somebody who reads it as ``reader``.

    Any bytes are read: a holder of before wrote its process id alone, and a full disk may have kept it from writing.
    """
    words = content.partition(b"\n")[0].decode("utf-8", "replace").split()
    match words:
        case [pid]:
            return f"the process with pid {pid}"
        case [pid, host, namespace, since]:
            if host == reader.host and namespace == (reader.pid_namespace or "-"):
                return f"the process with pid {pid} on this host ({host}), since {since}"
            return (
                f"a process of host {host}, since {since} (pid {pid} there, which means nothing here: another"
                " container, Pod or machine)"
            )
        case _:
            return "a process that has left no word of itself"


def acquire_lock(path: Path, holder: LockHolder, disk: Disk | None = None) -> int:
    """A descriptor that holds the lock until it is closed; the kernel closes it when the process dies.

    Args:
        path: the lock file; made if it is missing.
        holder: this process, to be named to others.
        disk: its file; closes the descriptor.

    Raises:
        DirectoryInUseError: another open directory holds it.
        OSError: the file cannot be made.
    """
    disk = disk or Disk()
    lock = disk.open(str(path), os.O_RDWR | os.O_CREAT)
    try:
        disk.lock(lock)
    except BlockingIOError:
        owner = described(disk.pread(lock, BYTES_MAX, 0), holder)
        disk.close(lock)
        raise DirectoryInUseError(
            f"{path.parent} is in use by {owner}: stop it, or give this broker another directory"
        ) from None
    # Only for people to read, so a full disk may go without.
    with suppress(OSError):
        disk.ftruncate(lock, 0)
        disk.pwritev(lock, [holder.encode()], 0)
    return lock
