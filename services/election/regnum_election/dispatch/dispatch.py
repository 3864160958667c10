"""Delivery of orders to brokers.

Each incarnation of a broker has one task for LeaderAndIsr and StopReplica (in order, one call in flight, see
``outbox``). It repeats until acknowledged or until the broker is gone, and never holds up another broker, nor the
controller.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, assert_never

import structlog
from regnum.broker.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, PartitionKey, TopicId
from regnum_service.clock import Clock
from regnum_service.errors import Code, RegnumError, reason_of
from regnum_telemetry import tracing

from regnum_election.decisions.cluster import Broker, Cluster
from regnum_election.dispatch.control_requests import ControlRequests
from regnum_election.dispatch.departing import Departing
from regnum_election.dispatch.failover_trace import FailoverTrace
from regnum_election.dispatch.order_ages import OrderAges
from regnum_election.dispatch.outbox import Outbox, StatesCall, Stop, StopPlace, StopsCall

T = TypeVar("T")

RETRY_INTERVAL_S: Final = 0.1
"""Pause after the first call in a row that got no answer; it doubles with each."""

RETRY_INTERVAL_S_MAX: Final = 1.0
"""Longest such pause."""

REFUSED_INTERVAL_S: Final = 1.0
"""Pause before single partitions that were refused are told again."""

OFFLINE_INTERVAL_S: Final = 30.0
"""Pause before a broker is asked again whether it can use replicas that it could not use. A broker that takes a replica
up as follower and refuses it as leader gets one more leader epoch in such a time at most."""


class ControlChannel(Protocol):
    """How one broker is reached. Every method raises RegnumError, and is bounded in time."""

    async def leader_and_isr(self, request: bytes) -> control_pb2.LeaderAndIsrResponse:
        """One LeaderAndIsr: an encoded LeaderAndIsrRequest."""

    async def stop_replica(self, request: control_pb2.StopReplicaRequest) -> control_pb2.StopReplicaResponse:
        """One StopReplica."""

    async def get_replica_log_info(
        self, request: control_pb2.GetReplicaLogInfoRequest, *, timeout_s: float
    ) -> control_pb2.GetReplicaLogInfoResponse:
        """One GetReplicaLogInfo."""

    async def close(self) -> None:
        """Hang up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOrders:
    """What a live broker has been told and has not acknowledged."""

    broker: BrokerId
    count: int
    """Orders, those of a full set among them."""
    oldest_s: float
    """When the oldest was given; the clock's monotonic seconds."""


class DispatchListener(Protocol):
    """Who hears what brokers answer. Called on the controller's loop; must not block."""

    def superseded(self, seen: ControllerEpoch) -> None:
        """A broker knows a later controller epoch."""

    def broker_outdated(self, broker: BrokerId) -> None:
        """A broker says that it has registered anew."""

    def replicas_deleted(self, broker: BrokerId, topics: tuple[tuple[TopicId, bool], ...]) -> None:
        """A broker answered orders to delete: topics, and whether each is deleted there."""

    def partitions_deleted(self, broker: BrokerId, partitions: tuple[tuple[PartitionKey, bool], ...]) -> None:
        """A broker answered orders to delete single replicas: each, and whether it is deleted there."""

    def replicas_offline(self, broker: BrokerId, epoch: BrokerEpoch, keys: frozenset[PartitionKey]) -> None:
        """A broker refused replicas because it cannot use them."""

    def replicas_usable(self, broker: BrokerId, epoch: BrokerEpoch, keys: frozenset[PartitionKey]) -> None:
        """A broker took up replicas that it could not use before."""


