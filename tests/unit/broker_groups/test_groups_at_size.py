"""Calls about groups at their largest (safety rule S22); see ``docs/largest_inputs.md``."""

import asyncio
from typing import Any

import pytest
from immutables import Map
from regnum.broker.v1 import group_pb2
from regnum.groups.v1 import records_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.groups.calls import GroupCalls
from regnum_broker.groups.decisions.membership import sync
from regnum_broker.groups.decisions.offsets import OffsetLimits
from regnum_broker.groups.decisions.state import Group, GroupState, Identity, Joined, Member, SyncRequest
from regnum_broker.groups.recorded.records import Change, GroupChange, group_record
from regnum_broker.servicers.group import GroupServicer
from regnum_service.errors import RegnumError
from regnum_testing.clock import settle
from regnum_testing.group_partition import LIMITS, GroupPartition, OneShard, TopicsShown
from regnum_testing.held_loop import HeldLoop, run_measured
from regnum_testing.served import served

pytestmark = pytest.mark.alone

OFFSETS = 10_000
GROUPS = 20_000


def a_large_group(name: str, members: int) -> Group:
    made = {
        f"m{number}": Member(
            member_id=f"m{number}",
            session_timeout_s=10.0,
            rebalance_timeout_s=20.0,
            protocols=(("range", b"x" * 1_000),),
            assignment=b"y" * 1_000,
            synced=True,
            deadline_s=1_005.0,
        )
        for number in range(members)
    }
    return Group(
        group_id=name,
        state=GroupState.STABLE,
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="m0",
        members=Map(made),
    )


def test_a_thousand_members_and_ten_thousand_groups_do_not_hold_the_loop() -> None:
    async def scenario(held: HeldLoop) -> None:
        partition = GroupPartition()
        changes = small_groups(10_000)
        changes.append(change_of_group(a_large_group("large", 1_000)))
        with held.measuring("load"):
            await partition.shard.load(changes)
            await partition.shard.begin()
        answers = []
        with held.measuring("a thousand members join again"):
            for number in range(1_000):
                answers.append(partition.join(f"m{number}", "large"))
                # A turn for each call, as when it comes from the network.
                await asyncio.sleep(0)
            await settle()
        joined = [await answer for answer in answers]
        assert {one.generation for one in joined if isinstance(one, Joined)} == {2}
        generation = Identity(member_id="m0", generation=2)
        everybody = SyncRequest(
            identity=generation, assignments=tuple((f"m{number}", b"z" * 1_000) for number in range(1_000))
        )
        with held.measuring("its leader assigns"):
            _, synced = partition.shard.call(
                "large",
                lambda group, call: sync(group, everybody, call=call, now_s=partition.clock.monotonic(), limits=LIMITS),
            )
            await synced
        partition.clock.skip(11.0)
        with held.measuring("all fall silent at once"):
            await partition.shard.look()
            while not partition.shard.log.is_idle:
                # One turn between two looks; what is left is written by others.
                await asyncio.sleep(0)
        assert partition.shard.groups["large"].state is GroupState.EMPTY
        assert partition.shard.groups["g0"].state is GroupState.EMPTY

    run_measured(scenario).assert_free()


def change_of_group(group: Group) -> Any:
    return GroupChange(
        group_id=group.group_id, record=records_pb2.GroupRecord.FromString(group_record(group).value or b"")
    )


def small_groups(count: int) -> list[Change]:
    """Groups of one member; what they say is the same."""
    record = change_of_group(a_large_group("g", 1)).record
    return [GroupChange(group_id=f"g{number}", record=record) for number in range(count)]


def servicer_of(partition: GroupPartition) -> GroupServicer:
    known = TopicsShown()
    known.show(7, **{"a-topic": "T" * 22})
    coordinator: Any = OneShard(partition.shard, known, partition.clock)
    calls = GroupCalls(coordinator, clock=partition.clock, limits=LIMITS, offset_limits=OffsetLimits())
    return GroupServicer(coordinator=coordinator, calls=calls, clock=partition.clock)


