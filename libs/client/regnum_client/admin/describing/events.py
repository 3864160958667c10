"""Events of the cluster as callers see them, and as the wire has them. Pure."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from regnum.admin.v1 import events_pb2
from regnum.types.v1 import events_pb2 as words
from regnum_model.ids import NO_LEADER, BrokerEpoch, BrokerId, ControllerEpoch, ElectionId, LeaderEpoch, TopicId
from regnum_model.wire_times import timestamp_of, unix_ms_of


class EventKind(enum.Enum):
    """What an event says.

    >>> EventKind.LEADER_ELECTED.value
    'leader-elected'
    """

    UNSPECIFIED = "unspecified"
    """Of a later release."""
    LEADER_ELECTED = "leader-elected"
    PARTITION_OFFLINE = "partition-offline"
    ISR_CHANGED = "isr-changed"
    BROKER_REGISTERED = "broker-registered"
    BROKER_FENCED = "broker-fenced"
    BROKER_GONE = "broker-gone"
    BROKER_STOPPING = "broker-stopping"
    CONTROLLER_ELECTED = "controller-elected"
    TOPIC_CREATED = "topic-created"
    TOPIC_DELETED = "topic-deleted"
    CONFIG_CHANGED = "config-changed"
    REPLICAS_OFFLINE = "replicas-offline"
    REPLICAS_USABLE = "replicas-usable"
    PARTITION_OUT_OF_REACH = "partition-out-of-reach"
    EVENTS_DROPPED = "events-dropped"
    PARTITIONS_ADDED = "partitions-added"
    PARTITIONS_REMOVED = "partitions-removed"
    ORDERS_OVERDUE = "orders-overdue"
    TROUBLE_OVERDUE = "trouble-overdue"
    REASSIGNMENT_STARTED = "reassignment-started"
    REASSIGNMENT_MOVING = "reassignment-moving"
    REASSIGNMENT_COMPLETED = "reassignment-completed"
    REASSIGNMENT_CANCELLED = "reassignment-cancelled"
    REASSIGNMENT_UNDONE = "reassignment-undone"
    BROKER_DRAINING = "broker-draining"
    BROKER_DRAINING_ENDED = "broker-draining-ended"
    STORE_WENT_BACK = "store-went-back"
    BROKER_REFUSED = "broker-refused"
    TOPIC_NODE_EDITED = "topic-node-edited"
    STORE_WRITES_REFUSED = "store-writes-refused"
    STORE_WRITES_TAKEN = "store-writes-taken"
    CONNECTIONS_REFUSED = "connections-refused"
    CONNECTIONS_TAKEN = "connections-taken"


class EventCause(enum.Enum):
    """Why something happened.

    >>> [event.topic for event in admin.last_events(limit=50) if event.cause is EventCause.LIFELINE_BROKEN]
    []
    """

    UNSPECIFIED = "unspecified"
    """Not said, or of a later release."""
    LIFELINE_BROKEN = "lifeline-broken"
    SILENCE = "silence"
    REGISTRATION_CHANGED = "registration-changed"
    CONTROLLED_SHUTDOWN = "controlled-shutdown"
    LEADER_ISR = "leader-isr"
    PREFERRED_BALANCE = "preferred-balance"
    LEADER_CUT_OFF = "leader-cut-off"
    CREATION = "creation"
    DELETION = "deletion"
    RECOVERY = "recovery"
    CONFIG = "config"
    REPLICA_OFFLINE = "replica-offline"
    REPLICA_USABLE = "replica-usable"
    SUCCESSION = "succession"
    WRITTEN_BY_HAND = "written-by-hand"
    REASSIGNMENT = "reassignment"
    ELECTION_REQUESTED = "election-requested"
    SETTLING = "settling"
    CONTROLLER_GONE = "controller-gone"
    NOT_WRITTEN_DOWN = "not-written-down"


_KINDS: Final[Mapping[int, EventKind]] = {words.EventKind.Value(f"EVENT_KIND_{one.name}"): one for one in EventKind}
_CAUSES: Final[Mapping[int, EventCause]] = {
    words.EventCause.Value(f"EVENT_CAUSE_{one.name}"): one for one in EventCause
}


class EventPosition(NamedTuple):
    """A place in the log: reigns of controllers come one after another, and events of a reign are numbered from 1.

    >>> EventPosition(3, 7) < EventPosition(4, 0)
    True
    """

    epoch: ControllerEpoch
    """Controller epoch of the reign."""
    number: int
    """Number in that reign."""


BEGINNING: Final = EventPosition(ControllerEpoch(0), 0)
"""Before every event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Chooses events: those that fit everything that is set.

    >>> chosen = EventFilter(topic="orders", kinds=frozenset({EventKind.LEADER_ELECTED}))
    >>> {event.kind for event in admin.last_events(chosen, limit=5)} <= {EventKind.LEADER_ELECTED}
    True
    """

    topic: str = ""
    """About that topic, in any of its lives; empty: any."""
    partition: int | None = None
    """About that partition of the topic; None: any."""
    broker: int | None = None
    """About that broker: it came or went, began or ceased to lead, joined or left the ISR, gets a replica or loses one;
    None: any."""
    kinds: frozenset[EventKind] = frozenset()
    """Of these kinds; empty: any."""
    since_unix_ms: int = 0
    """Not before that moment, by the clocks of controllers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventState:
    """What a partition's state was or became.

    >>> def members(state: EventState) -> int:
    ...     return len(state.isr)
    """

    leader: BrokerId | None
    """None: nobody."""
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    elr: tuple[BrokerId, ...]
    """Not known of a state before."""
    version: int | None
    """Version of the leaderAndISR node; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEvent:
    """One event.

    >>> events = admin.last_events(EventFilter(topic="orders"), limit=1)
    >>> {event.topic for event in events} <= {"orders"}
    True
    """

    position: EventPosition
    time_unix_ms: int
    """By the controller's clock."""
    controller: ElectionId
    """Election id of the controller that decided it or took it up."""
    kind: EventKind
    cause: EventCause
    evidence: str
    """What proved it, in words."""
    trace_id: str
    """Trace that it is a part of; empty: nothing was traced."""
    topic: str
    """Empty: none."""
    topic_id: TopicId
    partition: int | None
    """None: no single one."""
    broker: BrokerId | None
    broker_epoch: BrokerEpoch
    """0: not known."""
    before: EventState | None
    """None: the partition had no state, or it is about none."""
    after: EventState | None
    """None: it is about no partition's state."""
    count: int
    """How many partitions, or dropped events, it is about; 0 where that says nothing."""
    detail: str
    """More, in words."""
    who: str
    """Who asked for it; empty: nobody, or it is not known."""
    replicas_before: tuple[BrokerId, ...]
    """Of an event about an assignment: replicas that the partition goes away from; the preferred leader first."""
    replicas_after: tuple[BrokerId, ...]
    """Replicas that it goes to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """A page of the log.

    >>> page = admin.describe_events(limit=2)
    >>> len(page.events) <= 2
    True
    """

    events: tuple[ClusterEvent, ...]
    """In the order that was asked for."""
    next: EventPosition | None
    """Where to go on; None: nothing lies there."""
    more: bool
    """Whether more may lie beyond it."""
    dropped: int
    """Events that this controller could not write down since its process started."""
    on_disk: bool
    """False: its directory cannot be written, and only the newest are kept, in memory."""


def request_of(
    chosen: EventFilter, *, before: EventPosition | None = None, after: EventPosition | None = None
) -> events_pb2.DescribeEventsRequest:
    """The message, without limits."""
    return events_pb2.DescribeEventsRequest(
        filter=events_pb2.EventFilter(
            topic=chosen.topic,
            partition=chosen.partition,
            broker_id=chosen.broker,
            kinds=sorted(words.EventKind.Value(f"EVENT_KIND_{kind.name}") for kind in chosen.kinds),
            since=timestamp_of(chosen.since_unix_ms) if chosen.since_unix_ms else None,
        ),
        before=None if before is None else _place(before),
        after=None if after is None else _place(after),
    )


def page_from_wire(answer: events_pb2.DescribeEventsResponse) -> EventPage:
    """What was answered."""
    return EventPage(
        events=tuple(map(_event, answer.events)),
        next=_position(answer.next) if answer.HasField("next") else None,
        more=answer.more,
        dropped=answer.dropped,
        on_disk=answer.on_disk,
    )


def _event(said: events_pb2.ClusterEvent) -> ClusterEvent:
    parts = said.traceparent.split("-")
    return ClusterEvent(
        position=_position(said.position),
        time_unix_ms=unix_ms_of(said.time),
        controller=ElectionId(said.controller_id),
        kind=_KINDS.get(said.kind, EventKind.UNSPECIFIED),
        cause=_CAUSES.get(said.cause, EventCause.UNSPECIFIED),
        evidence=said.evidence,
        trace_id=parts[1] if len(parts) > 1 else "",
        topic=said.topic,
        topic_id=TopicId(said.topic_id),
        partition=said.partition if said.partition >= 0 else None,
        broker=BrokerId(said.broker_id) if said.broker_id >= 0 else None,
        broker_epoch=BrokerEpoch(said.broker_epoch),
        before=_state(said.before) if said.HasField("before") else None,
        after=_state(said.after) if said.HasField("after") else None,
        count=said.count,
        detail=said.detail,
        who=said.who,
        replicas_before=tuple(map(BrokerId, said.replicas_before)),
        replicas_after=tuple(map(BrokerId, said.replicas_after)),
    )


def _state(said: events_pb2.EventState) -> EventState:
    return EventState(
        leader=None if said.leader == NO_LEADER else BrokerId(said.leader),
        leader_epoch=LeaderEpoch(said.leader_epoch),
        isr=tuple(map(BrokerId, said.isr)),
        elr=tuple(map(BrokerId, said.elr)),
        version=said.version if said.version >= 0 else None,
    )


def _position(said: events_pb2.EventPosition) -> EventPosition:
    return EventPosition(ControllerEpoch(said.controller_epoch), said.number)


def _place(position: EventPosition) -> events_pb2.EventPosition:
    return events_pb2.EventPosition(controller_epoch=position.epoch, number=position.number)
