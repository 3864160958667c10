"""An offset for a time is searched for, and not scanned for: in a log of any length it costs the same reads."""

from pathlib import Path

from regnum_broker.log.replica.replica import ReplicaLog
from regnum_testing.disk import FaultyDisk
from regnum_testing.log_directories import ReopenedDirectory, lead, offset_at

VALUE = b"v" * 1_000
SEGMENT_BYTES = 64 * 1024


def log_of(root: Path, disk: FaultyDisk, batches: int) -> tuple[ReopenedDirectory, ReplicaLog]:
    """Batch n has timestamp 1000 + n; sixty of them make a segment."""
    place = ReopenedDirectory(root, segment_bytes=SEGMENT_BYTES, disk=disk)
    place.open()
    log = place.replica()
    for number in range(batches):
        lead(log, VALUE, timestamp_ms=1_000 + number)
    return place, log


def reads_of(disk: FaultyDisk, log: ReplicaLog, timestamps_ms: list[int]) -> tuple[int, int]:
    """Largest number of reads, and of bytes, that one search takes; what it finds is checked."""
    largest = (0, 0)
    for timestamp_ms in timestamps_ms:
        reads, size = disk.reads, disk.read_bytes
        assert offset_at(log, timestamp_ms) == max(timestamp_ms - 1_000, 0)
        largest = (max(largest[0], disk.reads - reads), max(largest[1], disk.read_bytes - size))
    return largest


def test_a_search_reads_one_place_of_one_segment_however_long_the_log_is(tmp_path: Path) -> None:
    for batches in (100, 1_500):
        disk = FaultyDisk()
        place, log = log_of(tmp_path / str(batches), disk, batches)
        asked = [0, 1_000, 1_001, 1_000 + batches // 2, 999 + batches]
        assert reads_of(disk, log, asked)[0] == 2, "heads, and the batch"
        assert offset_at(log, 1_000 + batches) is None
        place.kill()


def test_it_is_a_search_again_after_a_start_that_finds_no_index(tmp_path: Path) -> None:
    disk = FaultyDisk()
    place, _ = log_of(tmp_path / "logs", disk, 300)
    place.kill()
    indexes = sorted(place.folder().glob("*.index"))
    assert len(indexes) > 3
    for file in indexes[1:3]:
        file.unlink()
    log = place.open().replicas[next(iter(place.now.replicas))]
    assert reads_of(disk, log, [1_000, 1_100, 1_150, 1_299])[0] == 2
    place.kill()
