"""Partitions added and removed under real processes, by calls and by hand, with a broker and a controller that die."""

from pathlib import Path

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client import Admin, Consumer, Producer, TopicPartition
from regnum_local.cluster import LocalCluster
from regnum_local.demo.workload import read_everything
from regnum_service.errors import RegnumError
from regnum_testing.hands import hand_for
from regnum_testing.replica_files import segments_with
from regnum_testing.under_load import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


# A topic that goes from every disk and comes back empty is in `test_restart`.
@pytest.mark.full
async def test_a_removed_partition_goes_from_every_disk_and_comes_back_empty(tmp_path: Path) -> None:
    """Also from that of a broker that was away, whoever is the controller when it returns (safety rules S2, S13)."""
    cluster = LocalCluster(tmp_path, brokers=3, elections=2, metadata=1, report=lambda _text: None)
    async with cluster, Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap) as producer:
        await admin.create_topic("t", partitions=0, assignment={0: [1, 3]})
        assert (await admin.create_partitions("t", assignment={1: [2, 1], 2: [3, 1]})).partitions == 3
        for number in range(3):
            await (await producer.send("t", f"old-{number}".encode(), partition=number))
        epoch = (await admin.describe_topic("t")).partitions[2].leader_epoch
        await cluster.kill("broker-3")

        async def known_to_be_gone() -> bool:
            return 3 not in (await admin.describe_cluster()).brokers

        await until(known_to_be_gone)
        assert (await admin.delete_partitions("t", [2])).partitions == 2

        async def gone_from_the_live() -> bool:
            return not any(segments_with(tmp_path / f"broker-{id}", b"old-2") for id in (1, 2))

        await until(gone_from_the_live)
        assert segments_with(tmp_path / "broker-3", b"old-2")
        with pytest.raises(RegnumError, match="brokers unregister") as refused:
            async with Admin(cluster.bootstrap, timeout_s=15.0) as impatient:
                await impatient.create_partitions("t", 3)
        assert refused.value.code == errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT
        view = await admin.describe_cluster()
        assert view.controller is not None
        await cluster.kill(f"election-{view.controller.id}")
        await cluster.restart("broker-3")
        await cluster.wait_healthy("broker-3")

        async def gone_there_too() -> bool:
            return not segments_with(tmp_path / "broker-3", b"old-2")

        await until(gone_there_too)
        assert (await admin.create_partitions("t", 3)).partitions == 3
        again = (await admin.describe_topic("t")).partitions[2]
        assert again.leader_epoch > epoch

        await (await producer.send("t", b"777", partition=2))
        logs = await read_everything(cluster.bootstrap, [TopicPartition("t", 2)])
    assert [number for _, number in logs[TopicPartition("t", 2)]] == [777]


@pytest.mark.full
@pytest.mark.parametrize("coordination", ["zookeeper", "etcd"])
async def test_partitions_ordered_by_hand_while_a_producer_and_a_consumer_run(
    tmp_path: Path, coordination: str
) -> None:
    cluster = LocalCluster(
        tmp_path, brokers=2, elections=1, metadata=1, coordination=coordination, report=lambda _text: None
    )
    async with cluster, Admin(cluster.bootstrap) as admin, hand_for(cluster.coordination) as hand:
        await admin.create_topic("t", partitions=1, replication_factor=2)
        async with Consumer(cluster.bootstrap) as consumer, Producer(cluster.bootstrap) as producer:
            await consumer.subscribe("t")
            for path, content in (("", ""), ("/1", "[2,1]"), ("/2", "")):
                await hand.put(f"/admin/partitions_add/t{path}", content)

            async def added() -> bool:
                state = (await admin.describe_topic("t")).partitions
                return len(state) == 3 and all(one.leader >= 0 for one in state.values())

            await until(added)
            assert (await admin.describe_topic("t")).partitions[1].replicas == (2, 1)
            # (Each notices by itself within a minute.)
            for client in (producer, consumer):
                client._metadata.request()  # type: ignore[union-attr]
            seen: set[int] = set()

            async def everywhere() -> bool:
                await (await producer.send("t", b"x"))
                seen.update(record.partition for record in await consumer.read(timeout_s=0.05))
                return seen == {0, 1, 2}

            await until(everywhere)
            for path in ("", "/2", "/1"):
                await hand.put(f"/admin/partitions_remove/t{path}", "")

            async def removed() -> bool:
                return len((await admin.describe_topic("t")).partitions) == 1

            await until(removed)

            async def nothing_left() -> bool:
                left = [await hand.get(f"/admin/partitions_{kind}/t/{n}") for kind in ("add", "remove") for n in (1, 2)]
                return left == [None] * 4

            await until(nothing_left)
