"""No order, no picture and no record holds the broker's loop for long, whatever their number (safety rule S22)."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from regnum.broker.v1 import log_pb2
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import types_pb2
from regnum_broker.servicers.control import PARTITIONS_MAX
from regnum_model.ids import BrokerId, ControllerEpoch, LeaderEpoch, TopicId
from regnum_model.nodes import LeaderAndIsr
from regnum_testing.batches import batch_of
from regnum_testing.broker_world import TOPIC_ID, BrokerWorld
from regnum_testing.held_loop import HeldLoop, run_measured
from regnum_testing.waiting import DEADLINE_S

pytestmark = pytest.mark.alone

CONTROL = "/regnum.replication.v1.ReplicaControlService"
LOG = "/regnum.broker.v1.LogService"
METADATA = "/regnum.metadata.v1.MetadataService"


async def ask(world: BrokerWorld, method: str, request: bytes, *, client: bool = False) -> bytes:
    """A call whose messages stay bytes, so that the caller's share of the loop is small."""
    settings = world.brokers[BrokerId(1)].settings
    channel = world.channel(settings.client_listen if client else settings.internal_listen)
    answer: bytes = await channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)(
        request, timeout=30
    )
    return answer


async def tell(world: BrokerWorld, parts: Sequence[bytes]) -> int:
    """One change of metadata; returns the version that the broker has then."""
    channel = world.channel(world.brokers[BrokerId(1)].settings.internal_listen)
    stream = channel.stream_stream(
        f"{CONTROL}/UpdateMetadata",
        request_serializer=bytes,
        response_deserializer=control_pb2.UpdateMetadataResponse.FromString,
    )(timeout=DEADLINE_S)
    for part in parts:
        await stream.write(part)
    answer = await stream.read()
    stream.cancel()
    assert isinstance(answer, control_pb2.UpdateMetadataResponse)
    return answer.version


async def full_set(world: BrokerWorld, partitions: int) -> list[bytes]:
    """A full set in which broker 1 leads every other partition and broker 2, which is not there, the others."""
    epoch, _ = await world.registration(1)
    member = await world.membership(1)
    items = [
        world.order(
            LeaderAndIsr(
                topic_id=TOPIC_ID,
                leader=BrokerId(1 + number % 2),
                leader_epoch=LeaderEpoch(0),
                isr=(BrokerId(1), BrokerId(2), BrokerId(3)),
                elr=(),
                members=dict.fromkeys((BrokerId(1), BrokerId(2), BrokerId(3)), member),
                controller_epoch=ControllerEpoch(1),
            ),
            0,
            partition=number,
        )
        for number in range(partitions)
    ]
    chunks = [items[start : start + PARTITIONS_MAX] for start in range(0, partitions, PARTITIONS_MAX)]
    return [
        control_pb2.LeaderAndIsrRequest(
            controller_id=1,
            controller_epoch=1,
            broker_epoch=epoch,
            init=True,
            part=part,
            parts=len(chunks),
            partitions=chunk,
            live_leaders=[await world.live(1)],
        ).SerializeToString()
        for part, chunk in enumerate(chunks)
    ]


def picture(topics: Sequence[tuple[str, int]], *, version: int = 1, max_broker_epoch: int) -> list[bytes]:
    """A full picture, in parts of at most 2000 partitions, as the controller sends it."""
    messages: list[list[types_pb2.TopicState]] = [[]]
    room = 2_000
    for name, partitions in topics:
        for start in range(0, partitions, 2_000):
            numbers = range(start, min(start + 2_000, partitions))
            if len(numbers) > room:
                messages.append([])
                room = 2_000
            room -= len(numbers)
            messages[-1].append(
                types_pb2.TopicState(
                    name=name,
                    topic_id=TopicId(name.ljust(22, "x")),
                    partitions=[
                        types_pb2.PartitionState(
                            partition=number, leader=1, leader_epoch=3, isr=[1, 2, 3], replicas=[1, 2, 3], version=4
                        )
                        for number in numbers
                    ],
                )
            )
    return [
        control_pb2.UpdateMetadataRequest(
            controller_id=1,
            controller_epoch=1,
            from_version=0,
            to_version=version,
            parts=len(messages),
            max_broker_epoch=max_broker_epoch,
            cluster_id="c",
            all_brokers=True,
            topics=states,
        ).SerializeToString()
        if part == 0
        else control_pb2.UpdateMetadataRequest(topics=states).SerializeToString()
        for part, states in enumerate(messages)
    ]


