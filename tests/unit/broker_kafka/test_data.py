"""Fetch between Kafka's messages and the handler's: what an answer of a session says, whatever the handler answers."""

import random
from types import SimpleNamespace
from typing import Any

import pytest
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_broker.kafka.addresses import Addresses
from regnum_broker.kafka.context import Context
from regnum_broker.kafka.data import Data
from regnum_broker.kafka.fetch_sessions import ConnectionSession, Sessions
from regnum_broker.serving.fetching.requests import FetchRequest, FetchResponse, FetchResult, ReadFrom
from regnum_broker.serving.produce_requests import ProduceRequest, ProduceResponse, ProduceResult
from regnum_kafka_wire.frames import Head
from regnum_kafka_wire.gen import fetch_request as asked
from regnum_kafka_wire.gen import fetch_response as kafka
from regnum_kafka_wire.gen import produce_request as sent
from regnum_model.ids import id_of_bytes
from regnum_service.errors import RegnumError
from regnum_service.limits.call import Call
from regnum_testing.clock import FakeClock

TOPIC_ID, EARLIER_ID = (bytes([number] * 16) for number in (1, 2))


class Log:
    """Answers Fetch as a test says; partitions of which nothing is said have no news."""

    def __init__(self) -> None:
        self.asked: list[FetchRequest] = []
        self.says: dict[int, dict[str, Any]] = {}
        self.batches: dict[int, bytes] = {}
        self.throttle_ms = 0
        self.error: RegnumError | None = None

    async def produce(self, request: ProduceRequest, _call: Call) -> ProduceResponse:
        """As a broker on which the topic has the id TOPIC_ID by now."""
        results = []
        for item in request.partitions:
            inconsistent = item.topic_id not in {"", id_of_bytes(TOPIC_ID)}
            code = errors_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID if inconsistent else errors_pb2.ERROR_CODE_NONE
            results.append(ProduceResult(item.topic, item.partition, code))
        return ProduceResponse(results)

    async def fetch(self, request: FetchRequest, _call: Call) -> FetchResponse:
        self.asked.append(request)
        if self.error is not None:
            raise self.error
        results = []
        for item in request.partitions:
            result = FetchResult(item.topic, item.partition, item.content, high_watermark=5)
            for name, value in self.says.get(item.partition, {}).items():
                setattr(result, name, value)
            item.content.put(self.batches.get(item.partition, b""))
            results.append(result)
        return FetchResponse(results, self.throttle_ms)


class World:
    def __init__(self) -> None:
        self.log, self.clock = Log(), FakeClock()
        self.followed: set[int] = set()
        # The picture of the metadata is behind.
        near = types_pb2.Broker(id=2, rack="near", kafka=types_pb2.Endpoint(host="b", port=2))
        names: Any = SimpleNamespace(names_by_id={id_of_bytes(EARLIER_ID): "t"}, brokers=[near])
        self.brokers: list[types_pb2.Broker] = names.brokers
        self.names: dict[str, str] = names.names_by_id
        log: Any = self.log
        self.data = Data(log=log, addresses=Addresses(names), follows=lambda _, number: number in self.followed)
        self.session = ConnectionSession(Sessions(), random.Random(1))

    async def fetch(self, epoch: int, *partitions: int, **changed: Any) -> kafka.FetchResponse:
        head = Head(key=1, version=11, correlation_id=1, client_id="c", end=0)
        context = Context(Call(peer="ipv4:10.0.0.1:1"), head, self.session, self.clock)
        places = [asked.FetchPartition(partition=number, partition_max_bytes=7) for number in partitions]
        topics = [asked.FetchTopic(topic="t", partitions=places)] if places else []
        how = {"max_wait_ms": 300, "min_bytes": 2, "max_bytes": 9, "rack_id": "near", **changed}
        return await self.data.fetch(
            asked.FetchRequest(session_id=self.session.id, session_epoch=epoch, topics=topics, **how), context
        )


@pytest.fixture
def world() -> World:
    return World()


def named(answer: kafka.FetchResponse) -> list[int]:
    return [one.partition_index for topic in answer.responses for one in topic.partitions]


async def test_what_a_consumer_waits_for_is_what_the_handler_is_asked_for(world: World) -> None:
    await world.fetch(0, 0, 1)
    await world.fetch(1, max_wait_ms=60_000, min_bytes=1_000, max_bytes=2**31 - 1)
    first, second = world.log.asked
    assert (first.max_wait_ms, first.min_bytes, first.max_bytes, first.client_rack) == (300, 2, 9, "near")
    assert [(item.partition, item.max_bytes) for item in second.partitions] == [(0, 7), (1, 7)]
    assert (second.max_wait_ms, second.min_bytes) == (60_000, 1_000)


async def test_a_consumer_with_a_rack_is_sent_to_a_replica_and_read_to_by_it(world: World) -> None:
    world.followed = {1}
    await world.fetch(-1, 0, 1)
    await world.fetch(-1, 0, 1, rack_id="")
    with_rack, without = ([item.read_from for item in one.partitions] for one in world.log.asked)
    assert with_rack == [ReadFrom.NEAREST, ReadFrom.ANY_REPLICA]
    assert without == [ReadFrom.LEADER] * 2


