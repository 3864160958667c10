"""A log directory on ext4 that loses power: really, with what the file system's journal has afterwards.

The same on simulated disks that forget, in whole clusters: ``python -m regnum_testing.simulation``.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from regnum_testing.compaction import records_of
from regnum_testing.log_directories import KEY, ReopenedDirectory, lead
from regnum_testing.losing_filesystem import (
    WITH_LOG,
    WITHOUT_LOG,
    CannotMountError,
    LosingFilesystem,
    losing_filesystem,
)

pytestmark = [pytest.mark.full, pytest.mark.timeout(120)]

FLUSHED, APPENDED = 5, 12


@pytest.fixture
def filesystem(tmp_path: Path) -> Iterator[LosingFilesystem]:
    disk = tmp_path / "disk"
    disk.mkdir()
    try:
        with losing_filesystem(disk) as mounted:
            yield mounted
    except CannotMountError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("flushes", [WITH_LOG, WITHOUT_LOG])
def test_what_was_flushed_is_there_and_the_log_is_another_one(filesystem: LosingFilesystem, flushes: int) -> None:
    place = ReopenedDirectory(filesystem.folder / "broker")
    place.open(broker_id=1)
    log, before = place.replica(), place.log_id
    for number in range(APPENDED):
        lead(log, b"%d" % number)
        place.flush()
        if number == FLUSHED - 1:
            log.flush()
    filesystem.lose_power(flushes=flushes)
    place.kill()
    filesystem.mount_again()
    place.boot_id += "+"
    found = place.open(broker_id=1).replicas[KEY]
    values = [record.value for record in records_of(found)]
    assert values == [b"%d" % number for number in range(len(values))]
    assert FLUSHED <= len(values) <= APPENDED
    assert place.log_id != before
    place.kill()
