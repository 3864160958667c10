"""Carrying out the controller's orders: one task, one message after another, whole messages only.

A caller that gives up does not stop a message half-way: its roles would have been taken and never given. Each message
costs one journal append and one fsync, and one for each REPLICAS_PER_DELETION replicas that it deletes; the fsync is
made beside the writer, and the roles are given when it is done. Long messages are applied in slices (safety rule S22).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_coordination.port import Store
from regnum_model.epochs import is_plausible
from regnum_model.ids import (
    NO_EPOCH,
    TOPIC_DELETED_EPOCH,
    BrokerEpoch,
    BrokerId,
    PartitionKey,
    TopicId,
    is_topic_id,
)
from regnum_model.nodes import MAX_PARTITIONS
from regnum_service.clock import Clock
from regnum_service.errors import Code, RegnumError
from regnum_service.slices import Turns, slices
from regnum_telemetry import conventions, tracing

from regnum_broker.cluster.leader_epochs import recorded_leader_epoch
from regnum_broker.cluster.order_reading import Order, OrderReader
from regnum_broker.cluster.strays.assignments import Assignment, assignments_of
from regnum_broker.log.directory import LogDirectory
from regnum_broker.log.errors import StorageError
from regnum_broker.replication.decisions.orders import Standing, Verdict, judge
from regnum_broker.replication.follower import Fetchers
from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.partition import Following, Partition
from regnum_broker.replication.replicas import Replicas
from regnum_broker.replication.throttle import ReplicationThrottle
from regnum_broker.storage import Storage

SLICE: Final = 100
"""Partitions handled before the event loop gets a turn."""

REPLICAS_PER_DELETION: Final = 500
"""Replicas whose deletion one job of the writer notes: appends wait for one such job at most."""

MESSAGES_MAX: Final = 64
"""Messages that may wait."""

NONE: Final = errors_pb2.ERROR_CODE_NONE
UNSEEN: Final = Standing(leader_epoch=NO_EPOCH, version=-1, recorded_epoch=NO_EPOCH, active=False)


def _nobody_is_told(_key: PartitionKey, _moves: bool) -> None:  # noqa: FBT001 - a callback
    """Where nobody wants to hear which partitions move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A whole message."""

    run: Callable[[], Awaitable[list[Code]]]
    broker_epoch: BrokerEpoch
    """Life of the broker that it is meant for."""
    done: asyncio.Future[list[Code]]


class Orders:
    """The one task that changes roles. Belongs to the event loop."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        fetchers: Fetchers,
        storage: Storage,
        store: Callable[[], Store | None],
        lag_s: float,
        clock: Clock,
        throttle: ReplicationThrottle | None = None,
        note_moving: Callable[[PartitionKey, bool], None] = _nobody_is_told,
    ) -> None:
        self._note_moving: Final = note_moving
        self._throttle: Final = throttle or ReplicationThrottle(clock)
        self._store: Final = store
        self._replicas: Final = replicas
        self._fetchers: Final = fetchers
        self._storage: Final = storage
        self._lag_s: Final = lag_s
        self._clock: Final = clock
        self._log: Final = structlog.get_logger("orders")
        self._jobs: Final[asyncio.Queue[_Job]] = asyncio.Queue(MESSAGES_MAX)
        self._oldest_epoch = BrokerEpoch(0)
        self._reader: Final = OrderReader()

    async def lead_and_follow(
        self, partitions: Sequence[control_pb2.LeaderAndIsrPartition], *, broker_epoch: BrokerEpoch
    ) -> list[Code]:
        """Carry a LeaderAndIsr out; one result for each partition. Raises RegnumError: STALE_BROKER_EPOCH."""
        cause = tracing.current()
        return await self._hand_in(lambda: self._lead_and_follow(partitions, cause), broker_epoch)

    async def stop(
        self, partitions: Sequence[control_pb2.StopReplicaPartition], *, broker_epoch: BrokerEpoch
    ) -> list[Code]:
        """Carry a StopReplica out; one result for each replica. Raises RegnumError: STALE_BROKER_EPOCH."""
        return await self._hand_in(lambda: self._stop(partitions), broker_epoch)

    async def surrender(self, broker_epoch: BrokerEpoch) -> None:
        """Give all leadership up at once, and refuse what is meant for ``broker_epoch`` from then on.

        Called when the registration is over, before the broker registers anew (safety rules S8 and S11). Returns when
        an order that was under way, and may have handed leadership out once more, has been undone as well.
        """
        self._replicas.surrender()
        self._oldest_epoch = max(self._oldest_epoch, BrokerEpoch(broker_epoch + 1))

        async def give_up() -> list[Code]:
            self._replicas.surrender()
            return []

        await self._hand_in(give_up, self._oldest_epoch)

    async def _hand_in(self, run: Callable[[], Awaitable[list[Code]]], epoch: BrokerEpoch) -> list[Code]:
        job = _Job(run=run, broker_epoch=epoch, done=asyncio.get_running_loop().create_future())
        await self._jobs.put(job)
        return await job.done

    async def run(self) -> None:
        """Carry messages out for ever; a task of the supervisor."""
        while True:
            job = await self._jobs.get()
            if job.broker_epoch < self._oldest_epoch:
                if not job.done.done():
                    job.done.set_exception(
                        RegnumError(
                            errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH,
                            f"the order is for broker epoch {job.broker_epoch}, which is over",
                        )
                    )
                continue
            results = await job.run()
            if not job.done.done():
                job.done.set_result(results)

    async def _lead_and_follow(self, partitions: Sequence[control_pb2.LeaderAndIsrPartition], cause: str) -> list[Code]:
        began_unix_nano = tracing.now_unix_nano()
        results: list[Code] = [NONE] * len(partitions)
        taking: dict[PartitionKey, tuple[int, Order]] = {}
        async for part in slices(enumerate(partitions), SLICE):
            for index, message in part:
                order = self._reader.read(message)
                if (
                    order is None
                    or order.key in taking
                    or not (self._is_plausible(order) or await self._is_recorded(order))
                ):
                    results[index] = errors_pb2.ERROR_CODE_INVALID_REQUEST
                    continue
                verdict, results[index] = self._judge(order)
                if verdict is Verdict.NEW_ROLE:
                    taking[order.key] = (index, order)
                    self._prepare(order)
                else:
                    self._go_on(order, verdict)
        if taking:
            orders = [order for _, order in taking.values()]
            try:
                starts = await self._recorded(orders)
            except StorageError as error:
                self._log.critical("orders not recorded", reason=str(error))
                for index, _ in taking.values():
                    results[index] = errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR
                return results
            for key in taking.keys() - starts.keys():
                # Found damaged by what was under way under its former role.
                results[taking[key][0]] = errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR
            orders = [order for order in orders if order.key in starts]
            await self._give_roles(orders, starts, cause)
            if cause:
                _record_roles(orders, began_unix_nano, cause, broker=self._replicas.broker)
        return results

    async def _recorded(self, orders: Sequence[Order]) -> dict[PartitionKey, int]:
        """Where each log ends, when what these orders rely on is on the disk; what is offline by now is left out."""
        storage = self._storage
        starts, recorded = await storage.write(lambda: _record(storage.directory, orders, broker=self._replicas.broker))
        if recorded:
            # Appends to other partitions go on meanwhile; to these there are none, for they have no role.
            await storage.sync_journal()
        return starts

    def _is_plausible(self, order: Order) -> bool:
        """Whether the leader epoch may be true: once in the log, a number out of nowhere would stay for ever."""
        partition = self._replicas.get(order.key)
        known = NO_EPOCH if partition is None else max(partition.leader_epoch, partition.log.highest_leader_epoch)
        return is_plausible(order.state.leader_epoch, known)

    async def _is_recorded(self, order: Order) -> bool:
        """Whether the store knows the leader epoch."""
        return order.state.leader_epoch <= await recorded_leader_epoch(self._store(), order.topic, order.key)

    def _judge(self, order: Order) -> tuple[Verdict, Code]:
        self._note_moving(order.key, bool(order.adding))
        if order.throttle is not None:
            self._throttle.set_rates(order.throttle)
        directory = self._storage.directory
        if directory.failed or order.key in directory.offline:
            return Verdict.KNOWN, errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR
        partition = self._replicas.get(order.key)
        if partition is not None and partition.topic != order.topic:
            return Verdict.KNOWN, errors_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID
        verdict = judge(
            UNSEEN if partition is None else partition.standing,
            order.state,
            version=order.version,
            broker=self._replicas.broker,
            log_id=directory.log_id,
        )
        match verdict:
            case Verdict.FENCED:
                self._note_refusal(order, "this log already knows its leader epoch")
                return verdict, errors_pb2.ERROR_CODE_FENCED_LEADER_EPOCH
            case Verdict.OTHER_LOG:
                self._note_refusal(order, "its record names another log than this directory holds")
                return verdict, errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR
            case _:
                return verdict, NONE

    def _note_refusal(self, order: Order, reason: str) -> None:
        self._log.warning(
            "leadership refused",
            topic=order.topic,
            partition=order.key.partition,
            leader_epoch=order.state.leader_epoch,
            reason=reason,
        )

    def _prepare(self, order: Order) -> None:
        """End the present role: what was handed to the writer so far is the last that happens under it."""
        partition = self._replicas.get(order.key)
        if partition is not None:
            self._end_role(partition)
        namesake = self._replicas.namesake(order.key, order.topic)
        if namesake is not None:
            # The topic was deleted and created again; its files go when the controller says so (safety rule S13).
            self._log.warning("another life of the topic", topic=order.topic, former_topic_id=namesake.key.topic_id)
            self._end_role(namesake)

    def _end_role(self, partition: Partition) -> None:
        self._fetchers.forget(partition.key)
        self._replicas.give(partition, None)

    def _go_on(self, order: Order, verdict: Verdict) -> None:
        """What is new to a replica that keeps its role."""
        if verdict is Verdict.ISR_ONLY:
            self._take_isr(order)
        elif verdict is Verdict.SETTINGS_ONLY:
            self._take_settings(order)

    def _take_isr(self, order: Order) -> None:
        partition = self._replicas.get(order.key)
        assert partition is not None, "only a replica with a role has an ISR to take"  # noqa: S101
        partition.version, partition.ordered = order.version, order.state
        partition.take_settings(order.settings)
        if isinstance(partition.role, Leadership):
            partition.role.take(
                order.state,
                version=order.version,
                now_s=self._clock.monotonic(),
                replicas=order.replicas,
                min_insync=order.min_insync,
                adding=order.adding,
            )

    def _take_settings(self, order: Order) -> None:
        # Messages are carried out in the order in which they were admitted, so the newest controller has the last word.
        partition = self._replicas.get(order.key)
        if partition is None:
            return
        partition.take_settings(order.settings)
        if isinstance(partition.role, Leadership):
            partition.role.take_settings(
                min_insync=order.min_insync,
                replicas=order.replicas,
                adding=order.adding,
                now_s=self._clock.monotonic(),
            )

    async def _give_roles(self, orders: Sequence[Order], starts: dict[PartitionKey, int], cause: str) -> None:
        added = False
        async for part in slices(orders, SLICE):
            now_s, now_unix_nano = self._clock.monotonic(), tracing.now_unix_nano() if cause else 0
            for order in part:
                partition = self._replicas.get(order.key)
                if partition is None:
                    log = self._storage.directory.replicas[order.key]
                    partition = self._replicas.add(order.key, order.topic, log)
                    added = True
                state = order.state
                partition.leader_epoch, partition.version = state.leader_epoch, order.version
                partition.ordered = state
                partition.take_settings(order.settings)
                if state.leader == self._replicas.broker:
                    leadership = Leadership(
                        partition,
                        state,
                        version=order.version,
                        replicas=order.replicas,
                        min_insync=order.min_insync,
                        adding=order.adding,
                        epoch_start=starts[order.key],
                        broker=self._replicas.broker,
                        lag_s=self._lag_s,
                        now_s=now_s,
                        cause=cause,
                        began_unix_nano=now_unix_nano,
                    )
                    self._replicas.give(partition, leadership)
                    leadership.advance(now_s)
                else:
                    following = Following(
                        leader=state.leader,
                        leader_epoch=state.leader_epoch,
                        cause=cause,
                        filled=self._replicas.broker in order.adding,
                    )
                    self._replicas.give(partition, following)
                    self._fetchers.follow(partition, following)
        if added:
            self._replicas.arrivals.fire()

    async def _stop(self, partitions: Sequence[control_pb2.StopReplicaPartition]) -> list[Code]:
        results: list[Code] = [NONE] * len(partitions)
        deleting: dict[PartitionKey, int] = {}
        offline = await self._offline_by_topic()
        assignments = await assignments_of(self._store(), _reassigned(partitions), broker=self._replicas.broker)
        turns = Turns(SLICE)
        for index, message in enumerate(partitions):
            if not is_topic_id(message.topic_id) or not -1 <= message.partition < MAX_PARTITIONS:
                results[index] = errors_pb2.ERROR_CODE_INVALID_REQUEST
                continue
            await turns.took()
            if message.reassigned:
                said = assignments.get(PartitionKey(TopicId(message.topic_id), message.partition))
                if said is Assignment.UNKNOWN:
                    # To be ordered again: without the store nothing is deleted.
                    results[index] = errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT
                if said is not Assignment.ELSEWHERE:
                    continue
            for key in self._named_by(message, offline):
                await turns.took()
                if not self._may_stop(key, message):
                    results[index] = errors_pb2.ERROR_CODE_FENCED_LEADER_EPOCH
                elif message.delete:
                    deleting[key] = index
        for index in await self._delete(deleting):
            results[index] = errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR
        return results

    async def remove_strays(self, keys: Sequence[PartitionKey], *, broker_epoch: BrokerEpoch) -> int:
        """Delete those of these replicas that do nothing and that the store assigns to other brokers (S13).

        The store is asked in the one task that gives roles, so no order comes between its answer and the deletion.
        Returns how many were deleted. Raises RegnumError: STALE_BROKER_EPOCH.
        """
        deleted = 0

        async def remove() -> list[Code]:
            nonlocal deleted
            idle = [one.key for one in filter(None, map(self._replicas.get, keys)) if self._fetchers.is_idle(one)]
            said = await assignments_of(self._store(), idle, broker=self._replicas.broker)
            strays = [key for key in idle if said[key] is Assignment.ELSEWHERE]
            if strays:
                self._log.warning("replicas that are assigned to other brokers are deleted", strays=strays)
            for stray in filter(None, map(self._replicas.get, strays)):
                self._end_role(stray)
            failed = await self._delete({key: index for index, key in enumerate(strays)})
            deleted = len(strays) - len(failed)
            return []

        await self._hand_in(remove, broker_epoch)
        return deleted

    async def _delete(self, replicas: Mapping[PartitionKey, int]) -> set[int]:
        """Delete replicas, in portions between which appends get their turn; what was asked for and is not done."""
        left = list(replicas)
        while left:
            some = left[:REPLICAS_PER_DELETION]
            try:
                await self._storage.delete(some)
            except StorageError as error:
                self._log.critical("replicas not deleted", reason=str(error), count=len(left))
                break
            async for part in slices(some, SLICE):
                for key in part:
                    self._replicas.remove(key)
            left = left[REPLICAS_PER_DELETION:]
        if len(left) < len(replicas):
            self._log.info("replicas deleted", count=len(replicas) - len(left))
        return {replicas[key] for key in left}

    async def _offline_by_topic(self) -> dict[TopicId, list[PartitionKey]]:
        """Replicas that cannot be used can be deleted."""
        found: dict[TopicId, list[PartitionKey]] = {}
        async for part in slices(self._storage.directory.offline, SLICE):
            for key in part:
                found.setdefault(key.topic_id, []).append(key)
        return found

    def _may_stop(self, key: PartitionKey, message: control_pb2.StopReplicaPartition) -> bool:
        """End a replica's role; False: the order is older than what it, or without a role yet its log, knows."""
        partition = self._replicas.get(key)
        if partition is None:
            return True
        known = max(partition.leader_epoch, partition.log.highest_leader_epoch)
        if TOPIC_DELETED_EPOCH != message.leader_epoch < known:
            return False
        self._end_role(partition)
        return True

    def _named_by(
        self, message: control_pb2.StopReplicaPartition, offline: Mapping[TopicId, Sequence[PartitionKey]]
    ) -> list[PartitionKey]:
        topic_id = TopicId(message.topic_id)
        if message.partition >= 0:
            return [PartitionKey(topic_id, message.partition)]
        return [*self._replicas.of_topic(topic_id), *offline.get(topic_id, ())]


