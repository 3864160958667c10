"""`regnum load`: records at a rate, latencies from when they were due."""

import asyncio
import json
import random
from collections.abc import AsyncIterator

import pytest
from regnum_client import Producer, ProducerSettings
from regnum_client.commands.load.figures import GROWTH, Latencies, Tally, due
from regnum_client.commands.load.generating import Generator, Plan
from regnum_service.clock import SystemClock
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.create("orders", partitions=2)
        yield running


def test_quantiles_are_at_most_a_tenth_too_large() -> None:
    latencies = Latencies()
    assert latencies.quantile_s(0.5) is None
    for number in range(1, 1001):
        latencies.add(number / 1000)
    for share, exact_s in ((0.5, 0.5), (0.99, 0.99), (1.0, 1.0)):
        found_s = latencies.quantile_s(share)
        assert found_s is not None
        assert exact_s <= found_s <= exact_s * GROWTH
    latencies.add(0.0)
    assert latencies.quantile_s(0.0) is not None
    assert latencies.max_s == 1.0


def test_rows_of_an_interval_and_of_all() -> None:
    tally = Tally(record_bytes=100)
    tally.sent = 5
    tally.acknowledged(0.010)
    tally.acknowledged(0.020)
    tally.failed = 1
    first = tally.interval(1.0, 1.0)
    assert (first["second"], first["records_s"], first["bytes_s"], first["failed"]) == (1, 2.0, 200, 1)
    assert (first["max_ms"], first["in_flight"]) == (20.0, 2)
    tally.acknowledged(0.030)
    second = tally.interval(2.0, 1.0)
    assert (second["records"], second["p50_ms"], second["failed"]) == (1, 30.0, 0)
    total = tally.total(2.0)
    assert (total["second"], total["records"], total["records_s"], total["failed"]) == ("total", 3, 1.5, 1)


def test_records_are_due_at_their_rate() -> None:
    assert [due(at_s, 10.0) for at_s in (0.0, 0.05, 0.1, 1.0)] == [1, 1, 2, 11]


@pytest.mark.parametrize(("size_bytes", "values"), [(100, 64), (16_000_000, 4)])
def test_large_values_are_few(size_bytes: int, values: int) -> None:
    made: list[int] = []

    class Chance(random.Random):
        def randbytes(self, n: int) -> bytes:
            made.append(n)
            return b""

    plan = Plan(rate=1.0, size_bytes=size_bytes, keys=0, records_max=1, duration_s=None, interval_s=1.0)
    Generator(Producer("localhost:1"), "orders", plan, clock=SystemClock(), chance=Chance())
    assert made == [size_bytes] * values


async def test_so_many_records_are_sent_and_counted(cluster: FakeCluster) -> None:
    regnum = CommandHere(cluster.bootstrap)
    ran = await regnum("load", "orders", "--rate", "0", "-n", "450", "--keys", "3", "-s", "10", "-o", "json")
    assert ran.status == 0, ran.err
    total = json.loads(ran.out)[-1]
    assert (total["second"], total["records"], total["failed"], total["in_flight"]) == ("total", 450, 0, 0)
    assert total["p50_ms"] <= total["p99_ms"] <= total["max_ms"]
    assert sum(cluster.partitions["orders", number].end for number in (0, 1)) == 450
    table = await regnum("load", "orders", "--rate", "1000", "--duration", "0.2")
    assert table.out.splitlines()[0].split()[:3] == ["SECOND", "RECORDS", "S"]


async def test_a_record_that_is_sent_late_counts_from_when_it_was_due(cluster: FakeCluster) -> None:
    """A stall of the sender is in the latencies of all records that were due meanwhile."""
    clock = LateClock()
    plan = Plan(rate=1000.0, size_bytes=1, keys=0, records_max=300, duration_s=None, interval_s=60.0)
    async with Producer(cluster.bootstrap, settings=ProducerSettings(linger_ms=0)) as producer:
        generator = Generator(producer, "orders", plan, clock=clock, chance=random.Random(1))
        await generator.run(lambda _row: None)
    total = generator.tally.total(generator.elapsed_s)
    assert total["records"] == 300
    assert total["max_ms"] >= 1000 * LateClock.STALL_S


class LateClock(SystemClock):
    """Goes on by a stall once, at the first sleep."""

    STALL_S = 0.25

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def monotonic(self) -> float:
        """See Clock."""
        return super().monotonic() + self._ahead_s

    async def sleep(self, seconds: float) -> None:
        """See Clock."""
        self._ahead_s = self.STALL_S
        await asyncio.sleep(0)
        await super().sleep(seconds)
