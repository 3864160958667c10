"""Brokers of one process that coordinate groups, with the internal topic there, and members that a test speaks for."""

from pathlib import Path
from typing import Any

import grpc
from regnum.broker.v1 import group_pb2, group_pb2_grpc
from regnum.types.v1 import types_pb2
from regnum_broker.groups.offsets_topic import partition_of
from regnum_model.ids import BrokerId, TopicId
from regnum_model.topics import OFFSETS_TOPIC
from regnum_service.errors import RegnumError
from regnum_service.status import from_rpc_error

from regnum_testing.broker_world import BrokerWorld
from regnum_testing.waiting import eventually

OFFSETS_ID = TopicId("O" * 22)
"""Topic id of the internal topic."""

PARTITIONS = 2
"""How many partitions it has."""

CALL_S = 20.0
"""Deadline of a call, unless a test says another."""


class GroupWorld(BrokerWorld):
    """Brokers whose groups need not wait: no initial delay, sessions from 100 ms on."""

    def __init__(self, root: Path, *, delay_ms: int = 0) -> None:
        super().__init__(
            root,
            more={
                "offsets-topic-partitions": PARTITIONS,
                "group-initial-rebalance-delay-ms": delay_ms,
                "group-min-session-timeout-ms": 100,
            },
        )
        self._versions = 0

    async def lead(
        self,
        leader: int,
        isr: list[int],
        *,
        epoch: int = 0,
        min_insync: int = 1,
        tell: tuple[int, ...] | None = None,
        others: tuple[types_pb2.TopicState, ...] = (),
    ) -> None:
        """Let a broker lead all partitions of the internal topic, and tell every broker that it exists, and others.

        ``tell``: only these brokers hear who leads.
        """
        for number in range(PARTITIONS):
            await self.elect(
                leader,
                isr,
                epoch=epoch,
                topic=OFFSETS_TOPIC,
                topic_id=OFFSETS_ID,
                partition=number,
                min_insync=min_insync,
                tell=tell,
            )
        self._versions += 1
        states = [
            types_pb2.PartitionState(partition=number, leader=leader, leader_epoch=epoch, isr=isr, replicas=isr)
            for number in range(PARTITIONS)
        ]
        topic = types_pb2.TopicState(name=OFFSETS_TOPIC, topic_id=OFFSETS_ID, partitions=states)
        for id in self.brokers:
            await self.show(id, topic, *others, version=self._versions)

    def stub(self, id: int) -> "group_pb2_grpc.GroupServiceAsyncStub":
        """A client's stub for a broker."""
        return group_pb2_grpc.GroupServiceStub(self.channel(self.brokers[BrokerId(id)].settings.client_listen))

    async def ask(self, id: int, method: str, request: Any, *, deadline_s: float = CALL_S) -> Any:
        """Call a method of GroupService. Raises RegnumError."""
        try:
            return await getattr(self.stub(id), method)(request, timeout=deadline_s)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None

    async def serves(self, id: int) -> None:
        """Wait until a broker has read what there is of all groups."""
        every = [next(name for name in "abcdefgh" if partition_of(name, PARTITIONS) == n) for n in range(PARTITIONS)]

        async def answers() -> bool:
            try:
                for group_id in every:
                    await self.ask(id, "OffsetFetch", group_pb2.OffsetFetchRequest(group_id=group_id))
            except RegnumError:
                return False
            return True

        await eventually(answers, what=f"broker {id} coordinates")

    def partition_with(self, group_id: str, id: int) -> Any:
        """The replica that has a group."""
        return self.brokers[BrokerId(id)].partition(partition_of(group_id, PARTITIONS), topic_id=OFFSETS_ID)


class TestMember:
    """A member that asks one broker and keeps what it is told."""

    __test__ = False

    def __init__(
        self, world: GroupWorld, broker: int, group_id: str, *, instance_id: str = "", name: str = "c"
    ) -> None:
        self._world = world
        self.broker = broker
        self.group_id = group_id
        self.instance_id = instance_id
        self.name = name
        self.member_id = ""
        self.generation = -1
        self.joined = group_pb2.JoinGroupResponse()
        """The newest answer to JoinGroup."""

    async def join(
        self,
        *,
        session_ms: int = 10_000,
        rebalance_ms: int = 10_000,
        protocols: tuple[str, ...] = ("range",),
        deadline_s: float = CALL_S,
    ) -> group_pb2.JoinGroupResponse:
        """Join until joined."""
        while True:
            self.joined = await self.join_once(
                session_ms=session_ms, rebalance_ms=rebalance_ms, protocols=protocols, deadline_s=deadline_s
            )
            self.member_id = self.joined.member_id
            if not self.joined.join_again:
                self.generation = self.joined.generation_id
                return self.joined

    async def join_once(
        self,
        *,
        session_ms: int = 10_000,
        rebalance_ms: int = 10_000,
        protocols: tuple[str, ...] = ("range",),
        deadline_s: float,
    ) -> group_pb2.JoinGroupResponse:
        """One JoinGroup."""
        request = group_pb2.JoinGroupRequest(
            header=types_pb2.RequestHeader(client_id=self.name),
            group_id=self.group_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type="consumer",
            protocols=[group_pb2.GroupProtocol(name=name, metadata=self.name.encode()) for name in protocols],
        )
        answer: group_pb2.JoinGroupResponse = await self._world.ask(
            self.broker, "JoinGroup", request, deadline_s=deadline_s
        )
        return answer

    async def sync(self, assignments: dict[str, bytes] | None = None) -> bytes:
        """Take the assignment; the leader gives it."""
        request = group_pb2.SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            assignments=[
                group_pb2.GroupAssignment(member_id=id, assignment=data) for id, data in (assignments or {}).items()
            ],
        )
        answer: group_pb2.SyncGroupResponse = await self._world.ask(self.broker, "SyncGroup", request)
        assert not answer.sync_again
        return answer.assignment

    async def beat(self) -> None:
        """Heartbeat."""
        request = group_pb2.HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        await self._world.ask(self.broker, "Heartbeat", request)

    async def leave(self) -> group_pb2.LeaveGroupResponse:
        """Leave."""
        leaving = group_pb2.LeavingMember(member_id=self.member_id, group_instance_id=self.instance_id)
        request = group_pb2.LeaveGroupRequest(group_id=self.group_id, members=[leaving])
        answer: group_pb2.LeaveGroupResponse = await self._world.ask(self.broker, "LeaveGroup", request)
        return answer

    async def commit(self, *offsets: int, topic: str = "t") -> list[int]:
        """Commit an offset for each partition from 0 on; the outcomes."""
        request = group_pb2.OffsetCommitRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            offsets=[
                group_pb2.OffsetToCommit(topic=topic, partition=number, offset=offset)
                for number, offset in enumerate(offsets)
            ],
        )
        answer = await self._world.ask(self.broker, "OffsetCommit", request)
        return [result.error_code for result in answer.results]

    async def committed(self) -> dict[int, int]:
        """Offsets of the group by partition."""
        answer = await self._world.ask(self.broker, "OffsetFetch", group_pb2.OffsetFetchRequest(group_id=self.group_id))
        return {one.partition: one.offset for one in answer.offsets}
