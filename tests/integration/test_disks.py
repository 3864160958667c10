"""Disks of a running cluster: one that is full, on a real small file system, and one that answers no more."""

import os
from pathlib import Path

import pytest
from regnum_client import Admin, Producer, TopicPartition
from regnum_local.cluster import LocalCluster
from regnum_local.demo.workload import read_everything
from regnum_testing.replica_files import names_ending
from regnum_testing.small_filesystem import small_filesystem
from regnum_testing.under_load import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

MIB = 1024 * 1024


@pytest.mark.full
async def test_a_full_follower_leaves_the_isr_and_a_full_broker_starts_deletes_and_goes_on(tmp_path: Path) -> None:
    place, mount = tmp_path / "cluster", tmp_path / "small"
    place.mkdir()
    mount.mkdir()
    with small_filesystem(mount, size_bytes=20 * MIB) as small:
        (place / "broker-1").symlink_to(small)
        async with (
            LocalCluster(place, brokers=3, elections=1, metadata=1, report=lambda _text: None) as cluster,
            Admin(cluster.bootstrap) as admin,
        ):
            await admin.create_topic("large", partitions=0, assignment={0: [2, 3, 1]})
            await admin.create_topic("small", partitions=0, assignment={0: [1, 2, 3]})
            async with Producer(cluster.bootstrap) as producer:
                sent = [await producer.send("large", str(n).encode().ljust(10_000), partition=0) for n in range(800)]
                await producer.flush()
            assert all(delivery.exception() is None for delivery in sent)

            async def full_one_is_out() -> bool:
                return set((await admin.describe_topic("large")).partitions[0].isr) == {2, 3}

            await until(full_one_is_out)
            await cluster.kill("broker-1")
            await cluster.restart("broker-1")
            await admin.delete_topics(["large"])

            async def reserve_is_back() -> bool:
                reserve = small / "reserve"
                return reserve.exists() and reserve.stat().st_size == 16 * MIB and not names_ending(small, ".deleted")

            await until(reserve_is_back)
            async with Producer(cluster.bootstrap) as producer:
                await (await producer.send("small", b"0", partition=0))

            async def all_in_sync() -> bool:
                return len((await admin.describe_topic("small")).partitions[0].isr) == 3

            await until(all_in_sync)
            logs = await read_everything(cluster.bootstrap, [TopicPartition("small", 0)])
            assert len(logs[TopicPartition("small", 0)]) == 1


@pytest.mark.full
async def test_a_broker_whose_disk_answers_no_more_ends_and_another_one_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe in place of the file that a checkpoint writes: whoever opens it waits for a reader, and none comes.

    Only that broker is impatient: on a busy machine the disk of a whole cluster may well take seconds for an answer.
    """
    async with (
        LocalCluster(tmp_path, brokers=3, elections=1, metadata=1, report=lambda _text: None) as cluster,
        Admin(cluster.bootstrap) as admin,
    ):
        monkeypatch.setenv("REGNUM_DISK_TIMEOUT_S", "4")
        await cluster.terminate("broker-1")
        await cluster.restart("broker-1")
        await cluster.wait_healthy("broker-1")
        await admin.create_topic("t", partitions=0, assignment={0: [1, 2, 3]})

        async def the_first_leads() -> bool:
            return (await admin.describe_topic("t")).partitions[0].leader == 1

        await until(the_first_leads)
        os.mkfifo(tmp_path / "broker-1" / "high-watermarks.new")
        async with Producer(cluster.bootstrap) as producer:
            await (await producer.send("t", b"0", partition=0))

            async def another_one_leads() -> bool:
                return (await admin.describe_topic("t")).partitions[0].leader in {2, 3}

            await until(another_one_leads)
            await (await producer.send("t", b"1", partition=0))

        async def has_ended() -> bool:
            said = (tmp_path / "logs" / "broker-1.log").read_text()
            return "has not come back for" in said and "ends without waiting for its disk" in said

        await until(has_ended)
        logs = await read_everything(cluster.bootstrap, [TopicPartition("t", 0)])
        assert [number for _, number in logs[TopicPartition("t", 0)]] == [0, 1]
