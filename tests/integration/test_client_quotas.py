"""Quotas of bytes on a real broker: set at run time, kept by clients that wait and by those that do not."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from regnum.broker.v1 import log_pb2, log_pb2_grpc
from regnum_client import Admin, Consumer, ConsumerSettings, NewTopic, Producer, ProducerSettings, QuotaEntity
from regnum_local.cluster import LocalCluster
from regnum_model.bucket import Windows
from regnum_model.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from regnum_records.build import build_batch
from regnum_records.record import NewRecord
from regnum_service.channel import CHANNEL_OPTIONS, aio_channel
from regnum_service.clock import SystemClock
from regnum_testing.under_load import until
from regnum_testing.waiting import within

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240), pytest.mark.asyncio(loop_scope="module")]

CLOCK = SystemClock()
RATE = 1_000_000
SPAN_S = Windows().span_s
"""What a quota lets through at once, in seconds of its rate."""
VALUE = os.urandom(100_000)
RECORDS = 160
SETTINGS = ProducerSettings(batch_bytes=200_000, linger_ms=0, delivery_timeout_s=120.0)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    folder: Path = tmp_path_factory.mktemp("cluster") / "data"
    async with LocalCluster(folder, brokers=1, elections=1, metadata=1) as started:
        async with Admin(started.bootstrap) as admin:
            await admin.create_topics(
                [NewTopic(name="t", replication_factor=1), NewTopic(name="u", replication_factor=1)]
            )
            for client_id in ("loader", "stubborn"):
                await admin.alter_client_quota(QuotaEntity(client_id=client_id), set={PRODUCER_BYTE_RATE: RATE})
            await admin.alter_client_quota(QuotaEntity(client_id="reader"), set={CONSUMER_BYTE_RATE: RATE})
        yield started


async def filled(cluster: LocalCluster) -> None:
    """Records that begin with their numbers, in topic u."""
    async with Producer(cluster.bootstrap, settings=SETTINGS) as producer:
        sent = [await producer.send("u", b"%04d" % number + VALUE, partition=0) for number in range(RECORDS)]
        for future in sent:
            await within(future, 100.0)


async def produced(cluster: LocalCluster, client_id: str) -> tuple[float, float]:
    """How long it took to produce all, and for how long the producer was asked to wait."""
    async with Producer(cluster.bootstrap, client_id=client_id, settings=SETTINGS) as producer:
        began_s = CLOCK.monotonic()
        sent = [await producer.send("t", VALUE, partition=0) for _ in range(RECORDS)]
        for future in sent:
            await within(future, 100.0)
        return CLOCK.monotonic() - began_s, producer.throttle_time_s


def shortest_s(bytes_sent: int, together: int) -> float:
    """In less time nobody gets so many bytes through whose requests are so large."""
    return (bytes_sent - together) / RATE - SPAN_S


# The one that ignores what it is told, below, is held to the same rate.
@pytest.mark.full
async def test_a_producer_is_slowed_down_to_its_rate_and_others_are_not(cluster: LocalCluster) -> None:
    free_s, told_s = await produced(cluster, "somebody")
    assert told_s == 0.0

    async def in_force() -> bool:
        return (await produced(cluster, "loader"))[1] > 0.0

    await until(in_force, within_s=100.0)
    took_s, told_s = await produced(cluster, "loader")
    assert told_s > 0.0
    assert took_s > free_s
    assert took_s >= shortest_s(RECORDS * len(VALUE), 5 * 200_000)
    assert (await produced(cluster, "somebody"))[1] == 0.0


async def test_a_client_that_ignores_throttle_times_gets_no_more_through(cluster: LocalCluster) -> None:
    broker = next(row for row in cluster.status() if row.name == "broker-1")
    channel = aio_channel(str(broker.addresses["client"]), options=CHANNEL_OPTIONS)
    produce = log_pb2_grpc.LogServiceStub(channel).Produce
    request = log_pb2.ProduceRequest()
    request.header.client_id = "stubborn"
    batch = build_batch([NewRecord(key=None, value=VALUE)], timestamp_ms=1)
    request.partitions.add(topic="t", partition=0, record_batch=batch)
    acknowledged, told_ms, ends_s = 0, 0, CLOCK.monotonic() + 8.0
    began_s = CLOCK.monotonic()

    async def ask_and_ask() -> None:
        nonlocal acknowledged, told_ms
        while CLOCK.monotonic() < ends_s:
            try:
                answer = await produce(request, timeout=max(0.05, ends_s - CLOCK.monotonic()))
            except grpc.aio.AioRpcError:
                continue
            acknowledged += len(batch)
            told_ms += answer.throttle_time_ms

    await asyncio.gather(*(ask_and_ask() for _ in range(4)))
    took_s = CLOCK.monotonic() - began_s
    assert told_ms > 0
    # One request crosses the line, and three were on their way when it did.
    assert acknowledged <= RATE * (took_s + SPAN_S) + 4 * len(batch)
    await channel.close()


# The rate of consumers is held by unit tests of the broker, too.
@pytest.mark.full
async def test_a_consumer_is_slowed_down_and_skips_nothing(cluster: LocalCluster) -> None:
    await filled(cluster)
    settings = ConsumerSettings(fetch_max_bytes=1_000_000, partition_max_bytes=1_000_000)
    async with Consumer(cluster.bootstrap, client_id="reader", settings=settings) as consumer:
        began_s = CLOCK.monotonic()
        await consumer.assign("u")
        numbers = [int((await within(anext(consumer), 100.0)).value[:4]) for _ in range(RECORDS)]
        took_s = CLOCK.monotonic() - began_s
    assert numbers == list(range(RECORDS))
    assert took_s >= shortest_s(RECORDS * len(VALUE), 4_000_000)


# Ten seconds by nature, and of use where the machine is quick; a client that ignores its times is above.
@pytest.mark.full
async def test_a_new_connection_for_each_fetch_reads_no_more(cluster: LocalCluster) -> None:
    """Nobody waits as he is told, and nobody comes twice by one line."""
    await filled(cluster)
    broker = next(row for row in cluster.status() if row.name == "broker-1")
    request = log_pb2.FetchRequest(partitions=[log_pb2.FetchPartition(topic="u", partition=0)], max_bytes=2_000_000)
    request.header.client_id = "reader"
    read, told, calls, seconds = 0, 0, 0, 10.0
    began_s = CLOCK.monotonic()
    while CLOCK.monotonic() < began_s + seconds:
        channel = aio_channel(
            str(broker.addresses["client"]), options=(*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))
        )
        answer = await log_pb2_grpc.LogServiceStub(channel).Fetch(request, timeout=30)
        await channel.close()
        calls += 1
        told += answer.throttle_time_ms > 0
        read += len(answer.results[0].record_batches)
    took_s = CLOCK.monotonic() - began_s
    assert told > 0
    assert read <= RATE * (took_s + SPAN_S) + 2_000_000
    assert calls * 2_000_000 > 2 * read, "without a quota they would have read more than twice as much"


async def test_who_takes_too_much_of_the_brokers_time_is_held_a_second_at_a_time(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.alter_client_quota(QuotaEntity(client_id="asker"), set={REQUEST_PERCENTAGE: 0.01})
    broker = next(row for row in cluster.status() if row.name == "broker-1")
    channel = aio_channel(str(broker.addresses["client"]), options=CHANNEL_OPTIONS)
    fetch = log_pb2_grpc.LogServiceStub(channel).Fetch

    async def told(client_id: str) -> bool:
        request = log_pb2.FetchRequest(partitions=[log_pb2.FetchPartition(topic="t", partition=0)], max_bytes=1)
        request.header.client_id = client_id
        return (await fetch(request, timeout=30)).throttle_time_ms > 0

    async def asker_is_told() -> bool:
        return await told("asker")

    await until(asker_is_told, within_s=60.0)
    began_s = CLOCK.monotonic()
    for _ in range(3):
        assert await told("asker")
    # Each was held for what was told to the one before; of the first hold, part may be over by the time it begins here.
    assert CLOCK.monotonic() - began_s >= 1.9
    await channel.close()
    other = aio_channel(str(broker.addresses["client"]), options=CHANNEL_OPTIONS)
    fetch = log_pb2_grpc.LogServiceStub(other).Fetch
    assert not await told("somebody")
    await other.close()


async def test_a_quota_that_is_removed_holds_nobody(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.alter_client_quota(QuotaEntity(client_id="loader"), remove=(PRODUCER_BYTE_RATE,))

    async def free() -> bool:
        return (await produced(cluster, "loader"))[1] == 0.0

    await until(free, within_s=100.0)
    # Once the brokers have heard of it, it stays that way.
    assert (await produced(cluster, "loader"))[1] == 0.0
