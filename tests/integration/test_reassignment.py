"""Partitions are moved to other brokers while they are written, and the controller is killed meanwhile (seed 001 F)."""

import asyncio
from pathlib import Path

import pytest
from regnum_client import CLUSTER_CONFIG, Admin, ConfigAlteration, Producer, TopicPartition
from regnum_local.cluster import LocalCluster
from regnum_local.demo.replicas import replica_logs
from regnum_local.demo.verdict import unequal_replicas
from regnum_local.demo.workload import read_everything
from regnum_model.broker_configs import FOLLOWER_THROTTLE_RATE, LEADER_THROTTLE_RATE
from regnum_testing.command_here import CommandHere
from regnum_testing.under_load import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PARTITIONS = 4
RECORDS = 600


@pytest.mark.full
@pytest.mark.parametrize("store", ["etcd", "zookeeper"])
async def test_partitions_are_moved_under_load_and_the_controller_is_killed_on_the_way(
    tmp_path: Path, store: str
) -> None:
    acknowledged: list[int] = []
    moving = asyncio.Event()

    async def produce(producer: Producer) -> None:
        number = 0
        while number < RECORDS or not moving.is_set():
            delivery = await producer.send("moved", str(number).encode(), partition=number % PARTITIONS)
            await delivery
            acknowledged.append(number)
            number += 1

    async with (
        LocalCluster(
            tmp_path, brokers=4, elections=2, metadata=1, coordination=store, report=lambda _text: None
        ) as cluster,
        Admin(cluster.bootstrap) as admin,
        Producer(cluster.bootstrap) as producer,
    ):
        await admin.create_topic("moved", partitions=0, assignment=dict.fromkeys(range(PARTITIONS), (1, 2)))
        writing = asyncio.create_task(produce(producer))
        await until(lambda: _holds(len(acknowledged) > 50))
        topic_id = (await admin.describe_topic("moved")).topic_id
        assert len(_folders(tmp_path, 1, topic_id)) == len(_folders(tmp_path, 2, topic_id)) == PARTITIONS
        view = await admin.describe_cluster()
        assert view.controller is not None
        targets = {("moved", number): (3, 4) for number in range(PARTITIONS)}
        outcomes = await admin.alter_partition_reassignments(targets)
        assert list(outcomes.values()) == [None] * PARTITIONS
        await cluster.kill(f"election-{view.controller.id}")

        async def arrived() -> bool:
            return not await admin.list_partition_reassignments()

        await until(arrived)
        moving.set()
        await writing
        topic = await admin.describe_topic("moved")
        assert {state.replicas for state in topic.partitions.values()} == {(3, 4)}
        assert {state.leader for state in topic.partitions.values()} <= {3, 4}

        async def deleted() -> bool:
            return not _folders(tmp_path, 1, topic_id) and not _folders(tmp_path, 2, topic_id)

        # Where the controller died between a switch and its last order, brokers find out after the grace time.
        await until(deleted, within_s=150.0)
        partitions = [TopicPartition("moved", number) for number in range(PARTITIONS)]
        logs = await read_everything(cluster.bootstrap, partitions)
    found = {number for log in logs.values() for _, number in log}
    assert found >= set(acknowledged), "nothing that was acknowledged is lost"
    files = {name: logs for name, logs in replica_logs(tmp_path).items() if name.startswith(topic_id)}
    assert len(files) == PARTITIONS
    assert all(set(logs) == {"broker-3", "broker-4"} for logs in files.values())
    assert unequal_replicas(files, files, replicas=2) == ()


async def _holds(condition: bool) -> bool:
    return condition


def _folders(data_dir: Path, broker: int, topic_id: str) -> list[str]:
    """Folders of a topic's partitions on a broker's disk."""
    # They may go meanwhile: only their own folder is looked into, and not they.
    found = (data_dir / f"broker-{broker}" / "replicas").glob(f"{topic_id}-*")
    return sorted(path.name for path in found if path.name.rpartition("-")[2].isdigit())


THROTTLE_BYTES_S = 2_000_000
BATCH = b"x" * 50_000


