"""Delivery of orders to one incarnation of one broker.

It has one task for LeaderAndIsr and StopReplica (in order, one call in flight, see ``outbox``), which repeats until
acknowledged or until the broker is gone.
"""

import asyncio
import contextlib
from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import structlog
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_service.addressee import who_answered
from regnum_service.cancellation import end_task
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError, reason_of
from regnum_service.supervisor import Spawn
from regnum_telemetry import tracing

from regnum_election.decisions.cluster import Broker, Cluster
from regnum_election.dispatch.acknowledgements import Acknowledgements
from regnum_election.dispatch.answers import each_answered, pause_after_s, reporting_of, seen_epoch
from regnum_election.dispatch.control_requests import ControlRequests
from regnum_election.dispatch.departing import Departing
from regnum_election.dispatch.order_ages import OrderAges
from regnum_election.dispatch.order_spans import OrderSpans
from regnum_election.dispatch.outbox import Outbox, StatesCall, Stop, StopPlace, StopsCall
from regnum_election.dispatch.ports import ControlChannel, DispatchListener
from regnum_election.dispatch.refusals import REFUSED_INTERVAL_S, Refusals, Unusable


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOrders:
    """What a live broker has been told and has not acknowledged."""

    broker: BrokerId
    count: int
    """Orders, those of a full set among them."""
    oldest_s: float
    """When the oldest was given; the clock's monotonic seconds."""