def _record(
    directory: LogDirectory, orders: Sequence[Order], *, broker: BrokerId
) -> tuple[dict[PartitionKey, int], bool]:
    """On the writer thread, after every append handed in before: make missing replicas, record epochs to be led in.

    Returns where each log ends, without those that are offline by now; and whether there is something to be synced
    before anybody relies on it.
    """
    usable = [order for order in orders if order.key not in directory.offline]
    missing = [(order.key, order.topic) for order in usable if order.key not in directory.replicas]
    if missing:
        directory.create_replicas(missing, sync=False)
    ends = {order.key: directory.replicas[order.key].log_end_offset for order in usable}
    leading = [
        (order.key, order.state.leader_epoch, ends[order.key]) for order in usable if order.state.leader == broker
    ]
    if leading:
        directory.record_leader_epochs(leading, sync=False)
    return ends, bool(missing or leading)


def _record_roles(orders: Sequence[Order], began_unix_nano: int, cause: str, *, broker: BrokerId) -> None:
    leading = sum(1 for order in orders if order.state.leader == broker)
    now_unix_nano = tracing.now_unix_nano()
    counts = ((conventions.BECOME_LEADER, leading), (conventions.BECOME_FOLLOWER, len(orders) - leading))
    for name, count in counts:
        if count:
            attributes = {conventions.BROKER: broker, conventions.PARTITIONS: count}
            tracing.between(name, began_unix_nano, now_unix_nano, parent=cause, attributes=attributes)


def _reassigned(partitions: Sequence[control_pb2.StopReplicaPartition]) -> list[PartitionKey]:
    """Replicas of which the store is asked before they are deleted (safety rule S13)."""
    return [
        PartitionKey(TopicId(message.topic_id), message.partition)
        for message in partitions
        if message.reassigned and is_topic_id(message.topic_id) and 0 <= message.partition < MAX_PARTITIONS
    ]
