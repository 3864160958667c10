"""What is kept of indexes is bounded, and whoever reads finds the same whether it is kept or not."""

import asyncio
import errno
import random
from pathlib import Path

import google_crc32c
import pytest
from regnum_broker.log.disk.read_cache import ReadCache
from regnum_broker.log.errors import ResourceExhaustedError
from regnum_broker.log.replica.index import SegmentIndex
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_model.ids import PartitionKey, TopicId
from regnum_records.read import read_records
from regnum_records.record import Record
from regnum_testing.disk import FaultyDisk
from regnum_testing.leading_replicas import LeadingReplicas
from regnum_testing.log_directories import KEY, ReopenedDirectory, lead, offset_at
from regnum_testing.waiting import until

SEGMENT_BYTES = 100_000


def place_with(path: Path, *, cache_bytes: int, disk: FaultyDisk | None = None) -> ReopenedDirectory:
    place = ReopenedDirectory(path, segment_bytes=SEGMENT_BYTES, disk=disk)
    place.index_cache_bytes = cache_bytes
    place.open()
    return place


def key(number: int) -> PartitionKey:
    """A replica."""
    return PartitionKey(TopicId("T" * 22), number)


def first(log: ReplicaLog, offset: int) -> Record:
    """The first record of the batch that contains an offset."""
    return next(iter(read_records(log.read(offset, bytes_max=1))))


def fill(log: ReplicaLog, batches: int, *, size: int = 5_000) -> None:
    for number in range(batches):
        lead(log, b"%d" % number, bytes(size), timestamp_ms=1_000 + number)


def write_all(place: ReopenedDirectory) -> None:
    """What the writer does between its jobs."""
    while place.now.read_cache.unwritten:
        place.now.read_cache.write_one()


def loaded(log: ReplicaLog) -> int:
    """Bytes of indexes that its segments hold."""
    held = [segment._held for segment in log.segments if segment._held is not None]
    return sum(index.size_bytes for one in held for index in (one.index, one.tail) if index is not None)