Spawn = Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Starts a named task that belongs to the service's supervisor."""


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
    ) -> None:
        self._book = book
        self._open_channel = open_channel
        self._listener = listener
        self._clock = clock
        self._spawn = spawn
        self._picture = Cluster()
        self._brokers: dict[BrokerId, BrokerDispatch] = {}
        self._awaited: dict[PartitionKey, asyncio.Event] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._traces: list[FailoverTrace] = []
        self._holding = False
        self.departing: Final = Departing()
        """Brokers that lost partitions and have not said that they have deleted them."""
        self.building: Final = asyncio.Lock()
        """Held while a message of many partitions is built."""

    def begin(self, broker: Broker) -> None:
        """A broker registered: it gets the full set (INIT), an earlier incarnation nothing more."""
        self.end(broker.id)
        dispatch = BrokerDispatch(self, broker, self._open_channel(broker))
        self._brokers[broker.id] = dispatch
        dispatch.start(None if self._holding else tuple(self._picture.of_broker(broker.id)))

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
            dispatch.order_full(tuple(self._picture.of_broker(id)))
            await asyncio.sleep(0)

    def end(self, id: BrokerId) -> None:
        """A broker is gone."""
        dispatch = self._brokers.pop(id, None)
        if dispatch is not None:
            task = self._spawn(f"dispatch-{id}-closing", dispatch.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """The reign is over: nothing more is sent."""
        dispatches = tuple(self._brokers.values())
        self._brokers.clear()
        for dispatch in dispatches:
            await dispatch.close()
        for task in tuple(self._closing):
            await asyncio.wait([task])

    def release(self) -> None:
        """Forget what is large; after ``close``."""
        self._picture = Cluster()
        self._book.release()

    def show(self, picture: Cluster) -> None:
        """From now on states are looked up here."""
        self._picture = picture

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
        """Partitions are gone: what was kept to tell brokers of them is."""
        self._book.forget(keys)

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

    async def replica_logs(
        self, broker: Broker, queries: Sequence[control_pb2.ReplicaLogQuery], *, timeout_s: float
    ) -> control_pb2.GetReplicaLogInfoResponse:
        """Ask a broker what its logs hold; beside its orders, so that none of them waits. Raises RegnumError."""
        dispatch = self._brokers.get(broker.id)
        if dispatch is None:
            raise RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, f"broker {broker.id} is gone")
        request = self._book.replica_log_info(broker, queries)
        return await dispatch.channel.get_replica_log_info(request, timeout_s=timeout_s)

    def tell_of_acknowledgements(self, trace: FailoverTrace) -> None:
        """A trace hears, until it ends, which partitions' leaders and which brokers' full sets are acknowledged."""
        self._traces.append(trace)
        self._spawn("failover-trace", trace.wait())

    def expect(self, keys: Iterable[PartitionKey]) -> None:
        """Remember when the leaders of these partitions have taken them up; ask before they are told."""
        for key in keys:
            self._awaited.setdefault(key, asyncio.Event())

    async def led(self, keys: Sequence[PartitionKey]) -> None:
        """Return when the leaders of all expected partitions have acknowledged; perhaps never: use a deadline."""
        for key in keys:
            event = self._awaited.get(key)
            if event is not None:
                await event.wait()

    def is_led(self, key: PartitionKey) -> bool:
        """Whether an expected partition's leader has acknowledged; True for others."""
        event = self._awaited.get(key)
        return event is None or event.is_set()

    def forget(self, keys: Sequence[PartitionKey]) -> None:
        """Nobody waits for these partitions any more."""
        for key in keys:
            self._awaited.pop(key, None)

    def outstanding(self) -> list[BrokerOrders]:
        """Brokers that have not acknowledged everything, by id. Costs nothing for each order."""
        found = (dispatch.outstanding() for _, dispatch in sorted(self._brokers.items()))
        return [orders for orders in found if orders is not None]

    def given_before(self, id: BrokerId, moment_s: float, *, most: int) -> list[PartitionKey]:
        """Partitions of whose newest state a broker was told before a moment, without having acknowledged it."""
        dispatch = self._brokers.get(id)
        return [] if dispatch is None else dispatch.given_before(moment_s, most=most)

    def cause_of(self, id: BrokerId, key: PartitionKey) -> str:
        """Place in the trace of what made an order that is not acknowledged; empty: none."""
        dispatch = self._brokers.get(id)
        return "" if dispatch is None else dispatch.cause_of(key)

    # For BrokerDispatch.

    @property
    def clock(self) -> Clock:
        """Source of time."""
        return self._clock

    @property
    def book(self) -> ControlRequests:
        """Builder of messages."""
        return self._book

    @property
    def picture(self) -> Cluster:
        """Where states are looked up."""
        return self._picture

    @property
    def listener(self) -> DispatchListener:
        """Who hears of answers."""
        return self._listener

    def spawn(self, name: str, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task."""
        return self._spawn(name, coroutine)

    def applied(self, id: BrokerId, key: PartitionKey) -> None:
        """A broker acknowledged the newest state of a partition."""
        event = self._awaited.get(key)
        if event is None and not self._traces:
            return
        partition = self._picture.partitions.get(key)
        if partition is not None and partition.held is not None and partition.held.state.leader == id:
            if event is not None:
                event.set()
            self._tell_traces(key)

    def full_set_taken(self, id: BrokerId) -> None:
        """A broker acknowledged the last part of its full set."""
        self._tell_traces(id)

    def _tell_traces(self, token: PartitionKey | BrokerId) -> None:
        if self._traces:
            for trace in self._traces:
                trace.acknowledged(token)
            self._traces = [trace for trace in self._traces if not trace.done]


class BrokerDispatch:
    """One incarnation of one broker."""

    def __init__(self, owner: Dispatch, broker: Broker, channel: ControlChannel) -> None:
        self._owner = owner
        self._broker = broker
        self._channel = channel
        self._outbox = Outbox()
        self._refused: set[PartitionKey] = set()
        self._refused_stops: set[Stop] = set()
        self._refused_until_s = 0.0
        self._offline: set[PartitionKey] = set()
        """Replicas that the broker cannot use."""
        self._asked: set[PartitionKey] = set()
        """Those of them that it is being told of again: only what it says to that is news."""
        self._ask_again_s = 0.0
        self._control_wake = asyncio.Event()
        self._failures: dict[str, int] = {}
        self._causes: dict[PartitionKey, str] = {}
        """Places in traces of what made the orders that are not acknowledged yet."""
        self._full_set_cause = ""
        self._full_set_s: float | None = None
        """When the full set was ordered that is not acknowledged; None: all of it is."""
        self._states_since: OrderAges[PartitionKey] = OrderAges()
        self._stops_since: OrderAges[StopPlace] = OrderAges()
        self._tasks: list[asyncio.Task[None]] = []
        self._log = structlog.get_logger("dispatch").bind(broker=broker.id, broker_epoch=broker.epoch)

    @property
    def channel(self) -> ControlChannel:
        """How the broker is reached."""
        return self._channel

    def start(self, keys: Sequence[PartitionKey] | None) -> None:
        """Begin with the full set; None: with what comes, the full set later."""
        if keys is not None:
            self.order_full(keys)
        self._tasks = [self._owner.spawn(f"dispatch-{self._broker.id}-control", self._control())]

    def order_full(self, keys: Sequence[PartitionKey]) -> None:
        """The full set."""
        self._full_set_cause = tracing.current()
        self._outbox.order_full(keys)
        self._states_since.settled(keys)
        self._full_set_s = self._owner.clock.monotonic()
        self._control_wake.set()

    async def close(self) -> None:
        """Stop; what was not acknowledged is dropped."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        await self._channel.close()

    def order_states(self, keys: Iterable[PartitionKey]) -> None:
        """Newest states of partitions."""
        named = tuple(keys)
        cause = tracing.current()
        if cause:
            self._causes.update(dict.fromkeys(named, cause))
        self._outbox.order_states(named)
        self._states_since.given(named, self._owner.clock.monotonic())
        self._control_wake.set()

    def order_stops(self, stops: Iterable[Stop]) -> None:
        """Stop replicas."""
        named = tuple(stops)
        self._outbox.order_stops(named)
        self._stops_since.given((stop.place for stop in named), self._owner.clock.monotonic())
        self._control_wake.set()

    def withdraw_stops(self, keys: Collection[PartitionKey]) -> None:
        """Do not repeat what was refused of removed partitions."""
        over = [
            stop
            for stop in self._refused_stops
            if not stop.reassigned and PartitionKey(stop.topic_id, stop.partition) in keys
        ]
        self._refused_stops.difference_update(over)
        self._stops_since.settled(stop.place for stop in over if not self._outbox.is_stopping(stop.place))

    def note_offline(self, keys: Iterable[PartitionKey]) -> None:
        """Replicas that the broker cannot use."""
        if not self._offline:
            self._ask_again_s = self._owner.clock.monotonic() + OFFLINE_INTERVAL_S
        self._offline.update(keys)
        self._control_wake.set()

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
        times_s = [self._refused_until_s] if self._refused or self._refused_stops else []
        times_s += [self._ask_again_s] if self._offline else []
        if not times_s:
            await self._control_wake.wait()
            return
        pause_s = max(min(times_s) - self._owner.clock.monotonic(), 0.0)
        waker = asyncio.ensure_future(self._control_wake.wait())
        timer = asyncio.ensure_future(self._owner.clock.sleep(pause_s))
        try:
            await asyncio.wait([waker, timer], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waker.cancel()
            timer.cancel()

    def _repeat_refused(self) -> None:
        now_s = self._owner.clock.monotonic()
        if self._offline and now_s >= self._ask_again_s:
            self._ask_again_s = now_s + OFFLINE_INTERVAL_S
            self._offline = set(filter(self._is_here, self._offline))
            self._asked = set(self._offline)
            self._outbox.order_states(self._offline)
        if now_s >= self._refused_until_s:
            self._outbox.order_states(filter(self._is_here, self._refused))
            # Whatever has become of a partition that is gone, it is told of in another way.
            over = {stop for stop in self._refused_stops if _is_over(self._owner.picture, stop)}
            self._outbox.order_stops(self._refused_stops - over)
            self._stops_since.settled(stop.place for stop in over if not self._outbox.is_stopping(stop.place))
            self._refused.clear()
            self._refused_stops.clear()

    def _is_here(self, key: PartitionKey) -> bool:
        """Whether a partition is this broker's still."""
        partition = self._owner.picture.partitions.get(key)
        if partition is None:
            return False
        return self._broker.id in partition.replicas or (
            partition.held is not None and self._broker.id in partition.held.state.isr
        )

    async def _send_states(self, call: StatesCall) -> None:
        async with self._owner.building:
            # One message in a turn of the loop, however many brokers there are (safety rule S22).
            await asyncio.sleep(0)
            request, keys = self._owner.book.leader_and_isr(self._owner.picture, self._broker, call)
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
            self._owner.full_set_taken(self._broker.id)
        self._take_answers(keys, response)
        self._settle_states(call)
        self._note_refusals()

    def _settle_states(self, call: StatesCall) -> None:
        """What was told is not outstanding any more, unless it was refused or has changed meanwhile."""
        now_s = self._owner.clock.monotonic()
        if call.init:
            if not self._outbox.full_left:
                self._full_set_s = None
            self._states_since.given((key for key in call.keys if key in self._refused), now_s)
            return
        self._states_since.settled(call.keys, except_for=self._refused)
        self._states_since.given((key for key in call.keys if self._outbox.is_pending(key)), now_s)

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
        return self._causes.get(key, self._full_set_cause)

    def _acknowledge(self, call: StatesCall) -> None:
        self._outbox.acknowledge(call)
        # Also of partitions that have gone meanwhile and were left out.
        for key in call.keys if self._causes else ():
            self._causes.pop(key, None)

    def _take_answers(self, keys: Sequence[PartitionKey], response: control_pb2.LeaderAndIsrResponse) -> None:
        offline: set[PartitionKey] = set()
        usable: set[PartitionKey] = set()
        for key, code in _answers(keys, response.results):
            if code == errors_pb2.ERROR_CODE_NONE:
                self._owner.applied(self._broker.id, key)
                if key in self._asked:
                    usable.add(key)
            elif code == errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR:
                offline.add(key)
            else:
                self._log.warning("replica refused", key=key, error=reason_of(code))
                self._refused.add(key)
        self._asked.difference_update(offline, usable)
        self._offline -= usable
        if usable:
            self._owner.listener.replicas_usable(self._broker.id, self._broker.epoch, frozenset(usable))
        if offline:
            self._log.warning("replicas cannot be used", partitions=len(offline), first=min(offline))
            self.note_offline(offline)
            self._owner.listener.replicas_offline(self._broker.id, self._broker.epoch, frozenset(offline))

    def _cause_of(self, call: StatesCall) -> str:
        if call.init:
            return self._full_set_cause
        # One call may carry orders of several causes; it belongs to the first.
        return next((self._causes[key] for key in call.keys if key in self._causes), "") if self._causes else ""

    async def _send_stops(self, call: StopsCall) -> None:
        request = self._owner.book.stop_replica(self._broker, call.stops)
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
        for stop, code in _answers(call.stops, response.results):
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
                    self._refused_stops.add(stop)
        refused = {stop.place for stop in self._refused_stops}
        self._stops_since.settled(
            (stop.place for stop in call.stops if not self._outbox.is_stopping(stop.place)), except_for=refused
        )
        if deleted:
            self._owner.listener.replicas_deleted(self._broker.id, tuple(deleted))
        if partitions:
            self._owner.listener.partitions_deleted(self._broker.id, tuple(partitions))
        self._note_refusals()

    def _note_departed(self, key: PartitionKey, *, succeeded: bool) -> None:
        if succeeded and not _is_wanted(self._owner.picture, key, self._broker.id):
            self._owner.departing.done(key, self._broker.id)

    def _note_refusals(self) -> None:
        if self._refused or self._refused_stops:
            self._refused_until_s = self._owner.clock.monotonic() + REFUSED_INTERVAL_S

    async def _after_failure(self, call: str, error: RegnumError) -> None:
        failures = self._failures[call] = self._failures.get(call, 0) + 1
        if failures == 1:
            self._log.warning("call failed", call=call, error=reason_of(error.code), message=error.message)
        if error.code == errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH:
            self._owner.listener.superseded(seen_epoch(error))
        elif error.code == errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH:
            self._owner.listener.broker_outdated(self._broker.id)
            await self._owner.clock.sleep(REFUSED_INTERVAL_S)
        await self._owner.clock.sleep(min(RETRY_INTERVAL_S * 2 ** min(failures - 1, 5), RETRY_INTERVAL_S_MAX))

    def _succeeded(self, call: str) -> None:
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


def seen_epoch(error: RegnumError) -> ControllerEpoch:
    """The highest controller epoch that a refusal names; 0 when it names none."""
    text = error.metadata.get("controller_epoch", "")
    return ControllerEpoch(int(text) if text.isascii() and text.isdigit() else 0)


def _answers(orders: Sequence[T], results: Sequence[control_pb2.ReplicaResult]) -> list[tuple[T, Code]]:
    """Each order with its result; what the answer leaves out has not been said to be done, so it is ordered again."""
    codes: list[Code] = [result.error_code for result in results[: len(orders)]]
    codes += [errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR] * (len(orders) - len(codes))
    return list(zip(orders, codes, strict=True))
