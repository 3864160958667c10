"""A client of Kafka that knows nothing of this broker, at its Kafka listener: a cluster in this process."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import aiokafka
import pytest
import regnum_client
from aiokafka.admin import NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from regnum.types.v1 import errors_pb2
from regnum_bench.kafka_frames import KafkaConnection
from regnum_bench.waiting import MeasureError
from regnum_testing.batches import batch_of, values_of
from regnum_testing.kafka_world import KafkaWorld as World
from regnum_testing.kafka_world import admin, made
from regnum_testing.kafka_world import asked as answer_to
from regnum_testing.waiting import eventually


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


def test_the_client_of_the_benchmarks_writes_and_reads_what_it_says(world: World) -> None:
    batches = [batch_of(b"%d" % number) for number in range(3)]

    async def work() -> tuple[list[bytes | None], int]:
        await made(world, "measured")
        connection = await KafkaConnection.open(world.cluster.kafka)
        try:
            await asyncio.gather(*(connection.produce("measured", 0, batch) for batch in batches))
            with pytest.raises(MeasureError):
                await connection.produce("measured", 1, batches[0])
            found, end = await connection.fetch("measured", 0, 1, 1 << 20)
            return list(values_of(bytes(found))), end
        finally:
            await connection.close()

    assert world.run(work()) == ([b"1", b"2"], 3)


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


def test_offsets_are_committed_and_told_by_topic_id(world: World) -> None:
    world.run(made(world, "by-id", 2))
    how = {"include_cluster_authorized_operations": False, "include_topic_authorized_operations": False}
    topic = {"name": "by-id", "topic_id": None}
    asked = world.ask("metadata", 12, topics=[topic], allow_auto_topic_creation=False, **how)
    id, other = asked.topics[0].topic_id, uuid.UUID(int=7)

    def commit(offset: int) -> list[list[int]]:
        place = {"committed_offset": offset, "committed_metadata": "", "committed_leader_epoch": -1}
        partitions = [{"partition_index": 1, **place}]
        answer = world.ask(
            "offset_commit",
            10,
            group_id="by-id",
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[{"topic_id": one, "partitions": partitions} for one in (other, id)],
        )
        assert [one.topic_id for one in answer.topics] == [other, id]
        return [[int(place.error_code) for place in one.partitions] for one in answer.topics]

    async def coordinated() -> bool:
        found = await answer_to(
            world.cluster.kafka, "find_coordinator", 4, {"key_type": 0, "coordinator_keys": ["by-id"]}
        )
        fields = {"groups": ["by-id"], "include_authorized_operations": False}
        described = await answer_to(world.cluster.kafka, "describe_groups", 5, fields)
        return int(found.coordinators[0].error_code) == int(described.groups[0].error_code) == 0

    world.run(eventually(coordinated, what="the group has a coordinator that has read it"))
    unknown = errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID
    assert commit(3) == [[unknown], [0]]

    def fetched(topics: Any) -> Any:
        group = {"group_id": "by-id", "member_id": None, "member_epoch": -1, "topics": topics}
        (found,) = world.ask("offset_fetch", 10, groups=[group], require_stable=False).groups
        assert int(found.error_code) == 0
        return {
            one.topic_id: [
                (place.partition_index, place.committed_offset, int(place.error_code)) for place in one.partitions
            ]
            for one in found.topics
        }

    wanted = [{"topic_id": one, "partition_indexes": [0, 1]} for one in (id, other)]
    assert fetched(wanted) == {id: [(0, -1, 0), (1, 3, 0)], other: [(0, -1, unknown), (1, -1, unknown)]}
    assert fetched(None) == {id: [(1, 3, 0)]}


def test_records_have_the_time_of_their_append_where_the_topic_wants_it(world: World) -> None:
    async def work() -> tuple[Any, ...]:
        async with admin(world) as client:
            settings = {"message.timestamp.type": "LogAppendTime"}
            answer = await client.create_topics([NewTopic("stamped", 1, 1, topic_configs=settings)])
            assert [error[1] for error in answer.topic_errors] == [0]
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=world.servers) as producer:
            told = await producer.send_and_wait("stamped", b"v", partition=0, timestamp_ms=1_000)
        (read,) = [one async for one in records(world, "stamped", 1)]
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=world.servers)
        await consumer.start()
        place = aiokafka.TopicPartition("stamped", 0)
        at, after = [(await consumer.offsets_for_times({place: when}))[place] for when in (read.timestamp, 2**50)]
        await consumer.stop()
        return told, read, at, after

    told, read, at, after = world.run(work())
    assert read.timestamp > 1_600_000_000_000, "and not the producer's"
    assert (read.timestamp_type, told.timestamp_type, told.timestamp) == (1, 1, read.timestamp)
    assert ((at.offset, at.timestamp), after) == ((0, read.timestamp), None)


def test_the_sdk_tells_the_time_of_an_append_too(world: World) -> None:
    async def work() -> tuple[Any, Any]:
        async with admin(world) as client:
            settings = {"message.timestamp.type": "LogAppendTime"}
            await client.create_topics([NewTopic("stamped-too", 1, 1, topic_configs=settings)])
        address = str(world.cluster.processes["broker"].listeners["client_listen"])
        async with regnum_client.Producer(address) as producer:
            told = await producer.send_and_wait("stamped-too", b"v", partition=0, timestamp_ms=1_000)
        async with regnum_client.Consumer(address) as consumer:
            await consumer.assign("stamped-too")
            await consumer.seek_to_beginning()
            return told, await consumer.getone()

    told, read = world.run(work())
    assert told.timestamp_ms == read.timestamp_ms > 1_600_000_000_000


def test_an_admin_client_grows_alters_cuts_and_describes(world: World) -> None:
    place = aiokafka.TopicPartition("administered", 0)

    async def work() -> tuple[Any, ...]:
        await made(world, "administered")
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=world.servers) as producer:
            for _ in range(3):
                await producer.send_and_wait("administered", b"v", partition=0)
        async for _ in records(world, "administered", 3, group_id="administrators"):
            pass
        async with admin(world) as client:
            grown = await client.create_partitions({"administered": NewPartitions(2)})
            resource = ConfigResource(ConfigResourceType.TOPIC, "administered", {"retention.ms": "60001"})
            altered = await client.alter_configs([resource])
            (described,) = await client.describe_configs([resource])
            cut = await client.delete_records({place: RecordsToDelete(2)})
            groups = {name for name, *_ in await client.list_consumer_groups()}
            (group,) = await client.describe_consumer_groups(["administrators"])
        return grown, altered, described, cut, groups, group

    grown, altered, described, cut, groups, group = world.run(work())
    assert [error for _, error, *_ in grown.topic_errors] == [0]
    assert [error for error, *_ in altered[0].resources] == [0]
    assert [(name, value) for name, value, *_ in described.resources[0][4]] == [("retention.ms", "60001")]
    assert cut == {place: 2}
    assert "administrators" in groups
    assert [(error, name, state) for error, name, state, *_ in group.groups] == [(0, "administrators", "Empty")]
