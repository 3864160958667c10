"""A broker whose replica is damaged on disk: a healthy copy leads, and until there is one the partition says why."""

from pathlib import Path

import pytest
from regnum_client import CLUSTER_CONFIG, Admin, ConfigAlteration, Producer, TopicPartition
from regnum_client.cluster.view import PartitionView
from regnum_local.cluster import LocalCluster
from regnum_local.demo.workload import read_everything
from regnum_testing.under_load import until

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.timeout(240)]

RECORDS = 200


def damage(broker: Path) -> None:
    """Flip a bit in the middle of what the broker holds of its only replica."""
    (segment,) = [path for path in broker.rglob("*.log") if path.stem.isdigit() and path.stat().st_size]
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)


async def test_a_healthy_copy_leads_in_place_of_a_damaged_one_and_nothing_is_lost(tmp_path: Path) -> None:
    async with (
        LocalCluster(tmp_path, brokers=3, elections=1, metadata=1, report=lambda _text: None) as cluster,
        Admin(cluster.bootstrap) as admin,
    ):
        # Else the controller's look at the balance, five seconds into its reign, gives leadership back to broker 1.
        balance_off = {"auto.leader.rebalance.enable": "false"}
        await admin.alter_config(ConfigAlteration(resource=CLUSTER_CONFIG, set=balance_off))
        await admin.create_topic("t", partitions=0, assignment={0: [1, 2, 3]})
        async with Producer(cluster.bootstrap) as producer:
            deliveries = [await producer.send("t", str(number).encode(), partition=0) for number in range(RECORDS)]
            await producer.flush()
        assert all(delivery.exception() is None for delivery in deliveries)

        async def partition() -> PartitionView:
            return (await admin.describe_topic("t")).partitions[0]

        # The others first, so that the one that will be damaged is the only member of the ISR.
        for away, left in ((2, (1, 3)), (3, (1,))):
            await cluster.kill(f"broker-{away}")

            async def shrunk(left: tuple[int, ...] = left) -> bool:
                return (await partition()).isr == left

            await until(shrunk)
        await cluster.kill("broker-1")
        damage(tmp_path / "broker-1")
        await cluster.restart("broker-1")

        async def refused() -> bool:
            seen = await partition()
            return seen.leader < 0 and seen.offline_replicas == (1,) and "brokers [1]" in seen.offline_reason

        await until(refused)
        for back in (2, 3):
            await cluster.restart(f"broker-{back}")

        async def led_by_a_healthy_copy() -> bool:
            seen = await partition()
            return seen.leader in {2, 3} and seen.isr in {(2, 3), (3, 2)} and not seen.offline_reason

        await until(led_by_a_healthy_copy)
        logs = await read_everything(cluster.bootstrap, [TopicPartition("t", 0)])
        assert [number for _, number in logs[TopicPartition("t", 0)]] == list(range(RECORDS))

        # As docs/operations/recovery.md has it: moved away and back, while the broker runs. The log keeps its id.
        identity = (tmp_path / "broker-1" / "meta.json").read_bytes()
        for brokers in ((2, 3), (1, 2, 3)):

            async def accepted(brokers: tuple[int, ...] = brokers) -> bool:
                # Given back before it is deleted it would be the damaged one: that is refused.
                return await admin.alter_partition_reassignments({("t", 0): brokers}) == {("t", 0): None}

            await until(accepted)

            async def arrived(brokers: tuple[int, ...] = brokers) -> bool:
                moving = await admin.list_partition_reassignments()
                return not moving and sorted((await partition()).isr) == sorted(brokers)

            await until(arrived)
        await cluster.kill("broker-1")
        await cluster.restart("broker-1")

        async def in_sync() -> bool:
            seen = await partition()
            return len(seen.isr) == 3 and not seen.offline_replicas

        await until(in_sync)
        assert (tmp_path / "broker-1" / "meta.json").read_bytes() == identity
