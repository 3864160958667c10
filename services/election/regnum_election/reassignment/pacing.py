"""When brokers are told of the steps of reassignments that stand in the store: all at once, or bit by bit.

Goals: who moves partitions under a throttle wants clients not to notice; who sets none wants to be done soon.

Algorithm: a look writes the steps of a dozen partitions together, which is cheap. To carry them out is not: each is
orders for four brokers, fsyncs, files made and deleted, fetches begun anew. Told of all at once, every process of a
cluster is busy at the same moment, and what clients sent in that moment waits. So under a throttle a look is told of in
PORTIONS, one every INTERVAL_S: first the partitions that get another leader, for whom metadata is published without
delay; then those that stay where they are led, and those that have just begun, of which clients need not hear at once.
The portions grow with what is left: nothing waits for longer than about a second, however much there is. And the
brokers of a portion hear of it one after another, APART_S from one to the next, those that lead first: an order is a
few milliseconds of work, of which a client notices little while the other brokers have time for it. When a broker comes
or goes, the next portion is all of it, to everybody: who goes may lead what another one has not been told to lead.

That a state is in the store for a while before its brokers hear of it is nothing new to anybody: an order may take as
long on its way. The leader goes on in its epoch, and all that it acknowledges until then is in the logs of everybody
who stays (``decisions``). A controller that dies meanwhile leaves nothing behind: the next one tells every broker
everything. What changes meanwhile is told of as it is by then.
"""

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from typing import Final

from regnum_model.ids import BrokerId, PartitionKey
from regnum_telemetry import conventions, tracing

from regnum_election.decisions.cluster import Cluster
from regnum_election.state.context import ControllerContext
from regnum_election.state.partition_writes import Applied
from regnum_election.state.telling import orders_for, publish, tell
from regnum_election.traces.change_trace import ChangeTrace

PORTIONS: Final = 3
"""In how many parts a look is told of."""

INTERVAL_S: Final = 0.2
"""Time from the beginning of one part to that of the next."""

APART_S: Final = 0.01
"""Time from one broker of a part to the next; from some to the next some, where half of INTERVAL_S is not enough."""

PORTION_MIN: Final = 8
"""Partitions of a part, at least: each has a price of its own, for every broker."""


@dataclass(frozen=True, slots=True)
class Order:
    """One broker is told of some partitions."""

    broker: BrokerId
    """Who."""
    keys: tuple[PartitionKey, ...]
    """Of which."""


@dataclass(frozen=True, slots=True)
class Publication:
    """Clients are, and brokers as far as they serve them."""

    keys: tuple[PartitionKey, ...]
    """Of which."""
    can_wait: bool
    """As for ``publish``."""


def errands_of(
    picture: Cluster, keys: Sequence[PartitionKey], elsewhere: Collection[PartitionKey]
) -> tuple[Order | Publication, ...]:
    """Who is told of a portion, one after another; nothing, if nobody has a part in it. Pure.

    Who is to lead what others led comes first, for whoever follows it before it leads has to ask again; then clients,
    which are sent there; then the others, those that lead much first.

    Args:
        picture: what is told.
        keys: the portion.
        elsewhere: those of it that another broker leads now.
    """
    orders = orders_for(picture, keys)
    new: Counter[BrokerId] = Counter()
    led: Counter[BrokerId] = Counter()
    for key in keys:
        partition = picture.partitions.get(key)
        if partition is not None and partition.held is not None and partition.held.state.leader in orders:
            led[partition.held.state.leader] += 1
            new[partition.held.state.leader] += key in elsewhere
    brokers = sorted(orders, key=lambda id: (new[id], led[id]), reverse=True)
    errands: list[Order | Publication] = [Order(id, tuple(orders[id])) for id in brokers]
    if errands:
        first = sum(count > 0 for count in new.values()) or len(brokers)
        errands.insert(first, Publication(tuple(keys), can_wait=not elsewhere))
    return tuple(errands)


