"""A folder for each run: its name, when it is old, and how it becomes visible at once where there is a file system."""

import os
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

MARK: Final = "_SUCCESS"
"""A run's folder is whole when this is in it, as with Spark's own tables."""
REPORT: Final = "report.txt"
UNFINISHED: Final = ".unfinished"
"""End of the name of a folder that is not whole."""
_NAMES: Final = ("%Y-%m-%dT%H%M%SZ", "%Y-%m-%d")
"""Names of runs; the second is what they were called when there was one for each day."""


def name_of(now_s: float) -> str:
    """The name of a run that begins now: ``2026-11-23T021700Z``."""
    return datetime.fromtimestamp(now_s, UTC).strftime(_NAMES[0])


def expired(names: Iterable[str], *, now_s: float, keep_days: float) -> list[str]:
    """Names of runs that began more than so many days ago, whole or not; other names are somebody else's."""
    return sorted(
        name for name in names if (began := _began_s(name)) is not None and began < now_s - keep_days * 86_400
    )


def publish(folder: Path, out: Path, name: str) -> None:
    """Make a folder on the same file system that run's, at once. Raises OSError, also when there is one already."""
    (folder / MARK).touch()
    for path in folder.rglob("*"):
        if path.is_file():
            _flush(path)
    folder.rename(out / name)
    _flush(out)


def clear(out: Path, *, now_s: float, keep_days: float) -> list[str]:
    """Remove runs of a folder that are too old; returns their names. Raises OSError."""
    there = [path.name for path in out.iterdir() if path.is_dir() and not path.is_symlink()]
    gone = expired(there, now_s=now_s, keep_days=keep_days)
    for name in gone:
        shutil.rmtree(out / name)
    return gone


def _began_s(name: str) -> float | None:
    began = name.removesuffix(UNFINISHED)
    for form in _NAMES:
        try:
            moment = datetime.strptime(began, form).replace(tzinfo=UTC)
        except ValueError:
            continue
        # strptime takes 2026-1-3 for a date too, and that is no run.
        if moment.strftime(form) == began:
            return moment.timestamp()
    return None


def _flush(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
