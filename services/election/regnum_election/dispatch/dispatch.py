"""Delivery of orders to brokers.

Each incarnation of a broker has a delivery of its own for LeaderAndIsr and StopReplica (``broker_dispatch``). It
repeats until acknowledged or until the broker is gone, and never holds up another broker, nor the controller.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerId, LeaderEpoch, PartitionKey
from regnum_model.nodes import LeaderAndIsr
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from regnum_service.supervisor import Spawn

from regnum_election.decisions.cluster import Broker, Cluster
from regnum_election.decisions.leadership import Surroundings
from regnum_election.dispatch.broker_dispatch import BrokerDispatch, BrokerOrders, Desk
from regnum_election.dispatch.control_requests import ControlRequests
from regnum_election.dispatch.departing import Departing
from regnum_election.dispatch.outbox import Stop
from regnum_election.dispatch.ports import ControlChannel, DispatchListener
from regnum_election.traces.change_trace import ChangeTrace


class Dispatch:
    """All brokers of one reign. Used by the controller's loop only."""

    def __init__(
        self,
        *,
        book: ControlRequests,
        open_channel: Callable[[Broker], ControlChannel],
        listener: DispatchListener,
        clock: Clock,
        spawn: Spawn,
        orders_nothing: bool = False,
    ) -> None:
        self._orders_nothing = orders_nothing
        self._open_channel = open_channel
        self._spawn = spawn
        self._desk = Desk(book=book, listener=listener, clock=clock)
        self._brokers: dict[BrokerId, BrokerDispatch] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._holding = False
        self.departing: Final[Departing] = self._desk.departing
        """Brokers that lost partitions and have not said that they have deleted them."""
        self.newborn: Final = book.newborn
        """Partitions that members may still have to make."""

    def begin(self, broker: Broker) -> None:
        """A broker registered: it gets the full set (INIT), an earlier incarnation nothing more."""
        self.end(broker.id)
        if self._orders_nothing:
            return
        dispatch = self._brokers[broker.id] = BrokerDispatch(self._desk, broker, self._open_channel(broker))
        dispatch.start(None if self._holding else tuple(self._desk.picture.of_broker(broker.id)), self._spawn)

    def hold_full_sets(self) -> None:
        """Until ``release_full_sets`` brokers get single orders only: not everything is verified (safety rule S12)."""
        self._holding = True

    @property
    def holds_full_sets(self) -> bool:
        """Whether it is so: what an earlier reign left in topic nodes is not known yet."""
        return self._holding

    async def release_full_sets(self) -> None:
        """Everything is verified: every broker gets its full set now."""
        self._holding = False
        for id, dispatch in tuple(self._brokers.items()):
            dispatch.order_full(tuple(self._desk.picture.of_broker(id)))
            await asyncio.sleep(0)

    def end(self, id: BrokerId) -> None:
        """A broker is gone."""
        dispatch = self._brokers.pop(id, None)
        if dispatch is not None:
            self._desk.acknowledgements.broker_gone(id)
            task = self._spawn(f"dispatch-{id}-closing", dispatch.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """The reign is over: nothing more is sent."""
        self._desk.acknowledgements.close()
        dispatches = tuple(self._brokers.values())
        self._brokers.clear()
        # Together: a channel that does not close keeps no other broker's delivery going.
        await asyncio.gather(*(dispatch.close() for dispatch in dispatches))
        for task in tuple(self._closing):
            await asyncio.wait([task])

    def release(self) -> None:
        """Forget what is large; after ``close``."""
        self._desk.picture = Cluster()
        self._desk.book.release()

    def show(self, picture: Cluster) -> None:
        """From now on states are looked up here."""
        self._desk.picture = picture

    def written(
        self,
        key: PartitionKey,
        before: LeaderAndIsr | None,
        after: LeaderAndIsr,
        *,
        began: LeaderEpoch,
        surroundings: Surroundings,
    ) -> None:
        """This reign wrote a state; see ``Newborn.written``."""
        self.newborn.written(
            key, before, after, began=began, surroundings=surroundings, has_full_set=self._has_full_set
        )

    def _has_full_set(self, id: BrokerId) -> bool:
        dispatch = self._brokers.get(id)
        return dispatch is not None and dispatch.has_full_set

    def order_states(self, orders: Iterable[tuple[BrokerId, Iterable[PartitionKey]]]) -> None:
        """Tell brokers of the newest states of partitions."""
        for id, keys in orders:
            dispatch = self._brokers.get(id)
            if dispatch is not None:
                dispatch.order_states(keys)

    def order_stops(self, id: BrokerId, stops: Iterable[Stop]) -> None:
        """Tell a broker to stop replicas."""
        dispatch = self._brokers.get(id)
        if dispatch is not None:
            dispatch.order_stops(stops)

    def forget_orders(self, keys: Iterable[PartitionKey]) -> None:
        """Partitions are gone: what was kept to tell brokers of them is, and nobody waits for their leaders."""
        gone = tuple(keys)
        self._desk.book.forget(gone)
        self._desk.acknowledgements.gone(gone)
        self.newborn.forget(gone)

    def withdraw_stops(self, id: BrokerId, keys: Collection[PartitionKey]) -> None:
        """Nobody waits any more for a broker to delete these removed partitions: what it refused is not repeated."""
        dispatch = self._brokers.get(id)
        if dispatch is not None:
            dispatch.withdraw_stops(keys)

    def note_offline(self, id: BrokerId, keys: Iterable[PartitionKey]) -> None:
        """A broker cannot use these replicas: ask it now and then whether that has changed."""
        dispatch = self._brokers.get(id)
        if dispatch is not None:
            dispatch.note_offline(keys)

    def disk_takes_records(self, id: BrokerId) -> None:
        """A broker's disk was full, and is not any more: ask it whether it can use what it could not."""
        dispatch = self._brokers.get(id)
        if dispatch is not None:
            dispatch.disk_takes_records()

    async def replica_logs(
        self, broker: Broker, queries: Sequence[control_pb2.ReplicaLogQuery], *, timeout_s: float
    ) -> control_pb2.GetReplicaLogInfoResponse:
        """Ask a broker what its logs hold; beside its orders, so that none of them waits. Raises RegnumError."""
        dispatch = self._brokers.get(broker.id)
        if dispatch is None:
            raise RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, f"broker {broker.id} is gone")
        request = self._desk.book.replica_log_info(broker, queries)
        return await dispatch.channel.get_replica_log_info(request, timeout_s=timeout_s)

    async def all_replica_logs(
        self, broker: Broker, after: control_pb2.ReplicaLogQuery | None, *, timeout_s: float
    ) -> control_pb2.GetReplicaLogInfoResponse:
        """Ask a broker for the next page of all that its disks hold; beside its orders. Raises RegnumError."""
        dispatch = self._brokers.get(broker.id)
        if dispatch is None:
            raise RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, f"broker {broker.id} is gone")
        request = self._desk.book.replica_log_info(broker, ())
        request.all = True
        if after is not None:
            request.after.CopyFrom(after)
        return await dispatch.channel.get_replica_log_info(request, timeout_s=timeout_s)

    async def settings_of(self, broker: Broker, *, timeout_s: float) -> control_pb2.DescribeBrokerSettingsResponse:
        """Ask a broker what it runs with; beside its orders. Raises RegnumError."""
        dispatch = self._brokers.get(broker.id)
        if dispatch is None:
            raise RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, f"broker {broker.id} is gone")
        request = self._desk.book.broker_settings(broker)
        return await dispatch.channel.describe_settings(request, timeout_s=timeout_s)

    def tell_of_acknowledgements(self, trace: ChangeTrace) -> None:
        """See ``Acknowledgements.tell``."""
        self._desk.acknowledgements.tell(trace)
        self._spawn("change-trace", trace.wait())

    def first_acknowledged(self, acknowledged: Sequence[tuple[PartitionKey, LeaderEpoch, int]]) -> None:
        """See ``Acknowledgements.first_acknowledged``."""
        self._desk.acknowledgements.first_acknowledged(acknowledged)

    def expect(self, keys: Iterable[PartitionKey]) -> None:
        """Remember when the leaders of these partitions have taken them up; ask before they are told."""
        self._desk.acknowledgements.expect(keys)

    async def led(self, keys: Sequence[PartitionKey]) -> None:
        """See ``Acknowledgements.led``."""
        await self._desk.acknowledgements.led(keys)

    def is_led(self, key: PartitionKey) -> bool:
        """Whether an expected partition's leader has acknowledged; True for others."""
        return self._desk.acknowledgements.is_led(key)

    def forget(self, keys: Iterable[PartitionKey]) -> None:
        """Nobody waits for these partitions any more."""
        self._desk.acknowledgements.forget(keys)

    def outstanding(self) -> list[BrokerOrders]:
        """Brokers that have not acknowledged everything, by id. Costs nothing for each order."""
        found = (dispatch.outstanding() for _, dispatch in sorted(self._brokers.items()))
        return [orders for orders in found if orders is not None]

    def misdirected(self) -> dict[BrokerId, str]:
        """Brokers whose address stands for another process, with the name of that one."""
        return {id: dispatch.answers_as for id, dispatch in sorted(self._brokers.items()) if dispatch.answers_as}

    def given_before(self, id: BrokerId, moment_s: float, *, most: int) -> list[PartitionKey]:
        """Partitions of whose newest state a broker was told before a moment, without having acknowledged it."""
        dispatch = self._brokers.get(id)
        return [] if dispatch is None else dispatch.given_before(moment_s, most=most)

    def cause_of(self, id: BrokerId, key: PartitionKey) -> str:
        """Place in the trace of what made an order that is not acknowledged; empty: none."""
        dispatch = self._brokers.get(id)
        return "" if dispatch is None else dispatch.cause_of(key)
