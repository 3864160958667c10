"""An fsync of the journal holds up whom it is about, and no record of any other partition."""

import asyncio
import errno
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_broker.cluster.orders.orders import Orders
from regnum_broker.log.disk.system_calls import Disk
from regnum_broker.log.errors import DirectoryFailedError
from regnum_broker.replication.fetchers import Fetchers
from regnum_broker.replication.leader import Leadership
from regnum_model.ids import BrokerEpoch, PartitionKey
from regnum_service.errors import Code
from regnum_service.supervisor import Supervisor
from regnum_testing.disk import FaultyDisk, HangingDisk
from regnum_testing.leading_replicas import TOPIC_ID, LeadingReplicas
from regnum_testing.log_directories import ReopenedDirectory
from regnum_testing.waiting import DEADLINE_S, within

NONE = errors_pb2.ERROR_CODE_NONE
MOVED, NEW = PartitionKey(TOPIC_ID, 1), PartitionKey(TOPIC_ID, 2)


@dataclass(slots=True, kw_only=True)
class Ordered:
    """Broker 1, which leads partitions 0 and 1, and takes orders."""

    disk: HangingDisk
    files: ReopenedDirectory
    leader: LeadingReplicas
    orders: Orders

    def lead(self, *numbers: int) -> Awaitable[Sequence[Code]]:
        log_id = self.leader.storage.directory.log_id
        items = [
            control_pb2.LeaderAndIsrPartition(
                topic="t",
                topic_id=TOPIC_ID,
                state=types_pb2.PartitionState(
                    partition=number, leader=1, leader_epoch=1, isr=[1], replicas=[1], version=1
                ),
                members=[control_pb2.Member(broker_id=1, broker_epoch=1, log_id=log_id)],
                min_insync_replicas=1,
            )
            for number in numbers
        ]
        return self.orders.lead_and_follow(items, broker_epoch=BrokerEpoch(1))

    def delete(self, key: PartitionKey) -> Awaitable[Sequence[Code]]:
        stop = control_pb2.StopReplicaPartition(
            topic="t", topic_id=key.topic_id, partition=key.partition, leader_epoch=-2, delete=True
        )
        return self.orders.stop([stop], broker_epoch=BrokerEpoch(1))

    async def while_the_disk_syncs_nothing(
        self, order: Callable[[], Awaitable[Sequence[Code]]], look: Callable[[], Awaitable[None]]
    ) -> Sequence[Code]:
        """Give an order, look when its fsync is under way, and return what came of it."""
        self.disk.syncs.clear()
        ordering = asyncio.ensure_future(order())
        try:
            assert await asyncio.to_thread(self.disk.syncing.wait, DEADLINE_S), "nothing is to be synced"
            await look()
            assert not ordering.done(), "nobody may rely on what is not on the disk"
        finally:
            self.disk.syncs.set()
        return await within(ordering)


def takes_orders(leader: LeadingReplicas) -> Orders:
    return Orders(
        replicas=leader.replicas,
        fetchers=Fetchers(lambda _: pytest.fail("nobody is followed"), Supervisor("broker")),
        storage=leader.storage,
        store=lambda: None,
        lag_s=10.0,
        clock=leader.clock,
    )


async def ordered_by(root: Path, disk: Disk) -> AsyncIterator[tuple[LeadingReplicas, Orders]]:
    async with LeadingReplicas(root, disk=disk) as leader:
        orders = takes_orders(leader)
        running = asyncio.create_task(orders.run())
        yield leader, orders
        running.cancel()


@pytest.fixture
async def ordered(tmp_path: Path) -> AsyncIterator[Ordered]:
    disk = HangingDisk()
    async for leader, orders in ordered_by(tmp_path, disk):
        yield Ordered(disk=disk, files=leader.files, leader=leader, orders=orders)


async def test_others_append_while_a_new_leader_epoch_goes_to_the_disk(ordered: Ordered) -> None:
    async def look() -> None:
        await within(ordered.leader.append(0, b"meanwhile"))
        assert ordered.leader.partition(1).role is None, "no leader before its epoch is on the disk (safety rule S11)"
        # An append of the epoch before would come behind the one that begins: its log refuses it already.
        assert ordered.leader.partition(1).log.highest_leader_epoch == 1

    assert await ordered.while_the_disk_syncs_nothing(lambda: ordered.lead(1), look) == [NONE]
    assert isinstance(ordered.leader.partition(1).role, Leadership)
    assert ordered.leader.partition(0).log.log_end_offset == 1


async def test_others_append_while_a_new_replica_goes_to_the_disk(ordered: Ordered) -> None:
    async def look() -> None:
        await within(ordered.leader.append(0, b"meanwhile"))
        assert ordered.leader.replicas.get(NEW) is None

    assert await ordered.while_the_disk_syncs_nothing(lambda: ordered.lead(2), look) == [NONE]
    assert isinstance(ordered.leader.partition(2).role, Leadership)


async def test_others_append_while_a_deletion_goes_to_the_disk_and_no_file_goes_before_it(ordered: Ordered) -> None:
    await ordered.leader.append(1, b"kept until then")
    folder = ordered.files.folder(MOVED)

    async def look() -> None:
        await within(ordered.leader.append(0, b"meanwhile"))
        assert folder.exists(), "after a loss of power, files without a record of their deletion are missing"

    assert await ordered.while_the_disk_syncs_nothing(lambda: ordered.delete(MOVED), look) == [NONE]
    assert not folder.exists()
    assert ordered.leader.replicas.get(MOVED) is None


async def test_a_kill_before_the_fsync_loses_nothing_that_was_recorded(ordered: Ordered) -> None:
    """A kill takes no more than the power does, and what was written is the system's to keep."""
    found: list[int] = []

    async def look() -> None:
        other = ReopenedDirectory(ordered.files.path.with_name("as the kill left it"))
        await asyncio.to_thread(shutil.copytree, ordered.files.path, other.path)
        replicas = other.open().replicas
        found.append(replicas[MOVED].highest_leader_epoch)
        other.kill()

    await ordered.while_the_disk_syncs_nothing(lambda: ordered.lead(1), look)
    assert found == [1]


async def test_who_cannot_bring_the_epoch_to_the_disk_does_not_lead(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async for leader, orders in ordered_by(tmp_path, disk):
        ordered = Ordered(disk=HangingDisk(), files=leader.files, leader=leader, orders=orders)
        disk.fail_syncs = errno.EIO
        assert await within(ordered.lead(1)) == [errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR]
        assert leader.partition(1).role is None
        assert leader.storage.directory.failed
        with pytest.raises(DirectoryFailedError):
            await within(leader.storage.run_until_failed())
