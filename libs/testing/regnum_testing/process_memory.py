"""Memory of a process, as the kernel counts it."""

import asyncio
from pathlib import Path
from typing import Final, Self

LOOK_S: Final = 0.02


def resident_bytes(pid: int) -> int:
    """Bytes that a process has in memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no VmRSS")


class PeakMemory:
    """The most memory that a process had while this was looking. An async context manager."""

    def __init__(self, pid: int) -> None:
        """Only assigns, and looks once."""
        self._pid: Final = pid
        self.before: Final = resident_bytes(pid)
        """What it had then."""
        self.bytes = self.before
        """The most so far."""
        self._looking: asyncio.Task[None] | None = None

    @property
    def above(self) -> int:
        """How much more than before."""
        return self.bytes - self.before

    def look(self) -> None:
        """Look now."""
        self.bytes = max(self.bytes, resident_bytes(self._pid))

    async def __aenter__(self) -> Self:
        """Look from time to time."""
        self._looking = asyncio.create_task(self.watch(), name="peak memory")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._looking is not None:
            self._looking.cancel()

    async def watch(self) -> None:
        """Look until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)
