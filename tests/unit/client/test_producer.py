"""The producer: records arrive once and in order, in batches that are shared, to the partitions that were meant."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

import pytest
from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_client import (
    ClientClosedError,
    DeliveryTimeoutError,
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
            # One turn: records come one after another.
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
        with pytest.raises(DeliveryTimeoutError, match=r"was not written.*the partition has no leader"):
            await delivery


async def test_keys_decide_the_partition_and_keyless_batches_go_round(cluster: FakeCluster) -> None:
    cluster.create("wide", partitions=3)
    async with producer_to(cluster) as producer:
        keyed = [await (await producer.send("wide", b"v", key=b"same")) for _ in range(3)]
        keyless = [await (await producer.send("wide", b"v")) for _ in range(3)]
    assert len({where.partition for where in keyed}) == 1
    assert {where.partition for where in keyless} == {0, 1, 2}


async def test_records_without_a_key_pass_over_partitions_without_a_leader(cluster: FakeCluster) -> None:
    cluster.create("wide", partitions=4)
    for leaderless in (1, 2):
        cluster.elect("wide", leaderless, -1)
    async with producer_to(cluster, linger_ms=0.0) as producer:
        where = [(await within(await producer.send("wide", b"v"))).partition for _ in range(4)]
        assert set(where) == {0, 3}
        cluster.elect("wide", 0, -1)
        cluster.elect("wide", 3, -1)
        producer._metadata.request()  # type: ignore[union-attr]
        await until(lambda: producer._metadata.view.leader_term("wide", 3) is None)  # type: ignore[union-attr]
        waiting = await producer.send("wide", b"late")
        assert not waiting.done(), "where none has one, it waits"
        for partition in range(4):
            cluster.elect("wide", partition, 1)
        await within(waiting)


async def test_batches_that_overtake_one_another_end_in_order(cluster: FakeCluster) -> None:
    """The broker handles every other call late."""
    calls = 0

    async def shuffle(_broker: FakeBroker, _request: log_pb2.ProduceRequest) -> None:
        nonlocal calls
        calls += 1
        if calls % 2 == 0:
            # Turns: every second call is overtaken.
            for _ in range(20):
                await asyncio.sleep(0)

    cluster.before_produce = shuffle
    async with producer_to(cluster, batch_bytes=256, linger_ms=0.0) as producer:
        deliveries = []
        for value in numbered(0, 400):
            deliveries.append(await producer.send("t", value))
            # One turn: records come one after another.
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


async def test_an_unknown_topic_and_a_wrong_partition(cluster: FakeCluster) -> None:
    clock = SkippingClock()
    async with producer_to(cluster, clock=clock) as producer:
        asked = cluster.calls["GetMetadata"]
        sending = asyncio.create_task(producer.send("nowhere", b"x"))
        await until(lambda: cluster.calls["GetMetadata"] > asked, "it asks for the topic")
        clock.skipped_s += DEADLINE_S
        with pytest.raises(RegnumError, match="if it is to, create it with `regnum topics create nowhere`") as caught:
            await within(sending)
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


async def test_records_without_a_key_go_to_new_partitions_too(cluster: FakeCluster) -> None:
    async with producer_to(cluster, linger_ms=0.0) as producer:
        await (await producer.send("t", b"x"))
        cluster.add_partitions("t", 3)
        producer._metadata.request()  # type: ignore[union-attr]
        await until(lambda: len(producer._metadata.view.topics["t"].partitions) == 3)  # type: ignore[union-attr]
        for _ in range(6):
            await (await producer.send("t", b"x"))
        assert all(cluster.values("t", number) for number in range(3))


async def test_records_for_a_partition_that_never_was_do_not_call_it_removed(cluster: FakeCluster) -> None:
    """A person wrote the topic node, and it has partition 1 alone."""
    cluster.create("odd", partitions=2)
    del cluster.partitions[("odd", 0)]
    async with producer_to(cluster) as producer:
        with pytest.raises(RegnumError, match=r"odd/0: the topic has no partition 0; see .*was not written") as raised:
            await asyncio.wait_for(await producer.send("odd", b"x"), DEADLINE_S)
        assert "removed" not in raised.value.message
        assert raised.value.code == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION


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
