"""What compaction does where the log is deleted, damaged, cut or out of descriptors under it."""

import asyncio
import errno
import random
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from regnum_broker.compaction.cleanable import AGAIN_MS
from regnum_broker.compaction.cleaner import LogCleaner
from regnum_broker.compaction.work import Work
from regnum_broker.log.disk.names import CLEANED_FILE
from regnum_broker.log.errors import ResourceExhaustedError, UnknownReplicaError
from regnum_broker.log.replica.cleaned import cleaned_until
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.retention.expiry_clock import ExpiryClock
from regnum_model.config_definition import CLEANUP_COMPACT, CLEANUP_DELETE
from regnum_model.configs import ReplicaSettings
from regnum_model.ids import LeaderEpoch
from regnum_records.errors import CorruptBatchError
from regnum_records.header import iterate
from regnum_telemetry.instruments import broker as instruments
from regnum_telemetry.metrics import Metrics
from regnum_testing.clock import FakeClock
from regnum_testing.compaction import compact, keyed_batch, prepared, records_of
from regnum_testing.disk import FaultyDisk
from regnum_testing.leading_replicas import LeadingReplicas
from regnum_testing.log_directories import KEY, ReopenedDirectory
from regnum_testing.waiting import DEADLINE_S, until

COMPACT = ReplicaSettings(cleanup_policy=CLEANUP_COMPACT, min_cleanable_dirty_ratio=0, delete_retention_ms=60_000)
VALUE = b"." * 150
COUNT_AT = 60
"""Where in a head the last byte of the record count is."""


def written(place: ReopenedDirectory, *keys: bytes) -> ReplicaLog:
    """A log with a batch for each key; nothing is compacted yet."""
    log = place.replica()
    log.configure(COMPACT)
    for key in keys:
        log.append_as_leader([keyed_batch((key, VALUE))], leader_epoch=LeaderEpoch(0))
    return log


def swapped(place: ReopenedDirectory, log: ReplicaLog) -> Work:
    """Compact it, but for the note that it was."""
    work = prepared(log, now_ms=place.wall_ms)
    assert work is not None
    for group in work.groups:
        made = work.rewrite(group, went_on=lambda: None)
        assert made is not None
        assert log.swap(group, made, cuts=work.cuts)
    return work


def emptied(log: ReplicaLog, offset: int) -> None:
    """Flip the bit of a head by which a batch with one record becomes one with none."""
    segment = next(one for one in log.segments if one.base_offset <= offset < one.next_offset)
    data = bytearray(Path(segment.path).read_bytes())
    position = next(at for at, header in iterate(bytes(data)) if header.base_offset == offset)
    assert data[position + COUNT_AT] == 1
    data[position + COUNT_AT] = 0
    Path(segment.path).write_bytes(data)


def test_a_log_that_is_deleted_while_it_is_compacted_takes_nothing_down(place: ReopenedDirectory) -> None:
    log = written(place, *[b"key"] * 20)
    closed = log.segments[:2]
    work = swapped(place, log)
    now = log.segments[:1]
    assert log.is_made_of(now)
    assert not log.is_made_of(closed)
    place.now.delete_replicas([KEY])
    with pytest.raises(UnknownReplicaError):
        log.note_cleaned(work.until, now_ms=place.wall_ms, cuts=work.cuts)
    assert not log.is_made_of(now), "what cannot be read of it is no damage"
    log.sync_swapped()
    assert not place.now.failed


def test_a_mark_is_written_when_the_names_of_what_it_speaks_of_are_on_the_disk(
    place: ReopenedDirectory, disk: FaultyDisk
) -> None:
    log = written(place, *[b"key"] * 20)
    work = swapped(place, log)
    disk.fail_folders = errno.EMFILE
    with pytest.raises(ResourceExhaustedError):
        log.note_cleaned(work.until, now_ms=place.wall_ms, cuts=work.cuts)
    assert log.cleaned == ()
    assert not (place.folder() / CLEANED_FILE).exists()
    disk.fail_folders = None
    log.sync_swapped()
    disk.fail_folders = errno.EMFILE
    log.note_cleaned(work.until, now_ms=place.wall_ms, cuts=work.cuts)
    assert cleaned_until(log.cleaned) == work.until, "brought there before, the writer need not"
    disk.fail_folders = None
    assert cleaned_until(place.kill_and_open().cleaned) == work.until


class FewFoldersDisk(FaultyDisk):
    """A disk under a process that has so many descriptors for folders, and none after that."""

    left = 1 << 30

    def open_folder(self, path: str) -> int:
        """Open a folder, or fail."""
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.EMFILE, "EMFILE")
        return super().open_folder(path)


