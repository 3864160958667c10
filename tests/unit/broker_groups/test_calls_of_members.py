"""Calls of members from their arrival to their answer: what finds no room, and what comes again."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from regnum.broker.v1 import group_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.groups.calls import GroupCalls
from regnum_broker.groups.decisions.offsets import OffsetLimits
from regnum_broker.groups.decisions.state import Again, JoinRequest
from regnum_broker.kafka.context import Context
from regnum_broker.kafka.fetch_sessions import ConnectionSession, Sessions
from regnum_broker.kafka.groups import Groups
from regnum_broker.kafka.refusals import is_waited_for
from regnum_broker.servicers.group import GroupServicer
from regnum_kafka_wire.frames import Head
from regnum_kafka_wire.gen.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from regnum_kafka_wire.gen.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from regnum_model.shares import Shares
from regnum_service.errors import RegnumError
from regnum_service.limits.answers import Answers
from regnum_service.limits.budget import Budget
from regnum_service.limits.call import Call
from regnum_service.limits.held_bytes import HeldBytes, Purpose
from regnum_testing.clock import FakeClock, settle
from regnum_testing.group_partition import LIMITS, GroupPartition, OneShard
from regnum_testing.waiting import within

MIB = 1024 * 1024
LARGE = b"x" * (100 * 1024)
"""A subscription, or an assignment."""


class Door:
    """One broker's groups, asked as a client of either listener asks."""

    def __init__(self, kind: str) -> None:
        self.partition = GroupPartition()
        coordinator: Any = OneShard(self.partition.shard)
        calls = GroupCalls(coordinator, clock=self.partition.clock, limits=LIMITS, offset_limits=OffsetLimits())
        self.servicer = GroupServicer(coordinator=coordinator, calls=calls, clock=self.partition.clock)
        self.kafka = Groups(groups=self.servicer, addresses=None) if kind == "kafka" else None  # type: ignore[arg-type]
        self.held = HeldBytes(Shares(total_max=MIB, connection_max=MIB))

    def context(self, key: int, version: int) -> Context:
        """Of a call, which counts what is made for it from here on."""
        call = Call(peer="ipv4:10.0.0.1:1", client_id="c")
        Answers(Budget(self.held, FakeClock())).begin("call", call)
        head = Head(key=key, version=version, correlation_id=1, client_id="c", end=0)
        return Context(call, head, ConnectionSession(Sessions(), None), FakeClock())  # type: ignore[arg-type]

    async def join(self, member_id: str = "", **more: Any) -> Any:
        """JoinGroup with a large subscription; ``more``: other fields."""
        times = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 20_000}
        fields: Any = {"group_id": "g", "member_id": member_id, "protocol_type": "consumer", **times, **more}
        if self.kafka is None:
            offered = [group_pb2.GroupProtocol(name="range", metadata=LARGE)]
            request = group_pb2.JoinGroupRequest(**fields, protocols=offered)
            return await self.servicer.JoinGroup(request, self.context(11, 9))
        named = [JoinGroupRequestProtocol("range", LARGE)]
        asked = JoinGroupRequest(**fields, protocols=named)
        return await self.kafka.join(asked, self.context(11, 9))

    async def sync(self, member_id: str, assignment: bytes | None = None) -> Any:
        """SyncGroup of generation 1, from its leader where there is an assignment."""
        fields: Any = {"group_id": "g", "member_id": member_id, "generation_id": 1}
        assigned = [] if assignment is None else [(member_id, assignment)]
        if self.kafka is None:
            given = [group_pb2.GroupAssignment(member_id=id, assignment=data) for id, data in assigned]
            request = group_pb2.SyncGroupRequest(**fields, assignments=given)
            return await self.servicer.SyncGroup(request, self.context(14, 5))
        told = [SyncGroupRequestAssignment(id, data) for id, data in assigned]
        return await self.kafka.sync(SyncGroupRequest(**fields, assignments=told), self.context(14, 5))


async def refused(ask: Callable[[], Any]) -> RegnumError:
    with pytest.raises(RegnumError) as caught:
        await ask()
    return caught.value


