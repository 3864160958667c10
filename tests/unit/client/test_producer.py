"""The producer against brokers that fail: every record once, in order, and the truth about those that are not."""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable

import pytest
from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_client import (
    BufferFullError,
    ClientClosedError,
    DeliveryTimeoutError,
    Producer,
    ProducerSettings,
    SequenceBrokenError,
)
from regnum_records.header import read_header
from regnum_service.errors import RegnumError
from regnum_testing.fake_cluster import FakeBroker, FakeCluster
from regnum_testing.waiting import DEADLINE_S


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.create("t")
        yield running


def producer_to(cluster: FakeCluster, **settings: object) -> Producer:
    return Producer(
        cluster.bootstrap,
        settings=ProducerSettings(**{"linger_ms": 1.0, "batch_bytes_max": 0, **settings}),  # type: ignore[arg-type]
        chance=random.Random(7),
    )


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that some other task brings about."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.005)


def numbered(first: int, last: int) -> list[bytes | None]:
    return [str(number).encode() for number in range(first, last)]


async def test_records_arrive_once_in_order_with_their_offsets(cluster: FakeCluster) -> None:
    async with producer_to(cluster, batch_bytes=512) as producer:
        deliveries = [await producer.send("t", value) for value in numbered(0, 300)]
        offsets = [(await delivery).offset for delivery in deliveries]
    assert offsets == list(range(300))
    assert cluster.values("t") == numbered(0, 300)


async def test_records_share_batches_and_partitions_share_calls(cluster: FakeCluster) -> None:
    cluster.create("wide", partitions=6)
    seen: list[int] = []

    async def note(_broker: FakeBroker, request: log_pb2.ProduceRequest) -> None:
        seen.append(len(request.partitions))

    cluster.before_produce = note
    async with producer_to(cluster, linger_ms=30.0) as producer:
        for number in range(60):
            await producer.send("wide", b"x", partition=number % 6)
        await producer.flush()
    assert seen == [2, 2, 2], "three leaders, two partitions each, ten records a batch"
    assert [len(cluster.values("wide", number)) for number in range(6)] == [10] * 6


async def test_a_batch_takes_records_while_another_of_its_partition_is_under_way(cluster: FakeCluster) -> None:
    """On a slow path the number of calls is what is scarce."""
    sizes: list[int] = []
    slow = asyncio.Event()

    async def hold(_broker: FakeBroker, request: log_pb2.ProduceRequest) -> None:
        sizes.append(read_header(request.partitions[0].record_batch).record_count)
        await slow.wait()

    async with producer_to(cluster, linger_ms=0.0) as producer:
        await (await producer.send("t", b"0"))
        cluster.before_produce = hold
        deliveries = []
        for value in numbered(1, 101):
            deliveries.append(await producer.send("t", value))
            await asyncio.sleep(0)
        await until(lambda: len(sizes) == 1)
        slow.set()
        assert [(await delivery).offset for delivery in deliveries] == list(range(1, 101))
    assert len(sizes) == 2, "the first alone, and all that came while it was on its way"
    assert sum(sizes) == 100


async def test_full_batches_go_behind_others(cluster: FakeCluster) -> None:
    calls = 0
    slow = asyncio.Event()

    async def hold(_broker: FakeBroker, _request: log_pb2.ProduceRequest) -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            slow.set()
        await slow.wait()

    async with producer_to(cluster, batch_bytes=512) as producer:
        await (await producer.send("t", b"0"))
        cluster.before_produce = hold
        deliveries = [await producer.send("t", value) for value in numbered(1, 300)]
        async with asyncio.timeout(DEADLINE_S):
            assert [(await delivery).offset for delivery in deliveries] == list(range(1, 300))


