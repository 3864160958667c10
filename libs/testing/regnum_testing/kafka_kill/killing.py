"""Runs a program that sends records, kills their leader in the middle, and judges what is read back."""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import aiokafka
from regnum_client import Admin
from regnum_local.cluster import LocalCluster, ProcessState
from regnum_service.tls.files import TlsFiles

from regnum_testing.kafka_kill.producer import CERTIFICATES, HALF, speaking

PROGRAM_S: Final = 300.0
"""A program that takes longer is ended."""
READ_S: Final = 120.0
"""Within so long all is read back."""
BACK_S: Final = 300.0
"""Within so long the broker that was killed serves again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of the records of one program."""

    said: dict[str, Any]
    """What it said in the end."""
    lost: int
    """Acknowledged, and not there."""
    doubled: int
    """There more than once."""
    out_of_order: int
    """Behind one with a larger number."""

    @property
    def clean(self) -> bool:
        """Nothing of the kind, and nothing failed."""
        return not (self.harmed or self.said["failed"])

    @property
    def harmed(self) -> int:
        """Records that are lost, doubled or out of order."""
        return self.lost + self.doubled + self.out_of_order


def judge(numbers: Sequence[int], said: dict[str, Any]) -> Verdict:
    """What was read, against what the program said: as it sends each once, none fails where all are acknowledged."""
    doubled = len(numbers) - len(set(numbers))
    behind = sum(later < earlier for earlier, later in pairwise(numbers))
    return Verdict(said=said, lost=max(0, said["acked"] - len(set(numbers))), doubled=doubled, out_of_order=behind)


async def kill_in_the_middle(
    cluster: LocalCluster, program: Sequence[str], *, topic: str, count: int, rate: float
) -> Verdict:
    """Make the topic, run the program, kill the leader at half, read everything back. The broker stays killed.

    Raises AssertionError: the program said nothing of a half, so that nothing was killed.
    """
    bootstrap, shown = ",".join(cluster.plan.kafka), certificates(cluster.tls)
    killed, line = "", ""
    async with Admin(cluster.bootstrap, timeout_s=BACK_S, tls=cluster.tls) as admin, asyncio.timeout(PROGRAM_S):
        await admin.create_topic(topic, partitions=1, replication_factor=3)
        running = await asyncio.create_subprocess_exec(
            *program,
            *(bootstrap, topic, str(count), str(rate)),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **shown},
        )
        try:
            assert running.stdout is not None
            while (line := (await running.stdout.readline()).decode().strip()) and not line.startswith("{"):
                if line == HALF:
                    killed = f"broker-{(await admin.describe_topic(topic)).partitions[0].leader}"
                    await cluster.kill(killed)
            await running.wait()
        finally:
            if running.returncode is None:
                running.kill()
    verdict = judge(await _numbers(bootstrap, topic, shown), json.loads(line))
    if not killed:
        raise AssertionError(f"{program} never said {HALF}: {verdict}")
    return verdict


def certificates(tls: TlsFiles | None) -> dict[str, str]:
    """Variables that tell a program what to show; none where nothing is."""
    return {} if tls is None else dict(zip(CERTIFICATES, map(str, (tls.ca, tls.certificate, tls.key)), strict=True))


async def back(cluster: LocalCluster) -> None:
    """Start again what was killed, and wait until it serves."""
    for row in cluster.status():
        if row.state is ProcessState.EXITED:
            await cluster.restart(row.name)
            await cluster.wait_healthy(row.name, BACK_S)


async def _numbers(bootstrap: str, topic: str, shown: Mapping[str, str]) -> list[int]:
    """All that is committed of the topic's one partition."""
    how = speaking(shown)
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", **how)
    place, found = aiokafka.TopicPartition(topic, 0), list[int]()
    async with asyncio.timeout(READ_S):
        await consumer.start()
        try:
            consumer.assign([place])
            end = (await consumer.end_offsets([place]))[place]
            while await consumer.position(place) < end:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found += [int(record.value) for record in records]
        finally:
            await consumer.stop()
    return found
