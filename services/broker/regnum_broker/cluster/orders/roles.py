"""LeaderAndIsr: what a message says of each partition is judged, recorded, and then done.

Each message costs one journal append and one fsync; the fsync is made beside the writer, and the roles that rely on it
are given when it is done. Long messages are applied in slices (safety rule S22).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_coordination.port import Store
from regnum_model.epochs import is_plausible
from regnum_model.ids import NO_EPOCH, NO_LEADER, BrokerId, PartitionKey
from regnum_service.clock import Clock
from regnum_service.errors import Code
from regnum_service.slices import slices
from regnum_telemetry import conventions, tracing

from regnum_broker.cluster.orders.leader_epochs import recorded_leader_epoch
from regnum_broker.cluster.orders.reading import Order, OrderReader
from regnum_broker.cluster.orders.role_spans import RoleSpans
from regnum_broker.log.directory import LogDirectory
from regnum_broker.log.errors import StorageError
from regnum_broker.replication.decisions.lives import Life, life_of, may_make
from regnum_broker.replication.decisions.orders import Standing, Verdict, judge
from regnum_broker.replication.fetchers import Fetchers
from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.partition import Following, Partition
from regnum_broker.replication.replicas import Replicas
from regnum_broker.replication.throttle import ReplicationThrottle
from regnum_broker.replication.traces.new_leader import FreedRecords
from regnum_broker.storage import Storage

SLICE: Final = 100
"""Partitions handled before the event loop gets a turn."""

NONE: Final = errors_pb2.ERROR_CODE_NONE
UNSEEN: Final = Standing(leader_epoch=NO_EPOCH, version=-1, recorded_epoch=NO_EPOCH, active=False)


class Roles:
    """Judges LeaderAndIsr messages and gives roles. For the task of ``Orders`` only."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        fetchers: Fetchers,
        storage: Storage,
        store: Callable[[], Store | None],
        lag_s: float,
        clock: Clock,
        throttle: ReplicationThrottle,
        note_moving: Callable[[PartitionKey, bool], None],
    ) -> None:
        """Only assigns."""
        self._note_moving: Final = note_moving
        self._throttle: Final = throttle
        self._store: Final = store
        self._replicas: Final = replicas
        self._fetchers: Final = fetchers
        self._storage: Final = storage
        self._lag_s: Final = lag_s
        self._clock: Final = clock
        self._log: Final = structlog.get_logger("orders")
        self._reader: Final = OrderReader()

    async def carry_out(self, partitions: Sequence[control_pb2.LeaderAndIsrPartition], cause: str) -> list[Code]:
        """One message; one result for each partition. ``cause``: place in the trace of whoever sent it."""
        spans = RoleSpans(self._replicas.broker, cause)
        results: list[Code] = [NONE] * len(partitions)
        taking: dict[PartitionKey, tuple[int, Order]] = {}
        former: list[PartitionKey] = []
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
                    if self._life_of(order) is Life.FORMER:
                        former.append(order.key)
                    self._prepare(order)
                else:
                    self._go_on(order, verdict, cause)
        if taking:
            try:
                await self._delete_former(former)
                spans.done(conventions.LEADER_FETCHERS)
                orders = await self._take(taking, results, cause, spans)
            except StorageError as error:
                self._log.critical("orders not recorded", reason=str(error))
                for key, (index, _) in taking.items():
                    results[index] = errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR
                    self._break_promise(key)
                return results
            spans.record(orders)
        return results

    async def _take(
        self, taking: Mapping[PartitionKey, tuple[int, Order]], results: list[Code], cause: str, spans: RoleSpans
    ) -> list[Order]:
        """Record what new roles rely on, and give them; those that were given. Raises StorageError."""
        storage, broker = self._storage, self._replicas.broker
        orders = [order for _, order in taking.values()]
        starts, recorded = await storage.write(lambda: _record(storage.directory, orders, broker=broker))
        spans.done(conventions.LEADER_EPOCHS)
        for key in [key for key in taking if key not in starts]:
            # Found damaged by what was under way under its former role.
            results[taking[key][0]] = errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR
            self._break_promise(key)
        orders = [order for order in orders if order.key in starts]
        at_once: list[Order] = []
        recording: list[Order] = []
        for order in orders:
            relies = recorded and (order.state.leader == broker or self._replicas.get(order.key) is None)
            (recording if relies else at_once).append(order)
        # Who follows with a log that was there before relies on nothing that was recorded, and its leader waits for it.
        lost = await self._give_roles(at_once, starts, cause)
        if at_once:
            spans.done(conventions.LEADER_ROLES)
        if recording:
            # Appends to other partitions go on meanwhile; to these there are none, for they have no role.
            await storage.sync_journal()
            spans.done(conventions.LEADER_JOURNAL)
            lost |= await self._give_roles(recording, starts, cause)
            spans.done(conventions.LEADER_ROLES)
        for key in lost:
            results[taking[key][0]] = errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR
        return [order for order in orders if order.key not in lost]

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
        partition = self._replicas.get(order.key)
        if directory.failed or order.key in directory.offline or not self._is_whole(order, partition):
            return Verdict.KNOWN, errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR
        if partition is not None and partition.topic != order.topic:
            return Verdict.KNOWN, errors_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID
        if partition is None and order.began is not None and order.state.leader == NO_LEADER:
            # There is none to follow.
            return Verdict.KNOWN, NONE
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

    def _is_whole(self, order: Order, partition: Partition | None) -> bool:
        """Whether the replica here is what the order takes it for: of one life of the partition, and not missing."""
        life = self._life_of(order)
        if life is Life.BOTH and partition is not None:
            partition.log.found_damaged(
                f"it has leader epochs below and above {order.began}, at which the life of the partition began"
            )
            return False
        return not ((partition is None or life is Life.FORMER) and self._is_missing(order))

    def _life_of(self, order: Order) -> Life:
        """Which life of the partition the replica here is of."""
        partition = self._replicas.get(order.key)
        if partition is None or not order.began:
            return Life.THIS
        log = partition.log
        return life_of(
            [epoch for epoch, _ in log.epochs.entries],
            highest=log.highest_leader_epoch,
            has_records=log.log_end_offset > log.log_start_offset,
            began=order.began,
        )

    def _is_missing(self, order: Order) -> bool:
        """Whether a replica that is not here should be: what it had would be given up if it were made again.

        It is made where the broker is to follow another, and as leader where it never had one. A controller of release
        0.1.0 does not say which; it is believed as ever.
        """
        broker, state, directory = self._replicas.broker, order.state, self._storage.directory
        if order.began is None or state.leader not in {broker, NO_LEADER}:
            return False
        member = state.members.get(broker)
        if member is None or member.log_id != directory.log_id:
            # What is recorded is another log, and gone with it.
            return False
        deleted = directory.deleted.epoch_of(order.key)
        if may_make(is_new=order.is_new, began=order.began, deleted=deleted):
            return False
        self._log.error(
            "replica missing",
            topic=order.topic,
            topic_id=order.key.topic_id,
            partition=order.key.partition,
            leader_epoch=state.leader_epoch,
            reason="it is recorded as a complete replica and this log directory does not have it; an empty one in its "
            "place would lose what was acknowledged, so another member has to lead. Put the directory back, or see "
            "regnum partitions recover",
        )
        return True

    async def _delete_former(self, keys: Sequence[PartitionKey]) -> None:
        """Delete replicas of removed partitions whose numbers were given again (safety rule S13). Raises StorageError.

        They are gone for good before the new ones take a role.
        """
        if not keys:
            return
        self._log.warning("replicas of removed partitions deleted", count=len(keys), first=min(keys))
        for partition in filter(None, map(self._replicas.get, keys)):
            end_role(partition, replicas=self._replicas, fetchers=self._fetchers)
        await self._storage.delete(keys)
        for key in keys:
            self._replicas.remove(key)

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
        if partition is not None and order.state.leader == self._replicas.broker:
            # Its clients wait for as long as that takes, and what was appended until now waits on for its replicas.
            self._fetchers.forget(order.key)
            self._replicas.promise(partition)
        elif partition is not None:
            end_role(partition, replicas=self._replicas, fetchers=self._fetchers)
        namesake = self._replicas.namesake(order.key, order.topic)
        if namesake is not None:
            # The topic was deleted and created again; its files go when the controller says so (safety rule S13).
            self._log.warning("another life of the topic", topic=order.topic, former_topic_id=namesake.key.topic_id)
            end_role(namesake, replicas=self._replicas, fetchers=self._fetchers)

    def _break_promise(self, key: PartitionKey) -> None:
        """It does not lead after all: whoever waits for that is sent away."""
        partition = self._replicas.get(key)
        if partition is not None and partition.promised is not None:
            self._replicas.give(partition, None)

    def _go_on(self, order: Order, verdict: Verdict, cause: str) -> None:
        """What is new to a replica that keeps its role."""
        if verdict is Verdict.ISR_ONLY:
            self._take_isr(order, cause)
        elif verdict is Verdict.SETTINGS_ONLY:
            self._take_settings(order)

    def _take_isr(self, order: Order, cause: str) -> None:
        partition = self._replicas.get(order.key)
        assert partition is not None, "only a replica with a role has an ISR to take"  # noqa: S101
        partition.version, partition.ordered = order.version, order.state
        self._replicas.configure(partition, order.settings)
        if isinstance(partition.role, Leadership):
            committed = partition.high_watermark
            partition.role.take(
                order.state,
                version=order.version,
                now_s=self._clock.monotonic(),
                replicas=order.replicas,
                min_insync=order.min_insync,
                adding=order.adding,
            )
            if cause and partition.high_watermark > committed:
                partition.freed = FreedRecords(cause, committed, partition.high_watermark)

    def _take_settings(self, order: Order) -> None:
        # Messages are carried out in the order in which they were admitted, so the newest controller has the last word.
        partition = self._replicas.get(order.key)
        if partition is None:
            return
        self._replicas.configure(partition, order.settings)
        if isinstance(partition.role, Leadership):
            partition.role.take_settings(
                min_insync=order.min_insync,
                replicas=order.replicas,
                adding=order.adding,
                now_s=self._clock.monotonic(),
            )

    async def _give_roles(
        self, orders: Sequence[Order], starts: dict[PartitionKey, int], cause: str
    ) -> set[PartitionKey]:
        """Give them; returns the replicas that were found damaged, and are gone, while the epochs were recorded."""
        lost: set[PartitionKey] = set()
        added = False
        async for part in slices(orders, SLICE):
            now_s, now_unix_nano = self._clock.monotonic(), tracing.now_unix_nano() if cause else 0
            for order in part:
                partition = self._replicas.get(order.key)
                if partition is None:
                    log = self._storage.directory.replicas.get(order.key)
                    if log is None:
                        lost.add(order.key)
                        continue
                    partition = self._replicas.add(order.key, order.topic, log)
                    added = True
                state = order.state
                partition.leader_epoch, partition.version = state.leader_epoch, order.version
                partition.ordered = state
                self._replicas.configure(partition, order.settings)
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
                    self._replicas.first_acknowledgements.began(order.key, state.leader_epoch)
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
        return lost


def end_role(partition: Partition, *, replicas: Replicas, fetchers: Fetchers) -> None:
    """A replica leads and follows no more; what was handed to the writer so far is the last under its role."""
    fetchers.forget(partition.key)
    replicas.give(partition, None)


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
    # What waits to be flushed is there as well: the epoch begins behind it.
    ends = {order.key: directory.replicas[order.key].written_end_offset for order in usable}
    leading = [
        (order.key, order.state.leader_epoch, ends[order.key]) for order in usable if order.state.leader == broker
    ]
    if leading:
        directory.record_leader_epochs(leading, sync=False)
    return ends, bool(missing or leading)