async def test_what_is_flushed_does_not_wait_for_what_is_under_way(cluster: FakeCluster) -> None:
    calls = 0
    slow = asyncio.Event()

    async def hold(_broker: FakeBroker, _request: log_pb2.ProduceRequest) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            slow.set()
        await slow.wait()

    async with producer_to(cluster) as producer:
        await (await producer.send("t", b"0"))
        cluster.before_produce = hold
        first = await producer.send("t", b"1")
        await until(lambda: calls == 1)
        second = await producer.send("t", b"2")
        async with asyncio.timeout(DEADLINE_S):
            await producer.flush()
        assert [first.result().offset, second.result().offset] == [1, 2]


async def test_an_open_batch_that_nobody_takes_fails_in_time(cluster: FakeCluster) -> None:
    cluster.elect("t", 0, -1)
    async with producer_to(cluster, delivery_timeout_s=0.4) as producer:
        delivery = await producer.send("t", b"1")
        with pytest.raises(DeliveryTimeoutError, match="was not written"):
            await delivery


async def test_keys_decide_the_partition_and_keyless_batches_go_round(cluster: FakeCluster) -> None:
    cluster.create("wide", partitions=3)
    async with producer_to(cluster) as producer:
        keyed = [await (await producer.send("wide", b"v", key=b"same")) for _ in range(3)]
        keyless = [await (await producer.send("wide", b"v")) for _ in range(3)]
    assert len({where.partition for where in keyed}) == 1
    assert {where.partition for where in keyless} == {0, 1, 2}


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
    loop = asyncio.get_running_loop()
    async with producer_to(cluster) as producer:
        await (await producer.send("t", b"0"))
        await cluster.brokers[1].stop()
        waiting = await producer.send("t", b"1")
        calls = cluster.calls["GetMetadata"]
        await until(lambda: cluster.calls["GetMetadata"] >= calls + 5)
        assert not waiting.done()
        elected_s = loop.time()
        cluster.elect("t", 0, 3)
        assert (await waiting).offset == 1
        # 20 ms between questions and a few for the calls; ten times that, for a machine under load.
        assert loop.time() - elected_s < 1.0


async def test_a_frozen_leader_is_left_when_another_leads(cluster: FakeCluster) -> None:
    async with producer_to(cluster, request_timeout_s=60.0) as producer:
        await (await producer.send("t", b"0"))
        await cluster.brokers[1].freeze()
        waiting = await producer.send("t", b"1")
        produced = cluster.calls["Produce"]
        await until(lambda: cluster.calls["Produce"] > produced)
        cluster.elect("t", 0, 2)
        async with asyncio.timeout(10):
            assert (await waiting).offset == 1
        cluster.brokers[1].thawed.set()
    assert cluster.values("t") == [b"0", b"1"]


async def test_batches_that_overtake_one_another_end_in_order(cluster: FakeCluster) -> None:
    """The broker handles every other call late."""
    calls = 0

    async def shuffle(_broker: FakeBroker, _request: log_pb2.ProduceRequest) -> None:
        nonlocal calls
        calls += 1
        if calls % 2 == 0:
            for _ in range(20):
                await asyncio.sleep(0)

    cluster.before_produce = shuffle
    async with producer_to(cluster, batch_bytes=256, linger_ms=0.0) as producer:
        deliveries = []
        for value in numbered(0, 400):
            deliveries.append(await producer.send("t", value))
            await asyncio.sleep(0)
        assert [(await delivery).offset for delivery in deliveries] == list(range(400))
    assert cluster.values("t") == numbered(0, 400)


async def test_batches_grow_while_all_calls_are_under_way(cluster: FakeCluster) -> None:
    """Five calls are held: what comes meanwhile travels in one batch, and not in one for each ``batch_bytes``."""
    held = asyncio.Event()

    async def hold(_broker: FakeBroker, _request: log_pb2.ProduceRequest) -> None:
        await held.wait()

    async with producer_to(cluster, batch_bytes=256, batch_bytes_max=1_000_000, linger_ms=0.0) as producer:
        await (await producer.send("t", b"first", key=b"k"))
        cluster.before_produce = hold
        deliveries = [await producer.send("t", b"x" * 100, key=b"k") for _ in range(1_000)]
        held.set()
        assert [(await delivery).offset for delivery in deliveries] == list(range(1, 1_001))
    counts = [header.record_count for header, _ in cluster.partitions[("t", 0)].batches]
    assert sum(counts) == 1_001
    assert len(counts) <= 8, counts


