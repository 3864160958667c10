"""Consumers that read from a follower in their rack (KIP-392): what is committed, whole and once, and from where."""

import random
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_broker.kafka.context import Context
from regnum_broker.kafka.data import Data
from regnum_broker.kafka.fetch_sessions import ConnectionSession, Sessions
from regnum_broker.replication.decisions.read_replica import Candidate, preferred
from regnum_broker.serving.fetching import requests as values
from regnum_client import Consumer, ConsumerSettings
from regnum_kafka_wire.frames import Head
from regnum_kafka_wire.gen.fetch_request import FetchPartition, FetchRequest, FetchTopic
from regnum_kafka_wire.gen.fetch_response import PartitionData
from regnum_model.ids import BrokerId
from regnum_service.clock import SystemClock
from regnum_service.limits.call import Call
from regnum_telemetry.instruments import broker as instruments
from regnum_testing.batches import batch_of
from regnum_testing.broker_world import TOPIC_ID, BrokerWorld
from regnum_testing.waiting import DEADLINE_S, eventually

NONE = errors_pb2.ERROR_CODE_NONE
NOT_AVAILABLE = errors_pb2.ERROR_CODE_OFFSET_NOT_AVAILABLE
RACKS = {1: "a", 2: "b", 3: "b"}


def candidate(id: int, rack: str, *, start: int = 0, end: int = 10) -> Candidate:
    return Candidate(broker=BrokerId(id), rack=rack, log_start_offset=start, log_end_offset=end)


@pytest.mark.parametrize(
    ("candidates", "client_rack", "result"),
    [
        ([], "b", None),
        ([candidate(2, "a")], "b", None),
        ([candidate(2, "b")], "", None),
        ([candidate(2, "b")], "a", None),
        ([candidate(2, "b"), candidate(3, "b")], "b", 2),
        ([candidate(2, "b", end=8), candidate(3, "b")], "b", 3),
        ([candidate(2, "b", end=4), candidate(3, "b", start=6)], "b", None),
        ([candidate(2, "b", end=5)], "b", 2),
    ],
)
def test_the_member_in_the_rack_that_has_the_offset_and_most_of_the_log(
    candidates: list[Candidate], client_rack: str, result: int | None
) -> None:
    assert preferred(candidates, client_rack=client_rack, leader_rack="a", offset=5) == result


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[BrokerWorld]:
    """Broker 1 leads in rack a; 2 and 3 follow in rack b."""
    made = BrokerWorld(tmp_path, racks=RACKS, more={"replica-selector": "rack"})
    await made.begin()
    await made.start(1, 2, 3)
    await made.elect(1, [1, 2, 3], min_insync=1)
    yield made
    await made.close()


async def fetch(
    world: BrokerWorld, id: int, offset: int, read_from: log_pb2.ReadFrom.ValueType, **more: int
) -> log_pb2.FetchResult:
    item = log_pb2.FetchPartition(topic="t", partition=0, offset=offset, read_from=read_from, **more)  # type: ignore[arg-type]
    request = log_pb2.FetchRequest(partitions=[item], client_rack="b", max_wait_ms=200, min_bytes=1)
    return (await world.log(id).Fetch(request, timeout=DEADLINE_S)).results[0]


async def committed(world: BrokerWorld, offset: int, *ids: int) -> None:
    async def have() -> bool:
        return all(world.brokers[BrokerId(id)].partition().high_watermark == offset for id in ids)

    await eventually(have, what=f"high watermark {offset} on brokers {ids}")


async def test_a_leader_names_a_replica_and_returns_nothing_else(world: BrokerWorld) -> None:
    await world.produce(1, batch_of(b"0"))
    await committed(world, 1, 2, 3)
    result = await fetch(world, 1, 0, log_pb2.READ_FROM_NEAREST)
    assert (result.error_code, result.preferred_read_replica, result.record_batches) == (NONE, 2, b"")
    for read_from in (log_pb2.READ_FROM_UNSPECIFIED, log_pb2.READ_FROM_LEADER, log_pb2.READ_FROM_ANY_REPLICA):
        result = await fetch(world, 1, 0, read_from)
        assert (result.HasField("preferred_read_replica"), bool(result.record_batches)) == (False, True)


