"""Without metadata processes a failover is seen all the same, and a refusal says who leads."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from google.rpc import error_details_pb2
from regnum.broker.v1 import log_pb2
from regnum.metadata.v1 import metadata_pb2, metadata_pb2_grpc
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_model.ids import BrokerId
from regnum_service.errors import reason_of
from regnum_testing.batches import batch_of
from regnum_testing.broker_world import TOPIC_ID, BrokerWorld
from regnum_testing.waiting import DEADLINE_S, eventually, within

NOT_LEADER = errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[BrokerWorld]:
    made = BrokerWorld(tmp_path)
    await made.begin()
    await made.start(1, 2, 3)
    await made.elect(1, [1, 2])
    yield made
    await made.close()


def picture(leader: int, epoch: int, *, topic_id: str = TOPIC_ID) -> types_pb2.TopicState:
    state = types_pb2.PartitionState(partition=0, leader=leader, leader_epoch=epoch, replicas=[1, 2], isr=[1, 2])
    return types_pb2.TopicState(name="t", topic_id=topic_id, partitions=[state])


async def seen(world: BrokerWorld, id: int) -> tuple[int, int, list[int]]:
    """Leader, leader epoch and ISR of t-0, as a broker tells clients."""
    stub = metadata_pb2_grpc.MetadataServiceStub(world.channel(world.brokers[BrokerId(id)].settings.client_listen))
    answer = await stub.GetMetadata(metadata_pb2.GetMetadataRequest(topics=["t"]), timeout=DEADLINE_S)
    (state,) = answer.topics[0].topic.partitions
    return state.leader, state.leader_epoch, list(state.isr)


def named(result: log_pb2.ProduceResult | log_pb2.FetchResult | log_pb2.OffsetResult) -> tuple[int, int, str] | None:
    """Whom a refusal names; the facts of its status are the same, for clients that read nothing else."""
    assert result.HasField("status") == (result.error_code != errors_pb2.ERROR_CODE_NONE)
    facts: dict[str, str] = {}
    if result.HasField("status"):
        info = error_details_pb2.ErrorInfo()
        assert result.status.details[0].Unpack(info)
        assert (info.reason, result.status.message) == (reason_of(result.error_code), result.error_message)
        facts = dict(info.metadata)
    leader = result.current_leader
    if not result.HasField("current_leader"):
        assert not facts
        return None
    address = f"{leader.client.host}:{leader.client.port}"
    assert facts == {
        "leader_id": str(leader.leader),
        "leader_epoch": str(leader.leader_epoch),
        "leader_address": address,
    }
    return leader.leader, leader.leader_epoch, address


async def test_brokers_with_a_replica_tell_of_a_failover_that_no_metadata_process_told_them(
    world: BrokerWorld,
) -> None:
    for id in (1, 2, 3):
        await world.show(id, picture(1, 0))
    await world.elect(2, [2], replicas=[1, 2], epoch=1)
    assert (await seen(world, 1))[:2] == (await seen(world, 2))[:2] == (2, 1)
    assert (await seen(world, 3))[:2] == (1, 0)


async def test_what_was_ordered_yields_to_metadata_of_the_same_or_a_later_epoch(world: BrokerWorld) -> None:
    await world.elect(2, [1, 2], epoch=2)
    await world.show(1, picture(1, 0), version=1)
    assert (await seen(world, 1))[:2] == (2, 2)
    await world.show(1, picture(1, 1), version=2)
    assert (await seen(world, 1))[:2] == (2, 2)
    await world.show(1, picture(7, 2), version=3)
    assert (await seen(world, 1))[:2] == (7, 2)
    await world.show(1, picture(1, 3), version=4)
    assert (await seen(world, 1))[:2] == (1, 3)


async def test_an_order_for_another_life_of_the_topic_changes_nothing(world: BrokerWorld) -> None:
    await world.elect(2, [1, 2], epoch=5)
    await world.show(1, picture(1, 0, topic_id="U" * 22))
    assert await seen(world, 1) == (1, 0, [1, 2])
    assert named(await world.produce(1, batch_of(b"a"))) is None


async def test_every_refusal_that_sends_away_names_the_leader(world: BrokerWorld) -> None:
    for id in (1, 3):
        await world.show(id, picture(1, 0))
    await world.elect(2, [1, 2], epoch=1)
    at_2 = (2, 1, world.brokers[BrokerId(2)].settings.client_listen)
    at_1 = (1, 0, world.brokers[BrokerId(1)].settings.client_listen)

    fetch = log_pb2.FetchRequest(partitions=[log_pb2.FetchPartition(topic="t", partition=0)])
    fenced = log_pb2.FetchRequest(partitions=[log_pb2.FetchPartition(topic="t", partition=0, current_leader_epoch=0)])
    offsets = log_pb2.ListOffsetsRequest(
        queries=[log_pb2.OffsetQuery(topic="t", partition=0, latest=log_pb2.LatestOffset())]
    )
    stream = world.log(1).Consume(log_pb2.ConsumeRequest(topic="t", partition=0))
    assert named(await world.produce(1, batch_of(b"a"))) == at_2
    assert named((await world.log(1).Fetch(fetch, timeout=DEADLINE_S)).results[0]) == at_2
    assert named((await world.log(1).Fetch(fenced, timeout=DEADLINE_S)).results[0]) == at_2
    assert named((await world.log(1).ListOffsets(offsets, timeout=DEADLINE_S)).results[0]) == at_2
    assert [named(answer.result) async for answer in stream] == [at_2]
    assert named(await world.produce(3, batch_of(b"a"))) == at_1


async def test_a_leader_deposed_while_it_waits_names_the_next(world: BrokerWorld) -> None:
    await world.show(1, picture(1, 0))
    await world.elect(1, [1, 2], epoch=1, tell=[1])
    waiting = asyncio.create_task(world.produce(1, batch_of(b"a")))
    leader = world.brokers[BrokerId(1)].partition()

    async def waits() -> bool:
        return len(leader.acks) == 1

    await eventually(waits)
    await world.elect(2, [1, 2], epoch=2)
    result = await within(waiting)
    assert result.error_code == errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND
    named_id_and_epoch = named(result)
    # Between the end of the old role and the new one nobody is named; then the next leader is.
    assert named_id_and_epoch is None or named_id_and_epoch[:2] == (2, 2)
    again = await world.produce(1, batch_of(b"a"))
    assert named(again) == (2, 2, world.brokers[BrokerId(2)].settings.client_listen)


async def test_a_broker_that_the_picture_names_and_nobody_told_names_nobody(world: BrokerWorld) -> None:
    """It would send its callers to itself."""
    await world.show(3, picture(3, 0))
    result = await world.produce(3, batch_of(b"a"))
    assert (result.error_code, named(result)) == (NOT_LEADER, None)
