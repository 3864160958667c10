"""Calls of a broker with input of their own, at its largest (safety rule S22); see ``docs/largest_inputs.md``."""

import asyncio
from pathlib import Path

import pytest
from regnum.broker.v1 import log_pb2
from regnum.metadata.v1 import metadata_pb2
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_broker.cluster.fence import Fence
from regnum_broker.identity import Identity
from regnum_broker.servicers.replica_logs import QUERIES_MAX
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_model.ids import BrokerEpoch, BrokerId, Registration
from regnum_service.topic_pages import NAMES_MAX
from regnum_testing.batches import batch_of
from regnum_testing.broker_world import TOPIC_ID, BrokerWorld
from regnum_testing.held_loop import HeldLoop, run_measured

pytestmark = pytest.mark.alone

PARTITIONS = 200


async def ask(world: BrokerWorld, method: str, request: bytes, *, client: bool) -> bytes:
    """A call whose messages stay bytes, so that the caller's share of the loop is small."""
    settings = world.brokers[BrokerId(1)].settings
    channel = world.channel(settings.client_listen if client else settings.internal_listen)
    answer: bytes = await channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)(
        request, timeout=60
    )
    return answer


def test_a_controller_asks_about_the_logs_of_a_thousand_replicas(tmp_path: Path) -> None:
    async def scenario(held: HeldLoop) -> None:
        world = BrokerWorld(tmp_path)
        await world.begin()
        await world.start(1)
        for number in range(PARTITIONS):
            await world.elect(1, [1], partition=number)
        epoch, _ = await world.registration(1)
        request = control_pb2.GetReplicaLogInfoRequest(
            controller_id=1,
            controller_epoch=1,
            broker_epoch=epoch,
            queries=[
                control_pb2.ReplicaLogQuery(topic_id=TOPIC_ID, partition=number % PARTITIONS)
                for number in range(QUERIES_MAX)
            ],
        ).SerializeToString()
        with held.measuring("GetReplicaLogInfo"):
            answer = await ask(
                world, "/regnum.replication.v1.ReplicaControlService/GetReplicaLogInfo", request, client=False
            )
        with held.measuring("DescribeBrokerSettings"):
            shown = await ask(
                world,
                "/regnum.replication.v1.ReplicaControlService/DescribeBrokerSettings",
                control_pb2.DescribeBrokerSettingsRequest(controller_epoch=1, broker_epoch=epoch).SerializeToString(),
                client=False,
            )
        assert len(control_pb2.DescribeBrokerSettingsResponse.FromString(shown).settings) > 30
        replicas = control_pb2.GetReplicaLogInfoResponse.FromString(answer).replicas
        assert [one.error_code for one in replicas] == [errors_pb2.ERROR_CODE_NONE] * QUERIES_MAX
        await world.close()

    run_measured(scenario).assert_free()


def test_a_partition_is_streamed_and_topics_are_asked_for_by_name(tmp_path: Path) -> None:
    named = metadata_pb2.GetMetadataRequest(topics=[f"topic-{number:014}" for number in range(NAMES_MAX)])
    asked = named.SerializeToString()
    small = batch_of(*[b"x"] * 40_000)
    produced = log_pb2.ProduceRequest(
        acks=log_pb2.ACKS_ALL,
        timeout_ms=10_000,
        partitions=[log_pb2.ProducePartition(topic="t", partition=0, record_batch=small)],
    ).SerializeToString()
    consumed = log_pb2.ConsumeRequest(topic="t", partition=0, form=log_pb2.RECORD_FORM_RECORDS).SerializeToString()

    async def scenario(held: HeldLoop) -> None:
        world = BrokerWorld(tmp_path)
        await world.begin()
        await world.start(1)
        await world.elect(1, [1], partition=0)
        for _ in range(4):
            await ask(world, "/regnum.broker.v1.LogService/Produce", produced, client=True)
        channel = world.channel(world.brokers[BrokerId(1)].settings.client_listen)
        stream = channel.unary_stream(
            "/regnum.broker.v1.LogService/Consume", request_serializer=bytes, response_deserializer=bytes
        )(consumed, timeout=60)
        with held.measuring("Consume, record by record"):
            size = 0
            while size < 1_000_000:
                part = await stream.read()
                assert isinstance(part, bytes)
                size += len(part)
        stream.cancel()
        with held.measuring("GetMetadata by names"):
            answer = await ask(world, "/regnum.metadata.v1.MetadataService/GetMetadata", asked, client=True)
        assert len(answer) > len(asked)
        await world.close()

    run_measured(scenario).assert_free()


@pytest.mark.parametrize("count", [70_000, pytest.param(200_000, marks=pytest.mark.full)])
def test_a_full_picture_of_many_topics_replaces_another(count: int) -> None:
    per_part = 1_000

    def parts(epoch: int, *, of: int) -> list[bytes]:
        """A full picture, in messages."""
        heads = [
            control_pb2.UpdateMetadataRequest(
                controller_epoch=epoch, to_version=1, parts=of // per_part, max_broker_epoch=10, all_brokers=True
            )
        ]
        heads += [control_pb2.UpdateMetadataRequest() for _ in range(of // per_part - 1)]
        for part, message in enumerate(heads):
            message.topics.extend(
                types_pb2.TopicState(
                    name=f"topic-{number:06}",
                    topic_id=f"{number:022}",
                    partitions=[types_pb2.PartitionState(leader=1, leader_epoch=epoch, isr=[1, 2], replicas=[1, 2])],
                )
                for number in range(part * per_part, (part + 1) * per_part)
            )
        return [message.SerializeToString() for message in heads]

    pictures = [parts(1, of=count), parts(2, of=count), parts(3, of=per_part)]

    async def scenario(held: HeldLoop) -> None:
        fence = Fence()
        fence.registered(Identity(broker_epoch=BrokerEpoch(10), registration=Registration(0)))
        cache = MetadataCache(fence, lambda _: None)
        for epoch, messages in enumerate(pictures, 1):
            with held.measuring(f"full picture of epoch {epoch}"):
                kept: list[control_pb2.UpdateMetadataRequest] = []
                answer = None
                for message in messages:
                    # One turn of the loop for each message, as when it comes from the network: what reads it is not
                    # measured together with what takes it up.
                    await asyncio.sleep(0)
                    answer = await cache.take(control_pb2.UpdateMetadataRequest.FromString(message), kept)
                assert answer is not None
                assert (answer.version_epoch, answer.error_code) == (epoch, errors_pb2.ERROR_CODE_NONE)
        assert len(cache.topics) == per_part

    run_measured(scenario).assert_free()
