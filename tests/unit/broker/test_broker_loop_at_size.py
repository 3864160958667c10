"""The largest input of every call that names partitions holds the loop no longer than any (safety rule S22)."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from regnum.broker.v1 import figures_pb2, log_pb2
from regnum.replication.v1 import control_pb2, replication_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.servicers.control import PARTITIONS_MAX as ORDERED_MAX
from regnum_broker.servicers.produce_stream import TOGETHER_MAX
from regnum_broker.servicers.replication import QUERIES_MAX
from regnum_broker.serving.fetching.admission import PARTITIONS_MAX as FETCHED_MAX
from regnum_broker.serving.produce_requests import PARTITIONS_MAX as PRODUCED_MAX
from regnum_model.ids import BrokerId, ControllerEpoch, LeaderEpoch
from regnum_model.nodes import LeaderAndIsr
from regnum_testing.batches import batch_of
from regnum_testing.broker_world import TOPIC_ID, BrokerWorld
from regnum_testing.held_loop import HeldLoop, run_measured
from regnum_testing.waiting import DEADLINE_S, eventually, within

pytestmark = pytest.mark.alone

PARTITIONS = 10_000
REPLICATION = "/regnum.replication.v1.ReplicationService"
LOG = "/regnum.broker.v1.LogService"
FIGURES = "/regnum.broker.v1.FiguresService/DescribeFigures"
NO_PARTITIONS_BYTES = len(replication_pb2.FetchReplicaResponse(requests_taken=1 << 60).SerializeToString())
"""An answer to a follower that names partitions is longer."""


async def led(world: BrokerWorld, *, leader: int, isr: Sequence[int], broker: int = 1) -> None:
    """Tell a broker of 10,000 partitions."""
    epoch, _ = await world.registration(broker)
    member = await world.membership(broker)
    state = LeaderAndIsr(
        topic_id=TOPIC_ID,
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(0),
        isr=tuple(map(BrokerId, isr)),
        elr=(),
        members=dict.fromkeys(map(BrokerId, isr), member),
        controller_epoch=ControllerEpoch(1),
    )
    for start in range(0, PARTITIONS, ORDERED_MAX):
        request = control_pb2.LeaderAndIsrRequest(
            controller_id=1,
            controller_epoch=1,
            broker_epoch=epoch,
            partitions=[world.order(state, 0, partition=n) for n in range(start, start + ORDERED_MAX)],
            live_leaders=[await world.live(other) for other in world.brokers],
        )
        answer = await world.control(broker).LeaderAndIsr(request, timeout=DEADLINE_S)
        assert {result.error_code for result in answer.results} == {errors_pb2.ERROR_CODE_NONE}


async def ask(world: BrokerWorld, method: str, request: bytes, *, client: bool = True) -> bytes:
    """A call whose messages stay bytes, so that the caller's share of the loop is small."""
    settings = world.brokers[BrokerId(1)].settings
    channel = world.channel(settings.client_listen if client else settings.internal_listen)
    answer: bytes = await channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)(
        request, timeout=60
    )
    return answer


async def streamed_answer(world: BrokerWorld, request: bytes) -> bytes:
    """The answer to the only request of a stream."""
    channel = world.channel(world.brokers[BrokerId(1)].settings.client_listen)
    stream = channel.stream_stream(f"{LOG}/ProduceStream", request_serializer=bytes, response_deserializer=bytes)()
    await stream.write(request)
    answer = await within(stream.read())
    stream.cancel()
    assert isinstance(answer, bytes)
    return answer


def fetched_by(follower: int, numbers: Sequence[int], *, forgotten: Sequence[int] = (), epoch: int = 0) -> bytes:
    return replication_pb2.FetchReplicaRequest(
        replica_id=follower,
        broker_epoch=10_000 + follower,
        max_wait_ms=0,
        max_bytes=1 << 20,
        positions=[
            replication_pb2.FetchPosition(
                topic_id=TOPIC_ID, partition=n, current_leader_epoch=epoch, fetch_offset=1, last_fetched_epoch=0
            )
            for n in numbers
        ],
        forgotten=[replication_pb2.ForgottenPartition(topic_id=TOPIC_ID, partition=n) for n in forgotten],
    ).SerializeToString()


