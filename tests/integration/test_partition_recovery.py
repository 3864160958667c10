"""`regnum partitions recover` on real processes: what was said to survive survives, and work goes on."""

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from regnum_client import Admin, Producer, TopicPartition
from regnum_local.cluster import LocalCluster
from regnum_local.demo.workload import read_everything
from regnum_testing.hands import hand_for
from regnum_testing.under_load import until

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.timeout(240)]

TOPIC = "t"
ALONE = "alone"
"""A topic with one replica."""
ONLY = TopicPartition(TOPIC, 0)


def quiet(data_dir: Path, *, elections: int = 1) -> LocalCluster:
    return LocalCluster(data_dir, brokers=3, elections=elections, metadata=1, report=lambda _text: None)


async def regnum(cluster: LocalCluster, *arguments: str) -> tuple[int | None, Any]:
    """The command, with JSON on stdout."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "import sys; from regnum_client.command import main; sys.exit(main())"),
        *arguments,
        *("-o", "json", "--bootstrap", ",".join(cluster.bootstrap)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, error = await process.communicate()
    return process.returncode, json.loads(out or error)


async def write(cluster: LocalCluster, numbers: range, *, topic: str = TOPIC) -> None:
    async with Producer(cluster.bootstrap) as producer:
        deliveries = [await producer.send(topic, str(number).encode(), partition=0) for number in numbers]
        await producer.flush()
        assert all(delivery.exception() is None for delivery in deliveries)


async def all_in_sync(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap) as admin:

        async def in_sync() -> bool:
            return all(len(one.isr) == 3 for one in (await admin.describe_topic(TOPIC)).partitions.values())

        await until(in_sync)


async def numbers_in(cluster: LocalCluster, partition: TopicPartition = ONLY) -> list[int]:
    logs = await read_everything(cluster.bootstrap, [partition])
    return [number for _, number in logs[partition]]


def as_after_a_loss_of_power(broker: Path) -> None:
    """The directory was open under another boot, and nothing proves that its log is complete (safety rule S10)."""
    path = broker / "meta.json"
    meta = json.loads(path.read_text())
    meta["boot_id"] = "another boot"
    path.write_text(json.dumps(meta))


@pytest.mark.full
async def test_two_disks_are_gone_and_the_third_lost_power_and_what_it_has_is_had_back(tmp_path: Path) -> None:
    async with quiet(tmp_path) as cluster:
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC, partitions=1, replication_factor=3)
            await admin.create_topic(ALONE, partitions=0, assignment={0: [2]})
        await write(cluster, range(100))
        await write(cluster, range(5), topic=ALONE)
        for number in (1, 2, 3):
            await cluster.kill(f"broker-{number}")
        as_after_a_loss_of_power(tmp_path / "broker-1")
        for number in (2, 3):
            shutil.rmtree(tmp_path / f"broker-{number}")
        for number in (1, 2, 3):
            await cluster.restart(f"broker-{number}")
            await cluster.wait_healthy(f"broker-{number}")

        async def reported() -> bool:
            status, found = await regnum(cluster, "partitions", "recover", TOPIC)
            return status == 0 and bool(found) and all(one["log_id"] for one in found[0]["replicas"])

        await until(reported)
        status, (one,) = await regnum(cluster, "partitions", "recover", TOPIC)
        assert status == 0
        assert (one["chosen"], one["recovered"], one["lost_from_offset"]) == (1, False, 100)
        assert set(one["unknown"]) <= {1, 2, 3}
        assert one["unknown"]
        # Nobody was elected by looking.
        async with Admin(cluster.bootstrap) as admin:
            assert (await admin.describe_topic(TOPIC)).partitions[0].leader == -1
        status, (done,) = await regnum(cluster, "partitions", "recover", TOPIC, "--accept-loss")
        assert status == 0
        assert done["recovered"]
        assert done["leader_epoch"] > max(replica["current_leader_epoch"] for replica in one["replicas"])
        await all_in_sync(cluster)
        await write(cluster, range(100, 200))
        assert await numbers_in(cluster) == list(range(200))
        status, _refused = await regnum(cluster, "partitions", "recover", TOPIC, "0", "--accept-loss")
        assert status == 4
        # Of the topic whose only disk is gone nothing is left, and it can be used again.
        status, (one,) = await regnum(cluster, "partitions", "recover", ALONE)
        assert (one["chosen"], one["lost_from_offset"], one["unknown"]) == (2, 0, [2])
        status, (done,) = await regnum(cluster, "partitions", "recover", ALONE, "--accept-loss")
        assert done["recovered"]
        await write(cluster, range(5, 10), topic=ALONE)
        assert await numbers_in(cluster, TopicPartition(ALONE, 0)) == list(range(5, 10))


async def test_a_state_and_a_guard_that_were_removed_by_hand_are_made_again_and_nothing_is_lost(tmp_path: Path) -> None:
    async with quiet(tmp_path, elections=2) as cluster, hand_for(cluster.coordination) as hand:
        async with Admin(cluster.bootstrap) as admin:
            created = await admin.create_topic(TOPIC, partitions=2, replication_factor=3)
        await write(cluster, range(100))
        await all_in_sync(cluster)
        await hand.delete(f"/brokers/topics/{TOPIC}/0/leaderAndISR")
        await hand.delete(f"/brokers/topic_ids/{created.topic_id}")
        # The next reign reads a topic that it can do nothing with.
        await hand.delete("/controller")

        async def reported() -> bool:
            status, found = await regnum(cluster, "partitions", "recover", TOPIC)
            return status == 0 and bool(found) and all(log["log_id"] for one in found for log in one["replicas"])

        await until(reported)
        status, found = await regnum(cluster, "partitions", "recover", TOPIC)
        assert [one["lost_from_offset"] for one in found] == [one["known_end_offset"] for one in found] == [100, 0]
        status, done = await regnum(cluster, "partitions", "recover", TOPIC, "--accept-loss")
        assert status == 0
        assert [one["recovered"] for one in done] == [True, True]
        assert await hand.get(f"/brokers/topic_ids/{created.topic_id}") is not None
        await all_in_sync(cluster)
        await write(cluster, range(100, 200))
        assert await numbers_in(cluster) == list(range(200))
