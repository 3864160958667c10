"""Groups listed, described and forgotten, between Kafka's messages and those of the handlers."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from regnum.broker.v1 import group_pb2
from regnum.types.v1 import errors_pb2
from regnum_kafka_wire.gen.delete_groups_request import DeleteGroupsRequest
from regnum_kafka_wire.gen.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from regnum_kafka_wire.gen.describe_groups_request import DescribeGroupsRequest
from regnum_kafka_wire.gen.describe_groups_response import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from regnum_kafka_wire.gen.list_groups_request import ListGroupsRequest
from regnum_kafka_wire.gen.list_groups_response import ListedGroup, ListGroupsResponse
from regnum_kafka_wire.gen.offset_delete_request import OffsetDeleteRequest
from regnum_kafka_wire.gen.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from regnum_model.access import ResourceType
from regnum_service.access.authentication import host_of
from regnum_service.access.authorization import Authorizer
from regnum_service.errors import Code
from regnum_service.limits.answers import making
from regnum_service.slices import Turns, slices

from regnum_broker.kafka.administration.operations import NOT_ASKED, authorized
from regnum_broker.kafka.administration.rooms import Room
from regnum_broker.kafka.context import Context
from regnum_broker.kafka.refusals import check_once

STATES: Final[Mapping["group_pb2.GroupState.ValueType", str]] = MappingProxyType(
    {
        group_pb2.GROUP_STATE_EMPTY: "Empty",
        group_pb2.GROUP_STATE_PREPARING_REBALANCE: "PreparingRebalance",
        group_pb2.GROUP_STATE_COMPLETING_REBALANCE: "CompletingRebalance",
        group_pb2.GROUP_STATE_STABLE: "Stable",
        group_pb2.GROUP_STATE_DEAD: "Dead",
    }
)
"""Kafka's words."""
CLASSIC: Final = "classic"
"""The type of every group here (KIP-848 has others)."""
TELLS_MISSING: Final = 6
"""First version of DescribeGroups that says of a group that there is none (KIP-1043)."""
TOGETHER: Final = 100
"""Groups that the handlers take in one call; Kafka's clients name all that they mean in one."""
DESCRIBED_BYTES: Final = 16 * 1024 * 1024
"""Members of one answer, before it is encoded."""
MEMBER_BYTES: Final = 200
"""About what a member takes of them besides its names, its subscription and its assignment."""
TOO_MUCH: Final = "the answer would be too large: ask for this group in a call of its own"
SLICE: Final = 1_000
"""Groups, or members, put into an answer before the event loop gets a turn (safety rule S22)."""


