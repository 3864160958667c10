"""What a broker has to report to the controller over its lifeline, in numbered batches (safety rules S9 and S16).

Goals: nothing that was reported gets lost with a stream or a controller; a batch stays small, however much there is to
say; what is said twice does no harm.

Algorithm: one batch is under way at a time. It is sent once on each stream, until the controller acknowledges its
number. What happened once (an ISR that was written) is forgotten with its acknowledgement. What is so (a replica that
cannot be used) is reported in full on every new stream, because another controller, or another registration, has heard
nothing of it. What changes all the time and is short (who fetches from whom, what is busy, disk, listeners, broken
connections) goes out whole whenever it has changed, and is not acknowledged. First acknowledgements of new leaderships
are for traces alone: each goes out once, with the next beat, and nothing waits for it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from regnum.election.v1 import controller_pb2
from regnum_model.ids import BrokerId, LeaderEpoch, PartitionKey, TopicId

from regnum_broker.cluster.contacts import FetchContacts
from regnum_broker.disk_room import DiskRoom
from regnum_broker.replication.isr_writer import WrittenIsr
from regnum_broker.replication.moving import MovingReplica
from regnum_broker.replication.sessions.breaks import Break

REPORTS_MAX: Final = 1_000
"""Reports in one batch."""

UNCOMMITTED_MAX: Final = 1_000
"""Partitions named in which nothing is committed."""


BROKEN_MAX: Final = 100
"""Broken connections that are remembered, the newest."""

ACKNOWLEDGEMENTS_MAX: Final = 1_000
"""First acknowledgements that wait for the next beat; others are not told."""


@dataclass(frozen=True, slots=True)
class FirstAcknowledgement:
    """The first that a producer got from a new leadership."""

    key: PartitionKey
    epoch: LeaderEpoch
    unix_nano: int
    """When, wall time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    number: int
    isrs: tuple[WrittenIsr, ...]
    offline: tuple[PartitionKey, ...]


