"""The internal topic is compacted under its coordinator, and the next one reads what is left."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum.broker.v1 import group_pb2
from regnum_model.config_definition import CLEANUP_COMPACT
from regnum_model.configs import ReplicaSettings
from regnum_model.ids import BrokerId
from regnum_testing.group_world import GroupWorld, TestMember
from regnum_testing.waiting import eventually

NOTE = "n" * 4_000
PLACES = 100
"""A commit of so many with such notes is not half a megabyte."""
COMMITS = 16


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[GroupWorld]:
    made = GroupWorld(tmp_path)
    await made.begin()
    await made.start(1)
    await made.lead(1, [1])
    await made.serves(1)
    yield made
    await made.close()


async def commit(world: GroupWorld, offset: int) -> None:
    request = group_pb2.OffsetCommitRequest(
        group_id="g",
        generation_id=-1,
        offsets=[
            group_pb2.OffsetToCommit(topic="t", partition=number, offset=offset + number, metadata=NOTE)
            for number in range(PLACES)
        ],
    )
    answer = await world.ask(1, "OffsetCommit", request)
    assert {one.error_code for one in answer.results} == {0}


async def test_the_next_coordinator_shows_the_same_after_compaction(world: GroupWorld) -> None:
    partition = world.partition_with("g", 1)
    settings = ReplicaSettings(
        cleanup_policy=CLEANUP_COMPACT, min_cleanable_dirty_ratio=0, segment_bytes=1 << 20, max_message_bytes=1 << 24
    )
    world.brokers[BrokerId(1)].broker.replicas.configure(partition, settings)
    for offset in range(COMMITS):
        await commit(world, offset)
    written = COMMITS * PLACES * len(NOTE)
    log = partition.log

    async def small() -> bool:
        return bool(log.size_bytes < written // 2)

    await eventually(small, what="the partition is compacted")
    assert log.log_start_offset == 0
    await world.lead(1, [1], epoch=1)
    await world.serves(1)
    expected = {number: COMMITS - 1 + number for number in range(PLACES)}
    assert await TestMember(world, 1, "g").committed() == expected
    await commit(world, COMMITS)
    assert await TestMember(world, 1, "g").committed() == {number: one + 1 for number, one in expected.items()}
