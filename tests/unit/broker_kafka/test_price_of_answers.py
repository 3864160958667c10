"""What a few bytes may have a broker answer: what is named again is not told again, and answers are paid for.

| attack | shown by |
|---|---|
| a group named again and again | test_a_group_that_is_named_twice_is_refused_at_both_doors |
| groups of a thousand members without subscriptions | test_names_of_members_count...; ..._hold_no_loop |
"""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from regnum.broker.v1 import group_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.kafka.administration.groups import DESCRIBED_BYTES, MEMBER_BYTES, GroupAdministration
from regnum_broker.kafka.context import Context
from regnum_broker.kafka.fetch_sessions import ConnectionSession, Sessions
from regnum_broker.servicers.group import GroupServicer
from regnum_kafka_wire.frames import Head
from regnum_kafka_wire.gen.describe_groups_request import DescribeGroupsRequest
from regnum_model.shares import Shares
from regnum_service.access.authorization import EVERYBODY
from regnum_service.errors import RegnumError
from regnum_service.limits.answers import Answers
from regnum_service.limits.budget import Budget
from regnum_service.limits.call import Call
from regnum_service.limits.held_bytes import HeldBytes
from regnum_testing.clock import FakeClock
from regnum_testing.held_loop import HeldLoop, run_measured

MIB = 1024 * 1024
INVALID_REQUEST = errors_pb2.ERROR_CODE_INVALID_REQUEST


def context(key: int, version: int) -> Context:
    head = Head(key=key, version=version, correlation_id=1, client_id="c", end=0)
    call = Call(peer="ipv4:10.0.0.1:1", client_id="c")
    return Context(call, head, ConnectionSession(Sessions(), None), FakeClock())  # type: ignore[arg-type]


@contextmanager
def paid(total_max: int = 1024 * MIB) -> Iterator[HeldBytes]:
    """What answers that are made in there take of the memory of clients."""
    held = HeldBytes(Shares(total_max=total_max, connection_max=total_max))
    call = Call(peer="ipv4:10.0.0.1:1")
    Answers(Budget(held, FakeClock())).begin("kafka", call)
    yield held
    call.leave()


async def refused(answer: Awaitable[Any]) -> Any:
    with pytest.raises(RegnumError) as caught:
        await answer
    return caught.value.code


# Groups.


class Described:
    """GroupService: every group has a thousand members of these names."""

    def __init__(self, name: str = "c" * 36) -> None:
        member = group_pb2.GroupMember(member_id=name, client_id=name, client_host="ipv4:10.0.0.1:1")
        self._members = [member] * 1_000
        self.asked = 0

    async def DescribeGroups(self, request: Any, _context: Any) -> group_pb2.DescribeGroupsResponse:  # noqa: N802
        self.asked += len(request.group_ids)
        groups = [group_pb2.GroupDescription(group_id=id, members=self._members) for id in request.group_ids]
        # (What it costs to make them is the other door's.)
        await asyncio.sleep(0)
        return group_pb2.DescribeGroupsResponse(groups=groups)


def names(count: int) -> list[str]:
    return [f"g{number}" for number in range(count)]


async def test_a_group_that_is_named_twice_is_refused_at_both_doors() -> None:
    groups = Described()
    door = GroupAdministration(groups=groups, authorizer=EVERYBODY)
    # (Behind as many as the other door is asked for in one call.)
    again = DescribeGroupsRequest(groups=[*names(100), "g0"])
    assert await refused(door.describe_groups(again, context(15, 5))) == INVALID_REQUEST
    assert groups.asked == 0
    servicer = GroupServicer(coordinator=None, calls=None, clock=FakeClock())  # type: ignore[arg-type]
    request = group_pb2.DescribeGroupsRequest(group_ids=["a", "b", "a"])
    assert await refused(servicer.DescribeGroups(request, None)) == INVALID_REQUEST


async def test_names_of_members_count_in_an_answer_about_groups_and_are_paid_for() -> None:
    name = "n" * 250
    door = GroupAdministration(groups=Described(name), authorizer=EVERYBODY)
    with paid() as held:
        answer = await door.describe_groups(DescribeGroupsRequest(groups=names(60)), context(15, 5))
        told = [one for one in answer.groups if not one.error_code]
        member_bytes = MEMBER_BYTES + 2 * len(name)
        assert 20 < len(told) <= DESCRIBED_BYTES // (1_000 * member_bytes)
        assert {one.error_code for one in answer.groups[len(told) :]} == {errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE}
        assert held.total >= len(told) * 1_000 * member_bytes


@pytest.mark.alone
def test_many_members_of_many_groups_hold_no_loop() -> None:
    async def scenario(held: HeldLoop) -> None:
        door = GroupAdministration(groups=Described(), authorizer=EVERYBODY)
        with held.measuring("DescribeGroups"):
            answer = await door.describe_groups(DescribeGroupsRequest(groups=names(40)), context(15, 5))
        assert sum(len(one.members) for one in answer.groups) == 40_000

    run_measured(scenario).assert_free()
