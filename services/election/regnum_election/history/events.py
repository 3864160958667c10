"""What the event log holds, before it is put into bytes. Pure.

An event has a place: (controller epoch, number in that reign). Reigns come one after another, so places order all
events of a cluster, whoever holds the log.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol, Self, TypeAlias

from regnum.types.v1 import events_pb2
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, ElectionId, PartitionKey, TopicId
from regnum_model.nodes import LeaderAndIsr

Cause: TypeAlias = "events_pb2.EventCause.ValueType"
"""Why something happened."""

Kind: TypeAlias = "events_pb2.EventKind.ValueType"
"""What an event says."""


class Position(NamedTuple):
    """A place in the log."""

    epoch: ControllerEpoch
    """Controller epoch of the reign."""
    number: int
    """Number in that reign, from 1."""


BEGINNING: Final = Position(ControllerEpoch(0), 0)
"""Before every event."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why partitions are decided about: goes with a decision to where it is written down."""

    cause: Cause
    """Kind of the reason."""
    evidence: str = ""
    """What proved it, in words."""
    traceparent: str = ""
    """What it is a part of; empty: nothing that is traced."""
    who: str = ""
    """Who asked for it; empty: nobody, or it is not known."""

    def within(self, traceparent: str) -> Self:
        """The same as a part of that."""
        return self if traceparent == self.traceparent else replace(self, traceparent=traceparent)

    def asked_by(self, who: str, traceparent: str) -> Self:
        """The same, because somebody asked in a call that may be traced."""
        return replace(self, who=who, traceparent=traceparent)


SETTLING: Final = Reason(events_pb2.EVENT_CAUSE_SETTLING)
"""Nothing of its own."""

SUCCESSION: Final = Reason(events_pb2.EVENT_CAUSE_SUCCESSION)
"""A reign began."""

CREATION: Final = Reason(events_pb2.EVENT_CAUSE_CREATION)
"""A client asked for topics."""

DELETION: Final = Reason(events_pb2.EVENT_CAUSE_DELETION)
"""A deletion was recorded."""

BY_HAND: Final = Reason(events_pb2.EVENT_CAUSE_WRITTEN_BY_HAND)
"""A person wrote topics to the store."""

BALANCE: Final = Reason(events_pb2.EVENT_CAUSE_PREFERRED_BALANCE)
"""The preferred replica of a broker out of balance."""

REASSIGNMENT: Final = Reason(events_pb2.EVENT_CAUSE_REASSIGNMENT)
"""Replicas were reassigned."""

CONFIG: Final = Reason(events_pb2.EVENT_CAUSE_CONFIG)
"""Settings changed."""


def not_written_down(epoch: ControllerEpoch) -> Reason:
    """A reign that is over wrote a state, and was ended before it wrote down why."""
    return Reason(events_pb2.EVENT_CAUSE_NOT_WRITTEN_DOWN, f"written by controller epoch {epoch}; details lost")


class PartitionRow(NamedTuple):
    """A partition whose state changed."""

    key: PartitionKey
    before: LeaderAndIsr | None
    """None: it had no state."""
    after: LeaderAndIsr
    version: int
    """Version of the node afterwards."""


class AssignmentRow(NamedTuple):
    """A partition whose replicas change, or are to change."""

    key: PartitionKey
    before: Sequence[BrokerId]
    """Replicas that it goes away from, the preferred leader first."""
    after: Sequence[BrokerId]
    """Replicas that it goes to."""


class Named(Protocol):
    """A topic of the controller's picture."""

    @property
    def name(self) -> str:
        """Topic name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Events of one moment with one cause."""

    position: Position
    """Place of the first of them."""
    controller: ElectionId
    time_unix_ms: int
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsEntry(Entry):
    """Partitions whose states changed."""

    rows: Sequence[PartitionRow]
    topics: Mapping[TopicId, Named]
    """The topics of the picture, by id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentsEntry(Entry):
    """Partitions whose replicas change, or are to change."""

    kind: Kind
    """What happened to each of them."""
    rows: Sequence[AssignmentRow]
    topics: Mapping[TopicId, Named]
    """The topics of the picture, by id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherEntry(Entry):
    """One event that is about no partition's state."""

    kind: Kind
    broker: BrokerId | None = None
    broker_epoch: BrokerEpoch = field(default=BrokerEpoch(0))
    topic: str = ""
    topic_id: str = ""
    partition: int = -1
    count: int = 0
    detail: str = ""


def weight_of(entry: Entry) -> int:
    """How many events an entry is."""
    return len(entry.rows) if isinstance(entry, PartitionsEntry | AssignmentsEntry) else 1
