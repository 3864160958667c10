"""What the writer waits for when a segment is closed is little, however large the segment is."""

import asyncio
import errno
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from regnum_broker.log.disk.system_calls import Disk, WriteBuffer
from regnum_broker.log.errors import DirectoryFailedError
from regnum_broker.log.replica.tail import WRITE_BACK_BYTES
from regnum_broker.storage import Storage
from regnum_model.ids import LeaderEpoch
from regnum_service.pools import thread_pool
from regnum_testing.batches import batch_of
from regnum_testing.disk import FaultyDisk
from regnum_testing.log_directories import KEY, ReopenedDirectory
from regnum_testing.waiting import eventually, within

BATCH = batch_of(b"v" * (1 << 20))


class DirtyDisk(Disk):
    """Knows how much of a file was written and not synced, and what its writer had to wait for."""

    def __init__(self) -> None:
        self.dirty: dict[int, int] = {}
        self.waited_for: list[int] = []

    def pwritev(self, descriptor: int, buffers: Sequence[WriteBuffer], position: int) -> int:
        written = super().pwritev(descriptor, buffers, position)
        file = os.fstat(descriptor).st_ino
        self.dirty[file] = self.dirty.get(file, 0) + written
        return written

    def fdatasync(self, descriptor: int) -> None:
        dirty = self.dirty.pop(os.fstat(descriptor).st_ino, 0)
        super().fdatasync(descriptor)
        if threading.current_thread().name.startswith("log-writer"):
            self.waited_for.append(dirty)


async def test_the_writer_waits_for_a_part_of_a_segment_and_not_for_all_of_it(tmp_path: Path) -> None:
    disk = DirtyDisk()
    place = ReopenedDirectory(tmp_path / "logs", segment_bytes=4 * WRITE_BACK_BYTES, disk=disk)
    place.open()
    log = place.replica()
    storage = Storage(place.now)
    storage.start()

    async def idle() -> bool:
        return not storage.syncing

    while len(place.segments()) < 2:
        await within(storage.write(lambda: log.append_as_leader([BATCH], leader_epoch=LeaderEpoch(0))))
        await eventually(idle, what="the segment is on the disk")
    await storage.close(clean=False)
    assert 0 < max(disk.waited_for) <= WRITE_BACK_BYTES + len(BATCH)


async def test_a_sync_in_the_background_that_fails_ends_the_directory(tmp_path: Path) -> None:
    disk = FaultyDisk()
    place = ReopenedDirectory(tmp_path / "logs", segment_bytes=1 << 30, disk=disk)
    place.open()
    log = place.replica()
    storage = Storage(place.now)
    storage.start()
    disk.fail_syncs = errno.EIO
    for _ in range(WRITE_BACK_BYTES // len(BATCH) + 2):
        await within(storage.write(lambda: log.append_as_leader([BATCH], leader_epoch=LeaderEpoch(0))))
        if storage.syncing:
            break
    with pytest.raises(DirectoryFailedError):
        await within(storage.run_until_failed())
    with pytest.raises(DirectoryFailedError):
        await within(storage.write(lambda: log.append_as_leader([BATCH], leader_epoch=LeaderEpoch(0))))
    await storage.close(clean=False)
    # The kernel may have dropped what was to be synced: the log is another one from here on.
    disk.fail_syncs, before = None, place.log_id
    place.open()
    assert place.log_id != before


async def test_a_replica_that_is_deleted_before_its_turn_harms_nobody(tmp_path: Path) -> None:
    place = ReopenedDirectory(tmp_path / "logs", segment_bytes=1 << 30)
    place.open()
    log = place.replica()
    for _ in range(WRITE_BACK_BYTES // len(BATCH) + 1):
        log.append_as_leader([BATCH], leader_epoch=LeaderEpoch(0))
    assert place.now.grown
    place.now.delete_replicas([KEY])
    place.now.sync_grown()
    assert not place.now.failed
    place.kill()


async def test_what_was_written_is_told_also_where_what_follows_it_cannot_begin(tmp_path: Path) -> None:
    class Refusing(ThreadPoolExecutor):
        def submit(self, fn: object, /, *args: object, **kwargs: object) -> Future[Any]:
            raise RuntimeError("no jobs here")

    def pool(name: str, threads: int) -> Executor:
        return Refusing(1) if name == "log-syncer" else thread_pool(name, threads)

    place = ReopenedDirectory(tmp_path / "logs", segment_bytes=4 * WRITE_BACK_BYTES)
    place.open()
    log = place.replica()
    storage = Storage(place.now, make_pool=pool)
    storage.start()
    heard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: heard.append(context["exception"]))
    batches = WRITE_BACK_BYTES // len(BATCH) + 1

    def append() -> int:
        for _ in range(batches):
            log.append_as_leader([BATCH], leader_epoch=LeaderEpoch(0))
        assert place.now.grown
        return log.log_end_offset

    assert await within(await storage.write_later(append, size_bytes=100)) == batches
    assert [str(error) for error in heard] == ["no jobs here"]
    place.kill()
