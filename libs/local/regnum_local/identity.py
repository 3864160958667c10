"""Which process is meant: a pid alone is reused sooner or later, a pid with its start time and the boot is not."""

import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """One run of one process on this machine."""

    pid: int
    """Process id."""
    start_ticks: int
    """Clock ticks from boot to its start, as /proc says."""
    boot_id: str
    """The boot it belongs to."""

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """The process that has this pid now; None when there is none."""
        stat = _stat(pid)
        return None if stat is None else cls(pid=pid, start_ticks=stat[1], boot_id=boot_id())

    @classmethod
    def of_self(cls) -> Self:
        """This process."""
        identity = cls.of(os.getpid())
        if identity is None:
            raise RuntimeError("/proc does not show this process; is /proc mounted?")
        return identity

    def state(self) -> str | None:
        """The letter of /proc (``T`` is stopped); None when the process is gone or only waits to be reaped."""
        if self.boot_id != boot_id():
            return None
        stat = _stat(self.pid)
        if stat is None or stat[1] != self.start_ticks or stat[0] in "ZX":
            return None
        return stat[0]

    def alive(self) -> bool:
        """Whether it still runs, or is stopped."""
        return self.state() is not None

    def send(self, signum: signal.Signals) -> bool:
        """Send a signal to this process and to no other; False when it is gone."""
        try:
            # The descriptor pins the process: a pid reused after the look is another descriptor.
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            if not self.alive():
                return False
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signum)
                return True
            return False
        finally:
            os.close(descriptor)

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        return {"pid": self.pid, "start_ticks": self.start_ticks, "boot_id": self.boot_id}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """From a file; raises KeyError, TypeError or ValueError when it says something else."""
        return cls(pid=int(value["pid"]), start_ticks=int(value["start_ticks"]), boot_id=str(value["boot_id"]))


def boot_id() -> str:
    """Name of the running boot."""
    return _BOOT_ID.read_text(encoding="ascii").strip()


def _stat(pid: int) -> tuple[str, int] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in brackets and may hold anything, brackets too.
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])
