"""Memory of another process of ours, as the kernel tells it."""

from pathlib import Path


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