class Pacing:
    """Of one reign. Used by the controller's one task, but for ``has_untold`` and ``pause_s``."""

    def __init__(self, context: ControllerContext) -> None:
        """Only assigns."""
        self._context: Final = context
        self._untold: dict[PartitionKey, None] = {}
        self._led_elsewhere: set[PartitionKey] = set()
        """Those of the untold that another broker leads now."""
        self._errands: Final[deque[Order | Publication]] = deque()
        """What is left of the present portion."""
        self._at_once = 1
        """Errands that are run together."""
        self._due_s = 0.0
        """Not before this moment is anything told."""
        self._portion_due_s = 0.0
        """Not before this moment does another portion begin."""
        self._portion = PORTION_MIN
        self._brokers = context.picture.brokers
        """Who lived when the oldest of the untold was written."""
        self._trace: ChangeTrace | None = None
        """Of the leaders that change by what is untold; None: none do."""

    @property
    def has_untold(self) -> bool:
        """Whether something is left."""
        return bool(self._untold or self._errands)

    @property
    def pause_s(self) -> float:
        """Seconds until something is to be told; 0: now. Where nothing is left, as long as between two portions."""
        return max(self._due_s - self._context.clock.monotonic(), 0.0) if self.has_untold else INTERVAL_S

    def trace(self) -> ChangeTrace:
        """Of the change of leadership that is about to be written; one for all that is told together."""
        if self._trace is None or self._trace.done:
            self._trace = self._context.changes.plan(
                conventions.KIND_REASSIGNMENT,
                asked_unix_nano=tracing.now_unix_nano(),
                cause=conventions.CAUSE_DECISION,
            )
        return self._trace

    async def written(self, keys: Iterable[PartitionKey], *, led_elsewhere: Collection[PartitionKey]) -> None:
        """These have another state or assignment, which stands in the store and in the picture.

        Args:
            keys: all of them.
            led_elsewhere: those of them that another broker leads now.
        """
        if not self.has_untold:
            self._brokers = self._context.picture.brokers
            self._due_s = self._context.clock.monotonic() + INTERVAL_S
        self._led_elsewhere.update(led_elsewhere)
        self._untold = dict.fromkeys((*led_elsewhere, *self._untold, *keys))
        self._portion = max(PORTION_MIN, math.ceil(len(self._untold) / PORTIONS))
        if self._trace is not None and led_elsewhere:
            partitions = self._context.picture.partitions
            held = {key: partitions[key].held for key in led_elsewhere}
            epochs = {key: one.state.leader_epoch for key, one in held.items() if one is not None}
            self._trace.expect_leaders(epochs, partitions=len(led_elsewhere))
        if not any(self._context.picture.settings.throttle_rates):
            await self.tell_all()

    async def tell_some(self) -> None:
        """The next broker; everybody all that is left, where some broker came or went: it may be the one that leads."""
        if self._context.picture.brokers is not self._brokers:
            await self.tell_all()
            return
        if not self._errands:
            self._begin_portion()
        with self._within_trace():
            for _ in range(min(self._at_once, len(self._errands))):
                await self._run(self._errands.popleft())
        self._end_trace()
        next_s = self._context.clock.monotonic() + APART_S
        self._due_s = next_s if self._errands else max(next_s, self._portion_due_s)

    async def tell_all(self) -> None:
        """Everybody all that is left."""
        with self._within_trace():
            while self._errands:
                await self._run(self._errands.popleft())
            some, elsewhere = self._take(len(self._untold))
            if some:
                await tell(self._context, Applied(leader_changes=set(some)), can_wait=not elsewhere)
        self._end_trace()

    def _within_trace(self) -> AbstractContextManager[None]:
        trace = self._trace
        return tracing.within(trace.context if trace is not None and trace.is_open else "")

    def _end_trace(self) -> None:
        if self._trace is not None and not self.has_untold:
            self._trace.seal()
            self._trace = None

    def _take(self, most: int) -> tuple[tuple[PartitionKey, ...], set[PartitionKey]]:
        """Some of the untold, and those of them that another broker leads now."""
        some = tuple(islice(self._untold, most))
        for key in some:
            del self._untold[key]
        elsewhere = self._led_elsewhere.intersection(some)
        self._led_elsewhere -= elsewhere
        return some, elsewhere

    def _begin_portion(self) -> None:
        self._portion_due_s = self._context.clock.monotonic() + INTERVAL_S
        some, elsewhere = self._take(self._portion)
        self._errands.extend(errands_of(self._context.picture, some, elsewhere))
        self._at_once = math.ceil(len(self._errands) * APART_S / (INTERVAL_S / 2))

    async def _run(self, errand: Order | Publication) -> None:
        match errand:
            case Order(broker, keys):
                self._context.dispatch.show(self._context.picture)
                self._context.dispatch.order_states([(broker, keys)])
            case Publication(keys, can_wait):
                await publish(self._context, keys, can_wait=can_wait)