class GroupAdministration:
    """Of one broker. Belongs to its event loop."""

    def __init__(self, *, groups: Any, authorizer: Authorizer) -> None:
        """Only assigns.

        Args:
            groups: GroupService, guarded.
            authorizer: what callers may do with groups, for those that ask.
        """
        self._groups: Final = groups
        self._authorizer: Final = authorizer

    @property
    def rooms(self) -> Mapping[int, Room]:
        """By API key."""
        return {
            15: (self.describe_groups, self.no_describe_groups),
            16: (self.list_groups, self.no_list_groups),
            42: (self.delete_groups, self.no_delete_groups),
            47: (self.delete_offsets, self.no_delete_offsets),
        }

    async def describe_groups(self, request: DescribeGroupsRequest, context: Context) -> DescribeGroupsResponse:
        """States and members."""
        check_once(request.groups, "group")
        described: list[DescribedGroup] = []
        room, turns = DESCRIBED_BYTES, Turns(SLICE)
        async for names in slices(request.groups, TOGETHER):
            asked = group_pb2.DescribeGroupsRequest(group_ids=names)
            for group in (await self._groups.DescribeGroups(asked, context)).groups:
                await turns.took(1 + len(group.members))
                size = sum(map(_size, group.members))
                room -= size
                if room < 0:
                    described.append(DescribedGroup(errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE, TOO_MUCH, group.group_id))
                    continue
                making(size)
                one = _described(group, context)
                if request.include_authorized_operations and not group.error_code:
                    one.authorized_operations = authorized(self._authorizer, ResourceType.GROUP, group.group_id)
                described.append(one)
        return DescribeGroupsResponse(groups=described)

    def no_describe_groups(
        self, request: DescribeGroupsRequest, context: Context, code: Code
    ) -> DescribeGroupsResponse:
        """That nothing is told of them."""
        del context
        return DescribeGroupsResponse(
            groups=[DescribedGroup(error_code=code, group_id=name) for name in request.groups]
        )

    async def list_groups(self, request: ListGroupsRequest, context: Context) -> ListGroupsResponse:
        """The groups here that the caller may know of."""
        states = {state.lower(): number for number, state in STATES.items()}
        wanted = {states[name.lower()] for name in request.states_filter if name.lower() in states}
        types = {name.lower() for name in request.types_filter}
        if (request.states_filter and not wanted) or (types and CLASSIC not in types):
            return ListGroupsResponse()
        response = ListGroupsResponse(groups=(groups := []))
        asked = group_pb2.ListGroupsRequest(states=sorted(wanted))
        while True:
            page = await self._groups.ListGroups(asked, context)
            if page.loading:
                response.error_code = errors_pb2.ERROR_CODE_COORDINATOR_LOAD_IN_PROGRESS
            async for part in slices(page.groups, SLICE):
                groups += [ListedGroup(one.group_id, one.protocol_type, STATES[one.state], CLASSIC) for one in part]
            if not page.next_page_token:
                return response
            asked.page_token = page.next_page_token

    def no_list_groups(self, request: ListGroupsRequest, context: Context, code: Code) -> ListGroupsResponse:
        """That they are not told."""
        del request, context
        return ListGroupsResponse(error_code=code)

    async def delete_groups(self, request: DeleteGroupsRequest, context: Context) -> DeleteGroupsResponse:
        """Forget groups, each on its own."""
        results: list[DeletableGroupResult] = []
        async for names in slices(request.groups_names, TOGETHER):
            answer = await self._groups.DeleteGroups(group_pb2.DeleteGroupsRequest(group_ids=names), context)
            results += [DeletableGroupResult(one.group_id, one.error_code) for one in answer.results]
        return DeleteGroupsResponse(results=results)

    def no_delete_groups(self, request: DeleteGroupsRequest, context: Context, code: Code) -> DeleteGroupsResponse:
        """That none was forgotten."""
        del context
        return DeleteGroupsResponse(results=[DeletableGroupResult(name, code) for name in request.groups_names])

    async def delete_offsets(self, request: OffsetDeleteRequest, context: Context) -> OffsetDeleteResponse:
        """Forget how far a group has come in some partitions."""
        asked = group_pb2.OffsetDeleteRequest(group_id=request.group_id)
        for topic in request.topics:
            for one in topic.partitions:
                asked.partitions.add(topic=topic.name, partition=one.partition_index)
        results = iter((await self._groups.OffsetDelete(asked, context)).results)
        return _forgotten(request, lambda: next(results).error_code)

    def no_delete_offsets(self, request: OffsetDeleteRequest, context: Context, code: Code) -> OffsetDeleteResponse:
        """That all are kept."""
        del request, context
        return OffsetDeleteResponse(error_code=code)


def _size(member: group_pb2.GroupMember) -> int:
    """About what it takes of an answer."""
    names = member.member_id, member.group_instance_id, member.client_id, member.client_host
    return MEMBER_BYTES + sum(map(len, names)) + len(member.metadata) + len(member.assignment)


def _described(group: group_pb2.GroupDescription, context: Context) -> DescribedGroup:
    code, message = int(group.error_code), group.error_message
    if not code and group.state == group_pb2.GROUP_STATE_DEAD and context.version >= TELLS_MISSING:
        code, message = errors_pb2.ERROR_CODE_GROUP_ID_NOT_FOUND, f"there is no group {group.group_id!r}"
    return DescribedGroup(
        error_code=code,
        error_message=message or None,
        group_id=group.group_id,
        group_state=STATES.get(group.state, ""),
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=one.member_id,
                group_instance_id=one.group_instance_id or None,
                client_id=one.client_id,
                # (As Java writes an address without a name, which Kafka's tools show.)
                client_host=f"/{host_of(one.client_host)}",
                member_metadata=one.metadata,
                member_assignment=one.assignment,
            )
            for one in group.members
        ],
        authorized_operations=NOT_ASKED,
    )


def _forgotten(request: OffsetDeleteRequest, outcome: Callable[[], int]) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                topic.name,
                [OffsetDeleteResponsePartition(one.partition_index, outcome()) for one in topic.partitions],
            )
            for topic in request.topics
        ]
    )
