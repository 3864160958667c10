"""Groups over real brokers of one process: calls in, records in the log, coordinators that change."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum.broker.v1 import group_pb2, log_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerId
from regnum_model.topics import OFFSETS_TOPIC
from regnum_service.errors import RegnumError
from regnum_testing.batches import batch_of
from regnum_testing.broker_world import refusal
from regnum_testing.group_world import GroupWorld, TestMember
from regnum_testing.waiting import eventually, within


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[GroupWorld]:
    made = GroupWorld(tmp_path)
    await made.begin()
    yield made
    await made.close()


async def one_broker(world: GroupWorld) -> None:
    await world.start(1)
    await world.lead(1, [1])
    await world.serves(1)


async def two_members(world: GroupWorld) -> tuple[TestMember, TestMember]:
    """Members a (who leads) and b of a stable generation."""
    a, b = TestMember(world, 1, "g", name="a"), TestMember(world, 1, "g", name="b")
    await a.join()
    joining = asyncio.create_task(b.join())

    async def rebalances() -> bool:
        try:
            await a.beat()
        except RegnumError as error:
            return error.code == errors_pb2.ERROR_CODE_REBALANCE_IN_PROGRESS
        return False

    await eventually(rebalances)
    await a.join()
    await joining
    given = {a.member_id: b"0", b.member_id: b"1"}
    assert await asyncio.gather(b.sync(), a.sync(given)) == [b"1", b"0"]
    return a, b


async def test_members_share_the_work_of_a_generation(world: GroupWorld) -> None:
    await one_broker(world)
    a, b = await two_members(world)
    assert a.generation == b.generation == 2
    assert a.joined.leader == b.joined.leader == a.member_id
    assert {one.metadata for one in a.joined.members} == {b"a", b"b"}
    assert not b.joined.members
    assert await b.sync() == b"1", "a repeat is answered again"
    await a.beat()
    assert await a.commit(5, 7) == [0, 0]
    assert await b.committed() == {0: 5, 1: 7}


async def test_a_zombie_commits_nothing(world: GroupWorld) -> None:
    await one_broker(world)
    a, b = await two_members(world)
    assert await a.commit(5) == [0]
    await b.leave()
    await a.join()
    b.generation = 2
    assert (await refusal(b.commit(3))).code == errors_pb2.ERROR_CODE_UNKNOWN_MEMBER_ID
    await a.sync({})
    a.generation -= 1
    assert (await refusal(a.commit(3))).code == errors_pb2.ERROR_CODE_ILLEGAL_GENERATION
    outsider = TestMember(world, 1, "g")
    assert (await refusal(outsider.commit(3))).code == errors_pb2.ERROR_CODE_UNKNOWN_MEMBER_ID
    assert await a.committed() == {0: 5}


async def test_who_is_silent_is_removed_and_the_others_hear_of_it(world: GroupWorld) -> None:
    await one_broker(world)
    a, b = TestMember(world, 1, "g", name="a"), TestMember(world, 1, "g", name="b")
    joining = asyncio.gather(a.join(session_ms=600_000), b.join(session_ms=300, rebalance_ms=300))
    await within(joining)

    async def alone() -> bool:
        try:
            await a.beat()
        except RegnumError:
            await a.join(session_ms=600_000)
        return len(a.joined.members) == 1

    await eventually(alone)
    assert (await refusal(b.beat())).code == errors_pb2.ERROR_CODE_UNKNOWN_MEMBER_ID


async def test_a_join_is_answered_before_its_caller_gives_up(world: GroupWorld) -> None:
    await one_broker(world)
    a, b = TestMember(world, 1, "g", name="a"), TestMember(world, 1, "g", name="b")
    await a.join()
    given = await b.join_once(deadline_s=5.0)
    assert given.join_again
    b.member_id = given.member_id
    waited = await b.join_once(deadline_s=1.5)
    assert waited.join_again, "a has not joined again, and nothing is broken"
    assert waited.member_id == b.member_id
    joining = asyncio.create_task(b.join())
    await a.join()
    assert (await within(joining)).generation_id == a.generation


async def test_a_static_member_keeps_its_place_and_fences_its_double(world: GroupWorld) -> None:
    await one_broker(world)
    first = TestMember(world, 1, "g", instance_id="i", name="a")
    await first.join()
    await first.sync({first.member_id: b"all"})
    again = TestMember(world, 1, "g", instance_id="i", name="a")
    joined = await again.join()
    assert (joined.generation_id, joined.skip_assignment) == (first.generation, True)
    assert await again.sync() == b"all"
    for call in (first.beat(), first.commit(1), first.sync()):
        assert (await refusal(call)).code == errors_pb2.ERROR_CODE_FENCED_INSTANCE_ID


async def test_offsets_and_members_outlive_their_coordinator(world: GroupWorld) -> None:
    await world.start(1, 2)
    await world.lead(1, [1, 2], min_insync=2)
    await world.serves(1)
    member = TestMember(world, 1, "g")
    await member.join()
    await member.sync({member.member_id: b"all"})
    assert await member.commit(5, 7) == [0, 0]
    simple = TestMember(world, 1, "simple")
    assert await simple.commit(1) == [0]
    held = asyncio.create_task(TestMember(world, 1, "g", name="late").join())

    async def asked_again() -> bool:
        answer = await world.ask(1, "DescribeGroups", group_pb2.DescribeGroupsRequest(group_ids=["g"]))
        return bool(answer.groups[0].state == group_pb2.GROUP_STATE_PREPARING_REBALANCE)

    await eventually(asked_again)
    await world.lead(2, [1, 2], epoch=1, min_insync=2)
    with pytest.raises(RegnumError) as moved:
        await within(held)
    assert moved.value.code == errors_pb2.ERROR_CODE_NOT_COORDINATOR
    assert (await refusal(member.beat())).code == errors_pb2.ERROR_CODE_NOT_COORDINATOR
    await world.serves(2)
    member.broker = simple.broker = 2
    assert await member.committed() == {0: 5, 1: 7}
    assert await simple.committed() == {0: 1}
    await member.beat()
    assert await member.sync() == b"all"
    assert await member.commit(6) == [0]
    assert await member.committed() == {0: 6, 1: 7}


async def test_what_is_not_on_every_replica_is_neither_answered_nor_shown(world: GroupWorld) -> None:
    await world.start(1, 2)
    await world.lead(1, [1, 2], min_insync=2)
    await world.serves(1)
    member = TestMember(world, 1, "g")
    assert await member.commit(5) == [0]
    await world.lead(1, [1], epoch=1, min_insync=2)
    await world.serves(1)
    assert (await refusal(member.commit(6))).code == errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE
    assert await member.committed() == {0: 5}
    await world.lead(1, [1, 2], epoch=2, min_insync=2)
    await world.serves(1)
    assert await member.commit(6) == [0]
    assert await member.committed() == {0: 6}


async def test_what_a_deposed_coordinator_had_not_confirmed_is_not_confirmed_by_it(world: GroupWorld) -> None:
    await world.start(1, 2)
    await world.lead(1, [1, 2])
    await world.serves(1)
    member = TestMember(world, 1, "g")
    assert await member.commit(5) == [0]
    # The follower hears of no leader: what is appended from here on stays with this one.
    await world.lead(1, [1, 2], epoch=1, tell=(1,))
    await world.serves(1)
    pending = asyncio.create_task(member.commit(6))
    partition = world.partition_with("g", 1)

    async def waits() -> bool:
        return len(partition.acks) == 1

    await eventually(waits, what="the commit is appended and waits")
    assert await member.committed() == {0: 5}, "not shown before it is committed"
    await world.lead(2, [1, 2], epoch=2)
    with pytest.raises(RegnumError) as moved:
        await within(pending)
    assert moved.value.code == errors_pb2.ERROR_CODE_NOT_COORDINATOR
    await world.serves(2)
    member.broker = 2
    assert await member.committed() == {0: 5}


async def test_only_coordinators_write_the_internal_topic(world: GroupWorld) -> None:
    await one_broker(world)
    result = await world.produce(1, batch_of(b"forged"), topic=OFFSETS_TOPIC)
    assert result.error_code == errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION
    fetched = await world.log(1).Fetch(
        log_pb2.FetchRequest(partitions=[log_pb2.FetchPartition(topic=OFFSETS_TOPIC)]), timeout=10
    )
    assert fetched.results[0].error_code == errors_pb2.ERROR_CODE_NONE, "who wants to may read it"


async def test_groups_are_listed_described_and_deleted(world: GroupWorld) -> None:
    await one_broker(world)
    for name in ("a", "b", "c"):
        await TestMember(world, 1, name).commit(1)
    member = TestMember(world, 1, "b", name="worker")
    await member.join()
    await member.sync({member.member_id: b"all"})
    page = await world.ask(1, "ListGroups", group_pb2.ListGroupsRequest(page_size=2))
    assert [group.group_id for group in page.groups] == ["a", "b"]
    rest = await world.ask(1, "ListGroups", group_pb2.ListGroupsRequest(page_token=page.next_page_token))
    assert [group.group_id for group in rest.groups] == ["c"]
    assert not rest.next_page_token
    stable = await world.ask(1, "ListGroups", group_pb2.ListGroupsRequest(states=[group_pb2.GROUP_STATE_STABLE]))
    assert [group.group_id for group in stable.groups] == ["b"]
    told = (await world.ask(1, "DescribeGroups", group_pb2.DescribeGroupsRequest(group_ids=["b", "x"]))).groups
    assert [one.state for one in told] == [group_pb2.GROUP_STATE_STABLE, group_pb2.GROUP_STATE_DEAD]
    assert [(one.client_id, one.assignment) for one in told[0].members] == [("worker", b"all")]
    deleted = await world.ask(1, "DeleteGroups", group_pb2.DeleteGroupsRequest(group_ids=["a", "b", "x"]))
    assert [result.error_code for result in deleted.results] == [
        errors_pb2.ERROR_CODE_NONE,
        errors_pb2.ERROR_CODE_NON_EMPTY_GROUP,
        errors_pb2.ERROR_CODE_GROUP_ID_NOT_FOUND,
    ]
    assert await TestMember(world, 1, "a").committed() == {}
    await world.lead(1, [1], epoch=1)
    await world.serves(1)
    assert await TestMember(world, 1, "a").committed() == {}, "the next coordinator does not know it either"


async def test_offsets_are_forgotten_unless_a_member_reads_their_topic(world: GroupWorld) -> None:
    await one_broker(world)
    await TestMember(world, 1, "g").commit(1, 2)

    async def forget(group: str, *topics: str) -> list[int]:
        asked = group_pb2.OffsetDeleteRequest(group_id=group)
        for topic in topics:
            asked.partitions.add(topic=topic, partition=0)
        return [int(result.error_code) for result in (await world.ask(1, "OffsetDelete", asked)).results]

    member = TestMember(world, 1, "g", name="worker")
    await member.join()
    assert await forget("g", "t", "other") == [errors_pb2.ERROR_CODE_GROUP_SUBSCRIBED_TO_TOPIC] * 2, (
        "what it reads cannot be told, so it may be any"
    )
    await member.leave()
    assert await forget("g", "t", "other") == [0, 0]
    assert await TestMember(world, 1, "g").committed() == {1: 2}
    assert (await refusal(forget("missing", "t"))).code == errors_pb2.ERROR_CODE_GROUP_ID_NOT_FOUND
    await world.lead(1, [1], epoch=1)
    await world.serves(1)
    assert await TestMember(world, 1, "g").committed() == {1: 2}, "the next coordinator does not know it either"


async def test_a_broker_that_was_told_of_other_partitions_coordinates_nothing(world: GroupWorld) -> None:
    await one_broker(world)
    await world.show(1, version=10)
    found = await refusal(TestMember(world, 1, "g").commit(1))
    assert found.code == errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE


async def test_coordinators_are_found_at_the_leaders(world: GroupWorld) -> None:
    await world.start(1, 2)
    await world.lead(2, [2, 1])
    answer = await world.ask(1, "FindCoordinator", group_pb2.FindCoordinatorRequest(group_ids=["g", "h"]))
    assert [one.broker_id for one in answer.coordinators] == [2, 2]
    assert answer.coordinators[0].client.port == (await world.live(2)).client.port
    wrong = await refusal(TestMember(world, 1, "g").commit(1))
    assert wrong.code == errors_pb2.ERROR_CODE_NOT_COORDINATOR
    assert world.brokers[BrokerId(1)].supervisor.failure is None