@pytest.mark.parametrize("descriptors", [0, 1])
def test_a_merge_of_segments_that_lacks_a_descriptor_is_done_or_leaves_nothing(
    tmp_path: Path, descriptors: int
) -> None:
    disk = FewFoldersDisk()
    place = ReopenedDirectory(tmp_path, segment_bytes=1000, disk=disk)
    place.open()
    log = written(place, *[b"%d" % number for number in range(14)])
    log.configure(replace(COMPACT, segment_bytes=100_000))
    work = prepared(log, now_ms=place.wall_ms)
    assert work is not None
    (group,) = work.groups
    made = work.rewrite(group, went_on=lambda: None)
    assert made is not None
    disk.left = descriptors
    if descriptors == 0:
        with pytest.raises(ResourceExhaustedError):
            log.swap(group, made, cuts=work.cuts)
    else:
        assert log.swap(group, made, cuts=work.cuts)
    disk.left = 1 << 30
    assert log.fault is None
    assert log.is_made_of(group) == (descriptors == 0)
    log.truncate(1)
    for key in (b"a", b"b", b"c"):
        log.append_as_leader([keyed_batch((key, VALUE))], leader_epoch=LeaderEpoch(1))
    before = records_of(log)
    assert [record.key for record in before] == [b"0", b"a", b"b", b"c"]
    assert records_of(place.kill_and_open()) == before, "no start finishes what was refused"
    place.kill()


def test_a_batch_that_was_made_empty_by_damage_is_found(place: ReopenedDirectory) -> None:
    log = written(place, b"key", *[b"a"] * 8, b"key", *[b"b"] * 20)
    emptied(log, 9)
    with pytest.raises(CorruptBatchError):
        compact(log, now_ms=place.wall_ms)


def test_such_a_batch_is_found_as_well_in_what_was_compacted_before(place: ReopenedDirectory) -> None:
    log = written(place, *[b"a-%d" % number for number in range(12)])
    assert compact(log, now_ms=place.wall_ms)
    emptied(log, 3)
    log = written(place, *[b"b"] * 20)
    assert log.log_end_offset == 32
    with pytest.raises(CorruptBatchError):
        compact(log, now_ms=place.wall_ms)


class CuttingDisk(FaultyDisk):
    """A disk that stops a truncation where it has taken away records from offset 3 on, and says who misses a file."""

    def __init__(self) -> None:
        super().__init__()
        self.amid_cut = threading.Event()
        self.goes_on = threading.Event()
        self.missed = threading.Event()

    def rename(self, source: str, target: str) -> None:
        """Give another name."""
        if source.endswith("/00000000000000000003.index"):
            self.amid_cut.set()
            self.goes_on.wait(DEADLINE_S)
        super().rename(source, target)

    def open(self, path: str, flags: int) -> int:
        """Open a file, or note that it is gone."""
        try:
            return super().open(path, flags)
        except FileNotFoundError:
            self.missed.set()
            raise


async def test_a_log_that_is_cut_while_it_is_read_is_not_taken_for_damaged(tmp_path: Path) -> None:
    clock, disk = FakeClock(), CuttingDisk()
    async with LeadingReplicas(tmp_path, clock=clock, disk=disk) as leader:
        leader.files.wall_ms = clock.wall_ms()
        log, storage, metrics = leader.partition().log, leader.storage, Metrics()
        leader.replicas.configure(leader.partition(), ReplicaSettings(cleanup_policy=CLEANUP_COMPACT))
        expiry = ExpiryClock(clock, difference_s_max=300.0)
        expiry.hear(clock.wall_ms())
        cleaner = LogCleaner(
            replicas=leader.replicas,
            storage=storage,
            keys_max=1000,
            clock=clock,
            expiry_now_ms=expiry.now_ms,
            chance=random.Random(1),
            metrics=metrics,
        )

        async def write_ten() -> None:
            batch = keyed_batch((b"key", bytes(300_000)))
            for _ in range(10):
                await storage.write(lambda: log.append_as_leader([batch], leader_epoch=LeaderEpoch(0)))
            leader.partition().commit(log.log_end_offset)

        await write_ten()
        cutting = asyncio.create_task(storage.write(partial(log.truncate, 1)))
        await until(disk.amid_cut.is_set)
        looking = asyncio.create_task(cleaner.look())
        await until(disk.missed.is_set)
        # The same thread, so behind who has missed it.
        await storage.clean(lambda: None)
        disk.goes_on.set()
        await asyncio.gather(cutting, looking)
        ((_, uncleanable),) = next(
            one.numbers for one in metrics.read() if one.instrument is instruments.CLEANER_UNCLEANABLE
        )
        assert uncleanable == 0
        await write_ten()
        clock.skip(AGAIN_MS / 1000)
        await cleaner.look()
        assert [record.offset for record in records_of(log)] == [8, 9, 10]


def test_a_log_that_begins_within_a_batch_is_compacted_with_room_for_its_own_keys(place: ReopenedDirectory) -> None:
    log = place.replica()
    log.configure(ReplicaSettings(cleanup_policy=CLEANUP_COMPACT | CLEANUP_DELETE, min_cleanable_dirty_ratio=0))
    for first, last in ((0, 10), (9, 10), (0, 10)):
        batch = keyed_batch(*[(b"key-%d" % number, b"." * 100) for number in range(first, last)])
        log.append_as_leader([batch], leader_epoch=LeaderEpoch(0))
    starts = place.now.starts
    starts.record({KEY: 8})
    starts.sync()
    starts.apply({KEY: 8})
    assert log.log_start_offset == 8
    assert compact(log, now_ms=place.wall_ms, keys_max=1_000_000)
    assert [record.offset for record in records_of(log)][:2] == [8, 10]