class Reports:
    """Reports of one broker. Belongs to the lifeline's loop."""

    def __init__(self, offline: Callable[[], Iterable[PartitionKey]]) -> None:
        """Only assigns.

        Args:
            offline: the replicas that cannot be used now; called on the lifeline's thread.
        """
        self._offline_now: Final = offline
        self._isrs: Final[dict[PartitionKey, WrittenIsr]] = {}
        self._offline: dict[PartitionKey, None] = {}
        self._contacts = FetchContacts()
        self._contacts_due = False
        self._busy: frozenset[PartitionKey] = frozenset()
        self._busy_due = False
        self._disk = DiskRoom()
        self._disk_due = False
        self._turns_away = ""
        self._turns_away_due = False
        self._uncommitted: frozenset[PartitionKey] = frozenset()
        self._uncommitted_due = False
        self._broken: Final[dict[BrokerId, Break]] = {}
        self._broken_due = False
        self._acknowledged: list[FirstAcknowledgement] = []
        """Said once."""
        self._moving: tuple[MovingReplica, ...] = ()
        """Said once."""
        self._batch: _Batch | None = None
        self._sent = False
        self._number = 0

    @property
    def has_due(self) -> bool:
        """Whether the next message of this stream would carry a batch."""
        return not self._sent if self._batch is not None else bool(self._isrs or self._offline)

    def add_isr(self, written: WrittenIsr) -> None:
        """Another ISR; a newer one of a partition replaces the one that waits."""
        self._isrs[written.key] = written

    def add_offline(self, keys: Iterable[PartitionKey]) -> None:
        """Replicas that cannot be used any more."""
        self._offline.update(dict.fromkeys(keys))

    def set_contacts(self, contacts: FetchContacts) -> None:
        """Who cannot be fetched from, and who does not fetch, from now on."""
        self._contacts, self._contacts_due = contacts, True

    def set_busy(self, keys: frozenset[PartitionKey]) -> None:
        """Partitions that are busy from now on."""
        self._busy, self._busy_due = keys, True

    def set_moving(self, replicas: Sequence[MovingReplica]) -> None:
        """How far moving partitions are now."""
        self._moving = tuple(replicas)

    def set_broken(self, broker: BrokerId, broken: Break | None) -> None:
        """A connection broke, and is not made again yet; None: it is."""
        self._broken.pop(broker, None)
        if broken is not None:
            self._broken[broker] = broken
            while len(self._broken) > BROKEN_MAX:
                del self._broken[next(iter(self._broken))]
        self._broken_due = True

    def add_acknowledgement(self, acknowledged: FirstAcknowledgement) -> None:
        """A new leadership acknowledged its first records to a producer."""
        if len(self._acknowledged) < ACKNOWLEDGEMENTS_MAX:
            self._acknowledged.append(acknowledged)

    def set_disk(self, room: DiskRoom) -> None:
        """How the disk is from now on."""
        self._disk, self._disk_due = room, True

    def set_turns_away(self, because: str) -> None:
        """Why connections are turned away from now on; empty: they are not."""
        self._turns_away, self._turns_away_due = because, True

    def set_uncommitted(self, keys: frozenset[PartitionKey]) -> None:
        """Partitions in which records wait and nothing is committed, from now on."""
        self._uncommitted, self._uncommitted_due = keys, True

    def begin_stream(self) -> None:
        """A stream was opened: what is under way goes out again, and all that is so."""
        self._sent = False
        self._contacts_due = self._contacts != FetchContacts()
        self._busy_due = bool(self._busy)
        self._disk_due = self._disk != DiskRoom()
        self._turns_away_due = bool(self._turns_away)
        self._uncommitted_due = bool(self._uncommitted)
        self._broken_due = bool(self._broken)
        self._offline = dict.fromkeys(self._offline_now())

    def put_into(self, message: controller_pb2.BrokerLifelineRequest) -> None:
        """Add the batch that is due, if one is, and contacts and busy partitions that the stream has not been told."""
        if self._contacts_due:
            self._contacts_due = False
            message.fetch_contacts.unreachable_leaders.extend(sorted(self._contacts.unreachable_leaders))
            message.fetch_contacts.silent_followers.extend(sorted(self._contacts.silent_followers))
            # Being there is the message, also when both lists are empty.
            message.fetch_contacts.SetInParent()
        if self._busy_due:
            self._busy_due = False
            message.busy.topics.extend(_by_topic(self._busy))
            message.busy.SetInParent()
        if self._disk_due:
            self._disk_due = False
            room = self._disk
            message.log_directory.CopyFrom(
                controller_pb2.LogDirectoryState(
                    free_bytes=room.free_bytes, size_bytes=room.size_bytes, refuses_because=room.refuses_because
                )
            )
        if self._turns_away_due:
            self._turns_away_due = False
            message.listeners.turn_away_because = self._turns_away
            message.listeners.SetInParent()
        if self._uncommitted_due:
            self._uncommitted_due = False
            message.uncommitted.topics.extend(_by_topic(islice(self._uncommitted, UNCOMMITTED_MAX)))
            message.uncommitted.SetInParent()
        self._put_for_traces(message)
        moving, self._moving = self._moving, ()
        for one in moving:
            message.moving_replicas.add(
                topic_id=one.key.topic_id,
                partition=one.key.partition,
                log_start_offset=one.log_start_offset,
                log_end_offset=one.log_end_offset,
                size_bytes=one.size_bytes,
            )
        if self._batch is None and self.has_due:
            self._batch = self._next()
            self._sent = False
        batch = self._batch
        if batch is None or self._sent:
            return
        self._sent = True
        message.report_number = batch.number
        message.isr_reports.extend(
            controller_pb2.IsrReport(
                topic_id=written.key.topic_id,
                partition=written.key.partition,
                version=written.version,
                isr=written.isr,
                node=written.node,
            )
            for written in batch.isrs
        )
        message.offline_replicas.extend(
            controller_pb2.OfflineReplica(topic_id=key.topic_id, partition=key.partition) for key in batch.offline
        )

    def _put_for_traces(self, message: controller_pb2.BrokerLifelineRequest) -> None:
        if self._broken_due:
            self._broken_due = False
            for broker, broken in self._broken.items():
                message.broken_connections.connections.add(
                    broker_id=broker, broker_epoch=broken.epoch, unix_nano=broken.unix_nano
                )
            message.broken_connections.SetInParent()
        acknowledged, self._acknowledged = self._acknowledged, []
        for one in acknowledged:
            message.first_acknowledgements.add(
                topic_id=one.key.topic_id,
                partition=one.key.partition,
                leader_epoch=one.epoch,
                unix_nano=one.unix_nano,
            )

    def acknowledge(self, number: int) -> None:
        """The controller has taken up all batches up to this one."""
        if self._batch is not None and number >= self._batch.number:
            self._batch = None

    def _next(self) -> _Batch:
        self._number += 1
        isrs = tuple(self._isrs.pop(key) for key in tuple(self._isrs)[:REPORTS_MAX])
        offline = tuple(self._offline)[: REPORTS_MAX - len(isrs)]
        for key in offline:
            del self._offline[key]
        return _Batch(number=self._number, isrs=isrs, offline=offline)


def _by_topic(keys: Iterable[PartitionKey]) -> list[controller_pb2.BusyTopic]:
    topics: dict[TopicId, list[int]] = {}
    for key in keys:
        topics.setdefault(key.topic_id, []).append(key.partition)
    return [controller_pb2.BusyTopic(topic_id=id, partitions=sorted(topics[id])) for id in sorted(topics)]
