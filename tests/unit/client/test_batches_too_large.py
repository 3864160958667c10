"""A topic takes smaller batches than the producer makes: they go in parts, each record once and in order."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import AsyncIterator

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client import Producer, ProducerSettings, RecordMetadata
from regnum_service.errors import RegnumError
from regnum_testing.fake_cluster import FakeCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.create("t")
        yield running


def producer_to(cluster: FakeCluster, **settings: object) -> Producer:
    return Producer(
        cluster.bootstrap,
        settings=ProducerSettings(**{"linger_ms": 1.0, **settings}),  # type: ignore[arg-type]
        chance=random.Random(7),
    )


@pytest.mark.parametrize("compression", ["none", "zstd"])
async def test_what_is_too_large_goes_in_parts_and_later_batches_are_smaller(
    cluster: FakeCluster, compression: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = cluster.partitions["t", 0]
    log.bytes_max = 2000
    chance = random.Random(1)
    values: list[bytes | None] = [chance.randbytes(chance.randrange(10, 300)) for _ in range(400)]
    with caplog.at_level(logging.WARNING, "regnum_client"):
        async with producer_to(cluster, batch_bytes=16_000, compression=compression) as producer:
            deliveries = [await producer.send("t", value) for value in values]
            assert [(await delivery).offset for delivery in deliveries] == list(range(400))
            split = producer.batches_split
            assert split > 0
            for value in values:
                await producer.send("t", value)
            await producer.flush()
            assert producer.batches_split == split, "it has learned"
    assert cluster.values("t") == values * 2
    assert "t/0 refused a batch of " in caplog.text
    assert "Raise max.message.bytes of the topic, or lower batch_bytes" in caplog.text
    assert len(caplog.records) <= split


async def test_parts_keep_their_order_and_all_arrive_once_while_answers_are_lost(cluster: FakeCluster) -> None:
    log = cluster.partitions["t", 0]
    chance = random.Random(2)
    lost = [errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT if chance.random() < 0.3 else 0 for _ in range(2000)]
    cluster.answers_after_append["t", 0] = deque(lost)
    values: list[bytes | None] = []
    deliveries: list[asyncio.Future[RecordMetadata]] = []
    async with producer_to(cluster, batch_bytes=4000) as producer:
        for limit in (10_000, 1500, 700, 350):
            # Lowered while batches of the size before are on their way.
            log.bytes_max = limit
            for _ in range(100):
                values.append(f"{len(values)}:".encode() + bytes(chance.randrange(150)))
                deliveries.append(await producer.send("t", values[-1]))
        await producer.flush()
        split = producer.batches_split
    assert split > 0
    assert cluster.values("t") == values
    assert [delivery.exception() for delivery in deliveries] == [None] * len(values)


async def test_a_record_that_is_too_large_alone_fails_alone(cluster: FakeCluster) -> None:
    cluster.partitions["t", 0].bytes_max = 5000
    async with producer_to(cluster, batch_bytes=16_000, linger_ms=50.0) as producer:
        values = [b"small%d" % number for number in range(9)]
        values.insert(8, bytes(10_000))
        deliveries = [await producer.send("t", value) for value in values]
        await producer.flush()
        for number, delivery in enumerate(deliveries):
            if number == 8:
                with pytest.raises(RegnumError, match="t/0") as caught:
                    await delivery
                assert caught.value.code == errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE
            else:
                await delivery
        assert cluster.values("t") == [*values[:8], values[9]]
        before = len(cluster.partitions["t", 0].batches)
        for _ in range(40):
            await producer.send("t", b"small")
        await producer.flush()
        assert len(cluster.partitions["t", 0].batches) == before + 1, "its size is no measure for the others"
