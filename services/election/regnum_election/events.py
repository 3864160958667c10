"""What the controller reacts to, and the queue it takes events from.

What happens to the cluster goes before what clients want: a failover never waits behind a flood of mutations.
Mutations come in steps of a few hundred partitions; after each the queue is asked again, so a failover waits for one
step at most.

Events that only say "look again" merge while they wait, which bounds the queue; mutations are refused when too many
wait.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace
from typing import Final

from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, PartitionKey, Registration, TopicId

from regnum_election.relief import CutOff

MUTATIONS_MAX: Final = 1_000
"""Mutations that may wait."""


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """Registrations came, went or were renewed: read them."""


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """Topic nodes came or went."""

    names: frozenset[str]
    """Names of the topics that a watch showed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDead:
    """The lifeline proved a broker dead, or silent beyond doubt (safety rule S9): fence it."""

    broker: BrokerId
    epoch: BrokerEpoch
    """Its broker epoch."""
    registration: Registration
    """The registration that is to be fenced."""
    evidence: str
    """What proved it."""
    cause: str = field(default="", compare=False)
    """Kind of the evidence, as traces name it (``regnum_telemetry.conventions.CAUSE``)."""
    noticed_unix_nano: int = field(default=0, compare=False)
    """When the first sign of it was noticed; for traces."""
    heard_unix_nano: int = field(default=0, compare=False)
    """When it last said anything; for traces; 0 when that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderCutOff:
    """A leader that lives and followers that cannot fetch from it, as both sides say: relieve it where that helps."""

    leader: BrokerId
    epoch: BrokerEpoch
    """Its broker epoch."""
    cut_off: CutOff
    """The followers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrsWritten:
    """Leaders wrote new ISRs (safety rule S16): read them."""

    keys: frozenset[PartitionKey]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasOffline:
    """A broker cannot use some of its replicas: it said so, or refused an order for that reason."""

    broker: BrokerId
    epoch: BrokerEpoch
    """Its broker epoch: with the next one it may be able to."""
    keys: frozenset[PartitionKey]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasUsable:
    """A broker took replicas up that it could not use before."""

    broker: BrokerId
    epoch: BrokerEpoch
    """Its broker epoch."""
    keys: frozenset[PartitionKey]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasDeleted:
    """A broker answered an order to delete the replicas of a topic."""

    broker: BrokerId
    topic_id: TopicId
    succeeded: bool
    """Whether it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    """Somebody has seen a later controller epoch (safety rule S7)."""

    seen: ControllerEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """Work for a client, in steps."""

    name: str
    """What it is, for the log."""
    steps: AsyncGenerator[None, None]
    """Each step is one turn of the controller."""
    abandon: Callable[[], None]
    """Called when the reign ends first."""


ClusterEvent = (
    BrokersChanged
    | TopicsChanged
    | BrokerDead
    | LeaderCutOff
    | IsrsWritten
    | ReplicasOffline
    | ReplicasUsable
    | ReplicasDeleted
    | Superseded
)
Event = ClusterEvent | Mutation


class QueueFullError(Exception):
    """Too many mutations wait."""


@dataclass(slots=True)
class EventQueue:
    """Cluster events first, each kind in order; then mutations in order."""

    _cluster: deque[ClusterEvent | Mutation] = field(default_factory=deque)
    _mutations: deque[Mutation] = field(default_factory=deque)
    _written: set[PartitionKey] = field(default_factory=set)
    _waiting: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, event: ClusterEvent) -> None:
        """Add a cluster event. One that is waiting already is not added twice."""
        match event:
            case IsrsWritten(keys=keys):
                self._written |= keys
            case ReplicasOffline() | ReplicasUsable():
                self._put_replicas(event)
            case TopicsChanged():
                # Only the latest names count.
                waiting = [other for other in self._cluster if not isinstance(other, TopicsChanged)]
                self._cluster = deque((*waiting, event))
            case _ if event not in self._cluster:
                self._cluster.append(event)
            case _:
                return
        self._waiting.set()

    def _put_replicas(self, event: ReplicasOffline | ReplicasUsable) -> None:
        """What brokers say of replicas merges while it waits, but never across the opposite."""
        for i in range(len(self._cluster) - 1, -1, -1):
            other = self._cluster[i]
            if not isinstance(other, ReplicasOffline | ReplicasUsable):
                continue
            if (other.broker, other.epoch) != (event.broker, event.epoch):
                continue
            if type(other) is type(event):
                self._cluster[i] = replace(other, keys=other.keys | event.keys)
                return
            break
        self._cluster.append(event)

    def put_urgent(self, work: Mutation) -> None:
        """Add work that counts as a cluster event: a broker wants to stop."""
        self._cluster.append(work)
        self._waiting.set()

    @property
    def is_full(self) -> bool:
        """Whether no mutation would be taken now."""
        return len(self._mutations) >= MUTATIONS_MAX

    def put_mutation(self, mutation: Mutation) -> None:
        """Add a mutation. Raises QueueFullError."""
        if self.is_full:
            raise QueueFullError
        self._mutations.append(mutation)
        self._waiting.set()

    def put_back(self, mutation: Mutation) -> None:
        """Work that has more steps: it stays first among the mutations, and cluster events go before its next step."""
        self._mutations.appendleft(mutation)
        self._waiting.set()

    async def take(self) -> Event:
        """The next event."""
        while True:
            if self._cluster:
                return self._cluster.popleft()
            if self._written:
                keys, self._written = frozenset(self._written), set()
                return IsrsWritten(keys=keys)
            if self._mutations:
                return self._mutations.popleft()
            self._waiting.clear()
            await self._waiting.wait()

    def drain(self) -> tuple[Mutation, ...]:
        """Empty the queue at the end of a reign; returns the mutations whose callers still wait."""
        left = (*(event for event in self._cluster if isinstance(event, Mutation)), *self._mutations)
        self._cluster.clear()
        self._mutations.clear()
        self._written.clear()
        return left