async def test_nobody_is_sent_to_a_rack_where_a_broker_has_no_such_listener(world: World) -> None:
    """Clients are not told of it, so they would come back, and be sent there again."""
    world.brokers.append(types_pb2.Broker(id=3, rack="near"))
    await world.fetch(-1, 0)
    world.brokers[-1].rack = "far"
    await world.fetch(-1, 0)
    read_from = [one.partitions[0].read_from for one in world.log.asked]
    assert read_from == [ReadFrom.LEADER, ReadFrom.NEAREST]


async def test_an_incremental_answer_says_where_to_read_instead_each_time(world: World) -> None:
    assert named(await world.fetch(0, 0, 1)) == [0, 1]
    assert named(await world.fetch(1)) == [], "nothing is new"
    world.log.says = {1: {"preferred_read_replica": 2}}
    for epoch in (2, 3):
        answer = await world.fetch(epoch)
        assert named(answer) == [1]
        assert answer.responses[0].partitions[0].preferred_read_replica == 2


async def test_an_incremental_answer_says_what_is_wrong_and_that_it_is_no_more(world: World) -> None:
    await world.fetch(0, 0, 1)
    world.log.says = {0: {"error_code": errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER}}
    for epoch in (1, 2):
        assert named(await world.fetch(epoch)) == [0]
    world.log.says = {}
    assert named(await world.fetch(3)) == [0], "its high watermark is known again"
    assert named(await world.fetch(4)) == []


async def test_a_throttled_fetch_keeps_its_session(world: World) -> None:
    id = (await world.fetch(0, 0, 1)).session_id
    world.log.throttle_ms = 700
    throttled = await world.fetch(1)
    assert (throttled.session_id, throttled.throttle_time_ms, named(throttled)) == (id, 700, [])
    world.log.throttle_ms, world.log.batches = 0, {1: b"records"}
    answer = await world.fetch(2)
    assert (answer.error_code, answer.session_id, named(answer)) == (0, id, [1])


@pytest.mark.parametrize("epoch", [0, 1])
async def test_a_fetch_that_is_made_again_for_want_of_room_is_one_of_its_session(world: World, epoch: int) -> None:
    if epoch:
        await world.fetch(0, 0)
    world.log.error = RegnumError(errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED, "no room")
    for _ in range(2):
        with pytest.raises(RegnumError):
            await world.fetch(epoch, 1)
    world.log.error = None
    answer = await world.fetch(epoch, 1)
    assert (answer.error_code, named(answer)) == (0, [1])
    assert (await world.fetch(epoch + 1)).error_code == 0
    assert (await world.fetch(epoch + 1)).error_code == errors_pb2.ERROR_CODE_INVALID_FETCH_SESSION_EPOCH


async def test_a_fetch_of_more_partitions_than_one_may_have_asks_for_none(world: World) -> None:
    with pytest.raises(RegnumError) as caught:
        await world.fetch(0, *range(10_001))
    assert caught.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert not world.log.asked


async def test_what_is_produced_to_an_id_goes_to_no_other_topic_of_that_name(world: World) -> None:
    async def produced(id: bytes) -> int:
        head = Head(key=0, version=13, correlation_id=1, client_id="c", end=0)
        context = Context(Call(peer="ipv4:10.0.0.1:1"), head, world.session, world.clock)
        places = [sent.PartitionProduceData(index=0, records=b"batch")]
        request = sent.ProduceRequest(acks=-1, topic_data=[sent.TopicProduceData(topic_id=id, partition_data=places)])
        answer = await world.data.produce(request, context)
        assert answer is not None
        assert answer.responses[0].topic_id == id
        return answer.responses[0].partition_responses[0].error_code

    assert await produced(EARLIER_ID) == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID
    assert await produced(TOPIC_ID) == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID, "not heard of yet"
    world.names[id_of_bytes(TOPIC_ID)] = "t"
    assert await produced(TOPIC_ID) == errors_pb2.ERROR_CODE_NONE


async def test_records_are_handed_on_and_the_request_that_brought_them_is_free(world: World) -> None:
    frame = bytearray(b"head" + b"batch")
    head = Head(key=0, version=9, correlation_id=1, client_id="c", end=0)
    context = Context(Call(peer="ipv4:10.0.0.1:1"), head, world.session, world.clock, size_bytes=9)
    with memoryview(frame) as whole, whole[4:] as records:
        places = [sent.PartitionProduceData(index=0, records=records)]
        request = sent.ProduceRequest(acks=-1, topic_data=[sent.TopicProduceData(name="t", partition_data=places)])
        handed_on = (await world.data.to_produce(request, context)).request
    # (To make it shorter is refused while anything looks into it.)
    frame.clear()
    assert [item.record_batch for item in handed_on.partitions] == [b"batch"]
    assert handed_on.size_bytes == 9, "quotas count what came"


async def test_batches_are_sent_as_the_log_gave_them(world: World) -> None:
    world.log.batches = {0: b"the batches of a log"}
    answer = await world.fetch(-1, 0)
    assert answer.responses[0].partitions[0].records is world.log.batches[0]
