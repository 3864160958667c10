"""Damage that turns up while a broker runs costs one replica, or one request, and nobody else anything."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_broker.cluster.fence import Fence
from regnum_broker.cluster.orders.orders import Orders
from regnum_broker.log.errors import CorruptLogError
from regnum_broker.replication.fetchers import Fetchers
from regnum_broker.replication.offline import OfflineReplicas
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.fetching.handler import FetchHandler
from regnum_broker.serving.fetching.offsets import OffsetLookup, OffsetsHandler
from regnum_broker.serving.fetching.requests import FetchPartition, FetchRequest, OffsetQuery, StoredBatches
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_broker.serving.produce_requests import Acks
from regnum_model.ids import BrokerEpoch, BrokerId, PartitionKey
from regnum_model.principals import NOBODY
from regnum_model.shares import Shares
from regnum_service.limits.call import Call
from regnum_service.limits.held_bytes import HeldBytes, Holding, Purpose
from regnum_service.supervisor import Supervisor
from regnum_testing.batches import batch_of
from regnum_testing.broker_world import TOPIC_ID, BrokerWorld
from regnum_testing.disk import FaultyDisk
from regnum_testing.leading_replicas import FetchingFollower, LeadingReplicas
from regnum_testing.waiting import DEADLINE_S, eventually, within

LEADER = Acks.LEADER
STORAGE_ERROR = errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[BrokerWorld]:
    made = BrokerWorld(tmp_path)
    await made.begin()
    await made.start(1, 2)
    yield made
    await made.close()


def damage(world: BrokerWorld, id: int, partition: int) -> None:
    """Make the first batch's head of a replica unreadable as one."""
    folder = world.brokers[BrokerId(id)].settings.data_dir / "replicas" / f"{TOPIC_ID}-{partition}"
    (segment,) = folder.glob("*.log")
    content = bytearray(segment.read_bytes())
    content[8:12] = b"\xff\xff\xff\xff"
    segment.write_bytes(content)


async def test_a_truncation_that_meets_a_damaged_byte_takes_one_replica_offline(world: BrokerWorld) -> None:
    """Steps: 2 follows two partitions; both have a tail that their next leader lacks; one is damaged on 2's disk."""
    for number in (0, 1):
        await world.elect(2, [1, 2], partition=number)
        await world.produce(2, batch_of(b"common"), partition=number)
        await world.elect(1, [1, 2], partition=number, epoch=1, tell=[1])
        for _ in range(3):
            await world.produce(2, batch_of(b"orphan"), partition=number, acks=LEADER)
        await world.produce(1, batch_of(b"new"), partition=number, acks=LEADER)
    damage(world, 2, 0)
    broker = world.brokers[BrokerId(2)]
    for number in (0, 1):
        await world.elect(1, [1, 2], partition=number, epoch=2, tell=[1])
        item = world.order(await world.state(partition=number), 2, partition=number)
        await world.send(2, [item])

    async def offline() -> bool:
        return broker.broker.replicas.get(PartitionKey(TOPIC_ID, 0)) is None

    await eventually(offline)
    await world.log_ends_at(2, 2, number=1)
    result = await world.produce(1, batch_of(b"more"), partition=1)
    assert result.error_code == errors_pb2.ERROR_CODE_NONE
    assert broker.supervisor.failure is None
    refused = await world.send(2, [world.order(await world.state(), 9)])
    assert [result.error_code for result in refused.results] == [STORAGE_ERROR]
    assert (await world.produce(2, batch_of(b"x"))).error_code == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
    # Deleted by the controller, as where it is moved away, and ordered again: it is copied.
    stop = control_pb2.StopReplicaPartition(topic="t", topic_id=TOPIC_ID, partition=0, leader_epoch=2, delete=True)
    request = control_pb2.StopReplicaRequest(
        controller_id=1,
        controller_epoch=world.controller_epoch,
        broker_epoch=(await world.registration(2))[0],
        partitions=[stop],
    )
    stopped = await world.control(2).StopReplica(request, timeout=DEADLINE_S)
    assert [result.error_code for result in stopped.results] == [errors_pb2.ERROR_CODE_NONE]
    await world.elect(1, [1], replicas=[1, 2], epoch=3)
    await world.log_ends_at(2, 2)


