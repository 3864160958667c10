"""Watches what has been wrong for too long: orders that live brokers do not acknowledge, unhealthy partitions.

Goals: an event the moment something is overdue (a line in the log, a span in the trace of what caused it), numbers for
the metrics at any time, names for those who ask.

Constraints: nothing is done for partitions and orders that are well. What a reign found on its beginning is looked at
once, in steps that failures go before; how long it had been so before nobody knows, so its time begins there.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import structlog
from regnum.types.v1 import events_pb2 as words
from regnum_coordination.port import Store
from regnum_model.ids import NO_LEADER, BrokerId, MetadataId, PartitionKey, TopicId
from regnum_model.topic_filter import Trouble
from regnum_service.clock import Clock
from regnum_service.slices import slices
from regnum_service.supervisor import Spawn
from regnum_telemetry import conventions, tracing

from regnum_election.decisions.cluster import Cluster
from regnum_election.dispatch.broker_dispatch import BrokerOrders
from regnum_election.dispatch.dispatch import Dispatch
from regnum_election.health.damage import damaged_count
from regnum_election.health.store_watch import StoreWatch
from regnum_election.health.troubles import TroubleBook, troubles_of
from regnum_election.health.writability import Writability
from regnum_election.reign.events import ClockCompared, HealthSaid
from regnum_election.reign.writability import ListenersSaid
from regnum_election.state.context import ControllerContext

INTERVAL_S: Final = 1.0
"""Time between two looks at the clock."""

LOOKED_AT_ONCE: Final = 200
"""Partitions looked at between two turns of the event loop (safety rule S22)."""

CHANGED_AT_ONCE: Final = 100
"""Partitions of one publication that are looked at with it; more wait for the next turn, since failovers have hurry."""

LASTED_AT_ONCE: Final = 1_000
"""Partitions whose trouble is found to have lasted, in one look; the next look finds more."""

COUNTED_MAX: Final = 1_000
"""Overdue orders of a broker that are counted one by one; where there are more, that many are told of."""

NAMED: Final = 5
"""Partitions that an event names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When something is overdue."""

    order_s: float = 10.0
    """An order that a live broker has not acknowledged."""
    trouble_s: float = 30.0
    """An unhealthy partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverdueOrders:
    """Orders that a live broker has not acknowledged in time."""

    broker: BrokerId
    count: int
    """How many; of more than COUNTED_MAX that many."""
    oldest_age_s: float
    """Seconds since the first of them was given."""
    keys: tuple[PartitionKey, ...]
    """Partitions that they are about, the oldest first; orders to stop replicas are not among them."""


