"""A coordinator over a real log whose writes are held up: by its storage, or by too few replicas in sync."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from regnum.types.v1 import errors_pb2
from regnum_broker.groups.calls import GroupCalls
from regnum_broker.groups.coordinator import TOPICS_LOOK_S, GroupCoordinator
from regnum_broker.groups.decisions.offsets import CommittedOffset, OffsetLimits, Place
from regnum_broker.groups.decisions.state import Again, Identity, Joined, JoinRequest, SyncRequest
from regnum_broker.groups.places import CoordinatorPlaces
from regnum_broker.groups.recorded.group_log import STALLED_S
from regnum_broker.groups.seats import CoordinatorLimits
from regnum_broker.groups.shard import Shard
from regnum_broker.groups.topic_lives import FORGOTTEN_S, TopicLives
from regnum_broker.log.errors import CorruptLogError
from regnum_broker.retention.expiry_clock import ExpiryClock
from regnum_broker.serving.produce import ProduceHandler
from regnum_broker.storage import WRITE_BYTES_HELD_MAX
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Store
from regnum_model import paths
from regnum_model.ids import TopicId
from regnum_model.nodes import TopicIdNode
from regnum_model.topics import OFFSETS_TOPIC
from regnum_service.errors import RegnumError
from regnum_service.supervisor import Supervisor
from regnum_testing.clock import FakeClock, settle
from regnum_testing.disk import FaultyDisk
from regnum_testing.group_partition import LIMITS, NOBODY, TopicsShown
from regnum_testing.leading_replicas import LeadingReplicas
from regnum_testing.waiting import eventually, within

WAITABLE_S = 60.0


class Held:
    """One partition of groups that this broker leads alone, and its coordinator at work."""

    def __init__(self, leading: LeadingReplicas, clock: FakeClock) -> None:
        self.leading = leading
        self.clock = clock
        self.supervisor = Supervisor("test")
        self.known = TopicsShown()
        self.store: Store | None = None
        self.may_forget = True
        self.expiry = ExpiryClock(clock, difference_s_max=300.0)
        self.expiry.hear(clock.wall_ms())
        nothing: Any = None
        producing = ProduceHandler(
            replicas=leading.replicas,
            leaders=nothing,
            storage=leading.storage,
            clock=clock,
            batch_bytes_max=1 << 20,
            supervisor=self.supervisor,
        )
        topic: Any = SimpleNamespace(view=object(), partitions=1)
        self.coordinator = GroupCoordinator(
            replicas=leading.replicas,
            leaders=nothing,
            topic=topic,
            transactions=CoordinatorPlaces(topic, leaders=nothing, replicas=leading.replicas),
            lives=TopicLives(self.known, clock),
            store=lambda: self.store,
            storage=leading.storage,
            append=producing.append,
            clock=clock,
            expiry_now_ms=self.expiry.now_ms,
            spawn=lambda _, coroutine: asyncio.create_task(coroutine),
            retention_ms=1_000_000,
            may_forget=lambda: self.may_forget,
            session_s_min=LIMITS.session_timeout_s_min,
            limits=CoordinatorLimits(),
        )
        self.calls = GroupCalls(self.coordinator, clock=clock, limits=LIMITS, offset_limits=OffsetLimits())
        self.running = asyncio.create_task(self.coordinator.run())

    @property
    def shard(self) -> Shard:
        return self.coordinator.shard_of("g", writes=False)

    async def loaded(self) -> None:
        await self.clock.advance(1.0)
        (shard,) = self.coordinator.shards()

        async def loaded() -> bool:
            return shard.loaded

        await eventually(loaded, what="the partition is read")

    async def join(self, member_id: str) -> Joined | Again:
        request = JoinRequest(
            member_id=member_id,
            session_timeout_s=10.0,
            rebalance_timeout_s=10.0,
            protocol_type="consumer",
            protocols=(("range", b""),),
            new_member_id="a",
        )
        return await within(self.calls.join("g", request, waitable_s=WAITABLE_S))

    async def commit(self, offset: int) -> None:
        entry = (Place("t", 0), CommittedOffset(offset=offset, committed_ms=self.clock.wall_ms()))
        assert await self.calls.commit("g", NOBODY, [entry], waitable_s=WAITABLE_S) == [None]

    def need(self, replicas: int) -> None:
        """So many replicas have to be in sync; one is."""
        leadership = self.leading.leadership()
        leadership.take_settings(min_insync=replicas, replicas=leadership.replicas, now_s=self.clock.monotonic())


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
async def held(tmp_path: Path, disk: FaultyDisk) -> AsyncIterator[Held]:
    clock = FakeClock()
    async with LeadingReplicas(tmp_path, partitions=1, clock=clock, disk=disk) as leading:
        leading.replicas.add(leading.partition().key, OFFSETS_TOPIC, leading.partition().log)
        leading.lead(isr=(1,))
        made = Held(leading, clock)
        await made.loaded()
        yield made
        made.running.cancel()
        made.coordinator.end()
        await asyncio.gather(made.running, return_exceptions=True)
        assert made.supervisor.failure is None


async def test_a_session_goes_on_with_what_it_had_left_when_enough_replicas_are_in_sync_again(held: Held) -> None:
    assert await held.join("") == Again("a")
    joined = await held.join("a")
    assert isinstance(joined, Joined)
    identity = Identity(member_id="a", generation=joined.generation)
    await held.clock.advance(4.0)
    shard = held.shard
    held.need(2)
    await held.clock.advance(60.0)
    with pytest.raises(RegnumError) as refused:
        await held.calls.sync("g", SyncRequest(identity=identity), waitable_s=WAITABLE_S)
    assert refused.value.code == errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE
    held.need(1)
    await held.clock.advance(4.0)
    assert held.shard is shard
    assert set(shard.groups["g"].members) == {"a"}, "a minute in which it could not ask for its assignment"
    await held.clock.advance(4.0)
    assert not shard.groups["g"].members, "ten seconds in which it could"


async def test_heartbeats_are_taken_while_too_few_replicas_are_in_sync(held: Held) -> None:
    await held.join("")
    joined = await held.join("a")
    assert isinstance(joined, Joined)
    held.need(2)
    for _ in range(5):
        await held.clock.advance(9.0)
        held.calls.heartbeat("g", Identity(member_id="a", generation=joined.generation))
    held.need(1)
    await held.clock.advance(9.0)
    assert set(held.shard.groups["g"].members) == {"a"}


async def test_a_storage_that_is_busy_puts_a_commit_off_and_ends_no_shard(held: Held) -> None:
    shard = held.shard
    go_on = threading.Event()
    holding = await held.leading.storage.write_later(go_on.wait, size_bytes=WRITE_BYTES_HELD_MAX)
    committing = asyncio.create_task(held.commit(7))
    try:
        await held.clock.advance(2.0)
        assert not committing.done()
        assert shard.log.is_stalled
    finally:
        go_on.set()
    await holding
    await settle()
    await held.clock.advance(0.2)
    await within(committing)
    assert held.shard is shard, "nothing had to be read anew"
    assert shard.offsets.of("g")[Place("t", 0)].offset == 7
    assert held.leading.partition().high_watermark == 1, "it was appended once"


async def test_a_full_disk_puts_commits_off_and_ends_no_shard(held: Held, disk: FaultyDisk) -> None:
    shard = held.shard
    await held.commit(6)
    disk.fail_writes = errno.ENOSPC
    committing = asyncio.create_task(held.commit(7))

    async def put_off() -> bool:
        await held.clock.advance(0.2)
        return bool(shard.log.obstacle)

    await eventually(put_off, what="it is handed in again")
    await held.clock.advance(STALLED_S)
    assert not committing.done()
    assert held.shard is shard, "what it knows is not read anew, again and again"
    with pytest.raises(RegnumError, match="nothing was done") as refused:
        await held.commit(8)
    assert refused.value.code == errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE
    disk.fail_writes = None
    directory = held.leading.storage.directory
    await held.leading.storage.write(directory.make_reserve)

    async def done() -> bool:
        await held.clock.advance(0.2)
        return committing.done()

    await eventually(done, what="it is taken")
    await committing
    assert held.shard is shard
    assert shard.offsets.of("g")[Place("t", 0)].offset == 7
    assert held.leading.partition().high_watermark == 2, "each was appended once"


async def test_a_partition_that_cannot_be_read_goes_offline_by_itself_and_is_not_read_again_and_again(
    held: Held,
) -> None:
    damaged = list[CorruptLogError]()
    held.leading.storage.directory.on_damage(damaged.append)
    await held.commit(7)
    log = held.leading.partition().log
    path = Path(log.segments[0].path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    held.leading.lead(isr=(1,), epoch=5)

    async def offline() -> bool:
        await held.clock.advance(0.3)
        return bool(damaged)

    await eventually(offline, what="the replica is damaged")
    assert [error.key for error in damaged] == [held.leading.partition().key]
    with pytest.raises(CorruptLogError):
        log.read(0, bytes_max=1)


async def test_offsets_of_a_topic_are_forgotten_when_the_store_says_so_too(held: Held) -> None:
    topic_id, place = TopicId("T" * 22), Place("t", 0)
    offset = CommittedOffset(offset=7, committed_ms=0, topic_id=topic_id)
    held.known.show(5, t=topic_id)
    assert await held.calls.commit("g", NOBODY, [(place, offset)], waitable_s=WAITABLE_S) == [None]
    held.known.show(6)

    async def look_for_a_while() -> None:
        await held.clock.advance(FORGOTTEN_S + 2 * TOPICS_LOOK_S)

    await look_for_a_while()
    assert held.shard.offsets.of("g"), "the store cannot be asked"
    held.store = MemoryStore(MemoryServer())
    await held.store.create(paths.topic_id(topic_id), TopicIdNode(topic="t").encode(), make_parents=True)
    await look_for_a_while()
    assert held.shard.offsets.of("g"), "metadata lacks it, and it is there"
    await held.store.delete(paths.topic_id(topic_id), version=0)
    await look_for_a_while()

    async def forgotten() -> bool:
        return not held.shard.offsets.of("g")

    await eventually(forgotten, what="its offsets go")


async def test_no_offset_is_forgotten_by_a_clock_that_jumped(held: Held) -> None:
    await held.loaded()
    await held.commit(5)
    held.clock.jump(10_000_000.0)
    await held.coordinator.expire_offsets()
    await settle()
    assert held.shard.offsets.of("g")
    held.clock.jump(-10_000_000.0)
    await held.coordinator.expire_offsets()
    await settle()
    assert held.shard.offsets.of("g")
    held.clock.skip(10_000.0)
    await held.coordinator.expire_offsets()

    async def forgotten() -> bool:
        return not held.shard.groups

    await eventually(forgotten, what="the offset is forgotten")


async def test_while_nobody_knows_for_how_long_offsets_are_kept_none_is_forgotten(held: Held) -> None:
    await held.loaded()
    await held.commit(5)
    assert held.shard.size_bytes
    held.clock.skip(10_000_000)
    held.may_forget = False
    await held.coordinator.expire_offsets()
    await settle()
    assert held.shard.groups
    held.may_forget = True
    await held.coordinator.expire_offsets()

    async def forgotten() -> bool:
        return not held.shard.groups

    await eventually(forgotten, what="the offset is forgotten")