def produced_to(numbers: Sequence[int], acks: log_pb2.Acks.ValueType) -> bytes:
    batch = batch_of(b"v")
    return log_pb2.ProduceRequest(
        acks=acks,
        timeout_ms=60_000,
        partitions=[log_pb2.ProducePartition(topic="t", partition=n, record_batch=batch) for n in numbers],
    ).SerializeToString()


@pytest.mark.full
def test_a_follower_that_names_ten_thousand_partitions(tmp_path: Path) -> None:
    everything = range(PARTITIONS)
    names, misses, refused, drops = (
        fetched_by(2, everything),
        fetched_by(2, []),
        fetched_by(2, everything, epoch=-1),
        fetched_by(2, [], forgotten=everything),
    )

    async def scenario(held: HeldLoop) -> None:
        world = BrokerWorld(tmp_path)
        await world.begin()
        await world.start(1)
        await led(world, leader=1, isr=(1, 2))
        for start in range(0, PARTITIONS, PRODUCED_MAX):
            await ask(world, f"{LOG}/Produce", produced_to(range(start, start + PRODUCED_MAX), log_pb2.ACKS_LEADER))
        channel = world.channel(world.brokers[BrokerId(1)].settings.internal_listen)
        stream = channel.stream_stream(
            f"{REPLICATION}/FetchReplica", request_serializer=bytes, response_deserializer=bytes
        )(timeout=120)

        async def asked(request: bytes) -> int:
            await stream.write(request)
            answer = await stream.read()
            assert isinstance(answer, bytes)
            return len(answer)

        with held.measuring("positions"):
            assert await asked(names) > 10_000
        with held.measuring("high watermarks"):
            while await asked(misses) > NO_PARTITIONS_BYTES:
                pass
        with held.measuring("refusals"):
            assert await asked(refused) > 10_000
            while await asked(misses) > NO_PARTITIONS_BYTES:
                pass
        with held.measuring("partitions forgotten"):
            await asked(drops)
            await asked(names)
        with held.measuring("the end of the stream"):
            stream.cancel()
            signal = world.brokers[BrokerId(1)].partition(PARTITIONS - 1).appended

            async def gone() -> bool:
                return len(signal) == 0

            await eventually(gone, what="the session has left its partitions")
        await world.close()

    run_measured(scenario).assert_free()


@pytest.mark.full
def test_clients_that_name_ten_thousand_partitions(tmp_path: Path) -> None:
    produced = produced_to(range(PRODUCED_MAX), log_pb2.ACKS_ALL)
    streamed = log_pb2.ProduceStreamRequest(
        correlation_id=5, request=log_pb2.ProduceRequest.FromString(produced)
    ).SerializeToString()
    fetched = log_pb2.FetchRequest(
        partitions=[log_pb2.FetchPartition(topic="t", partition=n, last_fetched_epoch=0) for n in range(FETCHED_MAX)]
    ).SerializeToString()
    listed = [
        log_pb2.ListOffsetsRequest(
            queries=[
                log_pb2.OffsetQuery(topic="t", partition=n, latest=latest, at_or_after=at) for n in range(FETCHED_MAX)
            ]
        ).SerializeToString()
        for latest, at in ((log_pb2.LatestOffset(), None), (None, Timestamp(nanos=1_000_000)))
    ]
    deleted = log_pb2.DeleteRecordsRequest(
        partitions=[
            log_pb2.DeleteRecordsPartition(topic="t", partition=n, all_committed=log_pb2.AllCommitted())
            for n in range(FETCHED_MAX)
        ]
    ).SerializeToString()
    described = log_pb2.DescribeReplicasRequest(
        queries=[log_pb2.ReplicaQuery(topic="t", topic_id=TOPIC_ID, partition=n) for n in range(FETCHED_MAX)]
    ).SerializeToString()
    asked = log_pb2.OffsetForLeaderEpochRequest(
        queries=[log_pb2.EpochQuery(topic="t", partition=n, leader_epoch=0) for n in range(FETCHED_MAX)]
    ).SerializeToString()
    ends = replication_pb2.OffsetForLeaderEpochRequest(
        replica_id=2,
        queries=[
            replication_pb2.EpochQuery(topic_id=TOPIC_ID, partition=n, current_leader_epoch=0, leader_epoch=0)
            for n in range(QUERIES_MAX)
        ],
    ).SerializeToString()

    async def scenario(held: HeldLoop) -> None:
        world = BrokerWorld(tmp_path)
        await world.begin()
        await world.start(1)
        await led(world, leader=1, isr=(1,))
        with held.measuring("produce"):
            answer = await ask(world, f"{LOG}/Produce", produced)
        results = log_pb2.ProduceResponse.FromString(answer).results
        assert {(result.error_code, result.base_offset) for result in results} == {(errors_pb2.ERROR_CODE_NONE, 0)}
        with held.measuring("fetch"):
            answer = await ask(world, f"{LOG}/Fetch", fetched)
        assert len(log_pb2.FetchResponse.FromString(answer).results) == FETCHED_MAX
        with held.measuring("offsets"):
            for request in listed:
                await ask(world, f"{LOG}/ListOffsets", request)
        with held.measuring("deletion"):
            answer = await ask(world, f"{LOG}/DeleteRecords", deleted)
        outcomes = log_pb2.DeleteRecordsResponse.FromString(answer).results
        assert {(one.error_code, one.new_log_start_offset) for one in outcomes[:PRODUCED_MAX]} == {(0, 1)}
        assert len(outcomes) == FETCHED_MAX
        with held.measuring("ends of epochs"):
            await ask(world, f"{REPLICATION}/OffsetForLeaderEpoch", ends, client=False)
            answer = await ask(world, f"{LOG}/OffsetForLeaderEpoch", asked)
        assert {one.end_offset for one in log_pb2.OffsetForLeaderEpochResponse.FromString(answer).results} == {1}
        with held.measuring("sizes"):
            answer = await ask(world, f"{LOG}/DescribeReplicas", described)
        assert {one.error_code for one in log_pb2.DescribeReplicasResponse.FromString(answer).results} == {0}
        with held.measuring("figures"):
            answer = await ask(world, FIGURES, b"")
        assert figures_pb2.DescribeFiguresResponse.FromString(answer).log_segments >= FETCHED_MAX
        with held.measuring("a stream of requests"):
            answer = await streamed_answer(world, streamed)
        results = log_pb2.ProduceStreamResponse.FromString(answer).response.results
        assert {(result.error_code, result.base_offset) for result in results} == {(errors_pb2.ERROR_CODE_NONE, 1)}
        await world.close()

    run_measured(scenario).assert_free()


