"""What the controller reacts to, and the queue it takes events from.

Goals: a failover waits for nothing but the step that is under way; no flood of one kind starves another for ever;
putting an event costs the same, however many wait.

Constraints: the controller's task handles one event after another, so what it takes must be small (safety rule S22).

Algorithm: three ranks. What happens to the cluster comes first, in order. Then reports: ISRs that leaders wrote, names
of topics, what brokers say of files that they were told to delete; they merge while they wait, a bounded part of them
is taken at a time, and the kinds take turns. Then mutations, in steps of a few hundred partitions, whose callers take
turns (``mutation_lanes``). After REPORTS_IN_A_ROW parts of reports a mutation that waits gets one step.

Events that only say "look again" merge while they wait, which bounds the queue; mutations are refused when too many
wait.

Example: reports of 2,000 partitions wait, and a mutation: four parts of 500 partitions, or less of them if a broker
dies meanwhile, then a step of the mutation, however many reports have come since.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, Self

from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, PartitionKey, Registration, TopicId

from regnum_election.decisions.isr_reports import ReportedNode, newer
from regnum_election.decisions.relief import CutOff
from regnum_election.reign.event_waits import (
    CLUSTER,
    DELETION_ANSWERS,
    REPORTED_PARTITIONS,
    TOPICS,
    EventWaits,
    TimedQueue,
)
from regnum_election.reign.mutation_lanes import Caller, MutationLanes
from regnum_election.reign.writability import CommitsWait, DiskSaid, ListenersSaid

MUTATIONS_MAX: Final = 1_000
"""Mutations that may wait."""

REPORTS_PER_EVENT: Final = 500
"""Partitions, or topics, of which one event reports at most."""

REPORTS_IN_A_ROW: Final = 4
"""Reports that are taken while a mutation waits, before it gets a step."""


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """Registrations came, went, were written or renewed: read them."""

    names: frozenset[str] | None = None
    """Names of their nodes; None: any of them may have."""


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
    probe_sent_unix_nano: int = field(default=0, compare=False)
    """When the oldest probe was sent that it has not answered; for traces; 0 when it was not noticed by that."""
    busy: tuple[PartitionKey, ...] = field(default=(), compare=False)
    """Partitions in which it lately had records committed, as leader or follower: they are settled first."""


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
    """Leaders wrote new ISRs (safety rule S16)."""

    reports: Mapping[PartitionKey, ReportedNode | None]
    """Partitions with what was written; None: it has to be read."""

    @classmethod
    def unseen(cls, keys: Iterable[PartitionKey]) -> Self:
        """Nodes that have to be read."""
        return cls(reports=dict.fromkeys(keys))


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
class LeadershipsFenced:
    """A broker was told to lead in leader epochs that its logs know already (FENCED_LEADER_EPOCH)."""

    broker: BrokerId
    epoch: BrokerEpoch
    """Its broker epoch."""
    keys: frozenset[PartitionKey]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasDeleted:
    """A broker answered orders to delete the replicas of topics."""

    broker: BrokerId
    topics: tuple[tuple[TopicId, bool], ...]
    """Each topic once, and whether its replicas are deleted there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsDeleted:
    """A broker answered orders to delete single replicas, whose topics stay."""

    broker: BrokerId
    partitions: tuple[tuple[PartitionKey, bool], ...]
    """Each partition once, and whether its replica is deleted there."""


