"""A real cluster with one follower far away: what a client waits for is the way there and back, and little more."""

import asyncio
import logging
import time
from pathlib import Path
from statistics import median, quantiles

import pytest
from regnum_client import Admin, NewTopic, Producer, ProducerSettings
from regnum_local.cluster import LocalCluster
from regnum_local.plan import Launch, Member, command
from regnum_testing.far_away import FarAway
from regnum_testing.waiting import within

# In full: it takes half a minute, and measures time.
pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(200)]

LOG = logging.getLogger(__name__)
DELAY_S = 0.2
"""Each way, between the leader and everybody else."""
P50_MAX = 2.5
"""Of that delay: a record goes to the follower, and its acknowledgement comes back."""
EVERY_S = 0.02
"""Pace of the load: records that wait for nobody's answer come while a fetch is under way, which is what takes time."""
RECORDS = 500


class FarLeader:
    """Starts broker 1 so that all others reach it by a long way."""

    def __init__(self) -> None:
        self.ways: list[FarAway] = []
        self.open: list[asyncio.Task[FarAway]] = []

    def command(self, member: Member, launch: Launch) -> list[str]:
        """As ``make_command`` of a cluster."""
        words = command(member, launch)
        if member.name != "broker-1":
            return words
        way = FarAway(upstream_port=member.address("internal").port, delay_s=DELAY_S)
        self.ways.append(way)
        self.open.append(asyncio.create_task(way.__aenter__()))
        return [*words, "--internal-advertised", f"127.0.0.1:{way.port}"]


async def test_with_a_follower_200_ms_away_half_of_the_records_are_acknowledged_within_half_a_second(
    tmp_path: Path,
) -> None:
    far = FarLeader()
    async with LocalCluster(tmp_path / "data", brokers=2, elections=1, metadata=1, make_command=far.command) as cluster:
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topics([NewTopic(name="t", partitions=0, assignment={0: [1, 2]})])
        settings = ProducerSettings(linger_ms=0)
        async with Producer(cluster.bootstrap, settings=settings) as producer:
            await within(await producer.send("t", b"first", partition=0))

            async def produced(number: int) -> tuple[int, float]:
                began_s = time.monotonic()
                sent = await producer.send("t", b"%04d" % number + bytes(1_000), partition=0)
                return (await sent).offset, time.monotonic() - began_s

            sending: list[asyncio.Task[tuple[int, float]]] = []
            for number in range(RECORDS):
                sending.append(asyncio.create_task(produced(number)))
                await asyncio.sleep(EVERY_S)
            outcomes = await within(asyncio.gather(*sending))
    for way in far.ways:
        await way.__aexit__()
    took_s = [seconds for _, seconds in outcomes]
    percentiles = quantiles(took_s, n=100)
    LOG.info(
        "p50 %.0f ms, p99 %.0f ms, max %.0f ms", *(1000 * s for s in (median(took_s), percentiles[98], max(took_s)))
    )
    assert [offset for offset, _ in outcomes] == list(range(1, RECORDS + 1))
    assert min(took_s) >= 2 * DELAY_S, "an acknowledgement came before the follower could have it"
    assert median(took_s) <= P50_MAX * DELAY_S
