"""Ports for servers of tests, which nobody else on the machine is given meanwhile.

Between the choice of a port and its use lies a moment, and between a server's end and its restart a longer one. Tests
run in several processes at once, so each process has a slice of the ports for itself, below the range that local
clusters choose from: a lock that the process holds until it ends says whose a slice is.
"""

import fcntl
import os
from pathlib import Path
from typing import Final

from regnum_service.ports import LOW, is_free

FIRST: Final = 8_000
"""Lowest port for tests."""
SLICE: Final = 250
"""Ports of a process, given one after another and round and round: the longest unused is the next."""
SLICES: Final = (LOW - FIRST) // SLICE


class PortSlice:
    """The ports of one process. Nothing is claimed before the first is asked for."""

    def __init__(self, locks: Path) -> None:
        """Only assigns; ``locks``: folder of the lock files, the same for all processes."""
        self._locks = locks
        self._held: int | None = None
        self._first = 0
        self._given = 0

    def next(self) -> int:
        """A free port. Raises RuntimeError when there is none left."""
        if self._held is None:
            self._claim()
        for _ in range(SLICE):
            port = self._first + self._given % SLICE
            self._given += 1
            if is_free(port):
                return port
        raise RuntimeError(f"ports {self._first} to {self._first + SLICE - 1} are all in use: end what listens there")

    def close(self) -> None:
        """Let somebody else have them; the end of the process does so, too."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def _claim(self) -> None:
        self._locks.mkdir(exist_ok=True)
        for number in range(SLICES):
            held = os.open(self._locks / str(number), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(held)
                continue
            self._held, self._first = held, FIRST + number * SLICE
            return
        raise RuntimeError(f"{SLICES} processes of tests hold all slices of ports ({self._locks}): end some")


# Not where TMPDIR says, which the suite sets for its own parts: whoever had other locks would have the same ports.
_mine: Final = PortSlice(Path(f"/tmp/regnum-test-ports-{os.getuid()}"))  # noqa: S108 - empty files, of this user alone


def unused_port() -> int:
    """A free port of 127.0.0.1 that nobody was given lately and nobody else is given."""
    return _mine.next()


def unused_ports(count: int) -> list[int]:
    """That many different ones, at most 250."""
    return [unused_port() for _ in range(count)]