@dataclass(frozen=True, slots=True)
class LogSize:
    """What a replica has."""

    log_end_offset: int
    """Offset after the last record."""
    size_bytes: int
    """Bytes of its records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasMoving:
    """How far a broker's replicas are of partitions that are being reassigned: not for the queue, nothing follows."""

    broker: BrokerId
    sizes: tuple[tuple[PartitionKey, LogSize], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitsInSync:
    """A broker wants to know how far it is from being in sync: not for the queue, it is counted beside it."""

    broker: BrokerId
    epoch: BrokerEpoch
    """Its broker epoch."""
    open: bool
    """Whether the lifeline on which it asked is open; False: it is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchingUp:
    """What a broker that asked is told."""

    broker: BrokerId
    epoch: BrokerEpoch
    """Its broker epoch."""
    replicas: int
    """Partitions that are assigned to it."""
    awaited: int
    """Those of them whose in-sync set it has still to enter; 0: it is in sync."""


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
    caller: Caller = ("", "")
    """Who wants it: callers take turns."""
    gives_way: bool = False
    """Whether other mutations may come between its steps; it relies on nothing that they may change."""


Report = IsrsWritten | ReplicasOffline | ReplicasUsable | LeadershipsFenced | ReplicasDeleted | PartitionsDeleted
"""What a broker says of its replicas."""
ClusterEvent = BrokersChanged | TopicsChanged | BrokerDead | LeaderCutOff | Report | Superseded
Event = ClusterEvent | Mutation


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockCompared:
    """How far a broker's wall clock is from this process's, as it says: not for the queue, people look at it."""

    broker: BrokerId
    epoch: BrokerEpoch
    """Its broker epoch."""
    ahead_ms: int
    """Milliseconds; negative: it is behind."""
    expiry_held_back: bool
    """Whether that is more than it allows: nothing expires there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstAcknowledgements:
    """When new leaders acknowledged their first records to producers: not for the queue, traces end with it."""

    acknowledged: tuple[tuple[PartitionKey, LeaderEpoch, int], ...]
    """Partitions, the epochs of these leaders, and wall clocks of the brokers in nanoseconds."""


HealthSaid = ClockCompared | DiskSaid | CommitsWait | ListenersSaid
"""What brokers say of how they are."""

Hint = ReplicasMoving | AwaitsInSync | FirstAcknowledgements | HealthSaid
"""What brokers say that no event follows from."""


def nobody_waits() -> None:
    """Internal work has no caller."""


class QueueFullError(Exception):
    """Too many mutations wait."""


@dataclass(frozen=True, slots=True)
class _Replicas:
    """Place in the queue of the first thing that a broker said of its replicas and that nobody has heard."""

    broker: BrokerId
    epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class _Registrations:
    """Place in the queue of the first registrations that changed and that nobody has read."""


@dataclass(slots=True)
class EventQueue:
    """See the module."""

    waits: EventWaits = field(default_factory=EventWaits)
    """How long they wait."""
    _cluster: TimedQueue[ClusterEvent | Mutation | _Replicas | _Registrations] = field(init=False)
    _present: set[ClusterEvent] = field(default_factory=set)
    """What stands in the queue above and is not to stand there twice."""
    _replicas: dict[_Replicas, deque[ReplicasOffline | ReplicasUsable]] = field(default_factory=dict)
    """What brokers said of their replicas; each has a place in the queue above."""
    _registrations: BrokersChanged | None = None
    """All of them that nobody has read; they have one place in the queue above."""
    _topics: TopicsChanged | None = None
    _written: dict[PartitionKey, ReportedNode | None] = field(default_factory=dict)
    _deleted: dict[BrokerId, dict[TopicId, bool]] = field(default_factory=dict)
    _partitions_deleted: dict[BrokerId, dict[PartitionKey, bool]] = field(default_factory=dict)
    _mutations: MutationLanes[Mutation] = field(init=False)
    _in_a_row: int = 0
    """Reports taken since the last mutation, while one waited."""
    _turn: int = 0
    """Kind of report whose turn it is."""
    _waiting: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._cluster = TimedQueue(CLUSTER, self.waits)
        self._mutations = MutationLanes(self.waits)

    def put(self, event: ClusterEvent) -> None:
        """Add a cluster event. One that is waiting already is not added twice."""
        match event:
            case IsrsWritten(reports=reports):
                self.waits.began(REPORTED_PARTITIONS)
                for key, report in reports.items():
                    self._written[key] = newer(self._written[key], report) if key in self._written else report
            case ReplicasDeleted(broker=broker, topics=topics):
                self.waits.began(DELETION_ANSWERS)
                self._deleted.setdefault(broker, {}).update(topics)
            case PartitionsDeleted(broker=broker, partitions=partitions):
                self.waits.began(DELETION_ANSWERS)
                self._partitions_deleted.setdefault(broker, {}).update(partitions)
            case ReplicasOffline() | ReplicasUsable():
                self._put_replicas(event)
            case BrokersChanged():
                self._put_registrations(event)
            case TopicsChanged():
                # Only the latest names count.
                self._topics = event
                self.waits.began(TOPICS)
            case _ if event not in self._present:
                self._present.add(event)
                self._cluster.append(event)
            case _:
                return
        self._waiting.set()

    def _put_registrations(self, event: BrokersChanged) -> None:
        waiting = self._registrations
        if waiting is None:
            self._cluster.append(_Registrations())
            self._registrations = event
        elif waiting.names is None or event.names is None:
            self._registrations = BrokersChanged()
        else:
            self._registrations = BrokersChanged(waiting.names | event.names)

    def _put_replicas(self, event: ReplicasOffline | ReplicasUsable) -> None:
        """What brokers say of replicas merges while it waits, but never across the opposite."""
        place = _Replicas(event.broker, event.epoch)
        said = self._replicas.setdefault(place, deque())
        if said and type(said[-1]) is type(event):
            said[-1] = replace(said[-1], keys=said[-1].keys | event.keys)
            return
        said.append(event)
        self._cluster.append(place)

    def put_urgent(self, work: Mutation) -> None:
        """Add work that counts as a cluster event: a broker wants to stop."""
        self._cluster.append(work)
        self._waiting.set()

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        reports = self._topics is not None or self._written or self._deleted or self._partitions_deleted
        return not (self._cluster or reports or self._mutations)

    @property
    def depths(self) -> tuple[tuple[str, int], ...]:
        """What waits: events of the cluster, partitions reported, topics reported deleted, mutations. Any thread."""
        return (
            ("cluster", len(self._cluster)),
            ("reported_partitions", len(self._written)),
            ("deletion_answers", len(self._deleted)),
            ("mutations", len(self._mutations)),
        )

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
        """Work that has more steps: it stays first among the mutations unless it gives way; cluster events go first."""
        self._mutations.put_back(mutation)
        self._waiting.set()

    async def take(self) -> Event:
        """The next event."""
        while True:
            if (event := self._next()) is not None:
                return event
            self._waiting.clear()
            await self._waiting.wait()

    def _next(self) -> Event | None:
        if self._cluster:
            return self._next_of_cluster()
        if not self._mutations or self._in_a_row < REPORTS_IN_A_ROW:
            report = self._next_report()
            if report is not None:
                self._in_a_row = self._in_a_row + 1 if self._mutations else 0
                return report
        self._in_a_row = 0
        return self._mutations.popleft() if self._mutations else None

    def _next_of_cluster(self) -> Event:
        first = self._cluster.popleft()
        if isinstance(first, Mutation):
            return first
        if isinstance(first, _Registrations):
            changed, self._registrations = self._registrations, None
            if changed is None:
                raise AssertionError("registrations have a place in the queue when there are some")
            return changed
        if not isinstance(first, _Replicas):
            self._present.discard(first)
            return first
        said = self._replicas[first]
        event = said.popleft()
        if not said:
            del self._replicas[first]
        return event

    def _next_report(self) -> ClusterEvent | None:
        """Kinds take turns, so that none of them waits for the end of another."""
        kinds = (self._next_topics, self._next_written, self._next_deleted, self._next_partitions_deleted)
        for _ in kinds:
            take = kinds[self._turn % len(kinds)]
            self._turn += 1
            if (report := take()) is not None:
                return report
        return None

    def _next_topics(self) -> TopicsChanged | None:
        changed, self._topics = self._topics, None
        if changed is not None:
            self.waits.took(TOPICS, left=False)
        return changed

    def _next_written(self) -> IsrsWritten | None:
        keys = tuple(islice(self._written, REPORTS_PER_EVENT))
        if not keys:
            return None
        event = IsrsWritten(reports={key: self._written.pop(key) for key in keys})
        self.waits.took(REPORTED_PARTITIONS, left=bool(self._written))
        return event

    def _next_deleted(self) -> ReplicasDeleted | None:
        broker = next(iter(self._deleted), None)
        if broker is None:
            return None
        answers = self._deleted.pop(broker)
        topics = tuple(islice(answers.items(), REPORTS_PER_EVENT))
        for topic_id, _ in topics:
            del answers[topic_id]
        if answers:
            # Behind the other brokers.
            self._deleted[broker] = answers
        self.waits.took(DELETION_ANSWERS, left=bool(self._deleted or self._partitions_deleted))
        return ReplicasDeleted(broker=broker, topics=topics)

    def _next_partitions_deleted(self) -> PartitionsDeleted | None:
        broker = next(iter(self._partitions_deleted), None)
        if broker is None:
            return None
        answers = self._partitions_deleted.pop(broker)
        partitions = tuple(islice(answers.items(), REPORTS_PER_EVENT))
        for key, _ in partitions:
            del answers[key]
        if answers:
            # Behind the other brokers.
            self._partitions_deleted[broker] = answers
        self.waits.took(DELETION_ANSWERS, left=bool(self._deleted or self._partitions_deleted))
        return PartitionsDeleted(broker=broker, partitions=partitions)

    def drain(self) -> tuple[Mutation, ...]:
        """Empty the queue at the end of a reign; returns the mutations whose callers still wait."""
        left = (*(event for event in self._cluster if isinstance(event, Mutation)), *self._mutations)
        self._cluster.clear()
        self._present.clear()
        self._replicas.clear()
        self._registrations = None
        self._topics = None
        self._mutations.clear()
        self.waits.clear()
        self._written.clear()
        self._deleted.clear()
        self._partitions_deleted.clear()
        return left
