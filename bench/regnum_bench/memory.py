"""Memory of another process of ours, as the kernel tells it."""

from pathlib import Path
from typing import Final


class Memory:
    """Resident memory of another process of ours."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")

    def resident_bytes(self) -> int:
        """Now."""
        return self._status("VmRSS")

    def peak_bytes(self) -> int:
        """The most since the start, or since ``forget_peak``."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        """The peak begins anew."""
        (self._folder / "clear_refs").write_text("5", encoding="ascii")

    def _status(self, field: str) -> int:
        lines = (self._folder / "status").read_text(encoding="ascii", errors="replace").splitlines()
        (line,) = [line for line in lines if line.startswith(f"{field}:")]
        return int(line.split()[1]) * 1024


class Watched:
    """Memory of one process: at the beginning, with idle connections, and from there on."""

    def __init__(self, memory: Memory) -> None:
        self._memory: Final = memory
        self._before = self.baseline_bytes = memory.resident_bytes()
        self._arrived_peak = 0
        memory.forget_peak()

    def has_connections(self) -> None:
        """The brokers are connected and idle: the baseline from here on."""
        self._arrived_peak = self._memory.peak_bytes()
        self.baseline_bytes = self._memory.resident_bytes()
        self._memory.forget_peak()

    def connections_bytes(self) -> int:
        """What the connections took."""
        return max(0, self.baseline_bytes - self._before)

    def above_bytes(self) -> int:
        """The most above the baseline."""
        return max(0, self._memory.peak_bytes() - self.baseline_bytes)

    def in_all_bytes(self) -> int:
        """The most above the beginning."""
        return max(0, max(self._arrived_peak, self._memory.peak_bytes()) - self._before)

    def left_bytes(self) -> int:
        """Now above the baseline."""
        return max(0, self._memory.resident_bytes() - self.baseline_bytes)
