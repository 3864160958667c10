"""Partitions that a person moves by a node in the store (seed 001 F)."""

from collections.abc import AsyncIterator

import pytest
from regnum_model import paths
from regnum_testing.moving import arrived, ask, catch_up, created, grown, ids
from regnum_testing.reigning import FakeCluster
from regnum_testing.waiting import until

SOON_S = 0.05
"""How often the store is looked at in these tests."""


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


async def wish(cluster: FakeCluster, partition: str, data: bytes, topic: str = "t") -> str:
    path = f"{paths.PARTITIONS_REASSIGNED}/{topic}/{partition}"
    await cluster.outside.create(path, data, make_parents=True)
    return path


async def is_gone(cluster: FakeCluster, path: str) -> None:
    async def gone() -> bool:
        return await cluster.outside.exists(path) is None

    await until(gone, what=f"{path} is deleted")


async def test_a_node_in_the_store_moves_a_partition_and_goes_when_it_has_arrived(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    await created(controller, "t", (1, 2))
    path = await wish(cluster, "0", b"[2,3]")
    await grown(cluster, "t", 0, 1, 2, 3)
    assert await cluster.outside.exists(path) is not None
    await catch_up(cluster, "t", 0, 3)
    await arrived(cluster, "t", 0, 2, 3)
    await is_gone(cluster, path)
    await is_gone(cluster, f"{paths.PARTITIONS_REASSIGNED}/t")


async def test_a_node_without_the_folder_of_its_topic_is_seen_as_well_and_leaves_nothing(cluster: FakeCluster) -> None:
    """`etcdctl put` makes no parents, and a key whose parent is missing is no child of anything."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    await created(controller, "t", (1, 2))
    folder = f"{paths.PARTITIONS_REASSIGNED}/t"
    moves, strange = f"{folder}/0", f"{paths.PARTITIONS_REASSIGNED}/nowhere/x/y"
    cluster.server.overwrite(strange, b"?")
    await is_gone(cluster, strange)
    cluster.server.overwrite(moves, b"[2,3]")
    assert await cluster.outside.exists(folder) is None
    await grown(cluster, "t", 0, 1, 2, 3)
    await catch_up(cluster, "t", 0, 3)
    await arrived(cluster, "t", 0, 2, 3)
    await is_gone(cluster, moves)
    assert await cluster.outside.exists(folder) is None
    assert (await cluster.outside.children(paths.PARTITIONS_REASSIGNED)).names == ()


@pytest.mark.parametrize(
    ("partition", "data", "topic"),
    [("0", b"[2,9]", "t"), ("0", b"?", "t"), ("7", b"[1]", "t"), ("x", b"[1]", "t"), ("0", b"[1]", "nowhere")],
)
async def test_a_node_that_cannot_be_followed_changes_nothing_and_goes(
    cluster: FakeCluster, partition: str, data: bytes, topic: str
) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    await created(controller, "t", (1, 2))
    await is_gone(cluster, await wish(cluster, partition, data, topic))
    assert (await cluster.topic("t")).partitions == {0: ids(1, 2)}
    assert not controller.picture.reassigning


async def test_a_move_called_back_by_command_is_not_begun_again_by_its_node(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    await created(controller, "t", (1, 2))
    path = await wish(cluster, "0", b"[2,3]")
    await grown(cluster, "t", 0, 1, 2, 3)
    assert await ask(controller, "t", {0: None}) == [None]
    await is_gone(cluster, path)
    await arrived(cluster, "t", 0, 1, 2)
    assert not controller.picture.reassigning


async def test_a_wish_that_replaces_one_that_was_taken_back_by_hand_is_heard(cluster: FakeCluster) -> None:
    """A node made anew begins at version 0 again (safety rule S2)."""
    await cluster.begin(1, 2, 3, 4)
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    await created(controller, "t", (1, 2))
    path = await wish(cluster, "0", b"[2,3]")
    await grown(cluster, "t", 0, 1, 2, 3)
    node = await cluster.outside.get(path)
    await cluster.outside.delete(path, version=node.stat.version)
    await wish(cluster, "0", b"[2,4]")
    await grown(cluster, "t", 0, 1, 2, 4)
    (wanted,) = (await cluster.topic("t")).reassigning.values()
    assert wanted.target == ids(2, 4)