async def test_a_follower_serves_those_who_were_sent_and_nobody_else(world: BrokerWorld) -> None:
    await world.produce(1, batch_of(b"0"))
    await committed(world, 1, 2, 3)
    assert (await fetch(world, 2, 0, log_pb2.READ_FROM_ANY_REPLICA)).record_batches
    for read_from in (log_pb2.READ_FROM_UNSPECIFIED, log_pb2.READ_FROM_LEADER, log_pb2.READ_FROM_NEAREST):
        result = await fetch(world, 2, 0, read_from)
        assert result.error_code == errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER


async def test_a_follower_shows_nothing_that_is_not_committed(world: BrokerWorld) -> None:
    """Broker 3 is a member and hears of nothing, so what broker 2 has beyond record 0 is not committed."""
    await world.elect(1, [1, 2], epoch=1, replicas=[1, 2, 3])
    await world.produce(1, batch_of(b"0"))
    await committed(world, 1, 2)
    await world.elect(1, [1, 2, 3], epoch=2, tell=[1, 2])
    await world.produce(1, batch_of(b"1"), acks=log_pb2.ACKS_LEADER)
    await world.log_ends_at(2, 2)
    result = await fetch(world, 2, 0, log_pb2.READ_FROM_ANY_REPLICA)
    assert (result.error_code, result.high_watermark) == (NONE, 1)
    result = await fetch(world, 2, 1, log_pb2.READ_FROM_ANY_REPLICA)
    assert (result.error_code, result.record_batches) == (NONE, b"")


async def test_whatever_a_follower_does_not_have_is_the_leaders_to_judge(world: BrokerWorld) -> None:
    await world.produce(1, batch_of(b"0", b"1"))
    await committed(world, 2, 2)
    any_replica = log_pb2.READ_FROM_ANY_REPLICA
    assert (await fetch(world, 2, 3, any_replica)).error_code == NOT_AVAILABLE
    assert (await fetch(world, 2, 2, any_replica, last_fetched_epoch=1)).error_code == NOT_AVAILABLE
    assert (await fetch(world, 2, 2, any_replica, last_fetched_epoch=0)).error_code == NONE
    result = await fetch(world, 2, 1, any_replica, current_leader_epoch=1)
    assert result.error_code == errors_pb2.ERROR_CODE_UNKNOWN_LEADER_EPOCH


async def test_a_follower_serves_nothing_before_the_leader_of_the_epoch_has_found_its_log_to_be_its_own(
    world: BrokerWorld,
) -> None:
    await world.produce(1, batch_of(b"0"))
    await committed(world, 1, 2, 3)
    # The new leader has not heard of it, and answers nobody.
    await world.elect(3, [1, 2, 3], epoch=1, tell=[2])
    result = await fetch(world, 2, 0, log_pb2.READ_FROM_ANY_REPLICA)
    assert (result.error_code, result.record_batches) == (NOT_AVAILABLE, b"")
    await world.elect(3, [1, 2, 3], epoch=2)

    async def served() -> bool:
        return bool((await fetch(world, 2, 0, log_pb2.READ_FROM_ANY_REPLICA)).record_batches)

    await eventually(served, what="broker 2 serves in the new epoch")


async def test_a_long_poll_at_a_follower_ends_when_it_hears_what_is_committed(world: BrokerWorld) -> None:
    await world.produce(1, batch_of(b"0"))
    await committed(world, 1, 2, 3)
    item = log_pb2.FetchPartition(topic="t", partition=0, offset=1, read_from=log_pb2.READ_FROM_ANY_REPLICA)
    request = log_pb2.FetchRequest(partitions=[item], max_wait_ms=int(DEADLINE_S * 1000), min_bytes=1)
    poll = world.log(2).Fetch(request, timeout=2 * DEADLINE_S)
    signal = world.brokers[BrokerId(2)].partition().committed

    async def waits() -> bool:
        return len(signal) == 1

    await eventually(waits)
    await world.produce(1, batch_of(b"1"))
    assert (await poll).results[0].record_batches


