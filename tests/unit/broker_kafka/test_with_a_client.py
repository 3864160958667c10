"""A client of Kafka that knows nothing of this broker, at its Kafka listener: a cluster in this process."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiokafka
import pytest
from aiokafka.admin import NewTopic
from regnum_testing.kafka_world import KafkaWorld as World
from regnum_testing.kafka_world import admin, kafka_world, made


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with kafka_world(tmp_path_factory.mktemp("kafka")) as world:
        yield world


async def records(world: World, topic: str, count: int, **settings: Any) -> AsyncIterator[aiokafka.ConsumerRecord]:
    consumer = aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=world.servers, auto_offset_reset="earliest", **settings
    )
    await consumer.start()
    try:
        for _ in range(count):
            yield await consumer.getone()
    finally:
        await consumer.stop()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_of_an_idempotent_producer_are_read_in_their_order(world: World, codec: str | None) -> None:
    topic, values = f"codec-{codec}", [b"v%d" % number for number in range(200)]

    async def work() -> list[bytes]:
        await made(world, topic)
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=world.servers, enable_idempotence=True, compression_type=codec
        )
        await producer.start()
        try:
            for sent in [await producer.send(topic, value, key=b"k") for value in values]:
                await sent
        finally:
            await producer.stop()
        return [one.value async for one in records(world, topic, len(values))]

    assert world.run(work()) == values


def test_a_group_goes_on_where_it_has_committed(world: World) -> None:
    async def work() -> list[int]:
        await made(world, "grouped", 2)
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=world.servers)
        await producer.start()
        for number in range(20):
            await producer.send_and_wait("grouped", b"%d" % number, partition=number % 2)
        await producer.stop()
        seen: list[int] = []
        for _ in range(2):
            consumer = aiokafka.AIOKafkaConsumer(
                "grouped",
                bootstrap_servers=world.servers,
                group_id="g",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            await consumer.start()
            for _ in range(10):
                one = await consumer.getone()
                seen.append(int(one.value))
                await consumer.commit({aiokafka.TopicPartition(one.topic, one.partition): one.offset + 1})
            await consumer.stop()
        return sorted(seen)

    assert world.run(work()) == list(range(20))


def test_offsets_are_told_by_place_and_by_time(world: World) -> None:
    async def work() -> tuple[Any, ...]:
        await made(world, "timed")
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=world.servers)
        await producer.start()
        for number in range(5):
            await producer.send_and_wait("timed", b"v", partition=0, timestamp_ms=1_000 * (number + 1))
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=world.servers)
        await consumer.start()
        place = aiokafka.TopicPartition("timed", 0)
        found = await consumer.offsets_for_times({place: 2_500})
        ends = await consumer.end_offsets([place])
        begins = await consumer.beginning_offsets([place])
        await consumer.stop()
        return begins[place], ends[place], found[place].offset, found[place].timestamp

    assert world.run(work()) == (0, 5, 2, 3_000)


def test_topics_are_refused_deleted_and_gone(world: World) -> None:
    async def work() -> tuple[int, set[str], set[str]]:
        await made(world, "short-lived")
        async with admin(world) as client:
            again = await client.create_topics([NewTopic("short-lived", 1, 1)])
            before = set(await client.list_topics())
            await client.delete_topics(["short-lived"])
            return again.topic_errors[0][1], before, set(await client.list_topics())

    code, before, after = world.run(work())
    assert code == 36, "TOPIC_ALREADY_EXISTS"
    assert before - after == {"short-lived"}


def test_a_topic_is_made_where_a_client_asks_for_it_and_lets_it_be_made(world: World) -> None:
    async def work() -> tuple[list[bytes | None], set[str]]:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=world.servers) as producer:
            await producer.send_and_wait("made-by-asking", b"first")
        found = [record.value async for record in records(world, "made-by-asking", 1)]
        async with admin(world) as client:
            return found, set(await client.list_topics())

    found, topics = world.run(work())
    assert found == [b"first"]
    assert "made-by-asking" in topics
