"""A leader epoch that begins refuses no producer where this broker leads in it."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_broker.cluster.fence import Fence
from regnum_broker.cluster.orders.orders import Orders
from regnum_broker.log.disk.system_calls import Disk
from regnum_broker.replication.fetchers import Fetchers
from regnum_broker.replication.leader import FollowerStream, Leadership
from regnum_broker.replication.partition import Following
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_broker.serving.produce import ProduceHandler
from regnum_broker.serving.produce_answers import SLICE
from regnum_broker.serving.produce_requests import Acks, ProducePartition, ProduceRequest, ProduceResponse
from regnum_model.config_definition import CLEANUP_COMPACT
from regnum_model.configs import ReplicaSettings
from regnum_model.ids import NO_LEADER, BrokerEpoch, PartitionKey, Registration
from regnum_model.principals import Principal
from regnum_records.build import build_batch
from regnum_records.record import NewRecord
from regnum_service.access.authorization import EVERYBODY, Authorizer, EverybodyMay
from regnum_service.access.identity import Caller, calling
from regnum_service.errors import Code
from regnum_service.supervisor import Supervisor
from regnum_testing.batches import TIMESTAMP_MS, batch_of
from regnum_testing.disk import FaultyDisk, HangingDisk
from regnum_testing.leading_replicas import (
    FOLLOWER,
    FOLLOWER_EPOCH,
    LEADER,
    TOPIC_ID,
    FetchingFollower,
    LeadingReplicas,
)
from regnum_testing.waiting import DEADLINE_S, until, within

NONE = errors_pb2.ERROR_CODE_NONE
NOT_LEADER = errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
AFTER_APPEND = errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND


class Broker:
    """Broker 1, which leads partition 0 in epoch 0 with broker 2 in sync; takes orders and batches."""

    def __init__(self, leading: LeadingReplicas, authorizer: Authorizer = EVERYBODY) -> None:
        self.leading = leading
        self.supervisor = Supervisor("broker")
        self.producing = ProduceHandler(
            replicas=leading.replicas,
            leaders=CurrentLeaders(leading.replicas, MetadataCache(Fence(), leading.replicas.learn_listeners)),
            storage=leading.storage,
            clock=leading.clock,
            batch_bytes_max=1 << 20,
            supervisor=self.supervisor,
            authorizer=authorizer,
        )
        self.orders = Orders(
            replicas=leading.replicas,
            fetchers=Fetchers(lambda _: pytest.fail("nobody is followed"), self.supervisor),
            storage=leading.storage,
            store=lambda: None,
            lag_s=10.0,
            clock=leading.clock,
        )

    def order(self, epoch: int, *, leader: int = LEADER, isr: Sequence[int] = (1, 2)) -> "asyncio.Task[list[Code]]":
        return self.send(self.item(0, epoch, leader, isr))

    def send(self, *items: control_pb2.LeaderAndIsrPartition) -> "asyncio.Task[list[Code]]":
        return asyncio.ensure_future(self.orders.lead_and_follow(items, broker_epoch=BrokerEpoch(1)))

    def item(
        self, number: int, epoch: int, leader: int, isr: Sequence[int] = (1, 2)
    ) -> control_pb2.LeaderAndIsrPartition:
        log_id = self.leading.storage.directory.log_id
        state = types_pb2.PartitionState(
            partition=number, leader=leader, leader_epoch=epoch, isr=isr, replicas=[1, 2], version=epoch
        )
        members = [control_pb2.Member(broker_id=id, broker_epoch=10 * id, log_id=log_id) for id in isr]
        return control_pb2.LeaderAndIsrPartition(
            topic="t", topic_id=TOPIC_ID, state=state, members=members, min_insync_replicas=1
        )

    def produce(
        self,
        sequence: int,
        *,
        timeout_ms: int = 20_000,
        acks: int = Acks.ALL,
        key: bytes | None = None,
    ) -> "asyncio.Task[ProduceResponse]":
        records = [NewRecord(key=key, value=b"v")]
        batch = build_batch(
            records, timestamp_ms=TIMESTAMP_MS, codec="none", producer_id=7, producer_epoch=0, base_sequence=sequence
        )
        message = ProducePartition(topic="t", topic_id=TOPIC_ID, partition=0, record_batch=batch)
        request = ProduceRequest(partitions=[message], timeout_ms=timeout_ms, acks=acks)
        return asyncio.ensure_future(self.producing.produce(request))

    def fetched(self, offset: int) -> None:
        """The follower has all below."""
        leadership = self.leading.leadership()
        now_s = self.leading.clock.monotonic()
        stream = FollowerStream(
            broker=FOLLOWER, broker_epoch=FOLLOWER_EPOCH, registration=Registration(1), polled_s=now_s
        )
        assert leadership.record_fetch(stream, offset=offset, now_s=now_s)

    async def log_ends_at(self, offset: int) -> None:
        await until(lambda: self.leading.partition().log.log_end_offset == offset)

    async def promised(self) -> None:
        await until(lambda: self.leading.partition().promised is not None)

    async def somebody_waits(self) -> None:
        """A batch waits for the leadership that is being recorded."""
        await until(lambda: len(self.leading.partition().promised or ()) == 1)


class Only(EverybodyMay):
    """One principal may do everything, others nothing."""

    def __init__(self, name: str) -> None:
        self.name = name

    def allows(self, *what: object, **_how: object) -> bool:
        who = what[0]
        return isinstance(who, Caller) and who.principal.name == self.name


def produced_by(broker: Broker, *names: str) -> "list[asyncio.Task[ProduceResponse]]":
    """The same batch of each."""
    tasks = []
    for name in names:
        with calling(Caller(principal=Principal(name))):
            tasks.append(broker.produce(0))
    return tasks


async def outcome(produced: "asyncio.Task[ProduceResponse]") -> tuple[int, int]:
    (result,) = (await within(produced)).results
    return result.error_code, result.base_offset


async def broker_on(
    root: Path, disk: Disk, authorizer: Authorizer = EVERYBODY, *, partitions: int = 2
) -> AsyncIterator[Broker]:
    async with LeadingReplicas(root, partitions=partitions, disk=disk) as leading:
        broker = Broker(leading, authorizer)
        running = asyncio.create_task(broker.orders.run())
        yield broker
        running.cancel()
        broker.supervisor.stop("the test is over")
        await broker.supervisor.unwind()


@pytest.fixture
def disk() -> HangingDisk:
    return HangingDisk()


@pytest.fixture
async def broker(tmp_path: Path, disk: HangingDisk) -> AsyncIterator[Broker]:
    async for one in broker_on(tmp_path, disk):
        yield one


async def test_a_follower_that_asks_while_an_epoch_is_recorded_is_not_sent_away(
    broker: Broker, disk: HangingDisk
) -> None:
    """It would ask again for nothing, and again: its own order is on its way like that of its leader."""
    follower = FetchingFollower(broker.leading.session())
    await follower.ask((0, 0))
    disk.syncs.clear()
    ordered = broker.order(1, isr=(1, 2))
    await broker.promised()
    asking = follower.asking((0, 0), wait_ms=0)
    answer = await within(asking)
    assert not answer.partitions, "neither records nor a refusal"
    disk.syncs.set()
    assert await within(ordered) == [NONE]
    answer = await follower.ask(wait_ms=5_000)
    assert [item.error_code for item in answer.partitions] == [errors_pb2.ERROR_CODE_FENCED_LEADER_EPOCH]
    answer = await follower.ask((0, 0), epoch=1)
    assert all(item.error_code == NONE for item in answer.partitions)


async def test_a_batch_that_comes_while_an_epoch_is_recorded_is_appended_in_it(
    broker: Broker, disk: HangingDisk
) -> None:
    disk.syncs.clear()
    ordered = broker.order(1, isr=(1,))
    await broker.promised()
    produced = broker.produce(0)
    assert await asyncio.to_thread(disk.syncing.wait, DEADLINE_S)
    assert broker.leading.partition().log.log_end_offset == 0, "nothing before the epoch is on the disk"
    assert not produced.done()
    disk.syncs.set()
    assert await within(ordered) == [NONE]
    assert await outcome(produced) == (NONE, 0)
    assert broker.leading.partition().log.last_record_epoch == 1


async def test_what_was_appended_before_is_acknowledged_once_the_follower_has_it_in_the_next_epoch(
    broker: Broker,
) -> None:
    produced = broker.produce(0)
    await broker.log_ends_at(1)
    assert await within(broker.order(1)) == [NONE]
    assert not produced.done(), "in the new epoch nothing has been heard of the follower"
    assert broker.leading.partition().high_watermark == 0
    broker.fetched(1)
    assert await outcome(produced) == (NONE, 0)


async def test_who_waits_keeps_the_order_in_which_it_came(broker: Broker, disk: HangingDisk) -> None:
    disk.syncs.clear()
    ordered = broker.order(1, isr=(1,))
    await broker.promised()
    produced = [broker.produce(sequence) for sequence in range(5)]
    disk.syncs.set()
    await within(ordered)
    # Those that come when it leads do not go before those that have waited.
    produced += [broker.produce(sequence) for sequence in range(5, 8)]
    assert [await outcome(one) for one in produced] == [(NONE, offset) for offset in range(8)]


async def test_what_the_writer_refused_of_the_epoch_before_goes_into_the_next(broker: Broker) -> None:
    free = threading.Event()
    blocked = asyncio.ensure_future(broker.leading.storage.write(partial(free.wait, DEADLINE_S)))
    produced = [broker.produce(0), broker.produce(1)]
    await until(lambda: broker.leading.storage.jobs_pending == 3)
    ordered = broker.order(1, isr=(1,))
    await broker.promised()
    produced.append(broker.produce(2))
    free.set()
    assert await within(blocked)
    assert await within(ordered) == [NONE]
    assert [await outcome(one) for one in produced] == [(NONE, 0), (NONE, 1), (NONE, 2)]
    assert broker.leading.partition().log.last_record_epoch == 1


async def test_what_is_still_looked_at_as_an_epoch_begins_keeps_its_place(broker: Broker) -> None:
    """Batches of compacted logs are checked beside the writer: a later one is admitted in the next epoch meanwhile."""
    leading, free = broker.leading, threading.Event()
    leading.replicas.configure(leading.partition(), ReplicaSettings(cleanup_policy=CLEANUP_COMPACT))
    blocked = asyncio.ensure_future(leading.storage.check(partial(free.wait, DEADLINE_S)))
    await asyncio.sleep(0)
    produced = [broker.produce(0, key=b"k"), broker.produce(1, key=b"k")]
    await asyncio.sleep(0)
    item = broker.item(0, 1, LEADER, isr=(1,))
    item.settings.cleanup_policy = CLEANUP_COMPACT
    assert await within(broker.send(item)) == [NONE]
    produced.append(broker.produce(2, key=b"k"))
    await asyncio.sleep(0)
    free.set()
    assert await within(blocked)
    assert [await outcome(one) for one in produced] == [(NONE, 0), (NONE, 1), (NONE, 2)]
    assert leading.partition().log.last_record_epoch == 1


async def test_a_follower_that_is_to_lead_has_its_clients_wait(broker: Broker, disk: HangingDisk) -> None:
    assert await within(broker.order(1, leader=NO_LEADER)) == [NONE]
    assert await outcome(broker.produce(0)) == (NOT_LEADER, -1)
    disk.syncs.clear()
    ordered = broker.order(2, isr=(1,))
    await broker.promised()
    produced = broker.produce(0)
    disk.syncs.set()
    await within(ordered)
    assert await outcome(produced) == (NONE, 0)


async def test_who_follows_waits_for_no_epoch_that_another_partition_is_led_in(
    broker: Broker, disk: HangingDisk
) -> None:
    """Its leader waits for it to fetch. What is new here follows when it is on the disk."""
    disk.syncs.clear()
    ordered = broker.send(broker.item(0, 1, LEADER), broker.item(1, 1, NO_LEADER), broker.item(2, 0, NO_LEADER))
    assert await asyncio.to_thread(disk.syncing.wait, DEADLINE_S)
    await until(lambda: isinstance(broker.leading.partition(1).role, Following))
    assert broker.leading.partition(0).role is None
    assert broker.leading.replicas.get(PartitionKey(TOPIC_ID, 2)) is None
    assert not ordered.done()
    disk.syncs.set()
    assert await within(ordered) == [NONE, NONE, NONE]
    assert isinstance(broker.leading.partition(0).role, Leadership)
    assert isinstance(broker.leading.partition(2).role, Following)


async def test_who_follows_next_acknowledges_nothing_of_before(broker: Broker) -> None:
    produced = broker.produce(0)
    await broker.log_ends_at(1)
    assert await within(broker.order(1, leader=NO_LEADER)) == [NONE]
    assert (await outcome(produced))[0] == AFTER_APPEND
    assert await within(broker.order(2, isr=(1,))) == [NONE]
    assert broker.leading.partition().high_watermark == 1


async def test_a_producer_that_waits_too_long_is_told_so_and_nothing_is_appended(
    broker: Broker, disk: HangingDisk
) -> None:
    disk.syncs.clear()
    ordered = broker.order(1, isr=(1,))
    await broker.promised()
    assert await outcome(broker.produce(0, timeout_ms=1)) == (NOT_LEADER, -1)
    gone = broker.produce(0)
    await broker.somebody_waits()
    gone.cancel()
    disk.syncs.set()
    await within(ordered)
    assert await outcome(broker.produce(0)) == (NONE, 0), "neither was appended"
    assert broker.leading.partition().log.log_end_offset == 1


@pytest.mark.parametrize("refused_by_writer", [False, True])
async def test_who_waits_is_admitted_as_who_it_is_and_not_as_who_gives_the_order(
    tmp_path: Path, *, refused_by_writer: bool
) -> None:
    async for broker in broker_on(tmp_path, HangingDisk(), Only("alice")):
        free = threading.Event()
        blocked = asyncio.ensure_future(broker.leading.storage.write(partial(free.wait, DEADLINE_S)))
        produced = produced_by(broker, "alice", "mallory") if refused_by_writer else []
        await until(lambda: broker.leading.storage.jobs_pending == 1 + bool(produced))  # noqa: B023 - called here
        ordered = broker.order(1, isr=(1,))
        await broker.promised()
        if not refused_by_writer:
            produced = produced_by(broker, "alice", "mallory")
            await broker.somebody_waits()
        free.set()
        assert await within(blocked)
        assert await within(ordered) == [NONE]
        refused = (errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED, -1)
        assert [await outcome(one) for one in produced] == [(NONE, 0), refused]


async def test_a_request_is_not_answered_before_all_of_it_was_looked_at(tmp_path: Path) -> None:
    """What waits of it is settled while the loop has a turn between two portions of it."""
    lost, count = 2 * SLICE, 5 * SLICE
    async for broker in broker_on(tmp_path, HangingDisk(), partitions=count):
        replicas, batch = broker.leading.replicas, batch_of(b"v")
        promised = [broker.leading.partition(number) for number in range(lost)]
        for partition in promised:
            replicas.promise(partition)
        messages = [
            ProducePartition(topic="t", topic_id=TOPIC_ID, partition=number, record_batch=batch)
            for number in range(count)
        ]
        request = ProduceRequest(partitions=messages, acks=Acks.LEADER)
        produced = asyncio.ensure_future(broker.producing.produce(request))
        while len(promised[0].promised or ()) == 0:
            await asyncio.sleep(0)
        for partition in promised:
            replicas.give(partition, None)
        codes = [result.error_code for result in (await within(produced)).results]
        assert codes == [NOT_LEADER] * lost + [NONE] * (count - lost)


async def test_without_acks_a_batch_does_not_wait(broker: Broker, disk: HangingDisk) -> None:
    disk.syncs.clear()
    ordered = broker.order(1, isr=(1,))
    await broker.promised()
    assert await outcome(broker.produce(0, acks=Acks.NONE)) == (NOT_LEADER, -1)
    disk.syncs.set()
    await within(ordered)


async def test_whoever_waits_for_a_fenced_broker_is_sent_away_at_once(broker: Broker, disk: HangingDisk) -> None:
    """Safety rule S8. The in-sync set is this broker alone, so that the next epoch would commit everything."""
    assert await within(broker.order(1, isr=(1, 2))) == [NONE]
    before = broker.produce(0)
    await broker.log_ends_at(1)
    disk.syncs.clear()
    ordered = broker.order(2, isr=(1,))
    await broker.promised()
    waiting = broker.produce(1)
    await broker.somebody_waits()
    surrendered = asyncio.ensure_future(broker.orders.surrender(BrokerEpoch(1)))
    assert (await outcome(before))[0] == AFTER_APPEND
    assert await outcome(waiting) == (NOT_LEADER, -1)
    disk.syncs.set()
    await within(ordered)
    await within(surrendered)
    assert broker.leading.partition().role is None


async def test_a_leadership_that_cannot_be_recorded_sends_everybody_away(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async for broker in broker_on(tmp_path, disk):
        before = broker.produce(0)
        await broker.log_ends_at(1)
        free = threading.Event()
        blocked = asyncio.ensure_future(broker.leading.storage.write(partial(free.wait, DEADLINE_S)))
        ordered = broker.order(1, isr=(1,))
        await broker.promised()
        waiting = broker.produce(1)
        await broker.somebody_waits()
        disk.fail_syncs = errno.EIO
        free.set()
        await within(blocked)
        assert await within(ordered) == [errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR]
        assert (await outcome(before))[0] == AFTER_APPEND
        assert await outcome(waiting) == (NOT_LEADER, -1)


async def test_a_replica_found_damaged_while_its_epoch_is_recorded_stops_nobody_else(
    broker: Broker, disk: HangingDisk
) -> None:
    leading = broker.leading
    disk.syncs.clear()
    ordered = broker.send(broker.item(0, 1, LEADER, isr=(1,)), broker.item(1, 1, LEADER, isr=(1,)))
    await broker.promised()
    waiting = broker.produce(0)
    await broker.somebody_waits()
    assert await asyncio.to_thread(disk.syncing.wait, DEADLINE_S)
    error = leading.partition().log.found_damaged("a reader saw it")
    assert await within(leading.storage.write(lambda: leading.storage.directory.take_offline(error)))
    leading.replicas.remove(error.key)
    assert (await outcome(waiting))[0] in {NOT_LEADER, errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION}
    disk.syncs.set()
    assert await within(ordered) == [errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR, NONE]
    assert isinstance(leading.partition(1).role, Leadership)


async def test_who_hears_that_another_leads_in_a_later_epoch_sends_its_producers_there_at_once(broker: Broker) -> None:
    assert await within(broker.order(1)) == [NONE]
    produced = broker.produce(0)
    await broker.log_ends_at(1)

    def picture(leader: int, epoch: int) -> types_pb2.TopicState:
        state = types_pb2.PartitionState(partition=0, leader=leader, leader_epoch=epoch, isr=[leader], replicas=[1, 2])
        return types_pb2.TopicState(name="t", topic_id=TOPIC_ID, partitions=[state])

    # An epoch out of nowhere is no news either: nobody would ever lead here again.
    for old_news in (picture(FOLLOWER, 1), picture(LEADER, 2), picture(-1, 2), picture(FOLLOWER, 2**30)):
        broker.leading.replicas.learn_leaders(old_news)
        assert isinstance(broker.leading.partition().role, Leadership), old_news
    assert not produced.done()
    broker.leading.replicas.learn_leaders(picture(FOLLOWER, 2))
    assert broker.leading.partition().role is None
    assert (await outcome(produced))[0] == AFTER_APPEND
