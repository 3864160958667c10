"""The producer against brokers that fail: every record once, in order, and the truth about those that are not."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

import pytest
from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_client import (
    BufferFullError,
    DeliveryTimeoutError,
    SequenceBrokenError,
)
from regnum_records.header import read_header
from regnum_service.errors import RegnumError
from regnum_testing.clock import SkippingClock
from regnum_testing.fake_broker import FakeBroker
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.producing import numbered, producer_to
from regnum_testing.waiting import DEADLINE_S, until, within


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.create("t")
        yield running


@pytest.mark.parametrize(
    "code",
    [
        errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER,
        errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS,
        errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
        errors_pb2.ERROR_CODE_LEADER_NOT_AVAILABLE,
    ],
)
async def test_refusals_that_pass_are_repeated_in_order(
    cluster: FakeCluster, code: errors_pb2.ErrorCode.ValueType
) -> None:
    async with producer_to(cluster, batch_bytes=256) as producer:
        await (await producer.send("t", b"0"))
        cluster.answers[("t", 0)] = deque([code] * 4)
        deliveries = [await producer.send("t", value) for value in numbered(1, 100)]
        assert [(await delivery).offset for delivery in deliveries] == list(range(1, 100))
    assert cluster.values("t") == numbered(0, 100)


async def test_an_append_whose_answer_is_lost_is_not_repeated_in_the_log(cluster: FakeCluster) -> None:
    lies = [errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    async with producer_to(cluster, batch_bytes=256) as producer:
        await (await producer.send("t", b"0"))
        cluster.answers_after_append[("t", 0)] = deque(lies)
        deliveries = [await producer.send("t", value) for value in numbered(1, 100)]
        assert [(await delivery).offset for delivery in deliveries] == list(range(1, 100))
    assert cluster.values("t") == numbered(0, 100)


async def test_a_killed_leader_costs_a_pause_and_nothing_else(cluster: FakeCluster) -> None:
    async with producer_to(cluster, batch_bytes=256) as producer:
        deliveries = [await producer.send("t", value) for value in numbered(0, 50)]
        await asyncio.gather(*deliveries)
        deliveries += [await producer.send("t", value) for value in numbered(50, 100)]
        await cluster.brokers[1].stop()
        deliveries += [await producer.send("t", value) for value in numbered(100, 150)]
        cluster.elect("t", 0, 2)
        assert [(await delivery).offset for delivery in deliveries] == list(range(150))
    assert cluster.values("t") == numbered(0, 150)


async def test_one_batch_feels_the_way_to_a_leader_that_cannot_be_reached(cluster: FakeCluster) -> None:
    """A client with hundreds of partitions there sent all of them to nobody every 20 ms, and had no time for news."""
    cluster.create("wide", partitions=90)
    refused: list[int] = []
    taken: list[int] = []
    dead = True

    async def reset(broker: FakeBroker, request: log_pb2.ProduceRequest) -> None:
        if broker.number == 1:
            (refused if dead else taken).append(len(request.partitions))
            if dead:
                # As a connection that is refused looks to the caller.
                raise RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "refused")

    # Nothing leaves before the flush, so that the first call has all of the leader's partitions on the slowest machine.
    async with producer_to(cluster, linger_ms=600_000.0) as producer:
        cluster.before_produce = reset
        deliveries = [await producer.send("wide", b"x", partition=number) for number in range(90)]
        flushed = asyncio.create_task(producer.flush())
        await until(lambda: len(refused) >= 6)
        assert refused[0] > 1
        assert set(refused[5:]) == {1}
        dead = False
        await flushed
        await asyncio.gather(*deliveries)
    assert taken[0] == 1
    assert max(taken) > 1
    assert [len(cluster.values("wide", number)) for number in range(90)] == [1] * 90


async def test_after_a_leader_change_the_next_acknowledgement_comes_at_once(cluster: FakeCluster) -> None:
    async with producer_to(cluster) as producer:
        await (await producer.send("t", b"0"))
        await cluster.brokers[1].stop()
        waiting = await producer.send("t", b"1")
        calls = cluster.calls["GetMetadata"]
        await until(lambda: cluster.calls["GetMetadata"] >= calls + 5)
        assert not waiting.done()
        calls = cluster.calls["GetMetadata"]
        cluster.elect("t", 0, 3)
        assert (await waiting).offset == 1
        # By the next question, and some more while the batch was on its way.
        assert cluster.calls["GetMetadata"] <= calls + 5


async def test_a_frozen_leader_is_left_when_another_leads(cluster: FakeCluster) -> None:
    async with producer_to(cluster, request_timeout_s=60.0) as producer:
        await (await producer.send("t", b"0"))
        await cluster.brokers[1].freeze()
        waiting = await producer.send("t", b"1")
        produced = cluster.calls["Produce"]
        await until(lambda: cluster.calls["Produce"] > produced)
        cluster.elect("t", 0, 2)
        async with asyncio.timeout(DEADLINE_S):
            assert (await waiting).offset == 1
        cluster.brokers[1].thawed.set()
    assert cluster.values("t") == [b"0", b"1"]


async def test_a_refused_batch_fails_alone_and_what_follows_gets_a_new_identity(cluster: FakeCluster) -> None:
    async with producer_to(cluster) as producer:
        first = await (await producer.send("t", b"good"))
        cluster.answers[("t", 0)] = deque([errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE])
        bad = await producer.send("t", b"bad")
        with pytest.raises(RegnumError, match="t/0: said the test") as caught:
            await bad
        assert caught.value.code == errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE
        last = await (await producer.send("t", b"later"))
    assert (first.offset, last.offset) == (0, 1)
    identities = [header.producer_id for header, _ in cluster.partitions[("t", 0)].batches]
    assert len(set(identities)) == 2
    assert [header.base_sequence for header, _ in cluster.partitions[("t", 0)].batches] == [0, 0]


async def test_a_single_record_that_is_too_large_fails_alone(cluster: FakeCluster) -> None:
    async with producer_to(cluster) as producer:
        cluster.answers[("t", 0)] = deque([errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE])
        with pytest.raises(RegnumError) as caught:
            await (await producer.send("t", b"large"))
        assert caught.value.code == errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE
        assert (await (await producer.send("t", b"small"))).offset == 0


async def test_a_lost_log_ends_the_sequence_loudly(cluster: FakeCluster) -> None:
    """The leader answers OUT_OF_ORDER to a batch with nothing before it: acknowledged records are missing."""
    async with producer_to(cluster) as producer:
        await (await producer.send("t", b"0"))
        cluster.answers[("t", 0)] = deque([errors_pb2.ERROR_CODE_OUT_OF_ORDER_SEQUENCE_NUMBER])
        lost = await producer.send("t", b"1")
        with pytest.raises(SequenceBrokenError, match="read the partition's end") as caught:
            await lost
        assert not caught.value.maybe_written
        assert (await (await producer.send("t", b"2"))).offset == 1


async def test_a_broken_sequence_names_what_broke_it_and_not_the_answer_that_came_last(cluster: FakeCluster) -> None:
    """The answers to the first and the third are lost, the second is refused; then the first is acknowledged."""
    lost, refused = errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, errors_pb2.ERROR_CODE_INVALID_RECORD
    codes = {1: lost, 2: refused, 3: lost}
    come: set[int] = set()

    async def after_all_three(_broker: FakeBroker, request: log_pb2.ProduceRequest) -> None:
        sequence = read_header(request.partitions[0].record_batch).base_sequence
        come.add(sequence)
        await until(lambda: len(come) == 3)
        code = codes.pop(sequence, None)
        cluster.answers[("t", 0)] = deque(() if code is None else (code,))

    async with producer_to(cluster, batch_bytes=128) as producer:
        await (await producer.send("t", b"0"))
        cluster.before_produce = after_all_three
        first, second, third = [await producer.send("t", letter * 40) for letter in (b"a", b"b", b"c")]
        assert (await first).offset == 1
        with pytest.raises(RegnumError) as caught:
            await second
        assert caught.value.code == refused
        with pytest.raises(SequenceBrokenError, match=r"broke: said the test\. This record may be in the log"):
            await third
    assert cluster.values("t") == [b"0", b"a" * 40]


async def test_time_runs_out_and_says_whether_it_may_be_written(cluster: FakeCluster) -> None:
    async with producer_to(cluster, delivery_timeout_s=1.0) as producer:
        await (await producer.send("t", b"0"))
        cluster.answers[("t", 0)] = deque([errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS] * 1000)
        with pytest.raises(DeliveryTimeoutError, match=r"was not written.*said the test") as caught:
            await (await producer.send("t", b"1"))
        assert not caught.value.maybe_written
        del cluster.answers[("t", 0)]
        cluster.answers_after_append[("t", 0)] = deque([errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT] * 1000)
        with pytest.raises(DeliveryTimeoutError, match="may be in the log") as caught:
            await (await producer.send("t", b"2"))
        assert caught.value.maybe_written


@pytest.mark.parametrize(
    "code", [errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND, errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR]
)
async def test_what_a_deposed_leader_had_appended_is_never_sent_under_other_numbers(
    cluster: FakeCluster, code: errors_pb2.ErrorCode.ValueType
) -> None:
    """Two batches are under way, both are appended, and no leader confirms them within the delivery time-out."""
    clock = SkippingClock()
    async with producer_to(cluster, clock=clock, delivery_timeout_s=DEADLINE_S, batch_bytes=128) as producer:
        await (await producer.send("t", b"0"))
        under_way = 0
        both = asyncio.Event()

        async def hold(_broker: FakeBroker, _request: log_pb2.ProduceRequest) -> None:
            nonlocal under_way
            under_way += 1
            if under_way == 2:
                both.set()
                await until(lambda: len(cluster.values("t")) == 2)
            elif under_way == 3:
                # Both were answered; nobody leads from now on.
                cluster.answers[("t", 0)] = deque([errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER] * 1000)
                clock.skipped_s += DEADLINE_S
            await both.wait()

        cluster.before_produce = hold
        cluster.answers_after_append[("t", 0)] = deque([code] * 2)
        deliveries = [await producer.send("t", letter * 40) for letter in (b"a", b"b")]
        for delivery in deliveries:
            with pytest.raises((DeliveryTimeoutError, SequenceBrokenError), match="may be in the log") as caught:
                await delivery
            assert isinstance(caught.value, DeliveryTimeoutError | SequenceBrokenError)
            assert caught.value.maybe_written
        del cluster.answers[("t", 0)]
        assert (await (await producer.send("t", b"later"))).offset == 3
    assert cluster.values("t") == [b"0", b"a" * 40, b"b" * 40, b"later"]


async def test_a_full_buffer_makes_send_wait_and_then_fail(cluster: FakeCluster) -> None:
    await cluster.brokers[1].freeze()
    async with producer_to(cluster, buffer_bytes=1000, buffer_wait_s=1.5) as producer:
        for _ in range(5):
            await producer.send("t", b"x" * 100)
        with pytest.raises(BufferFullError, match=r"stayed full for 1\.5 s"):
            await producer.send("t", b"x" * 500)
        waiting = [asyncio.create_task(producer.send("t", b"y" * 500)) for _ in range(2)]
        cluster.brokers[1].frozen.clear()
        cluster.brokers[1].thawed.set()
        for task in waiting:
            await (await task)
    assert len(cluster.values("t")) == 7


async def test_a_buffer_that_stays_full_says_why(cluster: FakeCluster) -> None:
    cluster.answers[("t", 0)] = deque([errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS] * 1000)
    async with producer_to(cluster, buffer_bytes=1000, buffer_wait_s=0.5, delivery_timeout_s=30.0) as producer:
        waiting = await producer.send("t", b"x" * 900)
        with pytest.raises(BufferFullError, match=r"or not at all \(t/0: .*said the test\); see"):
            await producer.send("t", b"x" * 500)
        del cluster.answers[("t", 0)]
        await waiting


async def test_no_broker_answers(cluster: FakeCluster) -> None:
    for broker in cluster.brokers.values():
        await broker.stop()
    with pytest.raises(RegnumError) as caught:
        await producer_to(cluster, topic_wait_s=0.3).start()
    assert caught.value.code == errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE


async def test_a_producer_that_may_not_write_hears_so_at_once_and_may_write_when_that_is_granted(
    cluster: FakeCluster,
) -> None:
    cluster.id_refusal = RegnumError(errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED, "you may not write")
    cluster.create("u")
    async with producer_to(cluster, delivery_timeout_s=1_000.0) as producer:
        refused = [await producer.send(topic, b"x") for topic in ("t", "u")]
        for record in refused:
            with pytest.raises(RegnumError, match="you may not write") as caught:
                await within(record)
            assert caught.value.code == errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED
        cluster.id_refusal = None
        await within(await producer.send("t", b"y"))
    assert cluster.values("t") == [b"y"]
    assert cluster.values("u") == []


async def test_a_time_out_says_why_there_was_no_producer_id(cluster: FakeCluster) -> None:
    cluster.id_refusal = RegnumError(errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE, "no controller, said the test")
    async with producer_to(cluster, clock=SkippingClock(), delivery_timeout_s=5.0) as producer:
        record = await producer.send("t", b"x")
        with pytest.raises(DeliveryTimeoutError, match="no producer id: no controller, said the test"):
            await within(record)
