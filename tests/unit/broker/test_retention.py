"""What a broker deletes of the logs that it leads, when, and what its followers do then."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum_broker.log.errors import ResourceExhaustedError
from regnum_broker.replication.partition import Following
from regnum_broker.retention.expiry_clock import ExpiryClock
from regnum_broker.retention.mover import StartMover
from regnum_broker.retention.watch import AGAIN_MS, RetentionWatch
from regnum_broker.storage import Storage
from regnum_model.configs import NO_SETTINGS, ReplicaSettings
from regnum_model.ids import BrokerId, LeaderEpoch, PartitionKey
from regnum_model.topics import OFFSETS_TOPIC
from regnum_service.clock import SystemClock
from regnum_testing.batches import batch_of
from regnum_testing.broker_world import BrokerWorld
from regnum_testing.clock import FakeClock, settle
from regnum_testing.disk import FaultyDisk
from regnum_testing.leading_replicas import TOPIC_ID, FetchingFollower, LeadingReplicas
from regnum_testing.waiting import eventually, within

VALUE = b"v" * 300_000
"""Three of these make a segment of a megabyte."""
MEGABYTE = 1 << 20
YEAR_S = 365 * 86_400.0


class HeldWriter:
    """A writer that is at one job until it is let go."""

    def __init__(self) -> None:
        self._begun, self._over = threading.Event(), threading.Event()

    async def begin(self, storage: Storage) -> "asyncio.Task[None]":
        """Returns once it is at it."""
        holding = asyncio.create_task(storage.write(self._job))
        await within(asyncio.to_thread(self._begun.wait))
        return holding

    def let_go(self) -> None:
        self._over.set()

    def _job(self) -> None:
        self._begun.set()
        self._over.wait(60)


class Watched:
    """Leading replicas, and what looks after their retention."""

    def __init__(self, leader: LeadingReplicas, clock: FakeClock) -> None:
        self.leader = leader
        self.clock = clock
        self.moved: list[PartitionKey] = []
        self.mover = StartMover(storage=leader.storage, moved=self.moved.append, clock=clock)
        self.expiry = ExpiryClock(clock, difference_s_max=300.0)
        self.expiry.hear(clock.wall_ms())
        self.watch = RetentionWatch(
            replicas=leader.replicas,
            storage=leader.storage,
            mover=self.mover,
            clock=clock,
            expiry_now_ms=self.expiry.now_ms,
        )

    async def look(self) -> None:
        """One look, and what it asks for."""
        await self.watch.look()
        wanted = dict(self.mover._wanted)
        self.mover._wanted.clear()
        await self.mover.move(wanted)

    def configure(self, settings: ReplicaSettings, number: int = 0) -> None:
        self.leader.replicas.configure(self.leader.partition(number), settings)

    async def write(self, batches: int, number: int = 0, *, committed: bool = True) -> None:
        for _ in range(batches):
            await self.leader.append(number, VALUE)
        partition = self.leader.partition(number)
        if committed:
            partition.commit(partition.log.log_end_offset)

    @property
    def start(self) -> int:
        return self.leader.partition().log.log_start_offset


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    clock = FakeClock()
    async with LeadingReplicas(tmp_path, partitions=30, clock=clock) as leader:
        leader.files.wall_ms = clock.wall_ms()
        yield Watched(leader, clock)


async def test_a_log_is_kept_to_its_size_as_it_grows(watched: Watched) -> None:
    watched.configure(ReplicaSettings(retention_bytes=3 * MEGABYTE))
    sizes = []
    for _ in range(30):
        await watched.write(1)
        await watched.look()
        sizes.append(watched.leader.partition().log.size_bytes)
    assert min(sizes[15:]) >= 3 * MEGABYTE
    assert max(sizes) < 3 * MEGABYTE + 6 * 300_100, "less than two segments above it: a look in each is enough"
    assert watched.leader.partition().log.log_end_offset == 30
    assert watched.moved


async def test_nothing_above_the_high_watermark_is_deleted_and_it_is_looked_at_again(watched: Watched) -> None:
    watched.configure(ReplicaSettings(retention_bytes=MEGABYTE))
    await watched.write(12, committed=False)
    await watched.look()
    assert watched.start == 0
    watched.leader.partition().commit(7)
    await watched.look()
    assert watched.start == 0, "not due yet"
    watched.clock.skip(AGAIN_MS / 1000)
    await watched.look()
    assert watched.start == 6, "the segments of three batches that are committed as a whole"


async def test_records_expire_by_age_the_last_segment_included(watched: Watched) -> None:
    watched.configure(ReplicaSettings(retention_ms=60_000))
    watched.leader.files.wall_ms = watched.clock.wall_ms()
    await watched.write(4)
    await watched.look()
    assert watched.start == 0
    watched.clock.skip(59.0)
    await watched.look()
    assert watched.start == 0
    watched.clock.skip(1.0)
    await watched.look()
    log = watched.leader.partition().log
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (4, 4, 0)
    await watched.write(1)
    assert log.log_end_offset == 5


async def test_nothing_expires_by_a_clock_that_jumped_and_logs_are_kept_to_their_size(watched: Watched) -> None:
    for number in (0, 1):
        watched.configure(ReplicaSettings(retention_ms=3_600_000, retention_bytes=2 * MEGABYTE), number)
        await watched.write(4, number)
    await watched.look()
    log = watched.leader.partition(1).log
    watched.clock.jump(YEAR_S)
    watched.leader.files.wall_ms = watched.clock.wall_ms()
    await watched.look()
    assert (watched.start, log.log_start_offset) == (0, 0)
    before = watched.watch.looked_at
    for _ in range(10):
        watched.clock.skip(60.0)
        await watched.look()
    assert watched.watch.looked_at == before, "what is held back is not looked at in vain"
    await watched.write(12)
    await watched.look()
    assert watched.start > 0
    assert watched.leader.partition().log.size_bytes >= 2 * MEGABYTE
    assert log.log_start_offset == 0
    watched.clock.jump(-YEAR_S)
    await watched.look()
    assert log.log_start_offset == 0, "it is not an hour old"
    watched.clock.skip(3_000.0)
    await watched.look()
    assert log.log_start_offset == log.log_end_offset == 4


async def test_what_was_held_back_expires_when_the_clocks_agree_again(watched: Watched) -> None:
    watched.configure(ReplicaSettings(retention_ms=3_600_000))
    await watched.write(4)
    watched.clock.jump(YEAR_S)
    watched.clock.skip(3_600.0)
    await watched.look()
    assert watched.start == 0
    watched.clock.jump(-YEAR_S)
    await watched.look()
    assert watched.start == 4


async def test_logs_at_rest_are_not_looked_at(watched: Watched) -> None:
    for number in range(30):
        watched.configure(ReplicaSettings(retention_ms=3_600_000, retention_bytes=3 * MEGABYTE), number)
        await watched.write(1, number)
    await watched.look()
    before = watched.watch.looked_at
    for _ in range(10):
        watched.clock.skip(60.0)
        await watched.look()
    assert watched.watch.looked_at == before
    await watched.write(1, 7)
    await watched.look()
    assert watched.watch.looked_at == before, "a record in a segment that has some is no reason"
    await watched.write(3, 7)
    await watched.look()
    assert watched.watch.looked_at == before + 1, "another segment is"


async def test_settings_that_change_are_acted_by_at_once_and_those_that_go_are_no_more(watched: Watched) -> None:
    await watched.write(12)
    await watched.look()
    assert watched.start == 0, "without a limit all is kept"
    watched.configure(ReplicaSettings(retention_bytes=2 * MEGABYTE))
    await watched.look()
    start = watched.start
    assert start > 0
    watched.configure(NO_SETTINGS)
    await watched.write(12)
    await watched.look()
    assert watched.start == start


async def test_what_consumer_groups_committed_has_no_limit_whatever_the_cluster_says(tmp_path: Path) -> None:
    clock = FakeClock()
    async with LeadingReplicas(tmp_path, partitions=1, clock=clock) as leader:
        log = leader.partition().log
        leader.replicas.add(leader.partition().key, OFFSETS_TOPIC, log)
        leader.lead(epoch=1)
        watched = Watched(leader, clock)
        watched.configure(ReplicaSettings(retention_ms=0, retention_bytes=0))
        await watched.write(4)
        clock.skip(60.0)
        await watched.look()
        assert (log.log_start_offset, log.log_end_offset) == (0, 4)


async def test_a_follower_decides_nothing(watched: Watched) -> None:
    watched.configure(ReplicaSettings(retention_bytes=MEGABYTE))
    await watched.write(12)
    partition = watched.leader.partition()
    watched.leader.replicas.give(partition, Following(leader=BrokerId(2), leader_epoch=LeaderEpoch(1)))
    await watched.look()
    assert watched.start == 0
    watched.leader.lead(epoch=2)
    await watched.look()
    assert watched.start > 0, "when it leads, it looks"


async def test_one_round_moves_all_that_wait(tmp_path: Path) -> None:
    disk = FaultyDisk()
    clock = FakeClock()
    async with LeadingReplicas(tmp_path, partitions=10, disk=disk, clock=clock) as leader:
        watched = Watched(leader, clock)
        for number in range(10):
            await watched.write(4, number)
            watched.configure(ReplicaSettings(retention_bytes=1), number)
        syncs = disk.syncs
        await watched.look()
        assert len(watched.moved) == 10
        assert disk.syncs <= syncs + 4, "the file of starts, made anew the first time, and its folder, for all of them"


async def test_a_disk_without_room_has_the_start_stand(tmp_path: Path) -> None:
    disk = FaultyDisk()
    clock = FakeClock()
    async with LeadingReplicas(tmp_path, partitions=1, disk=disk, clock=clock) as leader:
        leader.files.reserve_bytes = 0
        watched = Watched(leader, clock)
        await watched.write(4)
        disk.fail_writes = errno.ENOSPC
        with pytest.raises(ResourceExhaustedError):
            await watched.mover.move({leader.partition().key: 3})
        assert watched.start == 0
        disk.fail_writes = None
        await watched.mover.move({leader.partition().key: 3})
        assert watched.start == 3


async def test_followers_hear_of_a_start_with_the_next_answer_and_once(watched: Watched) -> None:
    await watched.write(4)
    session = watched.leader.session()
    follower = FetchingFollower(session)
    await follower.ask((0, 4))
    await watched.mover.move({PartitionKey(TOPIC_ID, 0): 3})
    watched.leader.partition().committed.fire()
    answer = await follower.ask(wait_ms=0)
    assert [item.log_start_offset for item in answer.partitions] == [3]
    assert not (await follower.ask(wait_ms=0)).partitions
    session.close()


async def test_a_follower_begins_where_its_leader_does(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path)
    await world.begin()
    try:
        await world.start(1, 2)
        await world.elect(1, [1, 2], min_insync=2)
        for _ in range(5):
            result = await world.produce(1, batch_of(VALUE))
            assert result.error_code == 0
        leader, follower = (world.brokers[BrokerId(id)] for id in (1, 2))
        # There is no controller whose clock it could compare with its own.
        leader.broker.expiry.hear(SystemClock().wall_ms())
        leader.broker.replicas.configure(leader.partition(), ReplicaSettings(retention_ms=0))

        async def emptied() -> bool:
            return leader.partition().log.log_start_offset == follower.partition().log.log_start_offset == 5

        await eventually(emptied)
        assert not list((tmp_path / "broker-2").rglob(f"{0:020d}.log"))
        result = await world.produce(1, batch_of(b"x"))
        assert (result.error_code, result.base_offset) == (0, 5)
        await world.start(3)
        await world.elect(1, [1, 2], replicas=[1, 2, 3], epoch=1, min_insync=2)

        async def joined() -> bool:
            log = world.brokers[BrokerId(3)].partition().log
            return log.log_end_offset == leader.partition().log.log_end_offset >= 6

        await eventually(joined)
        assert world.brokers[BrokerId(3)].partition().log.log_start_offset >= 5, "it never had what was deleted"
    finally:
        await world.close()


async def test_records_are_deleted_before_those_are_written_that_wait_behind_a_slow_disk(watched: Watched) -> None:
    """A disk that stood still for a moment: what waits for it may be larger than all that the topic is to have."""
    watched.configure(ReplicaSettings(retention_bytes=MEGABYTE))
    await watched.write(9)
    storage, held = watched.leader.storage, HeldWriter()
    recorded: list[int] = []
    starts, key = storage.directory.starts, watched.leader.partition().key
    holding = await held.begin(storage)
    waiting = [asyncio.create_task(storage.write(lambda: recorded.append(starts.recorded(key)))) for _ in range(20)]
    looking = asyncio.create_task(watched.look())
    await settle(20)
    held.let_go()
    await within(asyncio.gather(holding, looking, *waiting))
    # (The second half of the move comes after an fsync, which takes as long as it takes.)
    assert watched.start > 0
    assert recorded == [watched.start] * 20
