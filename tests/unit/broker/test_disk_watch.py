"""A disk that answers no more ends the broker, and nothing waits for it."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum_broker.disk_watch import DiskWatch, Stalls
from regnum_broker.log.errors import DirectoryFailedError, DirectoryHungError
from regnum_broker.storage import Storage
from regnum_model.ids import LeaderEpoch
from regnum_testing.batches import batch_of
from regnum_testing.broker_world import BrokerWorld
from regnum_testing.clock import FakeClock
from regnum_testing.disk import HangingDisk
from regnum_testing.log_directories import ReopenedDirectory
from regnum_testing.waiting import until, within


def test_an_operation_that_does_not_end_is_waited_for_longer_and_longer():
    stalls = Stalls(interval_s=1.0)
    assert [stalls.longest_s({7: 1}, now_s=now_s) for now_s in (10.0, 11.0, 12.0)] == [0.0, 1.0, 2.0]
    assert stalls.longest_s({7: 2}, now_s=13.0) == 0.0
    assert stalls.longest_s({7: 2, 8: 3}, now_s=14.0) == 1.0
    assert stalls.longest_s({}, now_s=15.0) == 0.0


def test_many_operations_one_after_another_are_no_stall():
    stalls = Stalls(interval_s=1.0)
    assert {stalls.longest_s({7: number}, now_s=float(number)) for number in range(100)} == {0.0}


def test_time_in_which_nobody_looked_counts_little():
    stalls = Stalls(interval_s=1.0)
    stalls.longest_s({7: 1}, now_s=10.0)
    assert stalls.longest_s({7: 1}, now_s=1000.0) == 2.0


@pytest.fixture
async def hanging(tmp_path: Path) -> AsyncIterator[tuple[ReopenedDirectory, HangingDisk, Storage]]:
    disk = HangingDisk()
    files = ReopenedDirectory(tmp_path / "logs", disk=disk)
    storage = Storage(files.open())
    storage.start()
    yield files, disk, storage
    disk.answers.set()
    await until(lambda: not storage.stuck, what="the thread to come back")
    files.kill()


async def test_a_write_that_hangs_ends_the_broker_without_being_waited_for(hanging):
    files, disk, storage = hanging
    replica, clock, waited = files.replica(), FakeClock(), list[float]()
    watching = asyncio.create_task(
        DiskWatch(directory=files.now, timeout_s=20.0, clock=clock, waits=waited.append).run()
    )
    disk.answers.clear()
    writing = await storage.write_later(
        lambda: replica.append_as_leader([batch_of(b"a")], leader_epoch=LeaderEpoch(0)), size_bytes=100
    )
    await until(lambda: disk.asked, what="the write to hang")
    await clock.advance(19.0)
    assert not watching.done()
    assert waited[-1] > 10.0
    await clock.advance(4.0)
    with pytest.raises(DirectoryHungError, match="has not come back"):
        await within(watching)
    assert files.now.failed
    await within(storage.close(clean=True))
    assert not writing.done()
    assert storage.stuck
    log_id = files.log_id
    disk.answers.set()
    with pytest.raises(DirectoryFailedError):
        files.now.create_replicas([(replica.key._replace(partition=9), "t")])
    await until(lambda: not storage.stuck, what="the thread to come back")
    files.kill()
    files.open()
    assert files.log_id == log_id, "nothing that was written is in doubt"


async def test_a_disk_that_fails_and_then_answers_no_more_is_waited_for_like_any(tmp_path):
    """A write fails, and what notes that on the same disk hangs: whoever waits for the write hears of it in the end."""

    class Dying(HangingDisk):
        fails = False

        def pwritev(self, descriptor, buffers, position):
            if self.fails:
                raise OSError(errno.EIO, "Input/output error")
            return super().pwritev(descriptor, buffers, position)

        def unlink(self, path):
            self.asked = True
            super().unlink(path)

    disk = Dying()
    files = ReopenedDirectory(tmp_path / "logs", disk=disk)
    storage = Storage(files.open())
    storage.start()
    replica, clock = files.replica(), FakeClock()
    watching = asyncio.create_task(
        DiskWatch(directory=files.now, timeout_s=20.0, clock=clock, waits=lambda _seconds: None).run()
    )
    disk.fails = True
    disk.asked = False
    disk.removes.clear()
    await storage.write_later(
        lambda: replica.append_as_leader([batch_of(b"a")], leader_epoch=LeaderEpoch(0)), size_bytes=100
    )
    await until(lambda: disk.asked, what="the note to hang")
    await clock.advance(23.0)
    with pytest.raises(DirectoryHungError, match="has not come back"):
        await within(watching)
    await within(storage.close(clean=True))
    assert storage.stuck
    disk.removes.set()
    await until(lambda: not storage.stuck, what="the thread to come back")
    files.kill()


async def test_a_broker_whose_disk_hangs_stops_and_says_why(tmp_path):
    """A pipe in place of the file that a checkpoint writes: whoever opens it for writing waits for a reader."""
    world = BrokerWorld(tmp_path, disk_timeout_s=1.0)
    await world.begin()
    await world.start(1)
    running = world.brokers[1]
    await world.elect(1, [1])
    pipe = running.settings.data_dir / "high-watermarks.new"
    os.mkfifo(pipe)
    assert (await world.produce(1, batch_of(b"a"))).error_code == 0
    await until(lambda: isinstance(running.supervisor.failure, DirectoryHungError), what="the broker to fail")
    await within(running.supervisor.unwind())
    assert running.broker.stuck
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    await until(lambda: not running.broker.stuck, what="the thread to come back")
    os.close(reader)
    world.brokers.clear()
    await world.close()
