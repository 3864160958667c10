"""Small calls, and deadlines, that have all of a large group written: they leave other groups room in the log."""

import asyncio
from typing import Any

from immutables import Map
from regnum.groups.v1 import records_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.groups.calls import GroupCalls
from regnum_broker.groups.decisions.offsets import OffsetLimits
from regnum_broker.groups.decisions.state import Done, Group, GroupState, Joined, JoinRequest, Member
from regnum_broker.groups.recorded.records import GroupChange, group_record
from regnum_service.errors import RegnumError
from regnum_testing.clock import settle
from regnum_testing.group_partition import COMMITTED, LIMITS, GroupPartition, OneShard

TIMED_OUT = errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT
THROTTLED = errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED
TOPICS = b"t" * 100


def change_of(group_id: str, subscription: bytes) -> GroupChange:
    """A stable group of ten static members; the first one has a small subscription, and leads."""
    members = {
        f"m{number}": Member(
            member_id=f"m{number}",
            instance_id=f"i{number}",
            session_timeout_s=10.0,
            rebalance_timeout_s=1.0,
            protocols=(("range", subscription if number else TOPICS),),
            synced=True,
            deadline_s=0.0,
        )
        for number in range(10)
    }
    group = Group(
        group_id=group_id,
        state=GroupState.STABLE,
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="m0",
        members=Map(members),
    )
    return GroupChange(group_id=group_id, record=records_pb2.GroupRecord.FromString(group_record(group).value or b""))


async def partition_with_groups() -> GroupPartition:
    """One large group, and a small one, over a log that commits what the test says."""
    partition = GroupPartition()
    await partition.shard.load([change_of("large", b"t" * 500_000), change_of("small", TOPICS)])
    await partition.shard.begin()
    partition.outcomes = asyncio.Queue()
    return partition


async def come_back(partition: GroupPartition, group_id: str, new: str, *, waitable_s: float = 0.0) -> Any:
    """The first member restarts; its answer, or why it has none: it is not written before its time is up."""
    coordinator: Any = OneShard(partition.shard)
    calls = GroupCalls(coordinator, clock=partition.clock, limits=LIMITS, offset_limits=OffsetLimits())
    request = JoinRequest(
        instance_id="i0",
        session_timeout_s=10.0,
        rebalance_timeout_s=1.0,
        protocol_type="consumer",
        protocols=(("range", TOPICS),),
        new_member_id=new,
    )
    try:
        return await calls.join(group_id, request, waitable_s=waitable_s)
    except RegnumError as error:
        return error.code


async def test_a_static_member_that_comes_back_again_and_again_leaves_other_groups_room() -> None:
    partition = await partition_with_groups()
    answers = [await come_back(partition, "large", f"n{number}") for number in range(20)]
    assert answers == [TIMED_OUT] * 3 + [THROTTLED] * 17, "one is under way, and two wait"
    assert not partition.shard.log.is_full
    assert await come_back(partition, "small", "n") == TIMED_OUT, "taken: its group is small"
    committed = partition.commit(1, "other")
    assert partition.outcomes is not None
    for _ in range(4):
        partition.outcomes.put_nowait(COMMITTED)
    assert await committed == Done()
    assert "n" in partition.shard.groups["small"].members
    partition.outcomes.put_nowait(COMMITTED)
    assert isinstance(await come_back(partition, "large", "last", waitable_s=5.0), Joined)
    assert "last" in (await partition.following()).groups["large"].members


async def test_the_deadlines_of_a_large_group_wait_while_much_is_to_be_written() -> None:
    partition = await partition_with_groups()
    assert partition.outcomes is not None
    for _ in range(3):
        await come_back(partition, "large", "n")
    assert partition.shard.log.is_crowded
    partition.clock.skip(11.0)
    await partition.shard.look()
    assert partition.shard.groups["small"].state is GroupState.EMPTY
    assert partition.shard.groups["large"].state is GroupState.STABLE, "all are silent, and it is not written so"
    for _ in range(4):
        partition.outcomes.put_nowait(COMMITTED)
    while not partition.shard.log.is_idle:
        await settle()
    await partition.shard.look()
    assert partition.shard.groups["large"].state is GroupState.EMPTY
