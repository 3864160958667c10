"""Leaders by request and settings of topics, with real processes: what an operator does is done without a restart."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client import (
    Admin,
    ConfigAlteration,
    ConfigResource,
    ElectionType,
    OfflineReason,
    Producer,
    ProducerSettings,
    TopicPartition,
)
from regnum_local.cluster import LocalCluster
from regnum_local.demo.workload import read_everything
from regnum_service.errors import RegnumError
from regnum_testing.under_load import until

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.timeout(300)]

MAX_MESSAGE_BYTES, SEGMENT_BYTES = "max.message.bytes", "segment.bytes"
MEGABYTE = 1 << 20


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    started = LocalCluster(tmp_path / "data", brokers=3, elections=2, metadata=1, report=lambda _text: None)
    async with started:
        yield started


async def send(cluster: LocalCluster, topic: str, *values: bytes, acks: int = -1) -> None:
    """One batch for each value, acknowledged, or it raises."""
    settings = ProducerSettings(acks=acks, linger_ms=0, batch_bytes=64, batch_bytes_max=0, delivery_timeout_s=40.0)
    async with Producer(cluster.bootstrap, settings=settings) as producer:
        for value in values:
            await (await producer.send(topic, value, partition=0))


async def led_by(admin: Admin, topic: str, leader: int, isr: set[int] | None = None) -> bool:
    partition = (await admin.describe_topic(topic)).partitions[0]
    return partition.leader == leader and (isr is None or set(partition.isr) == isr)


async def test_settings_of_a_topic_act_on_its_brokers_without_a_restart(cluster: LocalCluster, tmp_path: Path) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic("t", assignment={0: [1, 2]}, partitions=0, configs={MAX_MESSAGE_BYTES: "5000"})
        await send(cluster, "t", b"v" * 4_000)
        with pytest.raises(RegnumError) as refused:
            await send(cluster, "t", b"v" * 6_000)
        assert refused.value.code == errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE
        assert "5000" in refused.value.message
        settings = ProducerSettings(linger_ms=200, batch_bytes=64 * 1024, delivery_timeout_s=40.0)
        async with Producer(cluster.bootstrap, settings=settings) as producer:
            many = [await producer.send("t", b"w" * 200, partition=0) for _ in range(100)]
            offsets = [(await delivery).offset for delivery in many]
        assert offsets == list(range(1, 101)), "batches that are too large are parted, records are not"
        wanted = {MAX_MESSAGE_BYTES: str(2 * MEGABYTE), SEGMENT_BYTES: str(MEGABYTE)}
        await admin.alter_config(ConfigAlteration(resource=ConfigResource(topic="t"), set=wanted))

        async def taken() -> bool:
            with contextlib.suppress(RegnumError):
                await send(cluster, "t", b"v" * 1_500_000)
                return True
            return False

        await until(taken)
        await send(cluster, "t", *[b"v" * 700_000] * 4)

        async def leader_and_follower_have_closed_segments() -> bool:
            return all(
                len(list((tmp_path / "data" / f"broker-{id}" / "replicas").glob("*/*.log"))) >= 4 for id in (1, 2)
            )

        await until(leader_and_follower_have_closed_segments)


async def test_leaders_come_back_by_request_and_an_unclean_one_only_when_it_is_asked_for(
    cluster: LocalCluster,
) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic("t", assignment={0: [1, 2, 3]}, partitions=0)
        await admin.create_topic("u", assignment={0: [1, 2]}, partitions=0, configs={"min.insync.replicas": "1"})
        await send(cluster, "u", b"seen by both")
        await cluster.kill("broker-2")
        await until(lambda: led_by(admin, "u", 1, {1}))
        await send(cluster, "u", b"only on 1")
        await cluster.kill("broker-1")
        await until(lambda: led_by(admin, "t", 3))
        await cluster.restart("broker-2")
        await cluster.wait_healthy("broker-2")

        async def offline() -> bool:
            found = await admin.list_offline_partitions()
            return [(one.topic, one.reason) for one in found.partitions] == [("u", OfflineReason.MEMBERS_AWAY)]

        await until(offline)

        async def answered() -> bool:
            (look,) = await admin.elect_leaders(ElectionType.UNCLEAN, {"u": [0]}, validate_only=True)
            return look.failure is None and look.leader == 2 and look.unknown == (1,)

        await until(answered)
        assert await led_by(admin, "u", -1), "a look changes nothing"
        (done,) = await admin.elect_leaders(ElectionType.UNCLEAN, {"u": [0]})
        assert (done.failure, done.leader) == (None, 2)
        await until(lambda: led_by(admin, "u", 2))
        await send(cluster, "u", b"after the loss")
        await cluster.restart("broker-1")
        await cluster.wait_healthy("broker-1")
        await until(lambda: led_by(admin, "t", 3, {1, 2, 3}))
        await until(lambda: led_by(admin, "u", 2, {1, 2}))
        results = await admin.elect_leaders(ElectionType.PREFERRED)
        assert {(one.topic, one.leader) for one in results} == {("t", 1), ("u", 1)}, results
        await until(lambda: led_by(admin, "u", 1))
        log = (await read_everything(cluster.bootstrap, [TopicPartition("u", 0)]))[TopicPartition("u", 0)]
        assert len(log) == 2, "what only the lost log had is gone, and nothing else"


async def test_a_controller_that_is_asked_to_resign_makes_way_and_nobody_loses_a_record(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic("t", assignment={0: [1, 2, 3]}, partitions=0)
        sending = asyncio.create_task(send(cluster, "t", *[b"%d" % number for number in range(200)]))
        ended = await admin.resign_controller()
        assert ended.successor_epoch > ended.controller_epoch
        assert ended.successor_id != ended.controller_id
        await sending
        assert await led_by(admin, "t", 1)
        brokers = await admin.describe_brokers()
        assert [(one.id, one.live) for one in brokers] == [(1, True), (2, True), (3, True)]
        assert brokers[0].leaders == 1
        log = (await read_everything(cluster.bootstrap, [TopicPartition("t", 0)]))[TopicPartition("t", 0)]
        assert [number for _, number in log] == list(range(200))