async def test_a_refused_batch_fails_alone_and_what_follows_gets_a_new_identity(cluster: FakeCluster) -> None:
    async with producer_to(cluster) as producer:
        first = await (await producer.send("t", b"good"))
        cluster.answers[("t", 0)] = deque([errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE])
        bad = await producer.send("t", b"bad")
        with pytest.raises(RegnumError, match="t-0: said the test") as caught:
            await bad
        assert caught.value.code == errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE
        last = await (await producer.send("t", b"later"))
    assert (first.offset, last.offset) == (0, 1)
    identities = [header.producer_id for header, _ in cluster.partitions[("t", 0)].batches]
    assert len(set(identities)) == 2
    assert [header.base_sequence for header, _ in cluster.partitions[("t", 0)].batches] == [0, 0]


@pytest.mark.parametrize("codec", ["none", "gzip"])
async def test_a_batch_that_is_too_large_for_its_topic_is_parted_and_the_next_are_smaller(
    cluster: FakeCluster, codec: str
) -> None:
    async with producer_to(cluster, linger_ms=20.0, compression=codec, batch_bytes=64 * 1024) as producer:
        too_large = errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE
        cluster.answers[("t", 0)] = deque([too_large, too_large])
        deliveries = [await producer.send("t", value, key=b"k", headers=(("h", b"1"),)) for value in numbered(0, 100)]
        await producer.flush()
        assert [(await delivery).offset for delivery in deliveries] == list(range(100))
        batches = len(cluster.partitions[("t", 0)].batches)
        assert batches == 3, "a half, and the two quarters of the other"
        again = [await producer.send("t", value) for value in numbered(100, 200)]
        await asyncio.gather(*again)
        assert len(cluster.partitions[("t", 0)].batches) - batches >= 2
    assert cluster.values("t") == numbered(0, 200)


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
    async with producer_to(cluster, delivery_timeout_s=0.6, batch_bytes=128) as producer:
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
    async with producer_to(cluster, buffer_bytes=1000, buffer_wait_s=0.2) as producer:
        for _ in range(5):
            await producer.send("t", b"x" * 100)
        with pytest.raises(BufferFullError, match=r"stayed full for 0\.2 s"):
            await producer.send("t", b"x" * 500)
        waiting = [asyncio.create_task(producer.send("t", b"y" * 500)) for _ in range(2)]
        cluster.brokers[1].frozen.clear()
        cluster.brokers[1].thawed.set()
        for task in waiting:
            await (await task)
    assert len(cluster.values("t")) == 7


async def test_an_unknown_topic_and_a_wrong_partition(cluster: FakeCluster) -> None:
    async with producer_to(cluster, topic_wait_s=0.2) as producer:
        with pytest.raises(RegnumError, match="regnum topics create nowhere") as caught:
            await producer.send("nowhere", b"x")
        assert caught.value.code == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(RegnumError, match="has no partition 4; it has 0 to 0"):
            await producer.send("t", b"x", partition=4)


async def test_a_topic_created_just_now_is_waited_for(cluster: FakeCluster) -> None:
    async with producer_to(cluster) as producer:
        sending = asyncio.create_task(producer.send("soon", b"x"))
        calls = cluster.calls["GetMetadata"]
        await until(lambda: cluster.calls["GetMetadata"] >= calls + 2)
        cluster.create("soon")
        assert (await (await sending)).offset == 0


async def test_a_producer_is_closed_for_good(cluster: FakeCluster) -> None:
    producer = producer_to(cluster)
    with pytest.raises(ClientClosedError):
        await producer.send("t", b"early")
    await producer.start()
    delivery = await producer.send("t", b"x")
    await producer.close()
    assert delivery.result().offset == 0
    with pytest.raises(ClientClosedError):
        await producer.send("t", b"late")


