"""How far the deletion of a topic, or of a partition alone, has come: decisions only; the controller writes and sends.

Safety rule S13. The record ``/admin/delete_topics/<topic id>`` is written before anything is deleted and removed
last, so a broker that was away, and a controller that comes later, learn of it. The name is free as soon as the
topic's nodes are gone; files are removed broker by broker, and a broker that is away never holds the others up. For a
partition whose topic stays the record is ``/admin/delete_partitions/<topic id>/<partition>``.

The states of replicas are the part of Kafka's ``ReplicaStateMachine`` that deletion needs.
"""

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Self

from immutables import Map
from regnum_model.ids import BrokerId, LeaderEpoch, PartitionKey, TopicId
from regnum_model.nodes import DeletionNode, PartitionDeletionNode


class ReplicaState(enum.Enum):
    """Where the replicas of a deleted topic on one broker stand."""

    OFFLINE = "offline"
    """The broker is away."""
    DELETION_STARTED = "deletion started"
    """The broker has been told to delete."""
    DELETION_SUCCESSFUL = "deletion successful"
    """The broker confirmed."""
    DELETION_INELIGIBLE = "deletion ineligible"
    """The broker could not delete; it is told again."""
    NON_EXISTENT = "non-existent"
    """Taken out of the deletion record."""


PREVIOUS: Final[Mapping[ReplicaState, frozenset[ReplicaState]]] = MappingProxyType(
    {
        ReplicaState.OFFLINE: frozenset(
            {ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED, ReplicaState.DELETION_INELIGIBLE}
        ),
        ReplicaState.DELETION_STARTED: frozenset(
            {ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED, ReplicaState.DELETION_INELIGIBLE}
        ),
        ReplicaState.DELETION_SUCCESSFUL: frozenset({ReplicaState.DELETION_STARTED}),
        ReplicaState.DELETION_INELIGIBLE: frozenset({ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED}),
        ReplicaState.NON_EXISTENT: frozenset({ReplicaState.DELETION_SUCCESSFUL}),
    }
)
"""States from which each state may be entered."""


def may_enter(target: ReplicaState, source: ReplicaState) -> bool:
    """Whether a replica may go from ``source`` to ``target``."""
    return source in PREVIOUS[target]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """One topic on its way out."""

    topic_id: TopicId
    """Its id."""
    topic: str
    """The name it had."""
    mutation: str | None
    """Id of the mutation that asked for it (safety rule S20)."""
    record_version: int
    """Version of the record node."""
    recorded: frozenset[BrokerId]
    """Brokers the record names."""
    replicas: Map[BrokerId, ReplicaState]
    """State of every broker that the record names."""
    weight: int = 1
    """About how many replicas each of these brokers has; 1 also where nobody knows."""

    @classmethod
    def recorded_as(cls, topic_id: TopicId, node: DeletionNode, *, version: int, weight: int = 1) -> Self:
        """The deletion that a record describes; nobody has been told yet."""
        return cls(
            topic_id=topic_id,
            topic=node.topic,
            mutation=node.mutation,
            record_version=version,
            recorded=node.brokers,
            replicas=Map(dict.fromkeys(node.brokers, ReplicaState.OFFLINE)),
            weight=weight,
        )

    def told(self, brokers: Iterable[BrokerId]) -> Self:
        """Brokers that have been given the order."""
        return self._moved(brokers, ReplicaState.DELETION_STARTED)

    def away(self, broker: BrokerId) -> Self:
        """A broker is gone; one that has confirmed stays confirmed."""
        return self._moved((broker,), ReplicaState.OFFLINE)

    def confirmed(self, broker: BrokerId) -> Self:
        """A broker has deleted its replicas."""
        return self._moved((broker,), ReplicaState.DELETION_SUCCESSFUL)

    def refused(self, broker: BrokerId) -> Self:
        """A broker could not delete its replicas; it is told again."""
        return self._moved((broker,), ReplicaState.DELETION_INELIGIBLE)

    def _moved(self, brokers: Iterable[BrokerId], target: ReplicaState) -> Self:
        replicas = self.replicas
        for broker in brokers:
            source = replicas.get(broker)
            if source is not None and may_enter(target, source):
                replicas = replicas.set(broker, target)
        return replace(self, replicas=replicas)

    @property
    def record(self) -> DeletionNode:
        """What the record says."""
        return DeletionNode(topic=self.topic, brokers=self.recorded, mutation=self.mutation)

    @property
    def remaining(self) -> frozenset[BrokerId]:
        """Brokers that have still to confirm."""
        return frozenset(id for id, state in self.replicas.items() if state is not ReplicaState.DELETION_SUCCESSFUL)

    def is_to_tell(self, broker: BrokerId) -> bool:
        """Whether a broker has not been given the order since it came."""
        return self.replicas.get(broker) in {ReplicaState.OFFLINE, ReplicaState.DELETION_INELIGIBLE}

    def record_due(self, live: Collection[BrokerId]) -> DeletionNode | None:
        """What the record should say instead, once every live broker has confirmed and some are away; None: leave it.

        One rewrite for each round keeps the store quiet: confirmations are repeated anyway when a controller changes.
        """
        remaining = self.remaining
        if not remaining or remaining == self.recorded or not remaining.isdisjoint(live):
            return None
        return DeletionNode(topic=self.topic, brokers=remaining, mutation=self.mutation)

    def record_without(self, broker: BrokerId) -> DeletionNode:
        """What the record should say when nobody waits for a broker any more."""
        return replace(self.record, brokers=self.remaining - {broker})

    def rewritten(self, node: DeletionNode, *, version: int) -> Self:
        """The record was rewritten."""
        return replace(
            self,
            record_version=version,
            recorded=node.brokers,
            replicas=Map({id: self.replicas[id] for id in node.brokers}),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """One partition on its way out, whose topic stays."""

    key: PartitionKey
    """Which."""
    topic: str
    """Name of its topic."""
    leader_epoch: LeaderEpoch
    """Leader epoch of its tombstone: the order to delete concerns no replica of a later one."""
    record_version: int
    """Version of the record node."""
    recorded: frozenset[BrokerId]
    """Brokers that the record names."""
    waiting: frozenset[BrokerId]
    """Those of them that have not confirmed."""

    @classmethod
    def recorded_as(cls, key: PartitionKey, node: PartitionDeletionNode, *, version: int) -> Self:
        """The removal that a record describes; nobody has confirmed yet."""
        return cls(
            key=key,
            topic=node.topic,
            leader_epoch=node.leader_epoch,
            record_version=version,
            recorded=node.brokers,
            waiting=node.brokers,
        )

    def confirmed(self, broker: BrokerId) -> Self:
        """A broker has deleted its replica, or has none."""
        return replace(self, waiting=self.waiting - {broker})

    def rewritten(self, node: PartitionDeletionNode, *, version: int) -> Self:
        """The record was rewritten."""
        return replace(self, record_version=version, recorded=node.brokers)

    @property
    def record(self) -> PartitionDeletionNode:
        """What the record says."""
        return PartitionDeletionNode(topic=self.topic, brokers=self.recorded, leader_epoch=self.leader_epoch)

    def record_due(self, live: Collection[BrokerId]) -> PartitionDeletionNode | None:
        """What the record should say instead, once live brokers have confirmed and some are away; None: leave it."""
        if not self.waiting or self.waiting == self.recorded or not self.waiting.isdisjoint(live):
            return None
        return replace(self.record, brokers=self.waiting)

    def record_without(self, broker: BrokerId) -> PartitionDeletionNode:
        """What the record should say when nobody waits for a broker any more."""
        return replace(self.record, brokers=self.waiting - {broker})
