"""Consumer groups: found, listed, described, forgotten."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from regnum.broker.v1 import group_pb2
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.nodes import Address
from regnum_model.wire_times import unix_ms_of
from regnum_service.errors import RegnumError

from regnum_client.admin.groups.views import (
    STATES,
    CommittedOffset,
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupState,
)
from regnum_client.admin.session import AdminSession
from regnum_client.cluster.connections import call
from regnum_client.cluster.view import ClusterView
from regnum_client.records import TopicPartition

if TYPE_CHECKING:
    from regnum.broker.v1.group_pb2_grpc import GroupServiceAsyncStub

A = TypeVar("A")

CALL_S: Final = 10.0
"""Longest single call."""

AGAIN_S: Final = 0.2
"""Pause before a call is repeated."""


class GroupAdmin(AdminSession):
    """Groups and their offsets."""

    async def list_groups(self) -> tuple[GroupListing, ...]:
        """All groups by name, as every live broker tells of those that it coordinates.

        Raises RegnumError when a broker does not answer in time, or still reads what groups it has.
        """
        found: dict[str, GroupListing] = {}
        view = await self._open().newer_than(self._clock.monotonic(), timeout_s=self._timeout_s)
        for broker in view.brokers.values():
            for group in await self._listed(broker.id, broker.address):
                found[group.group_id] = group
        return tuple(found[name] for name in sorted(found))

    async def describe_group(self, group_id: str) -> GroupDescription:
        """A group and its members. Raises GROUP_ID_NOT_FOUND."""

        async def ask(stub: "GroupServiceAsyncStub", timeout_s: float, coordinator: int) -> GroupDescription:
            request = group_pb2.DescribeGroupsRequest(header=self._header, group_ids=[group_id])
            (told,) = (await call(stub.DescribeGroups, request, timeout_s=timeout_s)).groups
            _raise_unless_done(told)
            return _description(told, coordinator)

        described = await self._at_coordinator(group_id, ask)
        if described.state is GroupState.DEAD:
            raise RegnumError(
                errors_pb2.ERROR_CODE_GROUP_ID_NOT_FOUND,
                f"there is no group {group_id!r}; `regnum groups list` shows those that there are",
            )
        return described

    async def list_group_offsets(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Committed offsets of a group, by topic and partition; empty: none, or there is no such group."""

        async def ask(stub: "GroupServiceAsyncStub", timeout_s: float, _: int) -> dict[TopicPartition, CommittedOffset]:
            request = group_pb2.OffsetFetchRequest(header=self._header, group_id=group_id)
            answer = await call(stub.OffsetFetch, request, timeout_s=timeout_s)
            return {
                TopicPartition(one.topic, one.partition): CommittedOffset(
                    offset=one.offset,
                    leader_epoch=one.leader_epoch if one.HasField("leader_epoch") else None,
                    metadata=one.metadata,
                    committed_ms=unix_ms_of(one.committed),
                )
                for one in answer.offsets
                if one.HasField("offset")
            }

        return await self._at_coordinator(group_id, ask)

    async def check_group_is_empty(self, group_id: str) -> None:
        """Raise NON_EMPTY_GROUP if a group has members; there need not be one of that name."""
        try:
            described = await self.describe_group(group_id)
        except RegnumError as error:
            if error.code == errors_pb2.ERROR_CODE_GROUP_ID_NOT_FOUND:
                return
            raise
        if described.state is not GroupState.EMPTY:
            raise _non_empty(group_id, f"it is {described.state.value}, with {len(described.members)} members")

    async def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Let a group without members go on at these offsets (Kafka: alterConsumerGroupOffsets).

        All or nothing, up to 10,000 at a time. Raises NON_EMPTY_GROUP: nothing was changed, then.
        """
        if not offsets:
            return

        async def ask(stub: "GroupServiceAsyncStub", timeout_s: float, _: int) -> None:
            request = group_pb2.OffsetCommitRequest(
                header=self._header,
                group_id=group_id,
                generation_id=-1,
                offsets=[
                    group_pb2.OffsetToCommit(topic=topic, partition=number, offset=offset)
                    for (topic, number), offset in offsets.items()
                ],
            )
            try:
                answer = await call(stub.OffsetCommit, request, timeout_s=timeout_s)
            except RegnumError as error:
                if error.code == errors_pb2.ERROR_CODE_UNKNOWN_MEMBER_ID:
                    raise _non_empty(group_id, "a member has joined it") from error
                raise
            for result in answer.results:
                _raise_unless_done(result)

        await self._at_coordinator(group_id, ask)

    async def delete_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, RegnumError | None]:
        """Delete committed offsets of a group, of up to 10,000 partitions (Kafka: deleteConsumerGroupOffsets).

        Each on its own: None where nothing is known any more, also where nothing was. GROUP_SUBSCRIBED_TO_TOPIC: a
        member of the group reads the topic. Raises GROUP_ID_NOT_FOUND.
        """

        async def ask(
            stub: "GroupServiceAsyncStub", timeout_s: float, _: int
        ) -> dict[TopicPartition, RegnumError | None]:
            request = group_pb2.OffsetDeleteRequest(
                header=self._header,
                group_id=group_id,
                partitions=[group_pb2.OffsetToDelete(topic=topic, partition=number) for topic, number in partitions],
            )
            answer = await call(stub.OffsetDelete, request, timeout_s=timeout_s)
            return {
                TopicPartition(one.topic, one.partition): RegnumError(one.error_code, one.error_message)
                if one.error_code
                else None
                for one in answer.results
            }

        return await self._at_coordinator(group_id, ask)

    async def delete_group(self, group_id: str) -> None:
        """Forget a group without members, and its offsets. Raises NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
        perhaps_gone = False

        async def ask(stub: "GroupServiceAsyncStub", timeout_s: float, _: int) -> None:
            nonlocal perhaps_gone
            request = group_pb2.DeleteGroupsRequest(header=self._header, group_ids=[group_id])
            try:
                (result,) = (await call(stub.DeleteGroups, request, timeout_s=timeout_s)).results
                _raise_unless_done(result)
            except RegnumError as error:
                if perhaps_gone and error.code == errors_pb2.ERROR_CODE_GROUP_ID_NOT_FOUND:
                    return
                perhaps_gone = perhaps_gone or not error.traits.outcome_known
                raise

        await self._at_coordinator(group_id, ask)

    @property
    def _header(self) -> RequestHeader:
        return RequestHeader(client_id=self._client_id)

    async def _at_coordinator(
        self, group_id: str, ask: "Callable[[GroupServiceAsyncStub, float, int], Awaitable[A]]"
    ) -> A:
        """Ask whoever coordinates a group; look again while that is nobody, or somebody else by now.

        ``ask`` is called again after any failure that may pass, also where it may have been done.
        """
        deadline_s = self._clock.monotonic() + self._timeout_s
        metadata = self._open()
        while True:
            try:
                view = await metadata.newer_than(
                    self._clock.monotonic(), timeout_s=max(0.001, deadline_s - self._clock.monotonic())
                )
                timeout_s = max(0.001, min(deadline_s - self._clock.monotonic(), CALL_S))
                place = await self._find(view, group_id, timeout_s)
                stub = self._connections.groups(Address(host=place.client.host, port=place.client.port))
                return await ask(stub, timeout_s, place.broker_id)
            except RegnumError as error:
                if not error.traits.retriable or self._clock.monotonic() + AGAIN_S >= deadline_s:
                    raise
                await self._clock.sleep(AGAIN_S)

    async def _find(self, view: ClusterView, group_id: str, timeout_s: float) -> group_pb2.Coordinator:
        if not view.brokers:
            raise RegnumError(errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE, "no broker lives; see `regnum status`")
        address = self._chance.choice(tuple(view.brokers.values())).address
        request = group_pb2.FindCoordinatorRequest(header=self._header, group_ids=[group_id])
        answer = await call(self._connections.groups(address).FindCoordinator, request, timeout_s=timeout_s)
        (place,) = answer.coordinators
        _raise_unless_done(place)
        return place

    async def _listed(self, broker: int, address: Address) -> list[GroupListing]:
        """The groups of one broker, when it has read all that it coordinates."""
        deadline_s = self._clock.monotonic() + self._timeout_s
        while True:
            found: list[GroupListing] = []
            token, loading = "", False
            while True:
                timeout_s = max(0.001, min(deadline_s - self._clock.monotonic(), CALL_S))
                request = group_pb2.ListGroupsRequest(header=self._header, page_token=token)
                answer = await call(self._connections.groups(address).ListGroups, request, timeout_s=timeout_s)
                found.extend(
                    GroupListing(
                        group_id=one.group_id,
                        protocol_type=one.protocol_type,
                        state=STATES.get(one.state, GroupState.UNKNOWN),
                        coordinator=broker,
                    )
                    for one in answer.groups
                )
                token, loading = answer.next_page_token, loading or answer.loading
                if not token:
                    break
            if not loading:
                return found
            if self._clock.monotonic() + AGAIN_S >= deadline_s:
                raise RegnumError(
                    errors_pb2.ERROR_CODE_COORDINATOR_LOAD_IN_PROGRESS,
                    f"broker {broker} still reads the groups that it has come to coordinate; try again",
                )
            await self._clock.sleep(AGAIN_S)