def test_orders_of_a_controller(tmp_path: Path) -> None:
    async def scenario(held: HeldLoop) -> None:
        world = BrokerWorld(tmp_path)
        await world.begin()
        await world.start(1)
        parts = await full_set(world, 5_000)
        with held.measuring("full set of 5000 partitions"):
            for part in parts:
                await ask(world, f"{CONTROL}/LeaderAndIsr", part)
        assert len(world.brokers[BrokerId(1)].broker.replicas) == 5_000
        epoch, _ = await world.registration(1)
        stop = control_pb2.StopReplicaRequest(controller_id=1, controller_epoch=1, broker_epoch=epoch)
        stop.partitions.add(topic="t", topic_id=TOPIC_ID, partition=-1, leader_epoch=-2, delete=True)
        with held.measuring("deletion of 5000 replicas"):
            await ask(world, f"{CONTROL}/StopReplica", stop.SerializeToString())
        assert len(world.brokers[BrokerId(1)].broker.replicas) == 0
        await world.close()

    run_measured(scenario).assert_free()


@pytest.mark.parametrize("topics", [[("t", 20_000)], [(f"t{number}", 2) for number in range(10_000)]])
def test_metadata(tmp_path: Path, topics: Sequence[tuple[str, int]]) -> None:
    async def scenario(held: HeldLoop) -> None:
        world = BrokerWorld(tmp_path)
        await world.begin()
        await world.start(1)
        epoch, _ = await world.registration(1)
        parts = picture(topics, max_broker_epoch=epoch)
        with held.measuring("full picture"):
            assert await tell(world, parts) == 1
        with held.measuring("metadata of all topics"):
            await asyncio.gather(*(ask(world, f"{METADATA}/GetMetadata", b"", client=True) for _ in range(3)))
        await world.close()

    run_measured(scenario).assert_free()


def test_records(tmp_path: Path) -> None:
    async def scenario(held: HeldLoop) -> None:
        world = BrokerWorld(tmp_path)
        await world.begin()
        await world.start(1)
        for partition in range(4):
            await world.elect(1, [1], partition=partition)
        batch = batch_of(*[b"x" * 1000] * 512)
        small = batch_of(*[b"x"] * 40_000)
        with held.measuring("produce"):
            for _ in range(4):
                await asyncio.gather(*(ask(world, f"{LOG}/Produce", produced(batch, n), client=True) for n in range(4)))
        with held.measuring("fetch"):
            await asyncio.gather(*(ask(world, f"{LOG}/Fetch", fetched(range(4)), client=True) for _ in range(3)))
        for _ in range(4):
            await ask(world, f"{LOG}/Produce", produced(small, 0), client=True)
        with held.measuring("fetch of single records"):
            fetch = fetched([0], form=log_pb2.RECORD_FORM_RECORDS)
            assert len(await ask(world, f"{LOG}/Fetch", fetch, client=True)) > 1_000_000
        await world.close()

    run_measured(scenario).assert_free()


def produced(batch: bytes, partition: int) -> bytes:
    return log_pb2.ProduceRequest(
        acks=log_pb2.ACKS_ALL,
        timeout_ms=10_000,
        partitions=[log_pb2.ProducePartition(topic="t", partition=partition, record_batch=batch)],
    ).SerializeToString()


def fetched(partitions: Sequence[int], form: log_pb2.RecordForm.ValueType = log_pb2.RECORD_FORM_BATCHES) -> bytes:
    return log_pb2.FetchRequest(
        form=form, partitions=[log_pb2.FetchPartition(topic="t", partition=number) for number in partitions]
    ).SerializeToString()
