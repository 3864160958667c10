"""What a figure was measured on: the machine, its load, and the code."""

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from regnum_telemetry.build import UNKNOWN, this_build

_GIT_TIMEOUT_S: Final = 10.0


def machine() -> dict[str, Any]:
    """Processors that this process may use, memory, kernel, Python."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "cpu": _cpu_model(),
        "memory_bytes": memory,
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
    }


def load_average() -> list[float]:
    """Of the last 1, 5 and 15 minutes."""
    return [round(load, 2) for load in os.getloadavg()]


def commit() -> dict[str, Any]:
    """``id`` (None outside a checkout) and ``dirty``: whether anything but results differs from it."""
    said = this_build().commit
    if said != UNKNOWN:
        # From a wheel: a checkout that happens to lie around it is somebody else's.
        return {"id": said.removesuffix("-dirty"), "dirty": said.endswith("-dirty")}
    head = _git("rev-parse", "--short=12", "HEAD")
    # What was measured before is no part of what is measured.
    changes = _git("status", "--porcelain", "--", ":/", ":(top,exclude)bench/results")
    return {"id": head or None, "dirty": None if changes is None else bool(changes)}


def _git(*arguments: str) -> str | None:
    program = shutil.which("git")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parent,
            timeout=_GIT_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())
