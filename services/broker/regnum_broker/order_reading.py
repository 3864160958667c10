"""Reading the controller's orders from their messages: what contradicts itself is refused, what repeats is kept once.

Goals: thousands of partitions change their leader with one broker's death, and each names the same few topics, ISRs
and members. Each of these is checked and made once, and shared by all states that name it: that is most of what an
order costs, and of what a replica's state takes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from regnum.broker.v1 import control_pb2
from regnum_model.ids import (
    NO_LEADER,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    LogId,
    PartitionKey,
    TopicId,
    is_topic_id,
)
from regnum_model.nodes import MAX_EPOCH, MAX_PARTITIONS, LeaderAndIsr, Membership
from regnum_model.topics import InvalidTopicNameError, check_topic_name

SHARED_MAX: Final = 1_024
"""Values of one kind that are kept to be shared."""

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One partition of a LeaderAndIsr."""

    key: PartitionKey
    """Which replica."""
    topic: str
    """Name of its topic."""
    state: LeaderAndIsr
    """What the node holds."""
    version: int
    """Version of that node."""
    replicas: tuple[BrokerId, ...]
    """Assigned replicas."""
    min_insync: int
    """Effective min.insync.replicas."""


class OrderReader:
    """Reads orders. What it shares is never changed by anybody: ids, tuples and mappings that are only read."""

    def __init__(self) -> None:
        self._topics: Final[dict[tuple[str, str], tuple[str, TopicId] | None]] = {}
        self._ids: Final[dict[tuple[int, ...], tuple[BrokerId, ...] | None]] = {}
        self._members: Final[dict[tuple[tuple[int, int, str], ...], Mapping[BrokerId, Membership] | None]] = {}

    def read(self, message: control_pb2.LeaderAndIsrPartition) -> Order | None:
        """The order of a partition; None when it contradicts itself, or names what no node of the store may hold.

        Such a number would stay in the log for ever.
        """
        state = message.state
        topic = self._topic(message.topic, message.topic_id)
        isr, elr, replicas = self._broker_ids(state.isr), self._broker_ids(state.elr), self._broker_ids(state.replicas)
        members = self._membership(message.members)
        if topic is None or isr is None or elr is None or replicas is None or members is None:
            return None
        partition, leader, version = state.partition, state.leader, state.version
        leader_epoch, controller_epoch = state.leader_epoch, message.recorded_controller_epoch
        fits = (
            0 <= partition < MAX_PARTITIONS
            and 0 <= leader_epoch <= MAX_EPOCH
            and version >= 0
            and leader >= NO_LEADER
            and 0 <= controller_epoch <= MAX_EPOCH
        )
        if not fits or not isr or not all(map(members.__contains__, isr)) or not all(map(members.__contains__, elr)):
            return None
        name, topic_id = topic
        return Order(
            key=PartitionKey(topic_id, partition),
            topic=name,
            state=LeaderAndIsr(
                topic_id=topic_id,
                leader=BrokerId(leader),
                leader_epoch=LeaderEpoch(leader_epoch),
                isr=isr,
                elr=elr,
                members=members,
                controller_epoch=ControllerEpoch(controller_epoch),
            ),
            version=version,
            replicas=replicas,
            min_insync=max(1, message.min_insync_replicas),
        )

    def _topic(self, name: str, topic_id: str) -> tuple[str, TopicId] | None:
        key = (name, topic_id)
        if key not in self._topics:
            _make_room(self._topics)
            self._topics[key] = _checked_topic(name, topic_id)
        return self._topics[key]

    def _broker_ids(self, ids: Sequence[int]) -> tuple[BrokerId, ...] | None:
        key = tuple(ids)
        if key not in self._ids:
            _make_room(self._ids)
            self._ids[key] = tuple(map(BrokerId, key)) if min(key, default=0) >= 0 else None
        return self._ids[key]

    def _membership(self, members: Sequence[control_pb2.Member]) -> Mapping[BrokerId, Membership] | None:
        key = tuple([(member.broker_id, member.broker_epoch, member.log_id) for member in members])
        if key not in self._members:
            _make_room(self._members)
            fits = all(id >= 0 and epoch >= 0 for id, epoch, _ in key)
            made = {
                BrokerId(id): Membership(broker_epoch=BrokerEpoch(epoch), log_id=LogId(log_id))
                for id, epoch, log_id in key
            }
            self._members[key] = made if fits else None
        return self._members[key]


def _checked_topic(name: str, topic_id: str) -> tuple[str, TopicId] | None:
    try:
        check_topic_name(name)
    except InvalidTopicNameError:
        return None
    return (name, TopicId(topic_id)) if is_topic_id(topic_id) else None


def _make_room(kept: dict[K, V]) -> None:
    """What is shared already stays with those who have it."""
    if len(kept) >= SHARED_MAX:
        kept.clear()
