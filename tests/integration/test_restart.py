"""A cluster that was stopped comes back with everything; a follower that was away catches up; all files are equal."""

import asyncio
import sys
from pathlib import Path

import pytest
from regnum_client import Admin, Producer, TopicPartition
from regnum_local.cluster import LocalCluster
from regnum_local.demo.replicas import folders, replica_logs
from regnum_local.demo.verdict import unequal_replicas
from regnum_local.demo.workload import read_everything
from regnum_testing.replica_files import segments_with
from regnum_testing.under_load import until
from regnum_testing.waiting import within

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


def quiet(data_dir: Path) -> LocalCluster:
    return LocalCluster(data_dir, brokers=3, elections=3, report=lambda _text: None)


def smallest(data_dir: Path, *, brokers: int) -> LocalCluster:
    """Nobody stands by: for what brokers do by themselves."""
    return LocalCluster(data_dir, brokers=brokers, elections=1, metadata=1, report=lambda _text: None)


@pytest.mark.full
async def test_everything_is_there_after_a_stop_and_a_start(tmp_path: Path) -> None:
    partitions = [TopicPartition("kept", number) for number in range(3)]
    async with (
        quiet(tmp_path) as cluster,
        Admin(cluster.bootstrap) as admin,
        Producer(cluster.bootstrap) as producer,
    ):
        await admin.create_topic("kept", partitions=3, replication_factor=3)
        deliveries = [await producer.send("kept", str(number).encode(), partition=number % 3) for number in range(600)]
        await producer.flush()
        assert all(delivery.exception() is None for delivery in deliveries)
        # A follower that misses some of it: two of three go on, and it catches up when it returns.
        topic = await admin.describe_topic("kept")
        away = topic.partitions[0].replicas[-1]
        await cluster.kill(f"broker-{away}")
        for number in range(600, 1200):
            await producer.send("kept", str(number).encode(), partition=number % 3)
        await producer.flush()
        await cluster.restart(f"broker-{away}")
        await cluster.wait_healthy(f"broker-{away}")

        async def in_sync() -> bool:
            return all(len(state.isr) == 3 for state in (await admin.describe_topic("kept")).partitions.values())

        await until(in_sync)
        names = await folders(admin, ["kept"])
    first_logs = replica_logs(tmp_path)
    assert len(first_logs) == len(names) == 3
    assert unequal_replicas(first_logs, names) == ()
    async with quiet(tmp_path) as cluster:
        logs = await read_everything(cluster.bootstrap, partitions)
    assert {partition.partition: [number for _, number in log] for partition, log in logs.items()} == {
        partition: list(range(partition, 1200, 3)) for partition in range(3)
    }
    assert unequal_replicas(replica_logs(tmp_path), names) == ()


async def test_a_topic_deleted_while_a_broker_is_away_is_deleted_there_too(tmp_path: Path) -> None:
    """And its name, taken anew, does not bring the old records back (safety rule S13)."""
    async with smallest(tmp_path, brokers=3) as cluster, Admin(cluster.bootstrap) as admin:
        async with Producer(cluster.bootstrap) as producer:
            await admin.create_topic("reborn", partitions=1, replication_factor=3)
            for number in range(50):
                await producer.send("reborn", str(number).encode(), partition=0)
            await producer.flush()
        await cluster.kill("broker-3")

        async def known_to_be_gone() -> bool:
            return 3 not in (await admin.describe_cluster()).brokers

        await until(known_to_be_gone)
        await admin.delete_topic("reborn")
        await admin.create_topic("reborn", partitions=1, replication_factor=2)
        async with Producer(cluster.bootstrap) as producer:
            await (await producer.send("reborn", b"1000", partition=0))
        await cluster.restart("broker-3")
        await cluster.wait_healthy("broker-3")

        async def old_files_gone() -> bool:
            return not segments_with(tmp_path / "broker-3", b"49")

        await until(old_files_gone)
        logs = await read_everything(cluster.bootstrap, [TopicPartition("reborn", 0)])
    assert [number for _, number in logs[TopicPartition("reborn", 0)]] == [1000]


async def test_a_data_directory_in_use_and_a_taken_port_are_refused_clearly(tmp_path: Path) -> None:
    async with smallest(tmp_path / "one", brokers=1) as cluster:
        broker = next(row for row in cluster.status() if row.name == "broker-1")
        command = [
            sys.executable,
            "-m",
            "regnum_broker",
            "--broker-id=9",
            f"--coordination={cluster.coordination}",
            f"--data-dir={tmp_path / 'one' / 'broker-1'}",
            "--client-listen=127.0.0.1:1025",
            "--internal-listen=127.0.0.1:1026",
            "--lock-wait-s=0",
        ]
        status, said = await _run(command)
        assert status == 4
        assert "in use" in said
        command[5] = f"--data-dir={tmp_path / 'other'}"
        command[6] = f"--client-listen={broker.addresses['client']}"
        status, said = await _run(command)
        assert status == 4
        assert str(broker.addresses["client"]) in said
        assert "Traceback" not in said


async def _run(command: list[str]) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, error = await within(process.communicate())
    return process.returncode, error.decode()
