"""`regnum metadata`: what differs is named, and whoever does not answer is."""

import json
from collections.abc import AsyncIterator

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.metadata.v1.image_pb2 import DescribeImageResponse
from regnum.types.v1.types_pb2 import Broker, Controller, PartitionState
from regnum_client.admin.metadata.comparison import (
    differing_sections,
    differing_topics,
    head_differences,
    topic_differences,
)
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        yield running


@pytest.fixture
def regnum(cluster: FakeCluster) -> CommandHere:
    return CommandHere(cluster.bootstrap)


async def test_lags_of_processes_and_brokers_are_listed(cluster: FakeCluster, regnum: CommandHere) -> None:
    propagation = admin_pb2.DescribePropagationResponse(version=(3 << 32) + 9)
    process = propagation.metadata_processes.add(metadata_id=1, versions_behind=2, answered=True, bytes_sent=77)
    process.brokers.add(broker_id=4, versions_behind=5, behind_ms=60)
    process.brokers.add(broker_id=5, versions_behind=-1)
    propagation.metadata_processes.add(metadata_id=2, versions_behind=-1)
    cluster.propagation = propagation
    status, out, _ = await regnum("metadata", "lag", "-o", "json")
    rows = {row["process"]: row for row in json.loads(out)}
    assert status == 0
    assert (rows["metadata 1"]["versions_behind"], rows["metadata 1"]["bytes_sent"]) == (2, 77)
    assert (rows["metadata 2"]["versions_behind"], rows["metadata 2"]["answered"]) == (None, False)
    assert (rows["broker 4"]["versions_behind"], rows["broker 4"]["served_by"]) == (5, "metadata 1")
    assert rows["broker 5"]["versions_behind"] is None
    status, out, _ = await regnum("metadata", "lag")
    assert status == 0
    assert "broker 4" in out


def test_sections_and_topics_that_differ_are_found_on_both_sides() -> None:
    one, other = (
        DescribeImageResponse(section_digests=[b"a", b"b"]),
        DescribeImageResponse(section_digests=[b"a", b"c"]),
    )
    assert differing_sections(one, other) == [1]
    assert differing_topics({"x": b"1", "y": b"2"}, {"y": b"3", "z": b"4"}) == ["x", "y", "z"]


def test_every_field_of_a_partition_that_differs_is_named() -> None:
    published = {0: PartitionState(leader=1, leader_epoch=3, isr=[1, 2]), 1: PartitionState(partition=1)}
    held = {0: PartitionState(leader=2, leader_epoch=3, isr=[2]), 2: PartitionState(partition=2)}
    found = list(topic_differences("broker 1", "t", ("id", held), ("id", published)))
    assert [(one.partition, one.field, one.held, one.published) for one in found[:2]] == [
        (0, "leader", "2", "1"),
        (0, "isr", "2", "1,2"),
    ]
    assert [(one.partition, one.field, bool(one.held), bool(one.published)) for one in found[2:]] == [
        (1, "partition", False, True),
        (2, "partition", True, False),
    ]


@pytest.mark.parametrize(("held", "published"), [(None, ("id", {})), (("old", {}), ("id", {})), (("id", {}), None)])
def test_a_topic_that_is_missing_or_of_another_life_is_one_difference(
    held: tuple[str, dict[int, PartitionState]] | None, published: tuple[str, dict[int, PartitionState]] | None
) -> None:
    (one,) = topic_differences("broker 1", "t", held, published)
    assert (one.topic, one.partition, one.field) == ("t", None, "topic_id")
    assert (one.held, one.published) == ("" if held is None else held[0], "" if published is None else published[0])


def test_brokers_and_the_controller_are_compared() -> None:
    held = DescribeImageResponse(cluster_id="c", controller=Controller(id=1, epoch=2), brokers=[Broker(id=1, epoch=5)])
    published = DescribeImageResponse(
        cluster_id="c", controller=Controller(id=1, epoch=3), brokers=[Broker(id=1, epoch=6), Broker(id=2)]
    )
    found = list(head_differences("metadata 1", held, published))
    assert [one.field for one in found] == ["controller", "broker 1", "broker 2"]
    assert found[2].held == ""
    assert not list(head_differences("metadata 1", held, held))
