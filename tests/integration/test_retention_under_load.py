"""A topic written without pause stays near its limit, while it is read, a follower is away and a leader is killed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from regnum_client import Admin, Consumer, ConsumerSettings, Producer, ProducerSettings, ResetPolicy, TopicPartition
from regnum_local.cluster import LocalCluster
from regnum_testing.under_load import until

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(600)]

SAMPLES_S = 0.1
"""Time between two looks at the sizes of the logs: nothing is waited for."""

MEGABYTE = 1 << 20
LIMIT = 64 * MEGABYTE


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    started = LocalCluster(tmp_path / "data", brokers=3, elections=2, metadata=1, report=lambda _text: None)
    async with started:
        yield started


class Load:
    """One producer, one consumer, and the sizes that the brokers' files have meanwhile."""

    def __init__(self, cluster: LocalCluster, root: Path) -> None:
        self.cluster = cluster
        self.root = root
        self.written = 0
        self.acknowledged_end = 0
        self.sizes: dict[int, list[int]] = {1: [], 2: [], 3: []}
        self.read: list[int] = []

    async def write(self) -> None:
        settings = ProducerSettings(delivery_timeout_s=120.0)
        async with Producer(self.cluster.bootstrap, settings=settings) as producer:
            while True:
                sent = [await producer.send("t", b"v" * 10_000, partition=0) for _ in range(100)]
                self.written += 100 * 10_000
                self.acknowledged_end = max([(await one).offset for one in sent]) + 1

    async def consume(self) -> None:
        settings = ConsumerSettings(reset=ResetPolicy.EARLIEST)
        async with Consumer(self.cluster.bootstrap, settings=settings) as consumer:
            await consumer.assign("t")
            async for record in consumer:
                self.read.append(record.offset)

    def size_of(self, id: int) -> int:
        """Bytes of the segments of a broker's replica, those that are being removed left out."""
        total = 0
        for file in (self.root / f"broker-{id}" / "replicas").glob("*/*.log"):
            with suppress(FileNotFoundError):
                total += file.stat().st_size
        return total

    async def watch(self) -> None:
        while True:
            for id, sizes in self.sizes.items():
                sizes.append(await asyncio.to_thread(self.size_of, id))
            await asyncio.sleep(SAMPLES_S)

    async def more(self, size_bytes: int) -> None:
        """Until so much more was written."""
        wanted = self.written + size_bytes

        async def done() -> bool:
            return self.written >= wanted

        await until(done, within_s=120.0)


async def test_a_topic_stays_near_its_limit_whatever_happens_to_its_brokers(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    load = Load(cluster, tmp_path / "data")
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic("t", assignment={0: [1, 2, 3]}, partitions=0, configs={"retention.bytes": str(LIMIT)})
        running = [asyncio.create_task(work()) for work in (load.write, load.consume, load.watch)]
        try:
            await load.more(2 * LIMIT)
            await cluster.kill("broker-3")
            await load.more(LIMIT // 2)
            await cluster.restart("broker-3")
            await load.more(LIMIT // 2)
            await cluster.kill("broker-1")
            await load.more(LIMIT)
            await cluster.restart("broker-1")
            await load.more(LIMIT // 2)
        finally:
            for task in running:
                task.cancel()
            ended = await asyncio.gather(*running, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended

        async def all_near() -> bool:
            return all(LIMIT <= load.size_of(id) <= LIMIT * 11 // 10 for id in (1, 2, 3))

        await until(all_near)
        largest = {id: max(sizes) / LIMIT for id, sizes in load.sizes.items()}
        assert max(largest.values()) < 1.1, f"in limits: {largest}; {load.written / LIMIT:.1f} limits were written"
        assert load.read == sorted(set(load.read)), "in order, none twice"
        assert load.read
    partition = TopicPartition("t", 0)
    async with Consumer(cluster.bootstrap) as consumer:
        ends = await consumer.end_offsets([partition])
    assert ends[partition] >= load.acknowledged_end > 0, "nothing acknowledged is gone from the log's end"