def test_a_hundred_times_the_segments_take_no_more_memory_than_was_allowed(tmp_path: Path) -> None:
    place = place_with(tmp_path, cache_bytes=3_000)
    logs = [place.replica(key(number)) for number in range(10)]
    for log in logs:
        fill(log, 200)
        write_all(place)
    assert sum(len(log.segments) for log in logs) >= 100
    chance = random.Random(1)
    for _ in range(1_000):
        log = chance.choice(logs)
        offset = chance.randrange(log.log_end_offset)
        assert first(log, offset).offset <= offset <= first(log, offset).offset + 1
        assert offset_at(log, 1_000 + offset // 2) == offset - offset % 2
        write_all(place)
        assert place.now.read_cache.bytes_held <= 3_000
    assert sum(map(loaded, logs)) == place.now.read_cache.bytes_held
    place.kill()


def test_with_no_memory_at_all_logs_grow_roll_are_cut_and_read_as_ever(tmp_path: Path) -> None:
    place = place_with(tmp_path, cache_bytes=0)
    logs = [place.replica(key(number)) for number in range(3)]
    values: list[list[bytes]] = [[], [], []]
    chance = random.Random(2)
    for number in range(600):
        at = chance.randrange(3)
        log, present = logs[at], values[at]
        if chance.random() < 0.02:
            assert log.truncate(max(0, log.log_end_offset - chance.randrange(60))) == log.log_end_offset
            del present[log.log_end_offset :]
        else:
            present.append(b"%d" % number)
            lead(log, present[-1] + bytes(chance.choice([1, 3_000, 9_000])))
        if chance.random() < 0.5:
            write_all(place)
        offset = chance.randrange(len(present) or 1)
        if present:
            found = first(log, offset)
            assert (found.offset, (found.value or b"").rstrip(b"\0")) == (offset, present[offset])
    assert max(len(log.segments) for log in logs) > 3
    for reopen in (place.kill_and_open_all, place.stop_and_open_all):
        reopen()
        for number, present in enumerate(values):
            log = place.now.replicas[key(number)]
            assert log.log_end_offset == len(present)
            for offset in range(0, len(present), 7):
                assert first(log, offset).offset == offset
    place.kill()


def test_who_appends_to_a_log_whose_index_was_dropped_reads_none_of_it(tmp_path: Path) -> None:
    disk = FaultyDisk()
    place = place_with(tmp_path, cache_bytes=0, disk=disk)
    log, other = place.replica(key(0)), place.replica(key(1))
    fill(log, 10)
    fill(other, 1)
    write_all(place)
    segment = log.segments[-1]
    assert loaded(log) == 0
    disk.reads = 0
    lead(log, bytes(5_000))
    assert loaded(log) == 24, "one entry, of what is new"
    end = log.log_end_offset
    lead(log, b"new")
    assert disk.reads == 0
    assert [record.value for record in read_records(log.read(end, bytes_max=1))] == [b"new"]
    assert disk.reads == 1, "nor who keeps up with it"
    entries = list(segment.index.entries())
    assert len(entries) == 12, "file and tail together"
    assert entries == sorted(entries)
    place.kill()


def test_an_index_file_of_what_was_cut_since_leads_nobody_astray(tmp_path: Path) -> None:
    place = place_with(tmp_path, cache_bytes=1 << 20)
    log = place.replica(key(0))
    fill(log, 10)
    segment = log.segments[-1]
    segment.write_cached()
    stale = Path(segment.index_path).read_bytes()
    log.truncate(4)
    for number in range(12):
        lead(log, b"%d" % number, bytes(4_500))
    # As after a loss of power that brought it back.
    segment = log.segments[-1]
    segment.write_cached()
    Path(segment.index_path).write_bytes(stale)
    for offset in range(log.log_end_offset):
        found = [record.offset for record in read_records(log.read(offset, bytes_max=1))]
        assert offset in found
    assert log.fault is None
    place.kill()


def test_a_full_disk_keeps_what_it_cannot_write(tmp_path: Path) -> None:
    disk = FaultyDisk()
    place = place_with(tmp_path, cache_bytes=0, disk=disk)
    log, other = place.replica(key(0)), place.replica(key(1))
    fill(log, 10)
    fill(other, 1)
    disk.fail_writes = errno.ENOSPC
    with pytest.raises(Exception, match="nothing was lost"):
        write_all(place)
    disk.fail_writes = None
    assert not place.now.failed
    assert first(log, 13).offset in {12, 13}
    lead(log, b"a")
    place.kill()


def test_a_log_that_is_deleted_is_not_written_to(tmp_path: Path) -> None:
    place = place_with(tmp_path, cache_bytes=0)
    log, other = place.replica(key(0)), place.replica(key(1))
    fill(log, 10)
    fill(other, 1)
    assert place.now.read_cache.unwritten
    place.now.delete_replicas([key(0), key(1)])
    write_all(place)
    assert not place.now.failed
    assert not place.folder(key(0)).exists()
    place.kill()


async def test_the_writer_writes_what_is_to_be_dropped(tmp_path: Path) -> None:
    leader = LeadingReplicas(tmp_path, partitions=20)
    cache = leader.storage.directory.read_cache
    cache._bytes_max = 500  # type: ignore[misc]
    async with leader:
        for number in range(20):
            await asyncio.gather(*(leader.append(number, bytes(5_000)) for _ in range(5)))
        await until(lambda: cache.bytes_held <= 500 and not cache.unwritten)
        held = sum(loaded(leader.partition(number).log) for number in range(20))
        assert held <= 500 + 5 * 24
        for number in range(20):
            assert leader.partition(number).log.read(4, bytes_max=1)


def test_a_start_after_a_clean_stop_reads_no_index(tmp_path: Path) -> None:
    place = place_with(tmp_path, cache_bytes=1 << 20)
    log = place.replica(key(0))
    fill(log, 200)
    place.now.close()
    log = place.open().replicas[key(0)]
    assert loaded(log) == place.now.read_cache.bytes_held == 0
    lead(log, b"a")
    assert first(log, log.log_end_offset - 1).value == b"a"
    assert first(log, 1).offset in {0, 1}
    place.kill()


class Keeper:
    """Keeps something."""

    def __init__(self, name: str, dropped: list[str]) -> None:
        self.name, self._dropped = name, dropped

    def drop_cached(self) -> bool:
        """Drop it."""
        self._dropped.append(self.name)
        return True

    def write_cached(self) -> None:
        """Nothing is unwritten."""


def test_what_was_used_least_recently_goes_first() -> None:
    dropped: list[str] = []
    a, b, c = (Keeper(name, dropped) for name in "abc")
    cache = ReadCache(100)
    cache.keep(a, 40)
    cache.keep(b, 40)
    cache.used(a)
    cache.keep(c, 40)
    assert dropped == ["b"]
    cache.keep(a, 90)
    assert (dropped, cache.bytes_held) == (["b", "c"], 90)
    cache.keep(b, 500)
    assert (dropped, cache.bytes_held) == (["b", "c", "a"], 500), "one that is too large is kept alone"
    cache.forget(b)
    cache.forget(b)
    assert cache.bytes_held == 0


class Unwritten(Keeper):
    """Cannot drop what it keeps before it has written it, for which there is no room at first."""

    full = True

    def drop_cached(self) -> bool:
        """Not yet."""
        return False

    def write_cached(self) -> None:
        """Write it, or fail."""
        if self.full:
            raise ResourceExhaustedError("no room", space=True)
        self._dropped.append(self.name)


def test_what_could_not_be_written_for_want_of_room_is_written_another_time() -> None:
    dropped: list[str] = []
    one = Unwritten("one", dropped)
    cache = ReadCache(100)
    cache.keep(one, 90)
    cache.keep(Keeper("other", dropped), 90)
    with pytest.raises(ResourceExhaustedError):
        cache.write_one()
    one.full = False
    cache.write_one()
    assert dropped == ["one"]
    cache.write_one()


def test_an_index_of_the_version_before_is_read(tmp_path: Path) -> None:
    place = place_with(tmp_path, cache_bytes=1 << 20)
    log = place.replica(KEY)
    fill(log, 60)
    place.now.close()
    for path in place.folder().glob("*.index"):
        data = path.read_bytes()
        before = data[:4] + b"\1\0" + data[6:46] + data[50:-4]
        path.write_bytes(before + checksum(before))
    disk = FaultyDisk()
    place.disk = disk
    log = place.open().replicas[KEY]
    assert disk.read_bytes < SEGMENT_BYTES, "no segment is gone through"
    assert all(isinstance(segment.index, SegmentIndex) and len(segment.index) > 5 for segment in log.segments[:-1])
    place.kill()


def checksum(data: bytes) -> bytes:
    """As at the end of an index file."""
    value: int = google_crc32c.value(data)
    return value.to_bytes(4, "little")