async def test_an_order_for_a_replica_that_is_found_damaged_meanwhile_is_refused_and_the_others_are_carried_out(
    tmp_path: Path,
) -> None:
    """Steps: damage to 0 is found; an order for 0 and 1 is judged; the writer takes 0 offline, then records both."""
    async with LeadingReplicas(tmp_path) as leader:
        supervisor = Supervisor("broker")
        orders = Orders(
            replicas=leader.replicas,
            fetchers=Fetchers(lambda _: pytest.fail("nobody is followed"), supervisor),
            storage=leader.storage,
            store=lambda: None,
            lag_s=10.0,
            clock=leader.clock,
        )
        supervisor.start("orders", orders.run())
        directory, held = leader.storage.directory, threading.Event()
        holding = await leader.storage.write_later(held.wait)
        damage_found = CorruptLogError(PartitionKey(TOPIC_ID, 0), "said the test")
        taking = await leader.storage.write_later(lambda: directory.take_offline(damage_found))
        ordering = asyncio.create_task(
            orders.lead_and_follow(
                [order_to_lead(number, directory.log_id) for number in (0, 1)], broker_epoch=BrokerEpoch(1)
            )
        )

        async def judged() -> bool:
            return leader.partition(1).role is None

        await eventually(judged)
        held.set()
        assert await within(ordering) == [STORAGE_ERROR, errors_pb2.ERROR_CODE_NONE]
        assert await taking
        await holding
        assert leader.partition(0).role is None
        assert leader.leadership(1).state.leader_epoch == 1
        await supervisor.unwind()


