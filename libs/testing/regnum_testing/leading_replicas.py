"""Partitions that one broker leads, over a real log directory, without a server: for fetch sessions and reads."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from regnum.replication.v1 import replication_pb2
from regnum_broker.log.disk.system_calls import Disk
from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.partition import Partition
from regnum_broker.replication.replicas import Replicas
from regnum_broker.replication.sessions.fetch_session import FetchSession
from regnum_broker.replication.sessions.follower_streams import FollowerStreams
from regnum_broker.replication.sessions.fresh_appends import FreshAppends
from regnum_broker.replication.throttle import Meter
from regnum_broker.storage import Storage
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, LogId, PartitionKey, TopicId
from regnum_model.nodes import LeaderAndIsr, Membership
from regnum_service.clock import Clock, SystemClock
from regnum_service.pools import MakePool, thread_pool
from regnum_telemetry.metrics import Metrics

from regnum_testing.batches import batch_of
from regnum_testing.log_directories import ReopenedDirectory

TOPIC_ID = TopicId("T" * 22)
"""Topic id of the partitions."""
LEADER, FOLLOWER = BrokerId(1), BrokerId(2)
FOLLOWER_EPOCH = BrokerEpoch(20)
"""Broker epoch of broker 2."""


class LeadingReplicas:
    """Broker 1 leads partitions of one topic, with broker 2 in sync. Use as an async context manager."""

    def __init__(
        self,
        root: Path,
        *,
        partitions: int = 2,
        disk: Disk | None = None,
        readers: int = 2,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        make_pool: MakePool = thread_pool,
    ) -> None:
        self.files = ReopenedDirectory(root, disk=disk)
        self.storage = Storage(self.files.open(), readers=readers, metrics=metrics, make_pool=make_pool)
        self.replicas = Replicas(LEADER)
        self.clock = SystemClock() if clock is None else clock
        self.looked_at = 0
        """Replicas that sessions have looked up so far."""
        self._count = partitions

    async def __aenter__(self) -> Self:
        self.storage.start()
        keys = [PartitionKey(TOPIC_ID, number) for number in range(self._count)]
        directory = self.storage.directory
        await self.storage.write(lambda: directory.create_replicas([(key, "t") for key in keys]))
        for key in keys:
            self.replicas.add(key, "t", directory.replicas[key])
            self.lead(key.partition)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.storage.close(clean=False)

    def partition(self, number: int = 0) -> Partition:
        """A replica; AssertionError if there is none."""
        found = self.replicas.get(PartitionKey(TOPIC_ID, number))
        assert found is not None
        return found

    def leadership(self, number: int = 0) -> Leadership:
        """Its leadership; AssertionError if it is not led."""
        role = self.partition(number).role
        assert isinstance(role, Leadership)
        return role

    def lead(
        self,
        number: int = 0,
        *,
        epoch: int = 0,
        isr: Sequence[int] = (LEADER, FOLLOWER),
        elr: Sequence[int] = (),
        min_insync: int = 1,
        adding: Sequence[BrokerId] = (),
    ) -> Leadership:
        """Lead a partition from here on."""
        partition = self.partition(number)
        members, eligible = tuple(BrokerId(id) for id in isr), tuple(BrokerId(id) for id in elr)
        state = LeaderAndIsr(
            topic_id=TOPIC_ID,
            leader=LEADER,
            leader_epoch=LeaderEpoch(epoch),
            isr=members,
            elr=eligible,
            members={
                id: Membership(broker_epoch=BrokerEpoch(10 * id), log_id=LogId("log")) for id in (*members, *eligible)
            },
            controller_epoch=ControllerEpoch(1),
        )
        partition.leader_epoch, partition.version = state.leader_epoch, epoch
        leadership = Leadership(
            partition,
            state,
            version=epoch,
            replicas=(LEADER, FOLLOWER),
            min_insync=min_insync,
            epoch_start=partition.log.log_end_offset,
            broker=LEADER,
            lag_s=10.0,
            now_s=self.clock.monotonic(),
            adding=adding,
        )
        self.replicas.give(partition, leadership)
        leadership.advance(self.clock.monotonic())
        return leadership

    async def append(self, number: int = 0, *values: bytes) -> None:
        """Append one batch as the leader does."""
        leadership = self.leadership(number)
        log, epoch = leadership.partition.log, leadership.state.leader_epoch
        base = log.log_end_offset
        await self.storage.write(lambda: log.append_as_leader([batch_of(*(values or (b"v",)))], leader_epoch=epoch))
        leadership.appended(base, now_s=self.clock.monotonic())

    def session(self, *, throttle: Meter | None = None, fresh: FreshAppends | None = None) -> FetchSession:
        """A fetch session of broker 2.

        Args:
            throttle: what this broker may send to new replicas.
            fresh: what was appended last.
        """

        def find(key: PartitionKey) -> Partition | None:
            self.looked_at += 1
            return self.replicas.get(key)

        return FetchSession(
            find=find,
            arrivals=self.replicas.arrivals,
            streams=FollowerStreams(),
            caught_up=lambda _: None,
            storage=self.storage,
            clock=self.clock,
            throttle=throttle,
            fresh=fresh,
        )


class FetchingFollower:
    """Broker 2 at one end of a session: asks, and keeps what it was told."""

    def __init__(self, session: FetchSession) -> None:
        self._session = session
        self.high_watermarks: dict[int, int] = {}
        """High watermarks as told last."""

    async def ask(
        self, *positions: tuple[int, int], epoch: int = 0, wait_ms: int = 0, room: int | None = None
    ) -> replication_pb2.FetchReplicaResponse:
        """Name (partition, offset) pairs and take the answer. ``room``: bytes of new replicas that it takes."""
        self.hand_in(*positions, epoch=epoch, wait_ms=wait_ms, room=room)
        return await self.answer()

    def asking(
        self, *positions: tuple[int, int], epoch: int = 0, wait_ms: int = 0
    ) -> "asyncio.Task[replication_pb2.FetchReplicaResponse]":
        """The same, with the answer to come."""
        self.hand_in(*positions, epoch=epoch, wait_ms=wait_ms)
        return asyncio.create_task(self.answer())

    def hand_in(self, *positions: tuple[int, int], epoch: int = 0, wait_ms: int = 0, room: int | None = None) -> None:
        """Name them and take no answer."""
        self._session.push(
            replication_pb2.FetchReplicaRequest(
                replica_id=FOLLOWER,
                broker_epoch=FOLLOWER_EPOCH,
                max_wait_ms=wait_ms,
                max_bytes=1 << 20,
                throttled_bytes_max=room,
                positions=[
                    replication_pb2.FetchPosition(
                        topic_id=TOPIC_ID,
                        partition=number,
                        current_leader_epoch=epoch,
                        fetch_offset=offset,
                        last_fetched_epoch=epoch if offset else -1,
                    )
                    for number, offset in positions
                ],
            )
        )

    async def answer(self) -> replication_pb2.FetchReplicaResponse:
        """The next answer."""
        answer = await self._session.next_answer()
        assert answer is not None, "the session ended"
        for item in answer.partitions:
            if not item.error_code:
                self.high_watermarks[item.partition] = item.high_watermark
        return answer
