"""min.insync.replicas is lowered while nobody reigns: what is acknowledged afterwards survives whoever is killed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client import (
    CLUSTER_CONFIG,
    Admin,
    ConfigAlteration,
    DeliveryTimeoutError,
    Producer,
    ProducerSettings,
    TopicPartition,
)
from regnum_coordination import open_store
from regnum_coordination.port import Store
from regnum_local.cluster import LocalCluster
from regnum_local.demo.workload import read_everything
from regnum_local.plan import Role
from regnum_model.configs import CLUSTER, MIN_INSYNC_REPLICAS, decode_config, encode_config
from regnum_service.errors import RegnumError
from regnum_testing.under_load import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

RECORDS = TopicPartition("t", 0)
PATIENT = ProducerSettings(linger_ms=0, delivery_timeout_s=40.0)


@asynccontextmanager
async def store_of(cluster: LocalCluster) -> AsyncIterator[Store]:
    store = await open_store(cluster.coordination)
    try:
        yield store
    finally:
        await store.close()


async def write_min_insync(cluster: LocalCluster, value: int) -> None:
    """As a person would, with the store's own tool."""
    async with store_of(cluster) as store:
        node = await store.get(CLUSTER, current=True)
        config = {**decode_config(node.data, example=""), MIN_INSYNC_REPLICAS: str(value)}
        await store.set(CLUSTER, encode_config(config), version=node.stat.version)


@asynccontextmanager
async def under_three(tmp_path: Path) -> AsyncIterator[tuple[LocalCluster, Admin]]:
    """Three brokers, min.insync.replicas 3, and replica 3 dead: ISR (1, 2), ELR (3). Nothing can be acknowledged."""
    extra = {Role.ELECTION: ["--min-insync-replicas", "3"]}
    cluster = LocalCluster(tmp_path, brokers=3, elections=1, metadata=1, extra=extra, report=lambda _text: None)
    async with cluster, Admin(cluster.bootstrap) as admin:
        await admin.create_topic("t", assignment={0: [1, 2, 3]}, partitions=0)
        await produce(cluster, range(20))
        await cluster.kill("broker-3")

        async def three_is_eligible() -> bool:
            partition = (await admin.describe_topic("t")).partitions[0]
            return (set(partition.isr), set(partition.elr)) == ({1, 2}, {3})

        await until(three_is_eligible)
        with pytest.raises(DeliveryTimeoutError):
            await produce(cluster, [-1], settings=ProducerSettings(linger_ms=0, delivery_timeout_s=1.0))
        yield cluster, admin


async def produce(cluster: LocalCluster, numbers: "range | list[int]", *, settings: ProducerSettings = PATIENT) -> None:
    """All of them acknowledged by all in-sync replicas, or it raises."""
    async with Producer(cluster.bootstrap, settings=settings) as producer:
        deliveries = [await producer.send("t", str(number).encode(), partition=0) for number in numbers]
        await asyncio.gather(*deliveries)


async def lose_the_others(cluster: LocalCluster, admin: Admin) -> None:
    """1 and 2 die, and 3, which missed the last records, comes back alone."""
    for name in ("broker-1", "broker-2"):
        await cluster.kill(name)
    await cluster.restart("broker-3")
    await cluster.wait_healthy("broker-3")

    async def three_alone() -> bool:
        return set((await admin.describe_cluster()).brokers) == {3}

    await until(three_alone)

    async def nobody_leads() -> bool:
        """A replica without all records must not."""
        return (await admin.describe_topic("t")).partitions[0].leader == -1

    # What is told of the topic may be of a moment before.
    await until(nobody_leads)


async def come_back(cluster: LocalCluster) -> list[int]:
    """Numbers that are read when the others are there again."""
    for name in ("broker-1", "broker-2"):
        await cluster.restart(name)
        await cluster.wait_healthy(name)
    log = (await read_everything(cluster.bootstrap, [RECORDS]))[RECORDS]
    return [number for _, number in log if number >= 0]


@pytest.mark.full
async def test_a_value_lowered_between_two_reigns_loses_nothing(tmp_path: Path) -> None:
    async with under_three(tmp_path) as (cluster, admin):
        await cluster.kill("election-1")
        await write_min_insync(cluster, 2)
        await cluster.restart("election-1")
        await cluster.wait_healthy("election-1")
        await produce(cluster, range(20, 60))
        await lose_the_others(cluster, admin)
        assert await come_back(cluster) == list(range(60))


@pytest.mark.full
async def test_a_value_lowered_in_mid_reign_is_in_force_at_once_and_loses_nothing(tmp_path: Path) -> None:
    async with under_three(tmp_path) as (cluster, admin):
        await admin.alter_config(ConfigAlteration(resource=CLUSTER_CONFIG, set={MIN_INSYNC_REPLICAS: "2"}))
        await produce(cluster, range(20, 60))
        assert (await admin.describe_topic("t")).partitions[0].elr == ()
        await lose_the_others(cluster, admin)
        assert await come_back(cluster) == list(range(60))


# Unit tests of the controller have it, without a cluster.
@pytest.mark.full
async def test_a_topic_that_does_not_fit_the_live_brokers_is_refused_and_not_made_smaller(tmp_path: Path) -> None:
    async with under_three(tmp_path) as (_, admin):
        created = await admin.create_topic("two", replication_factor=2)
        assert created.replication_factor == 2
        with pytest.raises(RegnumError, match="default replication factor 3 does not fit 2 live brokers") as error:
            await admin.create_topic("three")
        assert error.value.code == errors_pb2.ERROR_CODE_INVALID_REPLICATION_FACTOR
