"""Brokers are restarted one after another under load, each with a backlog to copy: no partition falls below min ISR."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from regnum_client import Admin, Producer
from regnum_coordination.opening import open_store
from regnum_coordination.port import Node, Store
from regnum_local.cluster import LocalCluster, ProcessState
from regnum_local.plan import Role
from regnum_model import paths
from regnum_model.nodes import LeaderAndIsr
from regnum_service.channel import open_channel
from regnum_testing.under_load import under_load, until

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(540)]

LOADED = "loaded"
COPIED = "copied"
PARTITIONS = 2
FOLLOWED = [(topic, number) for topic in (LOADED, COPIED) for number in range(PARTITIONS)]
MIN_INSYNC = 2
BACKLOG_RECORDS = 400
RECORD = os.urandom(50_000)
GRACE_S = 140.0
"""Two minutes to wait: a cluster that copies 80 MB beside other tests."""


class IsrWatch:
    """Every in-sync set that the partitions of both topics ever had in the store, while it looks."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.seen: list[tuple[tuple[str, int], tuple[int, ...]]] = []

    @property
    def below(self) -> list[tuple[tuple[str, int], tuple[int, ...]]]:
        return [one for one in self.seen if len(one[1]) < MIN_INSYNC]

    async def follow(self) -> None:
        """Never returns. Of a tree, since the watch of a node merges what changes fast."""
        revision = 0
        async with aclosing(self._store.read_tree(paths.TOPICS)) as pages:
            async for page in pages:
                revision = page.revision
                self._take(page.nodes)
        async with aclosing(self._store.watch_tree(paths.TOPICS, after_revision=revision)) as changes:
            async for change in changes:
                self._take(change.changed)

    def _take(self, nodes: Mapping[str, Node | None]) -> None:
        for partition in FOLLOWED:
            node = nodes.get(paths.leader_and_isr(*partition))
            if node is not None:
                self.seen.append((partition, tuple(LeaderAndIsr.decode(node.data).isr)))

    async def everywhere(self, broker: int) -> bool:
        """Whether it is in every in-sync set now: what is followed may be a moment behind."""
        nodes = await self._store.get_many([paths.leader_and_isr(*one) for one in FOLLOWED], current=True)
        return all(node is not None and broker in LeaderAndIsr.decode(node.data).isr for node in nodes)


@asynccontextmanager
async def watched(cluster: LocalCluster) -> AsyncIterator[IsrWatch]:
    store = await open_store(cluster.coordination, session_timeout_s=60.0)
    watch = IsrWatch(store)
    following = asyncio.create_task(watch.follow())
    try:
        yield watch
    finally:
        blind = following.done()
        following.cancel()
        (why,) = await asyncio.gather(following, return_exceptions=True)
        await store.close()
    assert not blind, why


def running(cluster: LocalCluster, broker: int) -> int | None:
    """Its process; None: it has ended."""
    (row,) = (row for row in cluster.status() if row.name == f"broker-{broker}")
    return row.pid if row.state is ProcessState.RUNNING else None


def tell_to_stop(cluster: LocalCluster, broker: int) -> None:
    pid = running(cluster, broker)
    assert pid is not None
    # What the launcher would send; but it would kill the broker after its own time.
    os.kill(pid, signal.SIGTERM)


async def gone(cluster: LocalCluster, broker: int) -> None:
    async def has_ended() -> bool:
        return running(cluster, broker) is None

    await until(has_ended, within_s=GRACE_S)


async def is_ready(cluster: LocalCluster, broker: int) -> bool:
    """What the readiness probe asks."""
    (row,) = (row for row in cluster.status() if row.name == f"broker-{broker}")
    channel = open_channel(row.addresses["client"])
    try:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service="regnum.broker.v1.LogService")
        answer = await stub.Check(request, timeout=5.0)
    finally:
        await channel.close()
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def said(data_dir: Path, broker: int, words: str) -> int:
    """How often a broker has written a line with these words."""
    return (data_dir / "logs" / f"broker-{broker}.log").read_text(errors="replace").count(words)


async def write_backlog(cluster: LocalCluster) -> None:
    async with Producer(cluster.bootstrap) as producer:
        for number in range(BACKLOG_RECORDS):
            await producer.send(COPIED, RECORD, partition=number % PARTITIONS)
        await producer.flush()


async def test_a_rolling_restart_takes_no_partition_below_min_isr_though_nobody_waits_between(tmp_path: Path) -> None:
    """The next broker is told to stop as soon as the one before it runs again, with its backlog still to copy."""
    reports: list[str] = []
    cluster = LocalCluster(
        tmp_path,
        brokers=3,
        elections=1,
        metadata=1,
        report=reports.append,
        extra={Role.BROKER: ["--termination-grace-s", str(GRACE_S)]},
    )
    async with cluster, Admin(cluster.bootstrap) as admin:
        await admin.create_topic(COPIED, partitions=PARTITIONS, replication_factor=3)
        async with under_load(cluster, LOADED, partitions=PARTITIONS) as loaded, watched(cluster) as watch:
            for broker in (1, 2, 3, 1):
                await until(lambda broker=broker: is_ready(cluster, broker))
                tell_to_stop(cluster, broker)
                await gone(cluster, broker)
                await write_backlog(cluster)
                await cluster.restart(f"broker-{broker}")
                await cluster.wait_healthy(f"broker-{broker}")
                ready = await is_ready(cluster, broker)
                # In sync is what makes it ready, and it says so to nobody before.
                assert not ready or await watch.everywhere(broker)
            await until(lambda: watch.everywhere(1))
            assert watch.below == []
            assert len({isr for _, isr in watch.seen}) >= 4, "nothing has happened"
            assert sum(said(tmp_path, broker, "lets this broker go") for broker in (1, 2, 3)) == 4
            assert sum(said(tmp_path, broker, "serving on: partitions would fall") for broker in (2, 3, 1)) >= 1

            # Two of three at one moment: the second stays, until it is told again.
            tell_to_stop(cluster, 2)
            await gone(cluster, 2)
            before = said(tmp_path, 3, "serving on: partitions would fall")
            tell_to_stop(cluster, 3)

            async def held() -> bool:
                return said(tmp_path, 3, "serving on: partitions would fall") > before

            await until(held)
            # It leads and follows as before: every partition goes on to acknowledge.
            counts = [len(history.acknowledged) for history in loaded.load.histories.values()]

            async def acknowledged() -> bool:
                return all(
                    len(history.acknowledged) > count + 20
                    for history, count in zip(loaded.load.histories.values(), counts, strict=True)
                )

            await until(acknowledged)
            assert running(cluster, 3) is not None
            assert watch.below == []
            tell_to_stop(cluster, 3)
            await gone(cluster, 3)
            assert said(tmp_path, 3, "going though partitions fall below min ISR") == 1
            await cluster.restart("broker-2")
            await cluster.restart("broker-3")
            await until(lambda: watch.everywhere(2))
            await until(lambda: watch.everywhere(3))
            verdict = await loaded.judged()
        assert verdict.clean, verdict
    # All at once: nobody waits for anybody, though each may take two minutes for it.
    assert not [line for line in reports if "was killed" in line]