class HealthWatch:
    """One for each reign. On the controller's loop; ``orders`` and the book's counts may be read by any thread."""

    def __init__(
        self,
        context: ControllerContext,
        limits: Limits,
        store: Store | None = None,
        store_refuses: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Only assigns.

        Args:
            context: the reign.
            limits: when something is overdue.
            store: its session; None: it is not looked whether the store takes writes.
            store_refuses: told why the store takes no writes, and with an empty text that it takes them again.
        """
        self.context: Final = context
        """The reign."""
        self.limits: Final = limits
        """When something is overdue."""
        self.book = TroubleBook()
        """Unhealthy partitions."""
        self.writability: Final = Writability(lambda: context.picture)
        """Which brokers append no records, and where nothing is committed."""
        self.store: Final = (
            None
            if store is None
            else StoreWatch(
                store,
                context.clock,
                store_refuses,
                closed=lambda: context.store.closed,
                told=context.events.store_writes,
            )
        )
        """Whether the store takes writes; None: nobody looks."""
        self.orders: Sequence[BrokerOrders] = ()
        """Orders that are not acknowledged, as of the last look."""
        self.overdue: Sequence[OverdueOrders] = ()
        """Those of them that are overdue."""
        self.misdirected: Mapping[BrokerId, str] = {}
        """Brokers whose address stands for another process, in words, as of the last look."""
        self.turns_away: Mapping[BrokerId, str] = {}
        """Brokers that turn connections away, in words, as of the last look."""
        self.damaged = 0
        """Nodes in the store that wait for a person, as of the last look."""
        self._listeners: Final[dict[BrokerId, ListenersSaid]] = {}
        self.metadata_processes = 0
        """Metadata processes that are registered, as of the last look."""
        self.metadata_failing: Mapping[MetadataId, str] = {}
        """Those that have taken no changes for as long as makes an order overdue, and why, as of the last look."""
        self._clocks: Final[dict[BrokerId, ClockCompared]] = {}
        self._clocks_off: frozenset[BrokerId] = frozenset()
        self.looked_at_all = False
        """Whether every partition has been looked at in this reign."""
        self._settings: object = None
        self._later: list[Collection[PartitionKey]] = []
        self._log: Final = structlog.get_logger("health").bind(epoch=context.reign.epoch)

    @property
    def refused(self) -> int:
        """Brokers that are registered and take no part, or that nothing reaches."""
        return len(self.context.strangers) + len(self.context.sharing) + len(self.misdirected)

    def heard_of(self, said: HealthSaid) -> None:
        """A broker has said how it is."""
        if isinstance(said, ClockCompared):
            self._clocks[said.broker] = said
        elif isinstance(said, ListenersSaid):
            self._listeners[said.broker] = said
        else:
            self.writability.heard_of(said)

    def clock_of(self, id: BrokerId) -> ClockCompared | None:
        """What a broker says of its wall clock in the registration that it has; None: nothing."""
        broker, compared = self.context.picture.brokers.get(id), self._clocks.get(id)
        return compared if broker is not None and compared is not None and compared.epoch == broker.epoch else None

    def changed(self, keys: Collection[PartitionKey], deleted: Collection[TopicId]) -> None:
        """Look at partitions that changed, at many of them in the next turn; forget topics that are gone."""
        for topic_id in deleted:
            self.book.forget(topic_id)
        if len(keys) > CHANGED_AT_ONCE:
            self._later.append(keys)
        else:
            self._look_at(keys, self._clock.monotonic())

    def start(self, spawn: Spawn) -> "list[asyncio.Task[None]]":
        """Look from now on at brokers and partitions, and at the store."""
        looking = [spawn("health", self.run())]
        return looking if self.store is None else [*looking, spawn("store watch", self.store.run())]

    async def run(self) -> None:
        """Look from the moment when the reign has begun until it ends; a task of the supervisor."""
        self.context.metadata.tell_of_changes(self.changed)
        try:
            await self._look_at_all()
            while True:
                await self.turn()
                await self._clock.sleep(INTERVAL_S)
        finally:
            # Reign and parts refer to one another, and old cycles stay: what is large goes now.
            self.book, self.orders, self.overdue = TroubleBook(), (), ()

    async def turn(self) -> None:
        """One look at the clock."""
        later, self._later = self._later, []
        for keys in later:
            await self._look_in_steps(keys)
        refusing = self.writability.refusing
        await self._look_in_steps(self.writability.turn())
        for id in sorted(refusing - self.writability.refusing):
            self.context.dispatch.disk_takes_records(id)
        settings = self.context.picture.settings
        if settings is not self._settings:
            # Only what is not whole can be under another min.insync.replicas.
            self._settings = settings
            await self._look_in_steps(self.book.keys)
        self.metadata_processes = len(self.context.metadata.positions)
        now_s = self._clock.monotonic()
        self.metadata_failing = self.context.metadata.failing(now_s - self.limits.order_s)
        self._find_overdue(now_s)
        self._find_misdirected()
        self._find_turning_away()
        self._find_clocks_off()
        self.damaged = damaged_count(self.context)
        lasted = self.book.turn(now_s, self.limits.trouble_s, most=LASTED_AT_ONCE)
        for trouble, found in groupby(lasted, key=lambda one: one[0]):
            self._tell_of_trouble(trouble, [(key, since_s) for _, key, since_s in found], now_s)

    @property
    def _clock(self) -> Clock:
        return self.context.clock

    async def _look_at_all(self) -> None:
        await self._look_in_steps(self._all_keys())
        self.looked_at_all = True

    def _all_keys(self) -> Iterator[PartitionKey]:
        """Of the topics that there are now; what is held meanwhile is their ids, and never a picture that is over."""
        for topic_id in tuple(self.context.picture.topics):
            yield from self.context.picture.of_topic(topic_id)

    async def _look_in_steps(self, keys: Iterable[PartitionKey]) -> None:
        async for part in slices(keys, LOOKED_AT_ONCE):
            self._look_at(part, self._clock.monotonic())

    def _look_at(self, keys: Iterable[PartitionKey], now_s: float) -> None:
        picture, book = self.context.picture, self.book
        for key in keys:
            partition = picture.partitions.get(key)
            if partition is None:
                book.note(key, (), now_s)
            else:
                leader = NO_LEADER if partition.held is None else partition.held.state.leader
                troubles = troubles_of(
                    partition,
                    lambda: picture.min_insync(key, partition),  # noqa: B023
                    refusing=self.writability.refusing,
                    waits=self.writability.waits(key, leader),
                )
                book.note(key, troubles, now_s)

    def _find_overdue(self, now_s: float) -> None:
        dispatch, before = self.context.dispatch, {one.broker for one in self.overdue}
        self.orders = dispatch.outstanding()
        self.overdue = [
            _overdue(dispatch, one, now_s, self.limits.order_s)
            for one in self.orders
            if now_s - one.oldest_s >= self.limits.order_s
        ]
        for one in self.overdue:
            if one.broker not in before:
                self._tell_of_orders(one)
        for broker in before - {one.broker for one in self.overdue}:
            self._log.info("orders acknowledged again", broker=broker)

    def _find_misdirected(self) -> None:
        brokers, before = self.context.picture.brokers, self.misdirected
        self.misdirected = {
            id: f"its address {brokers[id].internal} answers as {other}: what is sent to it does not arrive; see what"
            " that name or address stands for, and what the broker advertises"
            for id, other in self.context.dispatch.misdirected().items()
            if id in brokers
        }
        if self.misdirected.keys() != before.keys():
            self.context.reign.tell_misdirected(frozenset(self.misdirected))
        for id, reason in self.misdirected.items():
            if before.get(id) != reason:
                self._log.error("another process answers", broker=id, reason=reason)
                self.context.events.refused(id, brokers[id].epoch, reason)
        for id in before.keys() - self.misdirected.keys():
            self._log.info("no other process answers any more", broker=id)

    def _find_turning_away(self) -> None:
        brokers, before = self.context.picture.brokers, self.turns_away
        self.turns_away = {
            id: said.turn_away_because
            for id, said in self._listeners.items()
            if said.turn_away_because and id in brokers and brokers[id].epoch == said.epoch
        }
        for id in self.turns_away.keys() ^ before.keys():
            if (broker := brokers.get(id)) is not None:
                because = self.turns_away.get(id, "")
                if because:
                    self._log.warning("connections refused", broker=id, reason=because)
                else:
                    self._log.info("connections taken again", broker=id)
                self.context.events.connections(id, broker.epoch, because)

    def _find_clocks_off(self) -> None:
        compared = [one for id in self._clocks if (one := self.clock_of(id)) is not None and one.expiry_held_back]
        before, self._clocks_off = self._clocks_off, frozenset(one.broker for one in compared)
        for one in compared:
            if one.broker not in before:
                self._log.warning(
                    "wall clock differs", broker=one.broker, ahead_s=one.ahead_ms / 1000, effect="nothing expires there"
                )
        for broker in before - self._clocks_off:
            self._log.info("wall clock differs no more", broker=broker)

    def _tell_of_orders(self, overdue: OverdueOrders) -> None:
        dispatch, picture = self.context.dispatch, self.context.picture
        led = sum(_leads(picture, overdue.broker, key) for key in overdue.keys)
        named = names(picture, overdue.keys[:NAMED])
        self._log.warning(
            "orders not acknowledged",
            broker=overdue.broker,
            orders=overdue.count,
            to_lead=led,
            oldest_age_s=round(overdue.oldest_age_s, 1),
            first=named,
        )
        cause = dispatch.cause_of(overdue.broker, overdue.keys[0]) if overdue.keys else ""
        self.context.events.overdue(
            words.EVENT_KIND_ORDERS_OVERDUE,
            f"not acknowledged for {overdue.oldest_age_s:.0f} s, {led} of them to lead: {', '.join(named)}",
            count=overdue.count,
            broker=overdue.broker,
            traceparent=cause,
        )
        self._span(
            conventions.ORDERS_OVERDUE,
            overdue.oldest_age_s,
            cause,
            {
                conventions.BROKER: overdue.broker,
                conventions.PARTITIONS: overdue.count,
                conventions.FIRST: ",".join(named),
            },
        )

    def _tell_of_trouble(self, trouble: Trouble, found: Sequence[tuple[PartitionKey, float]], now_s: float) -> None:
        named = names(self.context.picture, [key for key, _ in found[:NAMED]])
        age_s = now_s - found[0][1]
        because = self.writability.because(found[0][0]) if trouble is Trouble.NOT_WRITABLE else ""
        self._log.warning(
            "unhealthy partitions for long",
            trouble=trouble.value,
            partitions=len(found),
            all=self.book.count_long(trouble),
            age_s=round(age_s, 1),
            first=named,
            reason=because or None,
        )
        self.context.events.overdue(
            words.EVENT_KIND_TROUBLE_OVERDUE,
            f"{trouble.value} for {age_s:.0f} s: {', '.join(named)}{because and f' ({because})'}",
            count=len(found),
        )
        self._span(
            conventions.TROUBLE_OVERDUE,
            age_s,
            "",
            {
                conventions.TROUBLE: trouble.value,
                conventions.PARTITIONS: len(found),
                conventions.FIRST: ",".join(named),
            },
        )

    def _span(self, name: str, age_s: float, parent: str, attributes: dict[str, tracing.Value]) -> None:
        """From the beginning of what is overdue until now."""
        now_unix_nano = tracing.now_unix_nano()
        own: dict[str, tracing.Value] = {conventions.CONTROLLER_EPOCH: self.context.reign.epoch}
        begin_unix_nano = now_unix_nano - int(age_s * 1e9)
        tracing.between(name, begin_unix_nano, now_unix_nano, parent=parent, attributes={**own, **attributes})


def names(picture: Cluster, keys: Iterable[PartitionKey]) -> list[str]:
    """Partitions as people call them: ``orders/3``; those that are gone are left out."""
    topics = ((picture.topics.get(key.topic_id), key) for key in keys)
    return [f"{topic.name}/{key.partition}" for topic, key in topics if topic is not None]


def _overdue(dispatch: Dispatch, orders: BrokerOrders, now_s: float, limit_s: float) -> OverdueOrders:
    keys = tuple(dispatch.given_before(orders.broker, now_s - limit_s, most=COUNTED_MAX))
    return OverdueOrders(
        broker=orders.broker,
        # An order to stop a replica counts as one, however many there are: they hold up no producer.
        count=max(len(keys), 1),
        oldest_age_s=now_s - orders.oldest_s,
        keys=keys,
    )


def _leads(picture: Cluster, broker: BrokerId, key: PartitionKey) -> bool:
    partition = picture.partitions.get(key)
    return partition is not None and partition.held is not None and partition.held.state.leader == broker