@pytest.mark.full
async def test_a_throttled_move_shows_how_far_it_is_and_takes_no_less_time_than_its_rate_asks_for(
    tmp_path: Path,
) -> None:
    async with (
        LocalCluster(tmp_path, brokers=3, elections=1, metadata=1, report=lambda _text: None) as cluster,
        Admin(cluster.bootstrap) as admin,
        Producer(cluster.bootstrap) as producer,
    ):
        await admin.create_topic("slow", partitions=0, assignment={0: (1, 2)})
        deliveries = [await producer.send("slow", BATCH, partition=0) for _ in range(240)]
        await producer.flush()
        assert all(delivery.exception() is None for delivery in deliveries)
        rates = {name: str(THROTTLE_BYTES_S) for name in (LEADER_THROTTLE_RATE, FOLLOWER_THROTTLE_RATE)}
        await admin.alter_config(ConfigAlteration(resource=CLUSTER_CONFIG, set=rates))
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert await admin.alter_partition_reassignments({("slow", 0): (2, 3)}) == {("slow", 0): None}
        shown: list[float] = []

        async def arrived() -> bool:
            found = await admin.list_partition_reassignments(["slow"])
            shown.extend(one.percent for one in found if one.percent is not None)
            return not found

        await until(arrived)
        took_s = loop.time() - began_s
        # Twelve megabytes; one second's worth may go at once, and the last batches are paid for afterwards.
        assert took_s >= (240 * len(BATCH) - THROTTLE_BYTES_S - 3_000_000) / THROTTLE_BYTES_S
        assert any(5.0 < percent < 95.0 for percent in shown), shown

        async def is_known() -> bool:
            """The controller has said so; those who answer from metadata hear of it a moment later."""
            topic = await admin.describe_topic("slow")
            return (topic.partitions[0].replicas, set(topic.partitions[0].isr)) == ((2, 3), {2, 3})

        await until(is_known)
        logs = await read_everything(cluster.bootstrap, [TopicPartition("slow", 0)])
        assert sum(len(log) for log in logs.values()) == 240
        # And everything off a broker, by command, as fast as it goes.
        await admin.alter_config(ConfigAlteration(resource=CLUSTER_CONFIG, delete=list(rates)))
        drained = await CommandHere(",".join(cluster.bootstrap))("brokers", "drain", "3", "--timeout", "60")
        assert drained.status == 0, drained.err
        assert "broker 3 has no replicas" in drained.err
        described = await admin.describe_topic("slow")
        assert set(described.partitions[0].replicas) == {1, 2}


# What is left behind on brokers that were away is deleted in `test_restart` too, and in unit tests.
@pytest.mark.full
async def test_a_broker_that_was_away_when_its_partition_moved_deletes_it_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody orders it to: the controller that knew of the move is gone as well (safety rule S13)."""
    monkeypatch.setenv("REGNUM_STRAY_GRACE_S", "2")
    async with (
        LocalCluster(tmp_path, brokers=3, elections=1, metadata=1, report=lambda _text: None) as cluster,
        Admin(cluster.bootstrap) as admin,
        Producer(cluster.bootstrap) as producer,
    ):
        await admin.create_topic("moved", partitions=0, assignment={0: (1, 2)})
        await admin.create_topic("stays", partitions=0, assignment={0: (1, 2)})
        for name in ("moved", "stays"):
            for number in range(20):
                await producer.send(name, str(number).encode(), partition=0)
        await producer.flush()
        moved = (await admin.describe_topic("moved")).topic_id
        stays = (await admin.describe_topic("stays")).topic_id
        await cluster.kill("broker-1")

        async def known_to_be_gone() -> bool:
            return 1 not in (await admin.describe_cluster()).brokers

        await until(known_to_be_gone)
        assert await admin.alter_partition_reassignments({("moved", 0): (2, 3)}) == {("moved", 0): None}

        async def arrived() -> bool:
            return not await admin.list_partition_reassignments()

        await until(arrived)
        await cluster.kill("election-1")
        await cluster.restart("election-1")
        await cluster.wait_healthy("election-1")
        assert _folders(tmp_path, 1, moved) == [f"{moved}-0"]
        await cluster.restart("broker-1")
        await cluster.wait_healthy("broker-1")

        async def deleted() -> bool:
            return not _folders(tmp_path, 1, moved)

        await until(deleted)
        assert _folders(tmp_path, 1, stays) == [f"{stays}-0"], "its own is untouched"
        logs = await read_everything(cluster.bootstrap, [TopicPartition(name, 0) for name in ("moved", "stays")])
        assert [len(log) for log in logs.values()] == [20, 20]
