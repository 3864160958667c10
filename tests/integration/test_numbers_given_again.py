"""A number that a removed partition had is given again, and a forgotten broker comes back with the old files (T10)."""

from pathlib import Path

import pytest
from regnum_client import Admin, Producer, TopicPartition
from regnum_local.cluster import LocalCluster
from regnum_local.demo.workload import read_everything
from regnum_testing.replica_files import segments_with
from regnum_testing.under_load import until

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(240)]


@pytest.mark.parametrize("coordination", ["etcd", "zookeeper"])
async def test_a_partition_that_is_added_again_is_empty_whoever_leads_it(tmp_path: Path, coordination: str) -> None:
    cluster = LocalCluster(
        tmp_path, brokers=3, elections=1, metadata=1, coordination=coordination, report=lambda _text: None
    )
    async with cluster, Admin(cluster.bootstrap) as admin:
        await admin.create_topic("t", partitions=0, assignment={0: [1, 2, 3], 1: [1, 2, 3]})
        async with Producer(cluster.bootstrap) as producer:
            for number in range(3):
                await (await producer.send("t", b"%d old" % number, partition=1))
        await cluster.kill("broker-3")

        async def is_away() -> bool:
            return 3 not in (await admin.describe_cluster()).brokers

        await until(is_away)
        await admin.delete_partitions("t", [1])

        async def gone_from_the_live() -> bool:
            return not any(segments_with(tmp_path / f"broker-{id}", b"old") for id in (1, 2))

        await until(gone_from_the_live)
        assert segments_with(tmp_path / "broker-3", b"old")
        await admin.forget_broker(3)
        await cluster.restart("broker-3")
        await cluster.wait_healthy("broker-3")

        async def is_back() -> bool:
            return 3 in (await admin.describe_cluster()).brokers

        await until(is_back)
        await admin.create_partitions("t", assignment={1: [3, 1, 2]})

        async def is_led() -> bool:
            partitions = (await admin.describe_topic("t")).partitions
            return 1 in partitions and partitions[1].leader == 3

        await until(is_led)
        async with Producer(cluster.bootstrap) as producer:
            await (await producer.send("t", b"777 new", partition=1))
        key = TopicPartition("t", 1)
        logs = await read_everything(cluster.bootstrap, [key])
        assert [number for _, number in logs[key]] == [777]
        assert not any(segments_with(tmp_path / f"broker-{id}", b"old") for id in (1, 2, 3))
        # Broker 3 is killed and comes back: what it has of this life is kept.
        await cluster.kill("broker-3")
        await until(is_away)
        await cluster.restart("broker-3")
        await cluster.wait_healthy("broker-3")

        async def in_sync() -> bool:
            return set((await admin.describe_topic("t")).partitions[1].isr) == {1, 2, 3}

        await until(in_sync)
        logs = await read_everything(cluster.bootstrap, [key])
    assert [number for _, number in logs[key]] == [777]
    assert segments_with(tmp_path / "broker-3", b"777 new")