@dataclass(slots=True, kw_only=True)
class Desk:
    """What the deliveries to all brokers of one reign share. Belongs to the controller's loop."""

    book: ControlRequests
    """Builder of messages."""
    listener: DispatchListener
    """Who hears of answers."""
    clock: Clock
    """Source of time."""
    picture: Cluster = field(default_factory=Cluster)
    """Where states are looked up; another one after each change."""
    acknowledgements: Acknowledgements = field(default_factory=Acknowledgements)
    """Who waits for them."""
    departing: Departing = field(default_factory=Departing)
    """Brokers that lost partitions and have not said that they have deleted them."""
    building: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a message of many partitions is built."""


class BrokerDispatch:
    """One incarnation of one broker."""

    def __init__(self, desk: Desk, broker: Broker, channel: ControlChannel) -> None:
        self._desk = desk
        self._broker = broker
        self._channel = channel
        self._outbox = Outbox()
        self._refusals = Refusals()
        self._unusable = Unusable()
        self._control_wake = asyncio.Event()
        self._failures: dict[str, int] = {}
        self._spans = OrderSpans(broker.id, desk.acknowledgements.is_change)
        self._full_set_s: float | None = None
        """When the full set was ordered that is not acknowledged; None: all of it is."""
        self.has_full_set = False
        """Whether a full set was acknowledged."""
        self.answers_as = ""
        """Which process answered the last call in its place (decision 72); empty: none."""
        self._states_since: OrderAges[PartitionKey] = OrderAges()
        self._stops_since: OrderAges[StopPlace] = OrderAges()
        self._tasks: list[asyncio.Task[None]] = []
        self._log = structlog.get_logger("dispatch").bind(broker=broker.id, broker_epoch=broker.epoch)

    @property
    def channel(self) -> ControlChannel:
        """How the broker is reached."""
        return self._channel

    def start(self, keys: Sequence[PartitionKey] | None, spawn: Spawn) -> None:
        """Begin with the full set; None: with what comes, the full set later."""
        if keys is not None:
            self.order_full(keys)
        self._tasks = [spawn(f"dispatch-{self._broker.id}-control", self._control())]

    async def close(self) -> None:
        """Stop; what was not acknowledged is dropped."""
        for task in self._tasks:
            end_task(task)
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        self._spans.close()
        await self._channel.close()

    # What it is to be told.

    def order_full(self, keys: Sequence[PartitionKey]) -> None:
        """The full set."""
        self._spans.full_set(len(keys))
        self._outbox.order_full(keys)
        self._states_since.settled(keys)
        self._full_set_s = self._desk.clock.monotonic()
        self._control_wake.set()

    def order_states(self, keys: Iterable[PartitionKey]) -> None:
        """Newest states of partitions."""
        named = tuple(keys)
        self._spans.given(named)
        self._outbox.order_states(named)
        self._states_since.given(named, self._desk.clock.monotonic())
        self._control_wake.set()

    def order_stops(self, stops: Iterable[Stop]) -> None:
        """Stop replicas."""
        named = tuple(stops)
        for stop in named:
            self._desk.book.newborn.has_it(PartitionKey(stop.topic_id, stop.partition), self._broker.id)
        self._outbox.order_stops(named)
        self._stops_since.given((stop.place for stop in named), self._desk.clock.monotonic())
        self._control_wake.set()

    def withdraw_stops(self, keys: Collection[PartitionKey]) -> None:
        """Do not repeat what was refused of removed partitions."""
        self._forget_stops(self._refusals.withdraw(keys))

    def note_offline(self, keys: Iterable[PartitionKey]) -> None:
        """Replicas that the broker cannot use."""
        self._unusable.note(keys, self._desk.clock.monotonic())
        self._control_wake.set()

    def disk_takes_records(self) -> None:
        """The broker's disk was full, and is not any more."""
        self._unusable.ask_now(self._desk.clock.monotonic())
        self._control_wake.set()

    # What it has not acknowledged.

    def outstanding(self) -> BrokerOrders | None:
        """What is not acknowledged; None: nothing."""
        full = self._outbox.full_left
        since_s = (self._full_set_s if full else None, self._states_since.oldest_s, self._stops_since.oldest_s)
        moments_s = [moment_s for moment_s in since_s if moment_s is not None]
        if not moments_s:
            return None
        count = full + len(self._states_since) + len(self._stops_since)
        return BrokerOrders(broker=self._broker.id, count=count, oldest_s=min(moments_s))

    def given_before(self, moment_s: float, *, most: int) -> list[PartitionKey]:
        """See ``Dispatch.given_before``."""
        if self._full_set_s is not None and self._full_set_s <= moment_s:
            return list(self._outbox.full_keys(most))
        return self._states_since.given_before(moment_s, most=most)

    def cause_of(self, key: PartitionKey) -> str:
        """Place in a trace of an order that is not acknowledged."""
        return self._spans.cause_of(key)

    # How it is told.

    async def _control(self) -> None:
        while True:
            self._repeat_refused()
            call = self._outbox.next_call()
            match call:
                case None:
                    await self._wait_for_orders()
                case StatesCall():
                    await self._send_states(call)
                case StopsCall():
                    await self._send_stops(call)
                case _:
                    assert_never(call)

    async def _wait_for_orders(self) -> None:
        self._control_wake.clear()
        times_s = [time_s for time_s in (self._refusals.next_s, self._unusable.next_s) if time_s is not None]
        if not times_s:
            await self._control_wake.wait()
            return
        pause_s = max(min(times_s) - self._desk.clock.monotonic(), 0.0)
        waker = asyncio.ensure_future(self._control_wake.wait())
        timer = asyncio.ensure_future(self._desk.clock.sleep(pause_s))
        try:
            await asyncio.wait([waker, timer], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waker.cancel()
            timer.cancel()

    def _repeat_refused(self) -> None:
        now_s = self._desk.clock.monotonic()
        self._outbox.order_states(self._unusable.take_due(now_s, self._is_here))
        refused = self._refusals.take_due(now_s)
        self._outbox.order_states(filter(self._is_here, refused.states))
        # Whatever has become of a partition that is gone, it is told of in another way.
        over = {stop for stop in refused.stops if _is_over(self._desk.picture, stop)}
        self._outbox.order_stops(refused.stops - over)
        self._forget_stops(over)

    def _forget_stops(self, over: Iterable[Stop]) -> None:
        """Orders to stop that nobody waits for any more: they are not outstanding."""
        self._stops_since.settled(stop.place for stop in over if not self._outbox.is_stopping(stop.place))

    def _is_here(self, key: PartitionKey) -> bool:
        """Whether a partition is this broker's still."""
        partition = self._desk.picture.partitions.get(key)
        if partition is None:
            return False
        return self._broker.id in partition.replicas or (
            partition.held is not None and self._broker.id in partition.held.state.isr
        )

    async def _send_states(self, call: StatesCall) -> None:
        async with self._desk.building:
            # One message in a turn of the loop, however many brokers there are (safety rule S22).
            await asyncio.sleep(0)
            request, keys = self._desk.book.leader_and_isr(self._desk.picture, self._broker, call)
            making = self._desk.book.newborn.led(keys, self._desk.picture)
        if not keys and not call.init:
            self._acknowledge(call)
            self._settle_states(call)
            return
        try:
            with tracing.within(self._cause_of(call)):
                response = await self._channel.leader_and_isr(request)
        except RegnumError as error:
            self._outbox.fail(call)
            await self._after_failure("LeaderAndIsr", error)
            return
        self._succeeded("LeaderAndIsr")
        self._acknowledge(call)
        if call.init and call.part == call.parts - 1:
            self.has_full_set = True
            self._spans.full_set_acknowledged()
            self._desk.acknowledgements.full_set_taken(self._broker.id)
        self._take_answers(keys, response, making)
        self._settle_states(call)
        self._refusals.wait(self._desk.clock.monotonic())

    def _settle_states(self, call: StatesCall) -> None:
        """What was told is not outstanding any more, unless it was refused or has changed meanwhile."""
        now_s = self._desk.clock.monotonic()
        refused = self._refusals.states
        if call.init:
            if not self._outbox.full_left:
                self._full_set_s = None
            self._states_since.given((key for key in call.keys if key in refused), now_s)
            return
        self._states_since.settled(call.keys, except_for=refused)
        self._states_since.given(self._outbox.pending_of(call.keys), now_s)

    def _acknowledge(self, call: StatesCall) -> None:
        self._outbox.acknowledge(call)
        # Also of partitions that have gone meanwhile and were left out; not of those that were ordered once more.
        again = frozenset(self._outbox.pending_of(call.keys))
        self._spans.acknowledged(key for key in call.keys if key not in again)

    def _take_answers(
        self,
        keys: Sequence[PartitionKey],
        response: control_pb2.LeaderAndIsrResponse,
        making: Container[PartitionKey],
    ) -> None:
        """``making``: newborn ones of them, of which whoever carried the order out has a replica."""
        taken: set[PartitionKey] = set()
        offline: set[PartitionKey] = set()
        fenced: set[PartitionKey] = set()
        reporting = reporting_of(keys, response.results)
        for key, code in each_answered(keys, response.results):
            if code == errors_pb2.ERROR_CODE_NONE:
                reports = key in reporting
                self._desk.acknowledgements.applied(self._desk.picture, self._broker.id, key, reports=reports)
                if key in making:
                    self._desk.book.newborn.has_it(key, self._broker.id)
                taken.add(key)
            elif code == errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR:
                offline.add(key)
            elif code == errors_pb2.ERROR_CODE_FENCED_LEADER_EPOCH:
                fenced.add(key)
            else:
                self._log.warning("replica refused", key=key, error=reason_of(code))
                self._refusals.refuse_state(key)
        usable = self._unusable.answered(taken=taken, offline=offline)
        if fenced:
            self._log.warning("leaderships refused", partitions=len(fenced), first=min(fenced))
            self._desk.listener.leaderships_fenced(self._broker.id, self._broker.epoch, frozenset(fenced))
        if usable:
            self._desk.listener.replicas_usable(self._broker.id, self._broker.epoch, usable)
        if offline:
            self._log.warning("replicas cannot be used", partitions=len(offline), first=min(offline))
            self.note_offline(offline)
            self._desk.listener.replicas_offline(self._broker.id, self._broker.epoch, frozenset(offline))

    def _cause_of(self, call: StatesCall) -> str:
        # One call may carry orders of several causes; it belongs to the first.
        return self._spans.place_of_full_set() if call.init else self._spans.place_of(call.keys)

    async def _send_stops(self, call: StopsCall) -> None:
        request = self._desk.book.stop_replica(self._broker, call.stops)
        try:
            response = await self._channel.stop_replica(request)
        except RegnumError as error:
            self._outbox.fail(call)
            await self._after_failure("StopReplica", error)
            return
        self._succeeded("StopReplica")
        self._outbox.acknowledge(call)
        deleted: list[tuple[TopicId, bool]] = []
        partitions: list[tuple[PartitionKey, bool]] = []
        for stop, code in each_answered(call.stops, response.results):
            succeeded = code == errors_pb2.ERROR_CODE_NONE
            key = PartitionKey(stop.topic_id, stop.partition)
            if stop.reassigned:
                self._note_departed(key, succeeded=succeeded)
            elif stop.delete and stop.partition >= 0:
                partitions.append((key, succeeded))
            elif stop.delete:
                deleted.append((stop.topic_id, succeeded))
            if not succeeded:
                self._log.warning("stop refused", stop=stop, error=reason_of(code))
                if stop.delete:
                    self._refusals.refuse_stop(stop)
        refused = {stop.place for stop in self._refusals.stops}
        self._stops_since.settled(
            (stop.place for stop in call.stops if not self._outbox.is_stopping(stop.place)), except_for=refused
        )
        if deleted:
            self._desk.listener.replicas_deleted(self._broker.id, tuple(deleted))
        if partitions:
            self._desk.listener.partitions_deleted(self._broker.id, tuple(partitions))
        self._refusals.wait(self._desk.clock.monotonic())

    def _note_departed(self, key: PartitionKey, *, succeeded: bool) -> None:
        if not succeeded:
            return
        if _is_wanted(self._desk.picture, key, self._broker.id):
            # It has deleted nothing, and is to be told again should the wish come to nothing.
            self._desk.departing.away(self._broker.id, (key,))
        else:
            self._desk.departing.done(key, self._broker.id)

    async def _after_failure(self, call: str, error: RegnumError) -> None:
        failures = self._failures[call] = self._failures.get(call, 0) + 1
        if failures == 1:
            self._log.warning("call failed", call=call, error=reason_of(error.code), message=error.message)
        if error.code == errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH:
            self._desk.listener.superseded(seen_epoch(error))
        elif (other := who_answered(error)) is not None:
            self.answers_as = other
        elif error.code == errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH:
            self._desk.listener.broker_outdated(self._broker.id)
            await self._desk.clock.sleep(REFUSED_INTERVAL_S)
        await self._desk.clock.sleep(pause_after_s(failures))

    def _succeeded(self, call: str) -> None:
        self.answers_as = ""
        failures = self._failures.pop(call, 0)
        if failures:
            self._log.info("call answered again", call=call, failures=failures)


def _is_wanted(picture: Cluster, key: PartitionKey, broker: BrokerId) -> bool:
    """Whether a broker that was to delete a partition has a part in it again: then it has deleted nothing."""
    partition = picture.partitions.get(key)
    if partition is None:
        return False
    move = partition.reassignment
    return broker in partition.replicas or (move is not None and broker in move.kept)


def _is_over(picture: Cluster, stop: Stop) -> bool:
    return stop.reassigned and PartitionKey(stop.topic_id, stop.partition) not in picture.partitions
