"""Whether the disk takes records: told within seconds, and not by turns."""

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum_broker.disk_room import DiskRoom, DiskRooms
from regnum_broker.log.errors import ResourceExhaustedError
from regnum_broker.maintenance import IsrWatch
from regnum_broker.replication.isr_writer import IsrWriter
from regnum_broker.replication.leader import FollowerStream
from regnum_broker.storage import Storage
from regnum_model.ids import PartitionKey, Registration
from regnum_model.insync import with_isr
from regnum_testing.clock import FakeClock
from regnum_testing.disk import FaultyDisk
from regnum_testing.leading_replicas import FOLLOWER, FOLLOWER_EPOCH, TOPIC_ID, LeadingReplicas
from regnum_testing.log_directories import ReopenedDirectory, lead
from regnum_testing.waiting import until


class SmallDisk(FaultyDisk):
    """Has as much room as it is told."""

    free = 1_000

    def allocate(self, descriptor: int, size: int) -> None:
        """Take room, if there is some."""
        if size > self.free:
            raise OSError(errno.ENOSPC, "no space")
        super().allocate(descriptor, size)

    def room(self, path: str) -> tuple[int, int]:
        """As told."""
        return self.free, 2_000


class Looking:
    def __init__(self, root: Path) -> None:
        self.disk, self.clock = SmallDisk(), FakeClock()
        self.files = ReopenedDirectory(root, disk=self.disk)
        self.files.reserve_bytes = 100
        self.storage = Storage(self.files.open())
        self.storage.start()
        self.told: list[DiskRoom] = []
        self.rooms = DiskRooms(storage=self.storage, clock=self.clock, tell=self.told.append)

    async def look(self) -> DiskRoom:
        """Until it has looked once more."""
        await until(lambda: self.clock.sleepers > 0)
        await self.clock.advance(1.0)
        await until(lambda: self.clock.sleepers > 0)
        return self.rooms.now


@pytest.fixture
async def looking(tmp_path: Path) -> AsyncIterator[Looking]:
    looking = Looking(tmp_path / "logs")
    running = asyncio.create_task(looking.rooms.run())
    yield looking
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await looking.storage.close(clean=False)


async def test_a_disk_that_refused_records_is_full_until_there_is_room_again(looking: Looking) -> None:
    assert await looking.look() == DiskRoom(free_bytes=1_000, size_bytes=2_000)
    replica = looking.files.replica()
    looking.disk.free, looking.disk.fail_writes = 50, errno.ENOSPC
    with pytest.raises(ResourceExhaustedError, match="disk is full"):
        await looking.storage.write(lambda: lead(replica, b"large"))
    looking.disk.fail_writes = None
    room = await looking.look()
    assert (room.free_bytes, "is full" in room.refuses_because) == (50, True)
    await looking.storage.write(lambda: lead(replica, b"small"))
    assert (await looking.look()).refuses_because == room.refuses_because, "small records are no room"
    looking.disk.free = 1_000
    assert (await looking.look()).refuses_because == ""
    assert [bool(one.refuses_because) for one in looking.told].count(True) == 1
    assert not list(looking.files.path.glob("reserve.*")), "what was tried is gone"


async def test_a_disk_that_does_not_answer_takes_no_records(looking: Looking) -> None:
    await looking.look()
    looking.rooms.waits(5.0)
    assert "has not answered for 5 s" in (await looking.look()).refuses_because
    looking.rooms.waits(0.0)
    assert (await looking.look()).refuses_because == ""


def fetching(stores_nothing: str) -> FollowerStream:
    return FollowerStream(
        broker=FOLLOWER,
        broker_epoch=FOLLOWER_EPOCH,
        registration=Registration(0),
        polled_s=0.0,
        stores_nothing=stores_nothing,
    )


async def test_a_follower_that_stores_nothing_leaves_at_once_and_joins_when_it_stores(tmp_path: Path) -> None:
    async with LeadingReplicas(tmp_path, partitions=1) as leader:
        leadership = leader.lead(epoch=1, min_insync=2)
        full, now_s = fetching("its disk is full"), leader.clock.monotonic()
        leadership.record_fetch(full, offset=0, now_s=now_s)
        assert leadership.wanted_change(now_s) is None, "it has all there is"
        await leader.append()
        leadership.record_fetch(full, offset=0, now_s=now_s)
        change = leadership.wanted_change(now_s)
        assert change is not None
        assert change.leaving == (FOLLOWER,)
        alone = leader.lead(epoch=2, isr=(1,), min_insync=2)
        full.polled_s = now_s + 1.0
        alone.record_fetch(full, offset=0, now_s=now_s)
        assert alone.insufficiency == "1 of 2 needed replicas are in sync; broker 2 stores nothing: its disk is full"
        assert alone.wanted_change(now_s) is None


async def test_where_nothing_is_committed_one_that_left_joins_when_it_has_stored_something(tmp_path: Path) -> None:
    """The high watermark stands still under min.insync.replicas: a follower that stands still, too, reaches it."""
    async with LeadingReplicas(tmp_path, partitions=1) as leader:
        leadership = leader.lead(epoch=1, min_insync=2)
        stream, now_s = fetching(""), leader.clock.monotonic()
        await leader.append()
        await leader.append()
        leadership.record_fetch(stream, offset=0, now_s=now_s)
        late_s = now_s + 11.0
        change = leadership.wanted_change(late_s)
        assert change is not None
        assert change.leaving == (FOLLOWER,)
        shrunk = with_isr(leadership.state, (leader.leadership().broker,), min_insync=2, joining={})
        leadership.written(shrunk, version=2, now_s=late_s)
        stream.polled_s = late_s + 1.0
        leadership.record_fetch(stream, offset=0, now_s=late_s)
        assert leadership.wanted_change(late_s) is None, "it has stored nothing since"
        leadership.record_fetch(stream, offset=1, now_s=late_s)
        change = leadership.wanted_change(late_s)
        assert change is not None
        assert [one.broker for one in change.joining] == [FOLLOWER]


async def test_a_leader_tells_in_which_partitions_records_wait_and_nothing_is_committed(tmp_path: Path) -> None:
    clock, told = FakeClock(), list[frozenset[PartitionKey]]()

    class Idle(IsrWriter):
        def __init__(self) -> None:
            """Writes nothing."""

        def wake(self, leadership: object) -> None:
            """Not here."""

    async with LeadingReplicas(tmp_path, partitions=2, clock=clock) as leader:
        watch = IsrWatch(replicas=leader.replicas, writer=Idle(), lag_s=60.0, clock=clock, tell_uncommitted=told.append)
        running = asyncio.create_task(watch.run())
        await leader.append(1)
        for _ in range(20):
            await clock.advance(0.5)
        assert told == [frozenset({PartitionKey(TOPIC_ID, 1)})]
        leader.leadership(1).record_fetch(fetching(""), offset=1, now_s=clock.monotonic())
        for _ in range(10):
            await clock.advance(0.5)
        assert told[1:] == [frozenset()]
        running.cancel()
