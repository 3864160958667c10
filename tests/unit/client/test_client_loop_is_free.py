"""Neither a large cluster nor many small records hold the loop of an application for long (safety rule S22)."""

import random

import pytest
from regnum.metadata.v1.metadata_pb2 import GetMetadataResponse, TopicMetadata
from regnum.types.v1.types_pb2 import PartitionState, TopicState
from regnum_client import EARLIEST, Consumer, ConsumerSettings
from regnum_client.cluster.view import ClusterView
from regnum_client.cluster.watching.merging import merged
from regnum_records.build import build_batch
from regnum_records.record import NewRecord
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.held_loop import HeldLoop, run_measured

pytestmark = pytest.mark.alone

RECORDS = 1_000_000
RECORDS_PER_BATCH = 100_000


def answer(leader_epoch: int) -> GetMetadataResponse:
    """10000 partitions of one topic and 5000 topics of two."""
    sizes = {"large": 10_000} | {f"t{number}": 2 for number in range(5_000)}
    return GetMetadataResponse(
        topics=[
            TopicMetadata(
                topic=TopicState(
                    name=name,
                    topic_id=name,
                    partitions=[
                        PartitionState(
                            partition=n, leader=1, leader_epoch=leader_epoch, isr=[1, 2, 3], replicas=[1, 2, 3]
                        )
                        for n in range(partitions)
                    ],
                )
            )
            for name, partitions in sizes.items()
        ]
    )


def test_a_picture_of_20000_partitions_is_taken_up() -> None:
    async def scenario(held: HeldLoop) -> None:
        first, second = answer(1), answer(2)
        view = ClusterView()
        with held.measuring("metadata of 20000 partitions"):
            view = await merged(view, first, asked=None, as_of_s=1.0, whole=True)
            view = await merged(view, second, asked=None, as_of_s=2.0, whole=True)
        assert view.topics["large"].partitions[9_999].leader_epoch == 2

    run_measured(scenario).assert_free()


def test_small_records_are_decoded() -> None:
    batch = build_batch([NewRecord(value=b"")] * RECORDS_PER_BATCH, timestamp_ms=1)

    async def scenario(held: HeldLoop) -> None:
        async with FakeCluster() as cluster:
            cluster.create("t")
            for _ in range(RECORDS // RECORDS_PER_BATCH):
                cluster.partitions["t", 0].append(batch)
            settings = ConsumerSettings(fetch_wait_ms=50)
            async with Consumer(cluster.bootstrap, settings=settings, chance=random.Random(5)) as consumer:
                await consumer.assign("t", start=EARLIEST)
                with held.measuring("reading in portions"):
                    read = 0
                    while read < RECORDS // 2:
                        read += len(await consumer.read(records_max=100_000))
                with held.measuring("reading one by one"):
                    async for record in consumer:
                        if record.offset == RECORDS - 1:
                            break

    run_measured(scenario).assert_free()