@pytest.mark.parametrize("kind", ["grpc", "kafka"])
async def test_answers_that_find_no_room_are_refused_and_the_repeat_is_answered(kind: str) -> None:
    door = Door(kind)
    member_id = (await door.join()).member_id
    others = door.held.part_of(Purpose.CONTROL)
    door.held.hold("others", others, Purpose.CONTROL)
    codes = [(await refused(lambda: door.join(member_id))).code]
    written = len(door.partition.batches)
    codes += [(await refused(lambda: door.join(member_id))).code for _ in range(3)]
    assert len(door.partition.batches) == written, "a repeat begins no generation"
    door.held.let_go("others", others, Purpose.CONTROL)
    joined = await door.join(member_id)
    assert (joined.generation_id, joined.leader, len(joined.members)) == (1, member_id, 1)
    door.held.hold("others", others, Purpose.CONTROL)
    codes.append((await refused(lambda: door.sync(member_id, LARGE))).code)
    written = len(door.partition.batches)
    codes += [(await refused(lambda: door.sync(member_id))).code for _ in range(3)]
    assert len(door.partition.batches) == written
    assert set(codes) == {errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED}
    assert all(is_waited_for(code) for code in codes), "a client of Kafka is not told"
    door.held.let_go("others", others, Purpose.CONTROL)
    assert (await door.sync(member_id)).assignment == LARGE
    assert door.partition.shard.groups["g"].generation == 1


async def test_a_rebalance_waits_for_a_member_of_kafka_for_an_hour_at_most() -> None:
    door = Door("kafka")
    for asked_ms, has_s in ((-1, 10.0), (3_600_000, 3_600.0), (3_600_001, 3_600.0), (2**31 - 1, 3_600.0)):
        given = await door.join(rebalance_timeout_ms=asked_ms)
        joined = await door.join(given.member_id, rebalance_timeout_ms=asked_ms)
        assert joined.error_code == 0
        assert door.partition.shard.groups["g"].members[joined.member_id].rebalance_timeout_s == has_s
        leaving = group_pb2.LeaveGroupRequest(group_id="g", members=[{"member_id": joined.member_id}])
        await door.servicer.LeaveGroup(leaving, door.context(13, 5))


async def test_a_static_member_that_comes_back_in_a_rebalance_outlives_its_coordinator() -> None:
    partition = GroupPartition()

    def static(name: str, **more: Any) -> JoinRequest:
        times = {"session_timeout_s": 10.0, "rebalance_timeout_s": 20.0}
        fields: Any = {"new_member_id": f"{name}-new", "protocols": (("range", b"before"),), **times, **more}
        return JoinRequest(instance_id=name, protocol_type="consumer", **fields)

    async def join(request: JoinRequest, *, waitable_s: float = 5.0) -> Any:
        coordinator: Any = OneShard(partition.shard)
        calls = GroupCalls(coordinator, clock=partition.clock, limits=LIMITS, offset_limits=OffsetLimits())
        return await calls.join("g", request, waitable_s=waitable_s)

    first = await join(static("a", new_member_id="a1"))
    b = asyncio.create_task(join(static("b", new_member_id="b1")))
    await settle()
    await join(static("a", member_id=first.member_id))
    assert (await within(b)).generation == 2
    again = await join(static("a", protocols=(("range", b"after"),)), waitable_s=0.0)
    assert again == Again(""), "its id is on no record yet"
    partition.shard = await partition.following()
    held = asyncio.create_task(join(static("a", member_id=again.member_id, protocols=(("range", b"after"),))))
    await settle()
    await join(static("b", member_id="b1"))
    joined = await within(held)
    assert (joined.generation, joined.member_id) == (3, "a-new")
    assert set(partition.shard.groups["g"].members) == {"a-new", "b1"}


@pytest.mark.parametrize(("given", "told"), [("me", 79), ("", errors_pb2.ERROR_CODE_REBALANCE_IN_PROGRESS)])
async def test_a_client_of_kafka_hears_that_it_needs_an_id_where_it_is_given_one(given: str, told: int) -> None:
    class Waiting:
        """GroupService: who joins is to come again."""

        async def JoinGroup(self, request: Any, context: Any) -> group_pb2.JoinGroupResponse:  # noqa: N802
            del request, context
            return group_pb2.JoinGroupResponse(join_again=True, member_id=given)

    door = Door("kafka")
    door.kafka = Groups(groups=Waiting(), addresses=None)  # type: ignore[arg-type]
    answer = await door.join()
    assert (answer.error_code, answer.member_id) == (told, given)
