"""GroupService: messages into calls about groups, and back."""

from typing import Any, Final, TypeAlias

from regnum.broker.v1 import group_pb2, group_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_model.access import Operation, ResourceType
from regnum_model.wire_times import timestamp_of
from regnum_service.access.authorization import EVERYBODY, Authorizer, Right
from regnum_service.clock import Clock
from regnum_service.deadlines import waitable_s
from regnum_service.errors import Code, RegnumError
from regnum_service.item_errors import item_status
from regnum_service.limits.answers import making
from regnum_service.page_tokens import page_size, page_token, place_of
from regnum_service.slices import Turns, slices

from regnum_broker.groups.calls import GroupCalls, code_of
from regnum_broker.groups.coordinator import GroupCoordinator
from regnum_broker.groups.decisions.offsets import CommittedOffset, OffsetLimits, Place
from regnum_broker.groups.decisions.state import Again, GroupLimits, GroupState, Identity, JoinRequest, SyncRequest
from regnum_broker.groups.seats import CoordinatorPlace

GROUPS_MAX: Final = 1_000
"""Groups of one FindCoordinator."""
DESCRIBED_MAX: Final = 100
"""Groups of one DescribeGroups, or DeleteGroups."""
DESCRIBED_BYTES: Final = 16 * 1024 * 1024
"""Bytes of subscriptions and assignments of one answer; those of one group are fewer."""
LISTED_MAX: Final = 10_000
"""Groups of one ListGroups."""
LISTED_BYTES: Final = 128
"""About what one takes of its answer."""
OFFSET_BYTES: Final = 96
"""About what a committed offset takes of an answer, but for its metadata."""
STATES_MAX: Final = 100
"""States that one ListGroups may name, again and again."""
MEMBERS_MAX: Final = GroupLimits().members_max
"""Members of one SyncGroup, or LeaveGroup."""
PROTOCOLS_MAX: Final = GroupLimits().protocols_max
"""Assignment protocols of one JoinGroup."""
MEMBER_BYTES_MAX: Final = GroupLimits().member_bytes_max
"""Bytes that a member brings: of all its protocols."""
ASSIGNMENT_BYTES_MAX: Final = GroupLimits().assignment_bytes_max
"""Bytes of one assignment."""
OFFSETS_MAX: Final = OffsetLimits().offsets_max
"""Offsets of one OffsetCommit, or OffsetFetch."""
SESSION_TIMEOUT_MS_DEFAULT: Final = 45_000
REBALANCE_TIMEOUT_MS_DEFAULT: Final = 300_000
NAME_LENGTH_MAX: Final = 255
"""Characters of an instance id, and so many of a client id and a topic's name are kept."""
SLICE: Final = 500
"""Offsets put into other words between two turns of the event loop (safety rule S22)."""

DESCRIBE_GROUP: Final = Right(Operation.DESCRIBE, ResourceType.GROUP)
DESCRIBE_CLUSTER: Final = Right(Operation.DESCRIBE, ResourceType.CLUSTER)
"""Stands for the right to describe every group in a list of them."""

STATES: Final = {
    GroupState.EMPTY: group_pb2.GROUP_STATE_EMPTY,
    GroupState.PREPARING_REBALANCE: group_pb2.GROUP_STATE_PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE: group_pb2.GROUP_STATE_COMPLETING_REBALANCE,
    GroupState.STABLE: group_pb2.GROUP_STATE_STABLE,
    GroupState.DEAD: group_pb2.GROUP_STATE_DEAD,
}

Item: TypeAlias = (
    group_pb2.Coordinator
    | group_pb2.LeaveGroupResult
    | group_pb2.OffsetCommitResult
    | group_pb2.GroupDescription
    | group_pb2.DeleteGroupResult
    | group_pb2.OffsetDeleteResult
)

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