async def test_closing_with_a_limit_fails_what_is_open(cluster: FakeCluster) -> None:
    producer = producer_to(cluster)
    await producer.start()
    await cluster.brokers[1].freeze()
    delivery = await producer.send("t", b"x")
    await producer.close(wait_s=0.1)
    with pytest.raises(ClientClosedError):
        await delivery
    cluster.brokers[1].thawed.set()


async def test_every_codec_and_headers_survive(cluster: FakeCluster) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        async with producer_to(cluster, compression=codec) as producer:
            await producer.send("t", b"x" * 1000, headers=[("trace", b"1"), ("none", None)])
    assert cluster.values("t") == [b"x" * 1000] * 5
    codecs = [read_header(batch).codec for _, batch in cluster.partitions[("t", 0)].batches]
    assert sorted(codecs) == [0, 1, 2, 3, 4]


async def test_without_idempotence_there_is_no_producer_id(cluster: FakeCluster) -> None:
    async with producer_to(cluster, acks=1) as producer:
        assert (await (await producer.send("t", b"x"))).offset == 0
    assert cluster.partitions[("t", 0)].batches[0][0].producer_id == -1


@pytest.mark.parametrize(("said", "sent"), [(-1, log_pb2.ACKS_ALL), (1, log_pb2.ACKS_LEADER), (0, log_pb2.ACKS_NONE)])
async def test_acks_travel_as_what_they_mean(cluster: FakeCluster, said: int, sent: int) -> None:
    async with producer_to(cluster, acks=said) as producer:
        await (await producer.send("t", b"x"))
    assert cluster.acks == [sent]


async def test_acks_that_mean_nothing_are_refused_before_anything_is_sent(cluster: FakeCluster) -> None:
    with pytest.raises(RegnumError) as caught:
        await producer_to(cluster, acks=2).start()
    assert caught.value.code == errors_pb2.ERROR_CODE_INVALID_REQUIRED_ACKS


async def test_no_broker_answers(cluster: FakeCluster) -> None:
    for broker in cluster.brokers.values():
        await broker.stop()
    with pytest.raises(RegnumError) as caught:
        await producer_to(cluster, topic_wait_s=0.3).start()
    assert caught.value.code == errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE


async def test_records_without_a_key_go_to_new_partitions_too(cluster: FakeCluster) -> None:
    async with producer_to(cluster, linger_ms=0.0) as producer:
        await (await producer.send("t", b"x"))
        cluster.add_partitions("t", 3)
        producer._metadata.request()  # type: ignore[union-attr]
        await until(lambda: len(producer._metadata.view.topics["t"].partitions) == 3)  # type: ignore[union-attr]
        for _ in range(6):
            await (await producer.send("t", b"x"))
        assert all(cluster.values("t", number) for number in range(3))


async def test_records_for_a_partition_that_is_removed_end_with_a_clear_error(cluster: FakeCluster) -> None:
    cluster.create("wide", partitions=2)
    async with producer_to(cluster) as producer:
        await (await producer.send("wide", b"x", partition=1))
        # It waits for its leader, which is gone with the partition.
        cluster.remove_partitions("wide", 1)
        late = [await producer.send("wide", b"y", partition=1) for _ in range(3)]
        for delivery in late:
            with pytest.raises(RegnumError, match="was removed") as raised:
                await asyncio.wait_for(delivery, DEADLINE_S)
            assert raised.value.code == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(RegnumError, match="has no partition 1"):
            await producer.send("wide", b"z", partition=1)
        await (await producer.send("wide", b"ok", partition=0))
        # Added again, it is written to again.
        cluster.add_partitions("wide", 2)
        await (await producer.send("wide", b"again", partition=1))
        assert cluster.values("wide", 1) == [b"again"]
