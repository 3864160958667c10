"""The ISR writer over a memory store, beside a leadership that goes on while the store answers."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regnum_broker.identity import Identity
from regnum_broker.replication.isr_writer import IsrWriter, WrittenIsr
from regnum_broker.replication.leader import FollowerStream, Leadership
from regnum_broker.replication.partition import Partition
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Check, Group, Node, Outcome
from regnum_coordination.recipes.folders import ensure_folders
from regnum_coordination.recipes.membership import Membership as Joining
from regnum_model import paths
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, DirectoryId, LeaderEpoch, LogId, Registration
from regnum_model.nodes import Address, BrokerNode, LeaderAndIsr, Membership, TopicIdNode
from regnum_service.clock import SystemClock
from regnum_testing.batches import batch_of
from regnum_testing.log_directories import KEY, ReopenedDirectory
from regnum_testing.waiting import eventually, within

CLOCK = SystemClock()
STATE = paths.leader_and_isr("topic", 0)


class SlowReads(MemoryStore):
    """A session whose reads wait for the test."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()

    async def get_many(self, wanted: Sequence[str], *, current: bool = False) -> tuple[Node | None, ...]:
        nodes = await super().get_many(wanted, current=current)
        self.asked.set()
        await self.answer.wait()
        return nodes


class SlowWrites(MemoryStore):
    """A session whose batches wait for the test."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        self.asked.set()
        await self.answer.wait()
        return await super().write_batch(groups, fence=fence)


async def register(server: MemoryServer, id: int) -> Identity:
    """A live registration of a broker."""
    listeners = {name: Address(host="127.0.0.1", port=10_000 + id) for name in ("client", "internal")}
    joined = await Joining(
        MemoryStore(server),
        CLOCK,
        path=paths.broker_id(BrokerId(id)),
        guard=paths.broker_epoch(BrokerId(id)),
        encode=lambda registration: BrokerNode(
            incarnation=f"{id}",
            registration=Registration(registration),
            rack=None,
            directories={DirectoryId(f"dir-{id}"): LogId(f"log-{id}")},
            listeners=listeners,
        ).encode(),
        is_predecessor=lambda _: True,
        patience_s=0.0,
    ).join()
    return Identity(broker_epoch=BrokerEpoch(joined.creation_id), registration=Registration(joined.registration or 0))


@dataclass
class Led:
    """Broker 1 leads, 3 is in sync with it, 2 is not; two records are there."""

    directory: ReopenedDirectory
    partition: Partition
    server: MemoryServer
    outside: MemoryStore
    brokers: dict[BrokerId, Identity]
    leadership: Leadership

    def fetch(self, id: int, offset: int) -> None:
        now_s, identity = CLOCK.monotonic(), self.brokers[BrokerId(id)]
        stream = FollowerStream(
            broker=BrokerId(id),
            broker_epoch=identity.broker_epoch,
            registration=identity.registration,
            polled_s=now_s,
        )
        self.leadership.record_fetch(stream, offset=offset, now_s=now_s)


async def lead(tmp_path: Path, *, version: int = 0, elr: Sequence[int] = ()) -> Led:
    """The leader believes that the node, which is new, is at that version."""
    directory = ReopenedDirectory(tmp_path)
    directory.open()
    partition = Partition(KEY, "topic", directory.replica())
    server = MemoryServer()
    outside = MemoryStore(server)
    await ensure_folders(outside, [*paths.PERSISTENT_FOLDERS, paths.partition("topic", 0)], CLOCK)
    await outside.create(paths.topic_id(KEY.topic_id), TopicIdNode(topic="topic").encode())
    brokers = {BrokerId(id): await register(server, id) for id in (1, 2, 3)}
    state = LeaderAndIsr(
        topic_id=KEY.topic_id,
        leader=BrokerId(1),
        leader_epoch=LeaderEpoch(0),
        isr=(BrokerId(1), BrokerId(3)),
        elr=tuple(BrokerId(id) for id in elr),
        members={
            BrokerId(id): Membership(broker_epoch=brokers[BrokerId(id)].broker_epoch, log_id=LogId(f"log-{id}"))
            for id in (1, 3, *elr)
        },
        controller_epoch=ControllerEpoch(1),
    )
    await outside.create(STATE, state.encode())
    leadership = Leadership(
        partition,
        state,
        version=version,
        replicas=tuple(brokers),
        min_insync=2,
        epoch_start=0,
        broker=BrokerId(1),
        lag_s=10.0,
        now_s=CLOCK.monotonic(),
    )
    partition.take_role(leadership)
    partition.log.append_as_leader([batch_of(b"a"), batch_of(b"b")], leader_epoch=LeaderEpoch(0))
    return Led(directory, partition, server, outside, brokers, leadership)


def writer_of(led: Led, store: MemoryStore, reports: list[WrittenIsr]) -> IsrWriter:
    return IsrWriter(
        broker=BrokerId(1),
        identity=lambda: led.brokers[BrokerId(1)],
        store=lambda: store,
        report=reports.append,
        step_down=lambda _, reason: None,
        clock=CLOCK,
    )


async def test_a_follower_that_the_high_watermark_left_behind_does_not_join(tmp_path: Path) -> None:
    """Goal of ``isr``: no member lacks a record below the high watermark; it moves while the store is asked."""
    led = await lead(tmp_path)
    store = SlowReads(led.server)
    writer = writer_of(led, store, [])

    async def isr() -> tuple[BrokerId, ...]:
        return LeaderAndIsr.decode((await led.outside.get(STATE)).data).isr

    led.fetch(3, 1)
    led.fetch(2, 1)
    assert led.partition.high_watermark == 1
    running = asyncio.create_task(writer.run())
    try:
        writer.wake(led.leadership)
        await within(store.asked.wait())
        led.fetch(3, 2)
        assert led.partition.high_watermark == 2
        store.answer.set()

        # Turns enough for a writer that would take the second follower back at once.
        for _ in range(100):
            await asyncio.sleep(0)
        assert await isr() == (BrokerId(1), BrokerId(3))

        led.fetch(2, 2)
        writer.wake(led.leadership)

        async def joined() -> bool:
            return await isr() == (BrokerId(1), BrokerId(3), BrokerId(2))

        await eventually(joined)
    finally:
        running.cancel()
        led.directory.kill()


async def test_a_node_whose_version_went_back_is_reported(tmp_path: Path) -> None:
    """Somebody deleted it and made it anew: only the controller can end that, and no watch tells it (S14)."""
    led = await lead(tmp_path, version=3)
    reports: list[WrittenIsr] = []
    writer = writer_of(led, MemoryStore(led.server), reports)
    led.fetch(3, 2)
    led.fetch(2, 2)
    running = asyncio.create_task(writer.run())
    try:
        writer.wake(led.leadership)

        async def reported() -> bool:
            return bool(reports)

        await eventually(reported)
        assert (reports[0].key, reports[0].version) == (KEY, 0)
        assert reports[0].node == b"", "nobody but a person knows what it holds: it has to be read"
        assert led.leadership.state.isr == (BrokerId(1), BrokerId(3))
        assert (await led.outside.get(STATE)).stat.version == 0
    finally:
        running.cancel()
        led.directory.kill()


async def test_a_leader_lets_eligible_replicas_go_before_it_commits_without_them(tmp_path: Path) -> None:
    """Min.insync.replicas was lowered under ISR (1, 3), ELR (2): written first, however slow the store is."""
    led = await lead(tmp_path, elr=[2])
    store = SlowWrites(led.server)
    reports: list[WrittenIsr] = []
    writer = writer_of(led, store, reports)
    led.fetch(3, 2)
    assert not led.leadership.isr_sufficient
    assert "eligible" in led.leadership.insufficiency
    running = asyncio.create_task(writer.run())
    try:
        writer.wake(led.leadership)
        await within(store.asked.wait())
        led.fetch(3, 2)
        assert led.partition.high_watermark == 0
        store.answer.set()

        async def reported() -> bool:
            return bool(reports)

        await eventually(reported)
        assert (led.partition.high_watermark, led.leadership.isr_sufficient) == (2, True)
        node = await led.outside.get(STATE)
        after = LeaderAndIsr.decode(node.data)
        assert (after.isr, after.elr, node.stat.version) == ((BrokerId(1), BrokerId(3)), (), 1)
        assert (reports[0].version, reports[0].node) == (1, node.data)
        writer.wake(led.leadership)
        # Turns enough for a writer that would write again.
        for _ in range(100):
            await asyncio.sleep(0)
        assert (await led.outside.get(STATE)).stat.version == 1
    finally:
        running.cancel()
        led.directory.kill()


async def test_another_min_insync_leaves_a_write_on_its_way_counted(tmp_path: Path) -> None:
    """It comes with a state that is known already, so the write may still happen (safety rule S1)."""
    led = await lead(tmp_path)
    led.leadership.proposed_isr = (BrokerId(1),)
    led.leadership.take_settings(min_insync=1, replicas=led.leadership.replicas, now_s=CLOCK.monotonic())
    assert led.leadership.proposed_isr == (BrokerId(1),)
    assert led.partition.high_watermark == 0
    led.directory.kill()