async def test_a_deletion_that_a_full_disk_refuses_is_an_answer(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with LeadingReplicas(tmp_path, disk=disk) as leader:
        supervisor = Supervisor("broker")
        orders = Orders(
            replicas=leader.replicas,
            fetchers=Fetchers(lambda _: pytest.fail("nobody is followed"), supervisor),
            storage=leader.storage,
            store=lambda: None,
            lag_s=10.0,
            clock=leader.clock,
        )
        supervisor.start("orders", orders.run())
        stop = control_pb2.StopReplicaPartition(topic="t", topic_id=TOPIC_ID, leader_epoch=-2, delete=True)
        disk.fail_writes = errno.ENOSPC
        assert await within(orders.stop([stop], broker_epoch=BrokerEpoch(1))) == [STORAGE_ERROR]
        disk.fail_writes = None
        assert await within(orders.stop([stop], broker_epoch=BrokerEpoch(1))) == [errors_pb2.ERROR_CODE_NONE]
        assert leader.replicas.get(PartitionKey(TOPIC_ID, 0)) is None
        assert supervisor.failure is None
        await supervisor.unwind()


def order_to_lead(number: int, log_id: str) -> control_pb2.LeaderAndIsrPartition:
    return control_pb2.LeaderAndIsrPartition(
        topic="t",
        topic_id=TOPIC_ID,
        state=types_pb2.PartitionState(partition=number, leader=1, leader_epoch=1, isr=[1], replicas=[1], version=1),
        members=[control_pb2.Member(broker_id=1, broker_epoch=1, log_id=log_id)],
        min_insync_replicas=1,
    )


async def test_a_replica_deleted_while_a_followers_read_waits_costs_that_read(tmp_path: Path) -> None:
    async with LeadingReplicas(tmp_path, readers=1) as leader:
        follower = FetchingFollower(leader.session())
        await leader.append(0)
        await leader.append(1)
        taken, held = threading.Event(), threading.Event()

        def hold() -> bool:
            taken.set()
            return held.wait(DEADLINE_S)

        holding = asyncio.create_task(leader.storage.read_for_brokers(hold))
        assert await asyncio.to_thread(taken.wait, DEADLINE_S), "the only reader is busy"
        asking = follower.asking((0, 0), (1, 0))
        # One turn: the fetch has looked both replicas up and stands in line for the reader.
        await asyncio.sleep(0)
        key = PartitionKey(TOPIC_ID, 0)
        directory = leader.storage.directory
        await leader.storage.write(lambda: directory.delete_replicas([key]))
        leader.replicas.remove(key)
        held.set()
        await holding
        answer = await within(asking)
        assert [(item.partition, bool(item.records), item.error_code) for item in answer.partitions] == [(1, True, 0)]


async def test_a_replica_deleted_while_its_role_stands_is_unknown_to_its_follower(tmp_path: Path) -> None:
    """The files go on the writer's thread, the role on the event loop: a read may come between."""
    async with LeadingReplicas(tmp_path) as leader:
        await leader.append(0)
        directory = leader.storage.directory
        await leader.storage.write(lambda: directory.delete_replicas([PartitionKey(TOPIC_ID, 0)]))
        answer = await FetchingFollower(leader.session()).ask((0, 0))
        assert [item.error_code for item in answer.partitions] == [errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID]


async def test_a_read_without_a_descriptor_is_refused_and_may_be_repeated(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with LeadingReplicas(tmp_path, disk=disk) as leader:
        await leader.append(0)
        leader.lead(0, epoch=1, isr=(1,))
        follower = FetchingFollower(leader.session())
        disk.fail_reads = errno.EMFILE
        assert await fetched(leader, 0) == (STORAGE_ERROR, False)
        assert [item.error_code for item in (await follower.ask((0, 0), epoch=1)).partitions] == [STORAGE_ERROR]
        disk.fail_reads = None
        assert await fetched(leader, 0) == (errors_pb2.ERROR_CODE_NONE, True)
        assert [bool(item.records) for item in (await follower.ask((0, 0), epoch=1)).partitions] == [True]
        assert not leader.storage.directory.failed
        assert not leader.storage.directory.offline


async def test_a_bad_sector_on_a_consumers_read_takes_one_replica_offline(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with LeadingReplicas(tmp_path, disk=disk) as leader:
        supervisor = Supervisor("broker")
        reported: list[PartitionKey] = []
        offline = OfflineReplicas(
            replicas=leader.replicas,
            fetchers=Fetchers(lambda _: pytest.fail("nobody is followed"), supervisor),
            storage=leader.storage,
            report=reported.extend,
        )
        supervisor.start("offline replicas", offline.run())
        for number in (0, 1):
            await leader.append(number)
            leader.lead(number, epoch=1, isr=(1,))
        disk.fail_reads = errno.EIO
        assert await fetched(leader, 0) == (STORAGE_ERROR, False)
        disk.fail_reads = None
        key = PartitionKey(TOPIC_ID, 0)

        async def told() -> bool:
            return reported == [key]

        await eventually(told)
        assert list(leader.storage.directory.offline) == [key]
        assert leader.replicas.get(key) is None
        assert await fetched(leader, 1) == (errors_pb2.ERROR_CODE_NONE, True)
        await leader.append(1)
        assert supervisor.failure is None
        assert not leader.storage.directory.failed
        await supervisor.unwind()


async def test_one_damaged_replica_refuses_no_question_about_another(tmp_path: Path) -> None:
    async with LeadingReplicas(tmp_path) as leader:
        for number in (0, 1):
            await leader.append(number)
            leader.lead(number, epoch=1, isr=(1,))
        directory = leader.storage.directory
        await leader.storage.write(lambda: directory.delete_replicas([PartitionKey(TOPIC_ID, 0)]))
        offsets = OffsetsHandler(replicas=leader.replicas, leaders=leaders_of(leader), storage=leader.storage)
        queries = [OffsetQuery(topic="t", partition=number, timestamp_ms=1) for number in (0, 1)]
        lookups = [answer for query in queries if isinstance(answer := offsets.list_offsets(query), OffsetLookup)]
        call = Call(peer="a connection", principal=NOBODY)
        held = HeldBytes(Shares(total_max=2**26, connection_max=2**26))
        with closing(Holding.of(call, held, Purpose.UNPACKED)) as holding:
            await offsets.look_up(lookups, holding)
        results = [lookup.result for lookup in lookups]
        assert [(result.error_code, result.offset) for result in results] == [(STORAGE_ERROR, -1), (0, 0)]


def leaders_of(leader: LeadingReplicas) -> CurrentLeaders:
    return CurrentLeaders(leader.replicas, MetadataCache(Fence(), leader.replicas.learn_listeners))


def fetching_of(leader: LeadingReplicas) -> FetchHandler:
    return FetchHandler(replicas=leader.replicas, leaders=leaders_of(leader), storage=leader.storage)


async def fetched(leader: LeadingReplicas, partition: int) -> tuple[int, bool]:
    """Error and whether there were records, for a consumer."""
    item = FetchPartition(topic="t", partition=partition)
    (result,) = (await fetching_of(leader).fetch(FetchRequest(partitions=[item]))).results
    assert isinstance(result.content, StoredBatches)
    return result.error_code, bool(result.content.batches)