def test_the_largest_calls_about_offsets_and_groups_do_not_hold_the_loop() -> None:
    async def scenario(held: HeldLoop) -> None:
        partition = GroupPartition()
        groups = servicer_of(partition)
        await partition.shard.load(small_groups(GROUPS))
        await partition.shard.load([change_of_group(a_large_group("large", 1_000))])
        await partition.shard.begin()

        async def call(name: str, request: Any, answer: Any) -> Any:
            data, handler = request.SerializeToString(), getattr(groups, name)
            with held.measuring(name):
                encoded = await served(handler, type(request), data)
            return answer.FromString(encoded)

        commit = group_pb2.OffsetCommitRequest(
            group_id="simple",
            generation_id=-1,
            offsets=[
                group_pb2.OffsetToCommit(topic="a-topic", partition=number, offset=number, metadata="note")
                for number in range(OFFSETS)
            ],
        )
        committed = await call("OffsetCommit", commit, group_pb2.OffsetCommitResponse)
        assert {result.error_code for result in committed.results} == {0}
        every = await call(
            "OffsetFetch", group_pb2.OffsetFetchRequest(group_id="simple"), group_pb2.OffsetFetchResponse
        )
        assert [one.offset for one in every.offsets] == list(range(OFFSETS))
        forgotten = await call(
            "OffsetDelete",
            group_pb2.OffsetDeleteRequest(
                group_id="simple",
                partitions=[group_pb2.OffsetToDelete(topic="a-topic", partition=number) for number in range(OFFSETS)],
            ),
            group_pb2.OffsetDeleteResponse,
        )
        assert {result.error_code for result in forgotten.results} == {0}
        assert not partition.shard.offsets.of("simple")
        await call("OffsetCommit", commit, group_pb2.OffsetCommitResponse)
        found = await call(
            "FindCoordinator",
            group_pb2.FindCoordinatorRequest(group_ids=[f"g{number}" for number in range(1_000)]),
            group_pb2.FindCoordinatorResponse,
        )
        assert len(found.coordinators) == 1_000
        page = await call("ListGroups", group_pb2.ListGroupsRequest(), group_pb2.ListGroupsResponse)
        assert len(page.groups) == 10_000
        told = await call(
            "DescribeGroups",
            group_pb2.DescribeGroupsRequest(group_ids=["large", *(f"g{number}" for number in range(99))]),
            group_pb2.DescribeGroupsResponse,
        )
        assert len(told.groups[0].members) == 1_000
        await call(
            "Heartbeat",
            group_pb2.HeartbeatRequest(group_id="large", generation_id=1, member_id="m7"),
            group_pb2.HeartbeatResponse,
        )
        left = await call(
            "LeaveGroup",
            group_pb2.LeaveGroupRequest(
                group_id="large", members=[group_pb2.LeavingMember(member_id=f"m{number}") for number in range(1_000)]
            ),
            group_pb2.LeaveGroupResponse,
        )
        assert {result.error_code for result in left.results} == {0}
        gone = await call(
            "DeleteGroups",
            group_pb2.DeleteGroupsRequest(group_ids=["simple", "large"]),
            group_pb2.DeleteGroupsResponse,
        )
        assert {result.error_code for result in gone.results} == {0}
        assert not partition.shard.offsets.of("simple")

    run_measured(scenario).assert_free()


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        ("JoinGroup", group_pb2.JoinGroupRequest(group_id="g", protocols=[group_pb2.GroupProtocol()] * 17)),
        ("SyncGroup", group_pb2.SyncGroupRequest(group_id="g", assignments=[group_pb2.GroupAssignment()] * 1_001)),
        ("LeaveGroup", group_pb2.LeaveGroupRequest(group_id="g", members=[group_pb2.LeavingMember()] * 1_001)),
        ("OffsetCommit", group_pb2.OffsetCommitRequest(group_id="g", offsets=[group_pb2.OffsetToCommit()] * 10_001)),
        ("OffsetFetch", group_pb2.OffsetFetchRequest(group_id="g", partitions=[group_pb2.OffsetToFetch()] * 10_001)),
        ("OffsetDelete", group_pb2.OffsetDeleteRequest(group_id="g", partitions=[group_pb2.OffsetToDelete()] * 10_001)),
        ("ListGroups", group_pb2.ListGroupsRequest(states=[group_pb2.GROUP_STATE_STABLE] * 101)),
    ],
)
async def test_what_is_too_many_is_refused_before_it_is_copied(name: str, request_: Any) -> None:
    """A message of 64 MiB has room for millions of them."""
    partition = GroupPartition()
    await partition.shard.begin()
    with pytest.raises(RegnumError, match="split the request") as caught:
        await getattr(servicer_of(partition), name)(request_, None)
    assert caught.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
