"""Consumer groups, between Kafka's messages and those of the handlers."""

from collections.abc import Iterable
from typing import Any, Final

from regnum.broker.v1 import group_pb2
from regnum.types.v1 import errors_pb2
from regnum_kafka_wire.gen.find_coordinator_request import FindCoordinatorRequest
from regnum_kafka_wire.gen.find_coordinator_response import Coordinator, FindCoordinatorResponse
from regnum_kafka_wire.gen.heartbeat_request import HeartbeatRequest
from regnum_kafka_wire.gen.heartbeat_response import HeartbeatResponse
from regnum_kafka_wire.gen.join_group_request import JoinGroupRequest
from regnum_kafka_wire.gen.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from regnum_kafka_wire.gen.leave_group_request import LeaveGroupRequest
from regnum_kafka_wire.gen.leave_group_response import LeaveGroupResponse, MemberResponse
from regnum_kafka_wire.gen.offset_commit_request import OffsetCommitRequest
from regnum_kafka_wire.gen.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from regnum_kafka_wire.gen.offset_fetch_request import OffsetFetchRequest
from regnum_kafka_wire.gen.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from regnum_kafka_wire.gen.sync_group_request import SyncGroupRequest
from regnum_kafka_wire.gen.sync_group_response import SyncGroupResponse
from regnum_service.errors import Code, RegnumError
from regnum_service.slices import Turns

from regnum_broker.groups.decisions.state import GroupLimits
from regnum_broker.kafka.addresses import Addresses
from regnum_broker.kafka.context import Context
from regnum_broker.kafka.refusals import check_once, is_waited_for, no_transactions, told

GROUP: Final = 0
TRANSACTION: Final = 1
"""Key types of FindCoordinator; another one is of share groups, which are not offered either."""
MANY_KEYS: Final = 4
"""First version of FindCoordinator that asks for several."""
MANY_GROUPS: Final = 8
"""First version of OffsetFetch that does."""
BY_ID: Final = 10
"""First version of OffsetCommit, and of OffsetFetch, that names topics by their ids."""
KNOWS_IDS: Final = 4
"""First version of JoinGroup whose clients are told an id and come again with it (KIP-394)."""
NO_PROTOCOL_NULL: Final = 7
"""First version of JoinGroup in which a protocol may be null."""
TELLS_MEMBERS: Final = 3
"""First version of LeaveGroup that names several members."""
REBALANCE_TIMEOUT_MS_MAX: Final = round(GroupLimits().rebalance_timeout_s_max * 1000)
"""A member that asks for more has this: its client sends max.poll.interval.ms, for which Kafka has no bound."""
SLICE: Final = 500
"""Groups between two turns of the event loop (safety rule S22)."""


