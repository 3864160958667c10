"""Reading the controller's orders from their messages: what contradicts itself is refused, what repeats is kept once.

Goals: thousands of partitions change their leader with one broker's death, and each names the same few topics, ISRs
and members. Each of these is checked and made once, and shared by all states that name it: that is most of what an
order costs, and of what a replica's state takes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from regnum.replication.v1 import control_pb2
from regnum_model.config_definition import NO_LIMIT
from regnum_model.configs import (
    CLEANUP_POLICY,
    DEFINITIONS,
    DELETE_RETENTION_MS,
    FLUSH_MESSAGES,
    FLUSH_MS,
    INDEX_INTERVAL_BYTES,
    MAX_COMPACTION_LAG_MS,
    MAX_MESSAGE_BYTES,
    MAX_MESSAGE_UNPACKED_BYTES,
    MESSAGE_TIMESTAMP_TYPE,
    MIN_CLEANABLE_DIRTY_RATIO,
    MIN_COMPACTION_LAG_MS,
    NO_SETTINGS,
    RETENTION_BYTES,
    RETENTION_MS,
    SEGMENT_BYTES,
    SEGMENT_MS,
    ReplicaSettings,
)
from regnum_model.ids import (
    NO_LEADER,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionKey,
    TopicId,
    is_topic_id,
)
from regnum_model.nodes import MAX_EPOCH, MAX_PARTITIONS, LeaderAndIsr, Membership
from regnum_model.sharing import MemberKey, Shared, broker_ids, memberships
from regnum_model.topics import InvalidTopicNameError, check_topic_name

from regnum_broker.replication.throttle import ThrottleRates

SHARED_MAX: Final = 1_024
"""Values of one kind that are kept to be shared."""


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
    adding: tuple[BrokerId, ...] = ()
    """Replicas that a reassignment brings in."""
    throttle: ThrottleRates | None = None
    """How fast these may be filled; None: the order says nothing of it."""
    settings: ReplicaSettings = NO_SETTINGS
    """What else the replica acts by."""
    began: LeaderEpoch | None = None
    """Leader epoch at which the life of the partition began; None: not known, as of a controller of release 0.1.0."""
    is_new: bool = False
    """Whether the leader may make a replica that it misses. Means nothing where ``began`` is None."""


class OrderReader:
    """Reads orders. What it shares is never changed by anybody: ids, tuples and mappings that are only read."""

    def __init__(self) -> None:
        self._topics: Final = Shared(_checked_topic, room=SHARED_MAX)
        self._ids: Final = Shared(_checked_ids, room=SHARED_MAX)
        self._members: Final = Shared(_checked_members, room=SHARED_MAX)
        self._settings: Final = Shared(_checked_settings, room=SHARED_MAX)

    def read(self, message: control_pb2.LeaderAndIsrPartition) -> Order | None:
        """The order of a partition; None when it contradicts itself, or names what no node of the store may hold.

        Such a number would stay in the log for ever.
        """
        state = message.state
        topic, ids = self._topics[message.topic, message.topic_id], self._ids
        isr, elr, replicas = ids[tuple(state.isr)], ids[tuple(state.elr)], ids[tuple(state.replicas)]
        members, adding = self._membership(message.members), ids[tuple(message.adding_replicas)]
        if topic is None or isr is None or elr is None or replicas is None or members is None or adding is None:
            return None
        partition, leader, version = state.partition, state.leader, state.version
        leader_epoch, controller_epoch = state.leader_epoch, message.recorded_controller_epoch
        began = message.began_leader_epoch if message.HasField("began_leader_epoch") else None
        fits = (
            0 <= partition < MAX_PARTITIONS
            and (began is None or 0 <= began <= leader_epoch)
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
            adding=adding,
            throttle=_rates(message) if adding else None,
            settings=self._read_settings(message),
            began=None if began is None else LeaderEpoch(began),
            is_new=message.is_new,
        )

    def _read_settings(self, message: control_pb2.LeaderAndIsrPartition) -> ReplicaSettings:
        if not message.HasField("settings"):
            return NO_SETTINGS
        told = message.settings
        return self._settings[
            told.segment_bytes if told.HasField("segment_bytes") else None,
            told.segment_ms if told.HasField("segment_ms") else None,
            told.index_interval_bytes if told.HasField("index_interval_bytes") else None,
            told.max_message_bytes if told.HasField("max_message_bytes") else None,
            told.retention_bytes if told.HasField("retention_bytes") else None,
            told.retention_ms if told.HasField("retention_ms") else None,
            told.cleanup_policy if told.HasField("cleanup_policy") else None,
            told.min_cleanable_dirty_ratio if told.HasField("min_cleanable_dirty_ratio") else None,
            told.delete_retention_ms if told.HasField("delete_retention_ms") else None,
            told.min_compaction_lag_ms if told.HasField("min_compaction_lag_ms") else None,
            told.max_compaction_lag_ms if told.HasField("max_compaction_lag_ms") else None,
            told.flush_messages if told.HasField("flush_messages") else None,
            told.flush_ms if told.HasField("flush_ms") else None,
            told.max_message_unpacked_bytes if told.HasField("max_message_unpacked_bytes") else None,
            told.message_timestamp_type if told.HasField("message_timestamp_type") else None,
        ]

    def _membership(self, members: Sequence[control_pb2.Member]) -> Mapping[BrokerId, Membership] | None:
        return self._members[tuple([(member.broker_id, member.broker_epoch, member.log_id) for member in members])]


def _rates(message: control_pb2.LeaderAndIsrPartition) -> ThrottleRates:
    return ThrottleRates(leader=max(message.leader_throttle_rate, 0), follower=max(message.follower_throttle_rate, 0))


def _checked_topic(key: tuple[str, str]) -> tuple[str, TopicId] | None:
    name, topic_id = key
    try:
        check_topic_name(name)
    except InvalidTopicNameError:
        return None
    return (name, TopicId(topic_id)) if is_topic_id(topic_id) else None


def _checked_ids(key: tuple[int, ...]) -> tuple[BrokerId, ...] | None:
    return broker_ids(key) if min(key, default=0) >= 0 else None


def _checked_members(key: MemberKey) -> Mapping[BrokerId, Membership] | None:
    return memberships(key) if all(id >= 0 and epoch >= 0 for id, epoch, _ in key) else None


def _checked_settings(key: tuple[int | None, ...]) -> ReplicaSettings:
    """Settings within their ranges, whatever a controller of another version allows."""
    segment_bytes, segment_ms, index_interval_bytes, max_message_bytes, retention_bytes, retention_ms, *more = key
    cleanup_policy, min_cleanable_dirty_ratio, delete_retention_ms, *lags_and_flushes = more
    min_compaction_lag_ms, max_compaction_lag_ms, flush_messages, flush_ms, *of_leaders = lags_and_flushes
    max_unpacked_bytes, message_timestamp_type = of_leaders
    return ReplicaSettings(
        segment_bytes=_within(SEGMENT_BYTES, segment_bytes),
        segment_ms=_within(SEGMENT_MS, segment_ms),
        index_interval_bytes=_within(INDEX_INTERVAL_BYTES, index_interval_bytes),
        max_message_bytes=_within(MAX_MESSAGE_BYTES, max_message_bytes),
        max_message_unpacked_bytes=_within(MAX_MESSAGE_UNPACKED_BYTES, max_unpacked_bytes),
        retention_bytes=_within(RETENTION_BYTES, retention_bytes),
        retention_ms=_within(RETENTION_MS, retention_ms),
        cleanup_policy=_within(CLEANUP_POLICY, cleanup_policy),
        message_timestamp_type=_within(MESSAGE_TIMESTAMP_TYPE, message_timestamp_type),
        min_cleanable_dirty_ratio=_within(MIN_CLEANABLE_DIRTY_RATIO, min_cleanable_dirty_ratio),
        delete_retention_ms=_within(DELETE_RETENTION_MS, delete_retention_ms),
        min_compaction_lag_ms=_within(MIN_COMPACTION_LAG_MS, min_compaction_lag_ms),
        max_compaction_lag_ms=_within(MAX_COMPACTION_LAG_MS, max_compaction_lag_ms),
        flush_messages=_within(FLUSH_MESSAGES, flush_messages),
        flush_ms=_within(FLUSH_MS, flush_ms),
    )


def _within(name: str, value: int | None) -> int | None:
    definition = DEFINITIONS[name]
    if value is not None and value < 0 and definition.unlimited:
        return NO_LIMIT
    return None if value is None else min(max(value, definition.low), definition.high)