def _raise_unless_done(
    item: group_pb2.Coordinator
    | group_pb2.GroupDescription
    | group_pb2.DeleteGroupResult
    | group_pb2.OffsetCommitResult,
) -> None:
    if item.error_code != errors_pb2.ERROR_CODE_NONE:
        raise RegnumError(item.error_code, item.error_message)


def _non_empty(group_id: str, because: str) -> RegnumError:
    return RegnumError(
        errors_pb2.ERROR_CODE_NON_EMPTY_GROUP,
        f"group {group_id!r} has members ({because}), which would go on where they are: stop them first; "
        f"`regnum groups describe {group_id} --members` shows them",
    )


def _description(told: group_pb2.GroupDescription, coordinator: int) -> GroupDescription:
    return GroupDescription(
        group_id=told.group_id,
        state=STATES.get(told.state, GroupState.UNKNOWN),
        protocol_type=told.protocol_type,
        protocol=told.protocol_name,
        generation=told.generation_id,
        leader=told.leader,
        members=tuple(
            GroupMember(
                member_id=one.member_id,
                instance_id=one.group_instance_id,
                client_id=one.client_id,
                client_host=one.client_host,
                subscription=one.metadata,
                assignment=one.assignment,
            )
            for one in told.members
        ),
        coordinator=coordinator,
    )
