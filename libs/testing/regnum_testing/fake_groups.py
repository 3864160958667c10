"""Groups of a fake cluster: a broker's own calls and decisions over a log in memory, at the broker that a test says."""

import asyncio
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import grpc
from regnum.broker.v1 import group_pb2_grpc
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_broker.groups.calls import GroupCalls
from regnum_broker.groups.decisions.membership import leave
from regnum_broker.groups.decisions.offsets import OffsetLimits, Place
from regnum_broker.groups.decisions.state import GroupLimits, GroupState, Identity
from regnum_broker.groups.recorded.group_log import GroupLog
from regnum_broker.groups.recorded.records import change_of
from regnum_broker.groups.seats import CoordinatorPlace
from regnum_broker.groups.shard import Shard
from regnum_broker.groups.topic_lives import TopicLives
from regnum_broker.servicers.group import GroupServicer
from regnum_broker.serving.produce import OwnAppend
from regnum_model.ids import BrokerId
from regnum_records.read import read_records
from regnum_service.clock import SystemClock
from regnum_service.errors import Code, RegnumError

from regnum_testing.group_partition import TopicsShown

if TYPE_CHECKING:
    from regnum_testing.fake_cluster import FakeCluster

LIMITS = GroupLimits(initial_rebalance_delay_s=0.0, session_timeout_s_min=0.05)
"""Nobody waits for more members, and sessions may be short."""
LOOK_S = 0.01
"""Pause between two looks at deadlines."""