class OfKafka:
    """A client of Kafka in rack b, which asks a leader and whom it names alike."""

    def __init__(self, world: BrokerWorld, id: int) -> None:
        replicas = world.brokers[BrokerId(id)].broker.replicas
        everybody = SimpleNamespace(named=lambda _: [], reached=lambda rack: rack)
        self.stub = world.log(id)
        log: Any = SimpleNamespace(fetch=self._asked)
        self.data = Data(log=log, addresses=cast("Any", everybody), follows=replicas.follows)

    async def _asked(self, request: values.FetchRequest, _: Call) -> values.FetchResponse:
        """Its broker, by the other door."""
        (item,) = request.partitions
        place = log_pb2.FetchPartition(
            topic=item.topic, offset=item.offset, read_from=log_pb2.ReadFrom.ValueType(item.read_from)
        )
        if item.current_leader_epoch is not None:
            place.current_leader_epoch = item.current_leader_epoch
        message = log_pb2.FetchRequest(
            partitions=[place], client_rack=request.client_rack, max_wait_ms=request.max_wait_ms, min_bytes=1
        )
        (read,) = (await self.stub.Fetch(message, timeout=DEADLINE_S)).results
        item.content.put(read.record_batches)
        result = values.FetchResult(item.topic, item.partition, item.content, read.error_code)
        if read.HasField("preferred_read_replica"):
            result.preferred_read_replica = read.preferred_read_replica
        return values.FetchResponse([result])

    async def fetch(self, rack: str = "b", *, epoch: int = -1) -> PartitionData:
        head = Head(key=1, version=11, correlation_id=1, client_id="c", end=0)
        session = ConnectionSession(Sessions(), random.Random(1))
        place = FetchPartition(partition=0, current_leader_epoch=epoch, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic="t", partitions=[place])]
        request = FetchRequest(max_wait_ms=200, min_bytes=1, topics=topics, rack_id=rack)
        answer = await self.data.fetch(request, Context(Call(peer="ipv4:10.0.0.1:1"), head, session, SystemClock()))
        return answer.responses[0].partitions[0]


async def test_a_client_of_kafka_reads_in_its_rack(world: BrokerWorld) -> None:
    await world.produce(1, batch_of(b"0"))
    await committed(world, 1, 2, 3)
    sent = await OfKafka(world, 1).fetch()
    assert (sent.error_code, sent.preferred_read_replica, sent.records) == (NONE, 2, b"")
    served = await OfKafka(world, 2).fetch(epoch=0)
    assert (served.error_code, bool(served.records)) == (NONE, True)
    for rack in ("", "a"):
        assert (await OfKafka(world, 1).fetch(rack)).records, "the leader is in its rack, or it says none"
    assert (await OfKafka(world, 2).fetch("")).error_code == errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
    assert (await OfKafka(world, 2).fetch(epoch=1)).error_code == errors_pb2.ERROR_CODE_UNKNOWN_LEADER_EPOCH


def served_bytes(world: BrokerWorld, id: int) -> float:
    return world.brokers[BrokerId(id)].metrics.counter(instruments.BYTES_OUT).value


def picture(leader: int, isr: list[int], epoch: int) -> types_pb2.TopicState:
    state = types_pb2.PartitionState(partition=0, leader=leader, leader_epoch=epoch, replicas=[1, 2, 3], isr=isr)
    return types_pb2.TopicState(name="t", topic_id=TOPIC_ID, partitions=[state])


async def test_a_consumer_reads_in_its_rack_and_goes_on_elsewhere_when_that_replica_dies(world: BrokerWorld) -> None:
    """Records come once and in order from first to last, whoever serves them."""
    for id in (1, 2, 3):
        await world.show(id, picture(1, [1, 2, 3], 0))
    for number in range(20):
        await world.produce(1, batch_of(b"%d" % number))
    await committed(world, 20, 2, 3)
    bootstrap = [running.settings.client_listen for running in world.brokers.values()]
    values: list[bytes | None] = []

    async def read_to(count: int) -> None:
        while len(values) < count:
            some = await consumer.read(records_max=count - len(values), timeout_s=DEADLINE_S)
            assert some, f"nothing after {len(values)} records"
            values.extend(record.value for record in some)

    settings = ConsumerSettings(fetch_wait_ms=100, client_rack="b", partition_max_bytes=200)
    async with Consumer(bootstrap, settings=settings) as consumer:
        await consumer.assign("t")
        await read_to(20)
        assert (served_bytes(world, 1), served_bytes(world, 3)) == (0, 0)
        assert served_bytes(world, 2) > 0
        await world.stop(2)
        await world.elect(1, [1, 3], epoch=1, replicas=[1, 2, 3], tell=[1, 3])
        for id in (1, 3):
            await world.show(id, picture(1, [1, 3], 1), version=2)
        for number in range(20, 40):
            await world.produce(1, batch_of(b"%d" % number))
        await read_to(40)
    assert values == [b"%d" % number for number in range(40)]
    assert served_bytes(world, 1) + served_bytes(world, 3) > 0
