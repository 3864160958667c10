"""What this process uses, as the kernel says. Reads files: for a thread, or for whoever may wait."""

import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Final

STATM: Final = Path("/proc/self/statm")
DESCRIPTORS: Final = Path("/proc/self/fd")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnProcess:
    """What it uses; 0 where this system does not tell."""

    resident_bytes: int
    """Resident memory."""
    open_files: int
    """File descriptors that are open."""
    open_files_max: int
    """File descriptors that may be."""


def look() -> OwnProcess:
    """As of now."""
    try:
        resident_bytes = int(STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
        # Less the one that lists them.
        open_files = sum(1 for _ in DESCRIPTORS.iterdir()) - 1
    except OSError:
        resident_bytes = open_files = 0
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OwnProcess(resident_bytes=resident_bytes, open_files=open_files, open_files_max=max(most, 0))