class FakeGroups:
    """All groups, in one shard."""

    def __init__(self, cluster: "FakeCluster") -> None:
        self._cluster = cluster
        self._clock = SystemClock()
        self._batches: list[bytes] = []
        self._looking: asyncio.Task[None] | None = None
        self._reading = 0
        """Moves whose successor has not read everything."""
        self.coordinator = 1
        """Broker that coordinates all groups; 0: none does."""
        self.loading = False
        """It still reads what its predecessor left."""
        self.refusals: deque[Code] = deque()
        """What the next calls are refused with."""
        self.committed: list[tuple[str, int, int]] = []
        """Topic, partition and offset of all commits that were asked for, in their order."""
        self.commits_wait: asyncio.Event | None = None
        """Commits are answered when it is set; None: at once."""
        self.calls: Counter[str] = Counter()
        """By name."""
        self.held: dict[str, asyncio.Event] = {}
        """Calls of that name, OffsetCommit or Heartbeat, wait for the event before anybody looks at them."""
        self._shard = self._made()

    def register(self, server: grpc.aio.Server, number: int) -> None:
        """Add the service of a broker."""
        face: Any = _Face(self, number)
        calls = GroupCalls(face, clock=self._clock, limits=LIMITS, offset_limits=OffsetLimits())
        servicer = _Counting(face, calls, self._clock, self)
        group_pb2_grpc.add_GroupServiceServicer_to_server(servicer, server)

    async def move(self, to: int) -> None:
        """Another broker coordinates from now on, and knows what was written."""
        former, self.coordinator = self._shard, to
        former.end(RegnumError(errors_pb2.ERROR_CODE_NOT_COORDINATOR, "it moved, said the test"))
        shard = self._made()
        self._reading += 1
        for batch in list(self._batches):
            await shard.load([change_of(record) for record in read_records(batch)])
        await shard.begin()
        self._shard = shard
        self._reading -= 1

    async def stop(self) -> None:
        """Look at no deadlines any more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    def offset(self, group_id: str, topic: str, partition: int) -> int | None:
        """What is committed."""
        found = self._shard.offsets.of(group_id).get(Place(topic, partition))
        return None if found is None else found.offset

    def topic_id(self, group_id: str, topic: str, partition: int) -> str:
        """Id of the topic that the offset which is committed was read of, as the member said."""
        return self._shard.offsets.of(group_id)[Place(topic, partition)].topic_id

    def state(self, group_id: str) -> GroupState:
        """Where a group is."""
        group = self._shard.groups.get(group_id)
        return GroupState.DEAD if group is None else group.state

    def members(self, group_id: str) -> set[str]:
        """Ids of its members."""
        group = self._shard.groups.get(group_id)
        return set() if group is None else set(group.members)

    def generation(self, group_id: str) -> int:
        """The present one."""
        return self._shard.groups[group_id].generation

    def remove(self, group_id: str, member_id: str) -> None:
        """As if a member had been silent for too long."""
        identity = Identity(member_id=member_id)
        now_s, now_ms = self._shard.time.now_s, self._clock.wall_ms()
        self._shard.call(group_id, lambda group, call: leave(group, [identity], call=call, now_s=now_s, now_ms=now_ms))

    def shard_of(self, number: int) -> Shard:
        """The shard, as a broker has it."""
        if self._looking is None:
            self._looking = asyncio.create_task(self._look(), name="fake-groups")
        if self.refusals:
            raise RegnumError(self.refusals.popleft(), "said the test")
        if self.coordinator != number:
            raise RegnumError(errors_pb2.ERROR_CODE_NOT_COORDINATOR, "another broker coordinates")
        if self.loading or self._reading:
            raise RegnumError(errors_pb2.ERROR_CODE_COORDINATOR_LOAD_IN_PROGRESS, "it reads")
        return self._shard

    def place(self) -> CoordinatorPlace:
        """Where the coordinator is."""
        broker = self._cluster.brokers.get(self.coordinator)
        if broker is None or broker.server is None:
            return CoordinatorPlace(broker=BrokerId(-1), client=None)
        client = types_pb2.Endpoint(host=broker.address.host, port=broker.address.port)
        return CoordinatorPlace(broker=BrokerId(broker.number), client=client)

    def _made(self) -> Shard:
        log = GroupLog(
            append=self._append,
            spawn=lambda _, coroutine: asyncio.ensure_future(coroutine),
            failed=lambda outcome: self._cluster.failures.append(("group log", AssertionError(outcome.message))),
            clock=self._clock,
        )
        return Shard(log=log, clock=self._clock, session_s_min=LIMITS.session_timeout_s_min)

    async def _append(self, batch: bytes) -> OwnAppend:
        self._batches.append(batch)
        return OwnAppend(code=errors_pb2.ERROR_CODE_NONE, message="")

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            if not self._reading:
                await self._shard.look()


class _Face:
    """A coordinator as one broker's calls see it."""

    def __init__(self, groups: FakeGroups, number: int) -> None:
        self._groups = groups
        self._number = number
        self.lives = TopicLives(TopicsShown(), SystemClock())

    def shard_of(self, group_id: str, *, writes: bool) -> Shard:  # noqa: ARG002 - the signature of a coordinator
        return self._groups.shard_of(self._number)

    def shards(self) -> Iterator[Shard]:
        yield self._groups.shard_of(self._number)

    def check_room(self, shard: Shard, group_id: str, size_bytes: int, *, is_new: bool = True) -> None:
        """There is room."""

    async def coordinators(self, group_ids: Sequence[str], *, wait_s: float) -> list[CoordinatorPlace]:  # noqa: ARG002
        return [self._groups.place() for _ in group_ids]


class _Counting(GroupServicer):
    """Counts calls."""

    def __init__(self, coordinator: Any, calls: GroupCalls, clock: SystemClock, groups: FakeGroups) -> None:
        super().__init__(coordinator=coordinator, calls=calls, clock=clock)
        self._groups = groups
        self._counted = groups.calls

    async def _hold(self, name: str) -> None:
        if (let_go := self._groups.held.get(name)) is not None:
            await let_go.wait()

    async def JoinGroup(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        self._counted["JoinGroup"] += 1
        return await super().JoinGroup(request, context)

    async def Heartbeat(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._counted["Heartbeat"] += 1
        await self._hold("Heartbeat")
        return await super().Heartbeat(request, context)

    async def OffsetCommit(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._counted["OffsetCommit"] += 1
        if self._groups.commits_wait is not None:
            await self._groups.commits_wait.wait()
        self._groups.committed.extend((one.topic, one.partition, one.offset) for one in request.offsets)
        await self._hold("OffsetCommit")
        return await super().OffsetCommit(request, context)

    async def LeaveGroup(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._counted["LeaveGroup"] += 1
        return await super().LeaveGroup(request, context)
