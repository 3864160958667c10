"""Clients that say of which epoch the last record was that they read (KIP-320), at real brokers."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_client import Consumer, ConsumerSettings, LogTruncationError, TopicPartition
from regnum_testing.batches import batch_of
from regnum_testing.broker_world import TOPIC_ID, BrokerWorld
from regnum_testing.waiting import DEADLINE_S

NONE = errors_pb2.ERROR_CODE_NONE
UNKNOWN = errors_pb2.ERROR_CODE_UNKNOWN_LEADER_EPOCH


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[BrokerWorld]:
    """Broker 1 led in epochs 1 and 3, with records 0 to 3 and 4 to 5; broker 2 never heard of it."""
    made = BrokerWorld(tmp_path)
    await made.begin()
    await made.start(1, 2)
    await made.elect(1, [1], epoch=1)
    await made.produce(1, batch_of(b"0", b"1", b"2", b"3"))
    await made.elect(1, [1], epoch=3)
    await made.produce(1, batch_of(b"4", b"5"))
    yield made
    await made.close()


async def fetch(world: BrokerWorld, offset: int, *, last: int, id: int = 1) -> log_pb2.FetchResult:
    item = log_pb2.FetchPartition(topic="t", partition=0, offset=offset, last_fetched_epoch=last)
    return (await world.log(id).Fetch(log_pb2.FetchRequest(partitions=[item]), timeout=DEADLINE_S)).results[0]


@pytest.mark.parametrize(("offset", "last"), [(0, -1), (2, 1), (4, 1), (5, 3), (6, 3)])
async def test_whoever_read_what_is_there_reads_on(world: BrokerWorld, offset: int, last: int) -> None:
    result = await fetch(world, offset, last=last)
    assert (result.error_code, result.HasField("diverging_epoch")) == (NONE, False)
    assert bool(result.record_batches) == (offset < 6)


@pytest.mark.parametrize(("offset", "last", "epoch", "end"), [(5, 1, 1, 4), (4, 2, 1, 4), (9, 3, 3, 6), (7, 1, 1, 4)])
async def test_whoever_read_other_records_is_told_where_the_log_differs_and_nothing_else(
    world: BrokerWorld, offset: int, last: int, epoch: int, end: int
) -> None:
    result = await fetch(world, offset, last=last)
    assert (result.error_code, result.record_batches, result.high_watermark) == (NONE, b"", 0)
    assert (result.diverging_epoch.epoch, result.diverging_epoch.end_offset) == (epoch, end)


async def stream(world: BrokerWorld, offset: int, *, last: int) -> log_pb2.FetchResult:
    """What the first answer of a stream says."""
    request = log_pb2.ConsumeRequest(topic="t", partition=0, offset=offset, last_fetched_epoch=last)
    async for answer in world.log(1).Consume(request, timeout=DEADLINE_S):
        return answer.result
    raise AssertionError("it ended without a word")


@pytest.mark.parametrize(("offset", "last", "epoch", "end"), [(5, 1, 1, 4), (4, 2, 1, 4), (9, 3, 3, 6), (7, 1, 1, 4)])
async def test_a_stream_tells_whoever_read_other_records_as_a_fetch_does(
    world: BrokerWorld, offset: int, last: int, epoch: int, end: int
) -> None:
    result = await stream(world, offset, last=last)
    assert (result.error_code, result.record_batches, result.high_watermark) == (NONE, b"", 0)
    assert (result.diverging_epoch.epoch, result.diverging_epoch.end_offset) == (epoch, end)
    assert (await stream(world, 5, last=3)).record_batches
    assert (await stream(world, 6, last=4)).error_code == UNKNOWN


async def test_a_stream_ends_with_the_leadership_in_which_it_began_also_where_the_broker_leads_again(
    world: BrokerWorld,
) -> None:
    answers = world.log(1).Consume(log_pb2.ConsumeRequest(topic="t", partition=0, offset=4), timeout=DEADLINE_S)
    results = aiter(answers)
    assert (await anext(results)).result.record_batches
    await world.elect(1, [1], epoch=5)
    await world.produce(1, batch_of(b"6"))
    assert (await anext(results)).result.error_code == errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
    with pytest.raises(StopAsyncIteration):
        await anext(results)
    assert (await stream(world, 6, last=3)).record_batches


async def test_an_epoch_that_never_was_is_refused(world: BrokerWorld) -> None:
    result = await fetch(world, 6, last=4)
    assert (result.error_code, result.record_batches) == (UNKNOWN, b"")


async def ends(world: BrokerWorld, *queries: log_pb2.EpochQuery) -> list[log_pb2.EpochEndResult]:
    request = log_pb2.OffsetForLeaderEpochRequest(queries=queries)
    return list((await world.log(1).OffsetForLeaderEpoch(request, timeout=DEADLINE_S)).results)


async def test_ends_of_epochs_are_told_each_by_itself(world: BrokerWorld) -> None:
    asked = [log_pb2.EpochQuery(topic="t", partition=0, leader_epoch=epoch) for epoch in (0, 1, 2, 3, 4, -1)]
    found = [(one.error_code, one.leader_epoch, one.end_offset) for one in await ends(world, *asked)]
    assert found == [(NONE, 0, 0), (NONE, 1, 4), (NONE, 1, 4), (NONE, 3, 6), (UNKNOWN, -1, -1), (UNKNOWN, -1, -1)]


async def test_ends_of_epochs_are_the_present_leaders_to_tell(world: BrokerWorld) -> None:
    def query(*, topic: str = "t", epoch: int = 3, topic_id: str = "") -> log_pb2.EpochQuery:
        return log_pb2.EpochQuery(topic=topic, topic_id=topic_id, current_leader_epoch=epoch, leader_epoch=1)

    found = await ends(world, query(), query(epoch=2), query(epoch=5), query(topic="u"), query(topic_id="Z" * 22))
    assert [one.error_code for one in found] == [
        NONE,
        errors_pb2.ERROR_CODE_FENCED_LEADER_EPOCH,
        UNKNOWN,
        errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
        errors_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID,
    ]
    assert [bool(one.error_message) and one.HasField("status") for one in found] == [False, True, True, True, True]


def picture(leader: int, epoch: int) -> types_pb2.TopicState:
    state = types_pb2.PartitionState(partition=0, leader=leader, leader_epoch=epoch, replicas=[1, 2], isr=[leader])
    return types_pb2.TopicState(name="t", topic_id=TOPIC_ID, partitions=[state])


async def test_a_consumer_learns_that_an_unclean_election_lost_what_it_read(world: BrokerWorld) -> None:
    partition = TopicPartition("t", 0)
    for id in (1, 2):
        await world.show(id, picture(1, 3))
    settings = ConsumerSettings(fetch_wait_ms=50)
    bootstrap = [running.settings.client_listen for running in world.brokers.values()]
    async with Consumer(bootstrap, settings=settings) as consumer:
        await consumer.assign("t")
        values = [record.value for record in await consumer.read(timeout_s=DEADLINE_S)]
        while len(values) < 6:
            values += [record.value for record in await consumer.read(timeout_s=DEADLINE_S)]
        # Broker 2 has nothing of it, leads all the same, and gets more records than were read.
        await world.elect(2, [2], replicas=[1, 2], epoch=4)
        await world.produce(2, batch_of(*(b"new %d" % number for number in range(9))))
        for id in (1, 2):
            await world.show(id, picture(2, 4), version=2)
        with pytest.raises(LogTruncationError) as caught:
            await consumer.read(timeout_s=DEADLINE_S)
        assert (caught.value.offset, caught.value.divergent_offset) == (6, 0)
        consumer.seek(partition, caught.value.divergent_offset, leader_epoch=caught.value.leader_epoch)
        assert (await consumer.read(timeout_s=DEADLINE_S))[0].value == b"new 0"
