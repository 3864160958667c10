"""A client of Kafka that knows nothing of this broker, at its Kafka listener: a cluster in this process."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from regnum.admin.v1 import admin_pb2, admin_pb2_grpc
from regnum_model.nodes import Address
from regnum_testing.every_call import opened
from regnum_testing.every_kind import EveryKind
from regnum_testing.waiting import DEADLINE_S, eventually


class World:
    """The cluster, and a loop that turns while a test waits for it."""

    def __init__(self, runner: asyncio.Runner, cluster: EveryKind) -> None:
        self.runner, self.cluster = runner, cluster

    @property
    def servers(self) -> str:
        return str(self.cluster.kafka)

    def run(self, work: Any) -> Any:
        return self.runner.run(asyncio.wait_for(work, DEADLINE_S))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with asyncio.Runner() as runner:
        cluster = EveryKind(tmp_path_factory.mktemp("kafka"))
        world = World(runner, cluster)
        runner.run(cluster.start())

        async def ready() -> bool:
            try:
                async with admin(world) as client:
                    described = await client.describe_cluster()
            except KafkaError:
                return False
            return described["controller_id"] == 1 and len(described["brokers"]) == 1

        runner.run(eventually(ready, what="the broker knows itself and a controller"))
        runner.run(one_replica(cluster.processes["election"].listeners["client_listen"]))
        yield world
        runner.run(cluster.close())
        for process in cluster.processes.values():
            assert process.supervisor.failure is None


async def one_replica(address: Address) -> None:
    """There is one broker: topics of groups have one replica, too."""
    resource = admin_pb2.ConfigResource(type=admin_pb2.CONFIG_RESOURCE_TYPE_BROKER)
    alteration = admin_pb2.ConfigAlteration(resource=resource)
    alteration.configs.add(name="default.replication.factor", value="1", op=admin_pb2.ALTER_CONFIG_OP_SET)
    async with opened(address) as channel:
        stub: admin_pb2_grpc.AdminServiceAsyncStub = admin_pb2_grpc.AdminServiceStub(channel)
        answer = await stub.IncrementalAlterConfigs(
            admin_pb2.IncrementalAlterConfigsRequest(alterations=[alteration]), timeout=DEADLINE_S
        )
    assert [one.error_code for one in answer.results] == [0]


class admin:  # noqa: N801 - used as a function
    """A client for administration that is closed."""

    def __init__(self, world: World) -> None:
        self.client = AIOKafkaAdminClient(bootstrap_servers=world.servers)

    async def __aenter__(self) -> AIOKafkaAdminClient:
        await self.client.start()
        return self.client

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()


async def made(world: World, name: str, partitions: int = 1) -> None:
    async with admin(world) as client:
        answer = await client.create_topics([NewTopic(name, partitions, 1)])
        assert [error[1] for error in answer.topic_errors] == [0]


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