# (The largest takes 25 s of processor time, and up to three times as much on a busy machine. Of what holds the loop for
# as long as there are requests, eight show it.)
@pytest.mark.parametrize(
    "together", [8, pytest.param(TOGETHER_MAX, marks=[pytest.mark.full, pytest.mark.timeout(900)])]
)
def test_requests_of_ten_thousand_partitions_come_in_one_message(tmp_path: Path, together: int) -> None:
    request = log_pb2.ProduceRequest(
        partitions=[log_pb2.ProducePartition(topic="t", partition=n) for n in range(PRODUCED_MAX)]
    )
    more = [log_pb2.ProduceStreamRequest(correlation_id=n, request=request) for n in range(1, together)]
    message = log_pb2.ProduceStreamRequest(request=request, more=more).SerializeToString()

    async def scenario(held: HeldLoop) -> None:
        world = BrokerWorld(tmp_path)
        await world.begin()
        await world.start(1)
        channel = world.channel(world.brokers[BrokerId(1)].settings.client_listen)
        stream = channel.stream_stream(f"{LOG}/ProduceStream", request_serializer=bytes, response_deserializer=bytes)()
        with held.measuring("requests in one message"):
            await stream.write(message)
            answers = [await within(stream.read(), 60) for _ in range(together)]
        stream.cancel()
        assert min(map(len, answers)) > PRODUCED_MAX
        await world.close()

    run_measured(scenario).assert_free()


def test_a_broker_that_follows_ten_thousand_partitions(tmp_path: Path) -> None:
    async def scenario(held: HeldLoop) -> None:
        world = BrokerWorld(tmp_path)
        await world.begin()
        await world.start(1, 2)
        await led(world, leader=1, isr=(1, 2), broker=1)
        for number in range(0, PARTITIONS, 100):
            leadership = world.brokers[BrokerId(1)].partition(number)
            await asyncio.to_thread(leadership.log.append_as_leader, [batch_of(b"v")], leader_epoch=LeaderEpoch(0))
        with held.measuring("both ends"):
            await led(world, leader=1, isr=(1, 2), broker=2)
            await world.log_ends_at(2, 1, number=PARTITIONS - 100)
        await world.close()

    run_measured(scenario).assert_free()
