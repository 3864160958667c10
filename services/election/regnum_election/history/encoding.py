"""Entries of the event log in bytes, once for disk and standbys, and back. Pure.

Goals: a change of a partition costs about a microsecond and 20 bytes, because a failover makes thousands of them; what
is looked for is found without putting everything into words.

Algorithm: the changes of an entry are columns (``history.proto``), which protobuf packs in C. A reader looks at the
columns that its filter is about and puts into words what is left.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from regnum.admin.v1 import events_pb2
from regnum.election.v1 import history_pb2
from regnum.types.v1 import events_pb2 as words
from regnum_model.ids import NO_LEADER, BrokerId, ControllerEpoch
from regnum_model.wire_times import ceiling_unix_ms_of, timestamp_of

from regnum_election.history.events import AssignmentsEntry, Entry, Kind, OtherEntry, PartitionsEntry, Position

TEXT_MAX: Final = 1_000
"""Characters of a text."""

NO_STATE: Final = -2
"""Leader before of a partition that had no state."""


def encode(entry: Entry) -> bytes:
    """The entry as it stands on disk and is sent."""
    message = history_pb2.EventEntry(
        controller_epoch=entry.position.epoch,
        number=entry.position.number,
        controller_id=entry.controller,
        time_unix_ms=entry.time_unix_ms,
        cause=entry.reason.cause,
        evidence=_text(entry.reason.evidence),
        traceparent=entry.reason.traceparent,
        who=_text(entry.reason.who),
    )
    if isinstance(entry, PartitionsEntry):
        _add_rows(message.partitions, entry)
    elif isinstance(entry, AssignmentsEntry):
        _add_assignments(message.assignments, entry)
    elif isinstance(entry, OtherEntry):
        message.other.MergeFrom(
            history_pb2.OtherEvent(
                kind=entry.kind,
                broker_id=-1 if entry.broker is None else entry.broker,
                broker_epoch=entry.broker_epoch,
                topic=_text(entry.topic),
                topic_id=entry.topic_id,
                partition=entry.partition,
                count=entry.count,
                detail=_text(entry.detail),
            )
        )
    return message.SerializeToString()


def _add_rows(columns: history_pb2.PartitionChanges, entry: PartitionsEntry) -> None:
    rows = entry.rows
    places = {id: place for place, id in enumerate(dict.fromkeys([row.key.topic_id for row in rows]))}
    columns.topic_ids.extend(places)
    columns.topic_names.extend([_text(entry.topics[id].name) if id in entry.topics else "" for id in places])
    columns.topic.extend([places[row.key.topic_id] for row in rows])
    columns.partition.extend([row.key.partition for row in rows])
    columns.version.extend([row.version for row in rows])
    columns.leader_before.extend([NO_STATE if row.before is None else row.before.leader for row in rows])
    columns.epoch_before.extend([-1 if row.before is None else row.before.leader_epoch for row in rows])
    columns.leader.extend([row.after.leader for row in rows])
    columns.epoch.extend([row.after.leader_epoch for row in rows])
    before = [() if row.before is None else row.before.isr for row in rows]
    columns.isr_before_size.extend(map(len, before))
    columns.isr_before.extend([id for isr in before for id in isr])
    columns.isr_size.extend([len(row.after.isr) for row in rows])
    columns.isr.extend([id for row in rows for id in row.after.isr])
    if any(row.after.elr for row in rows):
        columns.elr_size.extend([len(row.after.elr) for row in rows])
        columns.elr.extend([id for row in rows for id in row.after.elr])


def _add_assignments(columns: history_pb2.AssignmentChanges, entry: AssignmentsEntry) -> None:
    rows = entry.rows
    places = {id: place for place, id in enumerate(dict.fromkeys([row.key.topic_id for row in rows]))}
    columns.kind = entry.kind
    columns.topic_ids.extend(places)
    columns.topic_names.extend([_text(entry.topics[id].name) if id in entry.topics else "" for id in places])
    columns.topic.extend([places[row.key.topic_id] for row in rows])
    columns.partition.extend([row.key.partition for row in rows])
    columns.before_size.extend([len(row.before) for row in rows])
    columns.before.extend([id for row in rows for id in row.before])
    columns.after_size.extend([len(row.after) for row in rows])
    columns.after.extend([id for row in rows for id in row.after])


def _text(text: str) -> str:
    """What the wire takes, and no more of it than people read: some of it was written into the store by hand."""
    if text.isascii() and len(text) <= TEXT_MAX:
        return text
    return text[:TEXT_MAX].encode("utf-8", errors="replace").decode("utf-8")


def decode(data: bytes) -> history_pb2.EventEntry:
    """The entry. Raises google.protobuf.message.DecodeError."""
    return history_pb2.EventEntry.FromString(data)


def first_of(entry: history_pb2.EventEntry) -> Position:
    """Place of its first event."""
    return Position(ControllerEpoch(entry.controller_epoch), entry.number)


def size_of(entry: history_pb2.EventEntry) -> int:
    """Number of its events."""
    return max(1, len(entry.partitions.partition), len(entry.assignments.partition))


def last_of(entry: history_pb2.EventEntry) -> Position:
    """Place of its last event."""
    return Position(ControllerEpoch(entry.controller_epoch), entry.number + size_of(entry) - 1)


class EventFilter:
    """Chooses events of entries."""

    def __init__(self, said: events_pb2.EventFilter) -> None:
        """``said``: as the caller said it."""
        self._topic: Final = said.topic
        self._partition: Final = said.partition if said.HasField("partition") else None
        self._broker: Final = BrokerId(said.broker_id) if said.HasField("broker_id") else None
        self._kinds: Final = frozenset(said.kinds)
        self.since_unix_ms: Final = ceiling_unix_ms_of(said.since)
        """Not before that moment."""

    def events(self, entry: history_pb2.EventEntry, *, backwards: bool) -> Iterator[events_pb2.ClusterEvent]:
        """Those of an entry that fit, in order or backwards."""
        if entry.time_unix_ms < self.since_unix_ms:
            return
        if entry.HasField("other"):
            event = _other(entry)
            if self._fits_other(event):
                yield event
            return
        assigned = entry.HasField("assignments")
        if assigned and self._kinds and entry.assignments.kind not in self._kinds:
            return
        indexes = self._rows(entry.assignments if assigned else entry.partitions)
        if not indexes:
            return
        columns = _Assignments(entry) if assigned else _Columns(entry)
        for index in reversed(indexes) if backwards else indexes:
            event = columns.event(index)
            if self._fits_row(event):
                yield event

    def _rows(self, columns: history_pb2.PartitionChanges | history_pb2.AssignmentChanges) -> Sequence[int]:
        if not self._topic:
            return range(len(columns.partition))
        wanted = {place for place, name in enumerate(columns.topic_names) if name == self._topic}
        if not wanted:
            return ()
        pairs = zip(columns.topic, columns.partition, strict=True)
        return [
            index
            for index, (place, partition) in enumerate(pairs)
            if place in wanted and self._partition in {None, partition}
        ]

    def _fits_row(self, event: events_pb2.ClusterEvent) -> bool:
        if self._kinds and event.kind not in self._kinds:
            return False
        return self._broker is None or _moves(event, self._broker)

    def _fits_other(self, event: events_pb2.ClusterEvent) -> bool:
        if self._kinds and event.kind not in self._kinds:
            return False
        if self._topic and event.topic != self._topic:
            return False
        # What a topic as a whole lived through every partition of it did.
        if self._partition is not None and event.partition not in {-1, self._partition}:
            return False
        return self._broker is None or event.broker_id == self._broker


def _moves(event: events_pb2.ClusterEvent, broker: BrokerId) -> bool:
    """Whether a broker began or ceased to lead, joined or left the in-sync replicas, gets a replica or loses one."""
    if not event.HasField("after"):
        return (broker in event.replicas_before) is not (broker in event.replicas_after)
    before, after = event.before, event.after
    if (before.leader == broker and event.HasField("before")) is not (after.leader == broker):
        return True
    return (broker in before.isr) is not (broker in after.isr)


class _Columns:
    """The changes of an entry, one by one."""

    def __init__(self, entry: history_pb2.EventEntry) -> None:
        self._entry = entry
        columns = self._columns = entry.partitions
        self._isr_before = [0, *accumulate(columns.isr_before_size)]
        self._isr = [0, *accumulate(columns.isr_size)]
        self._elr = [0, *accumulate(columns.elr_size)]

    def event(self, index: int) -> events_pb2.ClusterEvent:
        """One of them."""
        columns = self._columns
        event = _head(self._entry, index)
        place = columns.topic[index]
        event.topic, event.topic_id = columns.topic_names[place], columns.topic_ids[place]
        event.partition = columns.partition[index]
        event.broker_id = -1
        after = event.after
        after.leader, after.leader_epoch = columns.leader[index], columns.epoch[index]
        after.version = columns.version[index]
        after.isr.extend(columns.isr[self._isr[index] : self._isr[index + 1]])
        if columns.elr_size:
            after.elr.extend(columns.elr[self._elr[index] : self._elr[index + 1]])
        if columns.leader_before[index] != NO_STATE:
            before = event.before
            before.leader, before.leader_epoch = columns.leader_before[index], columns.epoch_before[index]
            before.version = -1
            before.isr.extend(columns.isr_before[self._isr_before[index] : self._isr_before[index + 1]])
        event.kind = _kind_of(event)
        return event


class _Assignments:
    """The changes of assignments of an entry, one by one."""

    def __init__(self, entry: history_pb2.EventEntry) -> None:
        self._entry = entry
        columns = self._columns = entry.assignments
        self._before = [0, *accumulate(columns.before_size)]
        self._after = [0, *accumulate(columns.after_size)]

    def event(self, index: int) -> events_pb2.ClusterEvent:
        """One of them."""
        columns = self._columns
        event = _head(self._entry, index)
        place = columns.topic[index]
        event.kind = columns.kind
        event.topic, event.topic_id = columns.topic_names[place], columns.topic_ids[place]
        event.partition = columns.partition[index]
        event.broker_id = -1
        event.replicas_before.extend(columns.before[self._before[index] : self._before[index + 1]])
        event.replicas_after.extend(columns.after[self._after[index] : self._after[index + 1]])
        return event


def _kind_of(event: events_pb2.ClusterEvent) -> Kind:
    before, after = event.before, event.after
    if event.HasField("before") and before.leader_epoch == after.leader_epoch and before.leader == after.leader:
        return words.EVENT_KIND_ISR_CHANGED
    return words.EVENT_KIND_PARTITION_OFFLINE if after.leader == NO_LEADER else words.EVENT_KIND_LEADER_ELECTED


def _other(entry: history_pb2.EventEntry) -> events_pb2.ClusterEvent:
    other, event = entry.other, _head(entry, 0)
    event.kind, event.broker_id, event.broker_epoch = other.kind, other.broker_id, other.broker_epoch
    event.topic, event.topic_id, event.partition = other.topic, other.topic_id, other.partition
    event.count, event.detail = other.count, other.detail
    return event


def _head(entry: history_pb2.EventEntry, index: int) -> events_pb2.ClusterEvent:
    return events_pb2.ClusterEvent(
        position=events_pb2.EventPosition(controller_epoch=entry.controller_epoch, number=entry.number + index),
        time=timestamp_of(entry.time_unix_ms),
        controller_id=entry.controller_id,
        cause=entry.cause,
        evidence=entry.evidence,
        traceparent=entry.traceparent,
        who=entry.who,
    )
