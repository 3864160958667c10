"""Keys and values of the application's own kind, ways to send and read that others call so, and public error codes."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client import (
    Consumer,
    ConsumerSettings,
    ErrorCode,
    Producer,
    ProducerSettings,
    RecordDeserializationError,
    RegnumError,
    TopicPartition,
    sync,
)
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.waiting import DEADLINE_S

P0 = TopicPartition("orders", 0)
SENDING = ProducerSettings(key_serializer=str.encode, value_serializer=lambda value: json.dumps(value).encode())
READING = ConsumerSettings(key_deserializer=bytes.decode, value_deserializer=json.loads)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.create("orders")
        yield running


async def test_what_is_sent_is_what_is_read(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap, settings=SENDING) as producer:
        where = await producer.send_and_wait("orders", {"id": 7}, key="seven")
        await producer.send_and_wait("orders", None)
    assert (where.topic, where.partition, where.offset) == ("orders", 0, 0)
    async with Consumer(cluster.bootstrap, settings=READING) as consumer:
        await consumer.assign("orders")
        record = await consumer.getone()
        assert (record.key, record.value) == ("seven", {"id": 7})
        tombstone = await consumer.getone()
        assert (tombstone.key, tombstone.value) == (None, None)
        assert await consumer.getmany() == {}


async def test_what_no_serializer_was_told_of_is_refused_at_once(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap) as producer:
        with pytest.raises(RegnumError, match=r"value is .* give bytes or None") as refused:
            await producer.send_and_wait("orders", {"id": 7})
        assert refused.value.code == ErrorCode.INVALID_CONFIG
    async with Producer(cluster.bootstrap, settings=SENDING) as producer:
        with pytest.raises(TypeError):
            await producer.send("orders", b"bytes are no JSON")
    with pytest.raises(RegnumError, match="give a function or None"):
        ProducerSettings(value_serializer="json")  # type: ignore[arg-type]


async def test_the_consumer_stands_before_what_cannot_be_deserialized(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap) as producer:
        for value in (b"0", b"1", b"no number", b"3"):
            await producer.send_and_wait("orders", value)
    async with Consumer(cluster.bootstrap, settings=ConsumerSettings(value_deserializer=int)) as consumer:
        await consumer.assign("orders")
        some = await consumer.getmany(timeout_ms=DEADLINE_S * 1000, max_records=10)
        values = [record.value for record in some[P0]]
        while len(values) < 2:
            values += [one.value for one in await consumer.read(timeout_s=DEADLINE_S)]
        assert values == [0, 1], "those before it are handed out first"
        for _ in range(2):
            with pytest.raises(RecordDeserializationError, match="the value at offset 2 of orders/0") as failed:
                await consumer.read(timeout_s=DEADLINE_S)
            assert isinstance(failed.value.__cause__, ValueError)
            assert consumer.position(P0) == failed.value.offset == 2, "it is met as often as it is read"
        consumer.seek(failed.value.partition, failed.value.next_offset)
        assert (await consumer.getone()).value == 3


async def test_services_without_asyncio_have_the_same(cluster: FakeCluster) -> None:
    def work() -> tuple[int, object, object]:
        with sync.Producer(cluster.bootstrap, settings=SENDING) as producer:
            where = producer.send_and_wait("orders", [1], key="k", timeout_s=DEADLINE_S)
            producer.send_and_wait("orders", [2], timeout_s=DEADLINE_S)
        with sync.Consumer(cluster.bootstrap, settings=READING) as consumer:
            consumer.assign("orders")
            first = consumer.getone()
            more = consumer.getmany(timeout_ms=DEADLINE_S * 1000)
        return where.offset, (first.key, first.value), [one.value for one in more[P0]]

    assert await asyncio.to_thread(work) == (0, ("k", [1]), [[2]])


async def test_clients_end_by_the_name_of_other_clients(cluster: FakeCluster) -> None:
    producer, consumer = Producer(cluster.bootstrap), Consumer(cluster.bootstrap)
    for client in (producer, consumer):
        await client.start()
        await client.stop()
    with pytest.raises(RegnumError, match="the producer is not open"):
        await producer.send("orders", b"late")


def test_error_codes_are_those_of_the_wire() -> None:
    wire = {name.removeprefix("ERROR_CODE_"): number for name, number in errors_pb2.ErrorCode.items()}
    assert {one.name: one.value for one in ErrorCode} == wire
    error = RegnumError(errors_pb2.ERROR_CODE_NOT_CONTROLLER, "elsewhere")
    assert (error.code == ErrorCode.NOT_CONTROLLER, error.retriable) == (True, True)
    assert not RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, "wrong").retriable