class Groups:
    """Of one broker. Belongs to its event loop."""

    def __init__(self, *, groups: Any, addresses: Addresses) -> None:
        """Only assigns.

        Args:
            groups: GroupService, guarded.
            addresses: where coordinators are.
        """
        self._groups: Final = groups
        self._addresses: Final = addresses

    async def find(self, request: FindCoordinatorRequest, context: Context) -> FindCoordinatorResponse:
        """Which brokers coordinate groups."""
        if request.key_type == TRANSACTION:
            raise no_transactions()
        if request.key_type != GROUP:
            raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, "only groups have coordinators at this listener")
        many = context.version >= MANY_KEYS
        keys = request.coordinator_keys if many else [request.key]
        found = await self._groups.FindCoordinator(group_pb2.FindCoordinatorRequest(group_ids=keys), context)
        brokers = self._addresses.brokers
        coordinators = []
        for key, one in zip(keys, found.coordinators, strict=True):
            broker = brokers.get(one.broker_id)
            code, message = one.error_code, one.error_message
            if not code and broker is None:
                code = errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE
                message = "the coordinator has no listener for Kafka's protocol"
            if code or broker is None:
                coordinators.append(Coordinator(key, -1, "", -1, code, message or None))
            else:
                coordinators.append(Coordinator(key, broker.id, broker.kafka.host, broker.kafka.port, 0, None))
        if many:
            return FindCoordinatorResponse(coordinators=coordinators)
        (only,) = coordinators
        return FindCoordinatorResponse(
            error_code=only.error_code,
            error_message=only.error_message,
            node_id=only.node_id,
            host=only.host,
            port=only.port,
        )

    def not_found(self, request: FindCoordinatorRequest, context: Context, code: Code) -> FindCoordinatorResponse:
        """That there is none."""
        if context.version >= MANY_KEYS:
            return FindCoordinatorResponse(
                coordinators=[Coordinator(key, -1, "", -1, code, None) for key in request.coordinator_keys]
            )
        return FindCoordinatorResponse(error_code=code, node_id=-1, host="", port=-1)

    async def join(self, request: JoinGroupRequest, context: Context) -> JoinGroupResponse:
        """Join, or stay."""
        asked = group_pb2.JoinGroupRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id or "",
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.session_timeout_ms
            if request.rebalance_timeout_ms < 0
            else min(request.rebalance_timeout_ms, REBALANCE_TIMEOUT_MS_MAX),
            protocol_type=request.protocol_type,
            protocols=[
                group_pb2.GroupProtocol(name=one.name, metadata=bytes(one.metadata)) for one in request.protocols
            ],
        )
        asked.header.client_id = context.call.client_id
        answer = await self._groups.JoinGroup(asked, context)
        if answer.join_again and not request.member_id and context.version < KNOWS_IDS:
            # Its client would not understand that it is to come again.
            asked.member_id = answer.member_id
            answer = await self._groups.JoinGroup(asked, context)
        if answer.join_again:
            given = answer.member_id and not request.member_id
            again = _MEMBER_ID_REQUIRED if given else errors_pb2.ERROR_CODE_REBALANCE_IN_PROGRESS
            return _no_join(context, again, answer.member_id)
        return JoinGroupResponse(
            generation_id=answer.generation_id,
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol_name,
            leader=answer.leader,
            skip_assignment=answer.skip_assignment,
            member_id=answer.member_id,
            members=[
                JoinGroupResponseMember(one.member_id, one.group_instance_id or None, one.metadata)
                for one in answer.members
            ],
        )

    def no_join(self, request: JoinGroupRequest, context: Context, code: Code) -> JoinGroupResponse:
        """That it did not."""
        return _no_join(context, code, request.member_id)

    async def sync(self, request: SyncGroupRequest, context: Context) -> SyncGroupResponse:
        """Assign, and be assigned to."""
        answer = await self._groups.SyncGroup(
            group_pb2.SyncGroupRequest(
                group_id=request.group_id,
                generation_id=request.generation_id,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id or "",
                protocol_type=request.protocol_type or "",
                protocol_name=request.protocol_name or "",
                assignments=[
                    group_pb2.GroupAssignment(member_id=one.member_id, assignment=bytes(one.assignment))
                    for one in request.assignments
                ],
            ),
            context,
        )
        if answer.sync_again:
            return SyncGroupResponse(error_code=errors_pb2.ERROR_CODE_REBALANCE_IN_PROGRESS)
        return SyncGroupResponse(
            protocol_type=answer.protocol_type, protocol_name=answer.protocol_name, assignment=answer.assignment
        )

    def no_sync(self, request: SyncGroupRequest, context: Context, code: Code) -> SyncGroupResponse:
        """That nothing is assigned."""
        del request, context
        return SyncGroupResponse(error_code=code)

    async def heartbeat(self, request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
        """A member lives."""
        await self._groups.Heartbeat(
            group_pb2.HeartbeatRequest(
                group_id=request.group_id,
                generation_id=request.generation_id,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id or "",
            ),
            context,
        )
        return HeartbeatResponse()

    def no_heartbeat(self, request: HeartbeatRequest, context: Context, code: Code) -> HeartbeatResponse:
        """That the coordinator does not think so."""
        del request, context
        return HeartbeatResponse(error_code=code)

    async def leave(self, request: LeaveGroupRequest, context: Context) -> LeaveGroupResponse:
        """Members leave."""
        if context.version < TELLS_MEMBERS:
            leaving = [group_pb2.LeavingMember(member_id=request.member_id)]
        else:
            leaving = [
                group_pb2.LeavingMember(member_id=one.member_id, group_instance_id=one.group_instance_id or "")
                for one in request.members
            ]
        asked = group_pb2.LeaveGroupRequest(group_id=request.group_id, members=leaving)
        answer = await self._groups.LeaveGroup(asked, context)
        if context.version < TELLS_MEMBERS:
            return LeaveGroupResponse(error_code=answer.results[0].error_code)
        return LeaveGroupResponse(
            members=[
                MemberResponse(one.member_id, one.group_instance_id or None, result.error_code)
                for one, result in zip(leaving, answer.results, strict=True)
            ]
        )

    def no_leave(self, request: LeaveGroupRequest, context: Context, code: Code) -> LeaveGroupResponse:
        """That nobody left."""
        del request, context
        return LeaveGroupResponse(error_code=code)

    async def commit(self, request: OffsetCommitRequest, context: Context) -> OffsetCommitResponse:
        """Record how far a group has come."""
        asked = group_pb2.OffsetCommitRequest(
            group_id=request.group_id,
            generation_id=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id or "",
        )
        names = [self._name_of(topic, context) for topic in request.topics]
        for name, topic in zip(names, request.topics, strict=True):
            for one in topic.partitions if name is not None else ():
                offset = asked.offsets.add(
                    topic=name,
                    # (What was read of another topic of that name is not committed.)
                    topic_id=self._addresses.text_of(topic.topic_id) if context.version >= BY_ID else "",
                    partition=one.partition_index,
                    offset=one.committed_offset,
                    metadata=one.committed_metadata or "",
                )
                if one.committed_leader_epoch >= 0:
                    offset.leader_epoch = one.committed_leader_epoch
        results = iter((await self._groups.OffsetCommit(asked, context)).results if asked.offsets else ())
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetCommitResponsePartition(
                            one.partition_index,
                            errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID if name is None else next(results).error_code,
                        )
                        for one in topic.partitions
                    ],
                )
                for name, topic in zip(names, request.topics, strict=True)
            ]
        )

    def _name_of(self, topic: Any, context: Context) -> str | None:
        """Of a topic of a request; None: there is none of its id."""
        name: str | None = topic.name if context.version < BY_ID else self._addresses.name_of(topic.topic_id)
        return name

    def no_commit(self, request: OffsetCommitRequest, context: Context, code: Code) -> OffsetCommitResponse:
        """That nothing was recorded."""
        del context
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[OffsetCommitResponsePartition(one.partition_index, code) for one in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    async def committed(self, request: OffsetFetchRequest, context: Context) -> OffsetFetchResponse:
        """How far groups have come; each on its own."""
        if context.version < MANY_GROUPS:
            places = None if request.topics is None else _places(request.topics)
            found = await self._offsets(request.group_id, places, context)
            return OffsetFetchResponse(
                topics=[
                    OffsetFetchResponseTopic(
                        topic,
                        [
                            OffsetFetchResponsePartition(
                                one.partition,
                                one.offset if one.HasField("offset") else -1,
                                one.leader_epoch if one.HasField("leader_epoch") else -1,
                                one.metadata,
                                0,
                            )
                            for one in offsets
                        ],
                    )
                    for topic, offsets in found.items()
                ]
            )
        check_once((group.group_id for group in request.groups), "group")
        groups, turns = [], Turns(SLICE)
        for group in request.groups:
            await turns.took()
            answer = OffsetFetchResponseGroup(group_id=group.group_id)
            groups.append(answer)
            missing: list[OffsetFetchResponseTopics] = []
            named = None if group.topics is None else self._named(group.topics, missing, context)
            try:
                found = await self._offsets(group.group_id, named, context)
            except RegnumError as error:
                if is_waited_for(error.code):
                    raise
                answer.error_code = told(context.head.key, error.code)
                continue
            answer.topics = missing + [
                OffsetFetchResponseTopics(
                    name=topic,
                    topic_id=self._addresses.id_of(topic),
                    partitions=[
                        OffsetFetchResponsePartitions(
                            partition_index=one.partition,
                            committed_offset=one.offset if one.HasField("offset") else -1,
                            committed_leader_epoch=one.leader_epoch if one.HasField("leader_epoch") else -1,
                            metadata=one.metadata,
                        )
                        for one in offsets
                    ],
                )
                for topic, offsets in found.items()
                # (Nothing can be said by its id of a topic that this broker does not know any more.)
                if context.version < BY_ID or any(self._addresses.id_of(topic))
            ]
        return OffsetFetchResponse(groups=groups)

    def _named(
        self, topics: Iterable[Any], missing: list[OffsetFetchResponseTopics], context: Context
    ) -> list[group_pb2.OffsetToFetch]:
        """The partitions of a group that are asked for; the answers for ids that no topic has go to ``missing``."""
        places = []
        for topic in topics:
            name = self._name_of(topic, context)
            if name is None:
                code = errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID
                nothing = [OffsetFetchResponsePartitions(one, -1, -1, "", code) for one in topic.partition_indexes]
                missing.append(OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=nothing))
            else:
                places += [group_pb2.OffsetToFetch(topic=name, partition=one) for one in topic.partition_indexes]
        return places

    async def _offsets(
        self, group_id: str, places: list[group_pb2.OffsetToFetch] | None, context: Context
    ) -> dict[str, list[group_pb2.FetchedOffset]]:
        if places is not None:
            # Kafka's brokers answer what is named again again: here once, for each answer has the note of a commit.
            places = list({(one.topic, one.partition): one for one in places}.values())
        if places == []:
            return {}
        asked = group_pb2.OffsetFetchRequest(group_id=group_id, partitions=places)
        found: dict[str, list[group_pb2.FetchedOffset]] = {}
        for one in (await self._groups.OffsetFetch(asked, context)).offsets:
            found.setdefault(one.topic, []).append(one)
        return found

    def not_committed(self, request: OffsetFetchRequest, context: Context, code: Code) -> OffsetFetchResponse:
        """That it is not told."""
        if context.version >= MANY_GROUPS:
            return OffsetFetchResponse(
                groups=[OffsetFetchResponseGroup(group_id=group.group_id, error_code=code) for group in request.groups]
            )
        return OffsetFetchResponse(
            error_code=code,
            topics=[
                OffsetFetchResponseTopic(
                    topic.name,
                    [OffsetFetchResponsePartition(number, -1, -1, "", code) for number in topic.partition_indexes],
                )
                for topic in request.topics or ()
            ],
        )


_MEMBER_ID_REQUIRED: Final = 79
"""Kafka's number; the other door says so with a field."""


def _no_join(context: Context, code: int, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        generation_id=-1,
        protocol_type=None,
        protocol_name=None if context.version >= NO_PROTOCOL_NULL else "",
        leader="",
        member_id=member_id,
    )


def _places(topics: Iterable[Any]) -> list[group_pb2.OffsetToFetch]:
    return [
        group_pb2.OffsetToFetch(topic=topic.name, partition=number)
        for topic in topics
        for number in topic.partition_indexes
    ]
