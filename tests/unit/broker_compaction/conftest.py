"""A log directory for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from regnum_testing.disk import FaultyDisk
from regnum_testing.log_directories import ReopenedDirectory


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def place(tmp_path: Path, disk: FaultyDisk) -> Iterator[ReopenedDirectory]:
    """An open log directory with small segments."""
    place = ReopenedDirectory(tmp_path / "logs", segment_bytes=1000, disk=disk)
    place.open()
    yield place
    place.kill()
