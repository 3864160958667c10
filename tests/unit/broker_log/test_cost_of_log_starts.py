"""What it costs to move a log's start again and again, as a topic at full speed with a small limit has it."""

import os
import stat
from pathlib import Path

from regnum_broker.log.disk.system_calls import Disk
from regnum_testing.log_directories import KEY, ReopenedDirectory, lead

ROUNDS = 400


class CountingDisk(Disk):
    """Counts what is brought to the disk: files, and folders."""

    def __init__(self) -> None:
        self.files = self.folders = 0

    def fdatasync(self, descriptor: int) -> None:
        """Count and sync."""
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            self.folders += 1
        else:
            self.files += 1
        super().fdatasync(descriptor)

    def taken(self) -> tuple[int, int]:
        """Files and folders since this was asked for last."""
        found = (self.files, self.folders)
        self.files = self.folders = 0
        return found


def test_the_writer_waits_for_no_disk_and_each_round_for_one_file(tmp_path: Path) -> None:
    disk = CountingDisk()
    place = ReopenedDirectory(tmp_path, disk=disk)
    place.open()
    log = place.replica()
    lead(log, *(b"%d" % number for number in range(ROUNDS + 2)))
    starts = place.now.starts
    for offset in (1, 2):
        recorded = starts.record({KEY: offset})
        starts.sync()
        starts.apply(recorded)
    by_writer, by_rounds = [], []
    for offset in range(3, ROUNDS):
        disk.taken()
        recorded = starts.record({KEY: offset})
        by_writer.append(disk.taken())
        starts.sync()
        by_rounds.append(disk.taken())
        assert starts.apply(recorded) == {KEY: offset}
    place.kill()
    assert place.open().replicas[KEY].log_start_offset == ROUNDS - 1
    assert set(by_writer) == {(0, 0)}
    assert set(by_rounds) == {(1, 0)}


def test_a_file_that_was_made_anew_has_its_name_on_the_disk_with_the_next_round(tmp_path: Path) -> None:
    disk = CountingDisk()
    place = ReopenedDirectory(tmp_path, disk=disk)
    place.open()
    lead(place.replica(), b"a", b"b", b"c")
    starts = place.now.starts
    starts.record({KEY: 1})
    disk.taken()
    starts.sync()
    assert disk.taken() == (1, 1)
    starts.record({KEY: 2})
    starts.sync()
    assert disk.taken() == (1, 0)
    # A truncation takes a start back, into a file that is made anew.
    starts.save_all()
    disk.taken()
    starts.sync()
    assert disk.taken() == (1, 1)