class GroupServicer(group_pb2_grpc.GroupServiceServicer):
    """Passes calls on; decides nothing."""

    def __init__(
        self, *, coordinator: GroupCoordinator, calls: GroupCalls, clock: Clock, authorizer: Authorizer = EVERYBODY
    ) -> None:
        """Only assigns; ``clock`` says when something is committed, ``authorizer`` which groups a page may name."""
        self._authorizer: Final = authorizer
        self._coordinator: Final = coordinator
        self._calls: Final = calls
        self._clock: Final = clock

    async def FindCoordinator(  # noqa: N802 - gRPC's name
        self, request: group_pb2.FindCoordinatorRequest, context: Context
    ) -> group_pb2.FindCoordinatorResponse:
        """Which brokers coordinate groups, and transactions."""
        _check_count(request.group_ids, GROUPS_MAX, "groups")
        _check_count(request.transactional_ids, GROUPS_MAX, "transactional ids")
        if request.group_ids and request.transactional_ids:
            raise _invalid("ask for groups or for transactional ids, each in its own call")
        if any(not 0 < len(id) <= NAME_LENGTH_MAX for id in request.transactional_ids):
            raise _invalid(f"a transactional id has 1 to {NAME_LENGTH_MAX} characters")
        found: list[CoordinatorPlace] = []
        if request.group_ids:
            found += await self._coordinator.coordinators(list(request.group_ids), wait_s=waitable_s(context))
        if request.transactional_ids:
            found += await self._coordinator.transaction_coordinators(
                list(request.transactional_ids), wait_s=waitable_s(context)
            )
        response = group_pb2.FindCoordinatorResponse(
            coordinators=[
                *(group_pb2.Coordinator(group_id=id) for id in request.group_ids),
                *(group_pb2.Coordinator(transactional_id=id) for id in request.transactional_ids),
            ]
        )
        for one, place in zip(response.coordinators, found, strict=True):
            one.broker_id = -1
            if place.client is None:
                _refuse(
                    one,
                    errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE,
                    "its partition has no leader at the moment: ask again",
                )
            else:
                one.broker_id = place.broker
                one.client.CopyFrom(place.client)
        return response

    async def JoinGroup(  # noqa: N802 - gRPC's name
        self, request: group_pb2.JoinGroupRequest, context: Context
    ) -> group_pb2.JoinGroupResponse:
        """Join, or stay."""
        if min(request.session_timeout_ms, request.rebalance_timeout_ms) < 0:
            raise _invalid("a time-out is negative; give a positive one, or 0 for the default")
        # Counts come first here and below: a message of 64 MiB has millions of items, and each costs to be copied.
        _check_count(request.protocols, PROTOCOLS_MAX, "protocols")
        _check_name(request.group_instance_id)
        client_id = request.header.client_id[:NAME_LENGTH_MAX]
        answer = await self._calls.join(
            request.group_id,
            JoinRequest(
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                client_id=client_id,
                client_host=context.peer()[:NAME_LENGTH_MAX],
                session_timeout_s=(request.session_timeout_ms or SESSION_TIMEOUT_MS_DEFAULT) / 1000,
                rebalance_timeout_s=(request.rebalance_timeout_ms or REBALANCE_TIMEOUT_MS_DEFAULT) / 1000,
                protocol_type=request.protocol_type,
                protocols=tuple((one.name, one.metadata) for one in request.protocols),
                new_member_id=self._calls.new_member_id(request.group_instance_id or client_id),
            ),
            waitable_s=waitable_s(context),
        )
        if isinstance(answer, Again):
            return group_pb2.JoinGroupResponse(join_again=True, member_id=answer.member_id)
        # (A member whose answer finds no room has joined, and is told the same when it asks again.)
        making(sum(len(one.member_id) + len(one.instance_id) + len(one.metadata) for one in answer.members))
        return group_pb2.JoinGroupResponse(
            member_id=answer.member_id,
            generation_id=answer.generation,
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol,
            leader=answer.leader,
            members=[
                group_pb2.JoinedGroupMember(
                    member_id=one.member_id, group_instance_id=one.instance_id, metadata=one.metadata
                )
                for one in answer.members
            ],
            skip_assignment=answer.skip_assignment,
        )

    async def SyncGroup(  # noqa: N802 - gRPC's name
        self, request: group_pb2.SyncGroupRequest, context: Context
    ) -> group_pb2.SyncGroupResponse:
        """Assign, and be assigned to."""
        _check_count(request.assignments, MEMBERS_MAX, "assignments")
        answer = await self._calls.sync(
            request.group_id,
            SyncRequest(
                identity=_identity(request),
                protocol_type=request.protocol_type,
                protocol=request.protocol_name,
                assignments=tuple((one.member_id, one.assignment) for one in request.assignments),
            ),
            waitable_s=waitable_s(context),
        )
        if isinstance(answer, Again):
            return group_pb2.SyncGroupResponse(sync_again=True)
        making(len(answer.assignment))
        return group_pb2.SyncGroupResponse(
            protocol_type=answer.protocol_type, protocol_name=answer.protocol, assignment=answer.assignment
        )

    async def Heartbeat(  # noqa: N802 - gRPC's name
        self,
        request: group_pb2.HeartbeatRequest,
        context: Context,  # noqa: ARG002
    ) -> group_pb2.HeartbeatResponse:
        """A member lives."""
        self._calls.heartbeat(request.group_id, _identity(request))
        return group_pb2.HeartbeatResponse()

    async def LeaveGroup(  # noqa: N802 - gRPC's name
        self, request: group_pb2.LeaveGroupRequest, context: Context
    ) -> group_pb2.LeaveGroupResponse:
        """Members leave."""
        _check_count(request.members, MEMBERS_MAX, "members")
        left = await self._calls.leave(
            request.group_id,
            [Identity(member_id=one.member_id, instance_id=one.group_instance_id) for one in request.members],
            waitable_s=waitable_s(context),
        )
        response = group_pb2.LeaveGroupResponse()
        for refused in left.outcomes:
            result = response.results.add()
            if refused is not None:
                _refuse(result, code_of(refused), refused.message)
        return response

    async def OffsetCommit(  # noqa: N802 - gRPC's name
        self, request: group_pb2.OffsetCommitRequest, context: Context
    ) -> group_pb2.OffsetCommitResponse:
        """Record how far a group has come."""
        _check_count(request.offsets, OFFSETS_MAX, "offsets")
        now_ms = self._clock.wall_ms()
        offsets: list[tuple[Place, CommittedOffset]] = []
        turns = Turns(SLICE)
        for one in request.offsets:
            if not one.topic or len(one.topic) > NAME_LENGTH_MAX or one.partition < 0:
                raise _invalid("an offset names a topic and a partition that is not negative; nothing was committed")
            epoch = one.leader_epoch if one.HasField("leader_epoch") else -1
            offset = CommittedOffset(
                offset=one.offset,
                leader_epoch=epoch,
                metadata=one.metadata,
                committed_ms=now_ms,
                topic_id=one.topic_id[:NAME_LENGTH_MAX],
            )
            offsets.append((Place(one.topic, one.partition), offset))
            await turns.took()
        outcomes = await self._calls.commit(
            request.group_id, _identity(request), offsets, waitable_s=waitable_s(context)
        )
        response = group_pb2.OffsetCommitResponse()
        async for part in slices(zip(request.offsets, outcomes, strict=True), SLICE):
            for one, refused in part:
                result = response.results.add(topic=one.topic, partition=one.partition)
                if refused is not None:
                    _refuse(result, code_of(refused), refused.message)
        return response

    async def OffsetFetch(  # noqa: N802 - gRPC's name
        self,
        request: group_pb2.OffsetFetchRequest,
        context: Context,  # noqa: ARG002
    ) -> group_pb2.OffsetFetchResponse:
        """How far a group has come."""
        _check_count(request.partitions, OFFSETS_MAX, "partitions")
        places = [Place(one.topic, one.partition) for one in request.partitions] or None
        response = group_pb2.OffsetFetchResponse()
        async for part in slices(await self._calls.fetch(request.group_id, places), SLICE):
            making(sum(OFFSET_BYTES + (0 if offset is None else len(offset.metadata)) for _, offset in part))
            for place, offset in part:
                one = response.offsets.add(topic=place.topic, partition=place.partition)
                if offset is not None:
                    one.offset, one.metadata = offset.offset, offset.metadata
                    one.committed.CopyFrom(timestamp_of(offset.committed_ms))
                    if offset.leader_epoch >= 0:
                        one.leader_epoch = offset.leader_epoch
        return response

    async def ListGroups(  # noqa: N802 - gRPC's name
        self,
        request: group_pb2.ListGroupsRequest,
        context: Context,  # noqa: ARG002
    ) -> group_pb2.ListGroupsResponse:
        """The groups here, a page of them."""
        _check_count(request.states, STATES_MAX, "states")
        states = {number: state for state, number in STATES.items()}
        if unknown := [number for number in request.states if number not in states]:
            raise _invalid(f"no such state of a group: {unknown[0]}; see GroupState")
        sees_all = DESCRIBE_CLUSTER.held(self._authorizer, audit=False)
        found, more, loading = await self._calls.groups(
            after=str(behind[0]) if (behind := place_of(request.page_token, str)) else "",
            limit=page_size(request.page_size, default=LISTED_MAX, maximum=LISTED_MAX),
            states=frozenset(states[number] for number in request.states),
            shows=None if sees_all else DESCRIBE_GROUP.shows(self._authorizer),
        )
        response = group_pb2.ListGroupsResponse(loading=loading)
        if more:
            response.next_page_token = page_token((found[-1].group_id,))
        async for part in slices(found, SLICE):
            making(LISTED_BYTES * len(part))
            for group in part:
                response.groups.add(
                    group_id=group.group_id, protocol_type=group.protocol_type, state=STATES[group.state]
                )
        return response

    async def DescribeGroups(  # noqa: N802 - gRPC's name
        self,
        request: group_pb2.DescribeGroupsRequest,
        context: Context,  # noqa: ARG002
    ) -> group_pb2.DescribeGroupsResponse:
        """States and members."""
        _check_count(request.group_ids, DESCRIBED_MAX, "groups")
        if len(set(request.group_ids)) < len(request.group_ids):
            # A name is a few bytes, and its answer a thousand members.
            raise _invalid("a group is named twice; ask for each once")
        response = group_pb2.DescribeGroupsResponse()
        room = DESCRIBED_BYTES
        async for (group_id,) in slices(request.group_ids, 1):
            one = response.groups.add(group_id=group_id)
            try:
                view = self._calls.describe(group_id)
            except RegnumError as error:
                _refuse(one, error.code, error.message)
                continue
            group = view.group
            size = group.brought_bytes + group.assigned_bytes
            room -= size
            if room < 0:
                _refuse(
                    one,
                    errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE,
                    "the answer would be too large: ask for this group in a call of its own",
                )
                continue
            making(size)
            one.state = STATES[group.state if view.exists else GroupState.DEAD]
            one.protocol_type, one.protocol_name = group.protocol_type, group.protocol
            one.generation_id, one.leader = group.generation, group.leader
            for member in sorted(group.members.values(), key=lambda member: member.member_id):
                one.members.add(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    metadata=member.metadata_of(group.protocol),
                    assignment=member.assignment,
                )
        return response

    async def DeleteGroups(  # noqa: N802 - gRPC's name
        self, request: group_pb2.DeleteGroupsRequest, context: Context
    ) -> group_pb2.DeleteGroupsResponse:
        """Forget groups, each on its own."""
        _check_count(request.group_ids, DESCRIBED_MAX, "groups")
        response = group_pb2.DeleteGroupsResponse()
        for group_id in request.group_ids:
            result = response.results.add(group_id=group_id)
            try:
                await self._calls.delete(group_id, waitable_s=waitable_s(context))
            except RegnumError as error:
                _refuse(result, error.code, error.message)
        return response

    async def OffsetDelete(  # noqa: N802 - gRPC's name
        self, request: group_pb2.OffsetDeleteRequest, context: Context
    ) -> group_pb2.OffsetDeleteResponse:
        """Forget offsets, each on its own."""
        _check_count(request.partitions, OFFSETS_MAX, "partitions")
        outcomes = await self._calls.forget(
            request.group_id,
            [Place(one.topic, one.partition) for one in request.partitions],
            waitable_s=waitable_s(context),
        )
        response = group_pb2.OffsetDeleteResponse()
        async for part in slices(zip(request.partitions, outcomes, strict=True), SLICE):
            for one, refused in part:
                result = response.results.add(topic=one.topic, partition=one.partition)
                if refused is not None:
                    _refuse(result, code_of(refused), refused.message)
        return response


def _refuse(item: Item, code: Code, message: str) -> None:
    item.error_code, item.error_message = code, message
    item.status.CopyFrom(item_status(code, message))


def _identity(
    request: group_pb2.SyncGroupRequest | group_pb2.HeartbeatRequest | group_pb2.OffsetCommitRequest,
) -> Identity:
    return Identity(
        member_id=request.member_id, instance_id=request.group_instance_id, generation=request.generation_id
    )


def _check_count(items: Any, most: int, what: str) -> None:
    if len(items) > most:
        raise _invalid(f"more than {most} {what}: split the request")


def _check_name(name: str) -> None:
    if len(name) > NAME_LENGTH_MAX:
        raise _invalid(f"a group instance id has at most {NAME_LENGTH_MAX} characters")


def _invalid(message: str) -> RegnumError:
    return RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, message)
