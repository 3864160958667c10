"""Settings of the cluster and of topics: what their nodes mean. Pure.

Whoever reads a setting gets a value: what a node does not say is the cluster's or the default, what it says in a way
that nobody can read is what it was before, and the caller is told of the problem (safety rule S14).
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self

from immutables import Map
from regnum_model.broker_configs import FOLLOWER_THROTTLE_RATE, LEADER_THROTTLE_RATE
from regnum_model.config_changes import lowered
from regnum_model.configs import (
    CLEANUP_POLICY,
    DEFAULT_REPLICATION_FACTOR,
    DEFAULTS,
    DEFINITIONS,
    DELETE_RETENTION_MS,
    FLUSH_MESSAGES,
    FLUSH_MS,
    INDEX_INTERVAL_BYTES,
    INTER_BROKER_PROTOCOL,
    MAX_BROKER_EPOCH,
    MAX_COMPACTION_LAG_MS,
    MAX_MESSAGE_BYTES,
    MAX_MESSAGE_UNPACKED_BYTES,
    MESSAGE_TIMESTAMP_TYPE,
    MIN_CLEANABLE_DIRTY_RATIO,
    MIN_COMPACTION_LAG_MS,
    MIN_INSYNC_REPLICAS,
    RETENTION_BYTES,
    RETENTION_MS,
    SEGMENT_BYTES,
    SEGMENT_MS,
    TOPIC_KEYS,
    UNCLEAN_LEADER_ELECTION_ENABLE,
    ReplicaSettings,
    decode_config,
    parse_value,
)
from regnum_model.nodes import MalformedNodeError

EXAMPLE: Final = '{"version":1,"config":{"min.insync.replicas":"2"}}'
"""What a node looks like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is in force."""

    cluster: Mapping[str, int] = field(default_factory=lambda: DEFAULTS)
    """What the cluster says, by name; the ones of ``DEFAULTS`` at any time."""
    topics: Map[str, Mapping[str, int]] = field(default_factory=Map)
    """What topics say that have settings of their own, by topic and name."""
    unclean: Map[str, None] = field(default_factory=Map)
    """Topics that allow unclean elections themselves."""

    @property
    def default_replication_factor(self) -> int:
        """Replicas of each partition of a topic that does not say how many it wants."""
        return self.cluster[DEFAULT_REPLICATION_FACTOR]

    @property
    def throttle_rates(self) -> tuple[int, int]:
        """Bytes in a second that a broker sends, and takes, for new replicas of partitions that move; 0: any number."""
        return self.of_cluster(LEADER_THROTTLE_RATE), self.of_cluster(FOLLOWER_THROTTLE_RATE)

    @property
    def inter_broker_protocol(self) -> int:
        """How processes of the cluster talk to one another."""
        return self.of_cluster(INTER_BROKER_PROTOCOL)

    def of_cluster(self, key: str) -> int:
        """A setting of the cluster, or its default."""
        value = self.cluster.get(key)
        return DEFINITIONS[key].default if value is None else value

    def of_topic(self, topic: str, key: str) -> int:
        """A setting of a topic: its own, or else the cluster's, or else the default."""
        value = self.set_for(topic, key)
        return DEFINITIONS[key].default if value is None else value

    def set_for(self, topic: str, key: str) -> int | None:
        """What somebody set for a topic or for the cluster; None: nobody did."""
        own = self.topics.get(topic)
        value = None if own is None else own.get(key)
        return self.cluster.get(key) if value is None else value

    def min_insync(self, topic: str) -> int:
        """min.insync.replicas of a topic, as it is set."""
        own = self.topics.get(topic)
        return self.cluster[MIN_INSYNC_REPLICAS] if own is None else self.of_topic(topic, MIN_INSYNC_REPLICAS)

    def unclean_allowed(self, topic: str) -> bool:
        """unclean.leader.election.enable of a topic."""
        return bool(self.of_topic(topic, UNCLEAN_LEADER_ELECTION_ENABLE))

    @property
    def unclean_anywhere(self) -> bool:
        """Whether any topic may be led uncleanly."""
        return bool(self.unclean) or bool(self.of_cluster(UNCLEAN_LEADER_ELECTION_ENABLE))

    def of_replicas(self, topic: str) -> ReplicaSettings:
        """What the brokers of a topic are told."""
        return ReplicaSettings(
            segment_bytes=self.set_for(topic, SEGMENT_BYTES),
            segment_ms=self.set_for(topic, SEGMENT_MS),
            index_interval_bytes=self.set_for(topic, INDEX_INTERVAL_BYTES),
            max_message_bytes=self.set_for(topic, MAX_MESSAGE_BYTES),
            max_message_unpacked_bytes=self.set_for(topic, MAX_MESSAGE_UNPACKED_BYTES),
            retention_bytes=self.set_for(topic, RETENTION_BYTES),
            retention_ms=self.set_for(topic, RETENTION_MS),
            cleanup_policy=self.set_for(topic, CLEANUP_POLICY),
            message_timestamp_type=self.set_for(topic, MESSAGE_TIMESTAMP_TYPE),
            min_cleanable_dirty_ratio=self.set_for(topic, MIN_CLEANABLE_DIRTY_RATIO),
            delete_retention_ms=self.set_for(topic, DELETE_RETENTION_MS),
            min_compaction_lag_ms=self.set_for(topic, MIN_COMPACTION_LAG_MS),
            max_compaction_lag_ms=self.set_for(topic, MAX_COMPACTION_LAG_MS),
            flush_messages=self.set_for(topic, FLUSH_MESSAGES),
            flush_ms=self.set_for(topic, FLUSH_MS),
        )

    def with_topics(self, read: Mapping[str, Mapping[str, int] | None]) -> Self:
        """With what was read of topics; None or nothing: nothing of their own."""
        topics, unclean = self.topics.mutate(), self.unclean.mutate()
        for name, own in read.items():
            if own:
                topics[name] = own
            else:
                topics.pop(name, None)
            if own and own.get(UNCLEAN_LEADER_ELECTION_ENABLE):
                unclean[name] = None
            else:
                unclean.pop(name, None)
        return replace(self, topics=topics.finish(), unclean=unclean.finish())

    def may_differ(self, after: "Settings", topics: Collection[str]) -> Iterator[str]:
        """Which of some topics may have other settings then.

        Where the cluster's are the same, only topics with settings of their own are looked at.
        """
        if self.cluster != after.cluster:
            yield from topics
            return
        named = dict.fromkeys((*self.topics, *after.topics))
        yield from (name for name in named if self.topics.get(name) != after.topics.get(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReading:
    """What ``/config/cluster`` says."""

    values: Mapping[str, int]
    """Settings of the cluster, what cannot be read as it was before."""
    missing: tuple[str, ...] = ()
    """Settings that are not named, or not as they may be, and have to be written."""
    problem: str = ""
    """What a person has to correct; empty: nothing."""
    refused: str = ""
    """What a person wrote that is taken back; empty: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReading:
    """What a topic's node says."""

    values: Mapping[str, int]
    """Settings of its own, what cannot be read as it was before."""
    problem: str = ""
    """What a person has to correct; empty: nothing."""


def read_cluster(
    data: bytes | None, known: Mapping[str, int], *, reigns: bool = False, highest: int = 0, not_above: str = ""
) -> ClusterReading:
    """What the node of the cluster says.

    Args:
        data: its content; None: there is none.
        known: what is in force, or, before anything is, what this process was started with.
        reigns: whether ``known`` is in force.
        highest: the highest ``inter.broker.protocol.version`` that was ever in force (``regnum_model.features``).
        not_above: why nothing above that may be in force; empty: it may.
    """
    floor = max(highest, known.get(INTER_BROKER_PROTOCOL, MAX_BROKER_EPOCH) if reigns else 0)
    try:
        config = decode_config(data or b"", example=EXAMPLE)
    except MalformedNodeError as error:
        before = known.get(INTER_BROKER_PROTOCOL, MAX_BROKER_EPOCH)
        # What was never in force is not believed of a flag either.
        return ClusterReading(
            values={**known, INTER_BROKER_PROTOCOL: floor} if before < floor else known, problem=str(error)
        )
    values, problem = _read(config, DEFINITIONS, known)
    before = known.get(INTER_BROKER_PROTOCOL, MAX_BROKER_EPOCH)
    wanted = before if data is None else values.get(INTER_BROKER_PROTOCOL, MAX_BROKER_EPOCH)
    refused = ""
    missing = tuple(key for key in DEFAULTS if key not in config)
    if data is None and wanted >= floor and before != MAX_BROKER_EPOCH:
        # A cluster that begins below it says so from the beginning: what nobody said is the newest.
        missing = (*missing, INTER_BROKER_PROTOCOL)
    elif wanted < floor:
        # Written by hand, perhaps while nobody reigned: it is written back.
        refused, missing = lowered(wanted, floor), (*missing, INTER_BROKER_PROTOCOL)
        values[INTER_BROKER_PROTOCOL] = floor
    elif not_above and wanted > floor:
        # Raised by hand, or by a broker below protocol 2, over processes that do not know it.
        refused, missing = not_above, (*missing, INTER_BROKER_PROTOCOL)
        values[INTER_BROKER_PROTOCOL] = floor
    values = {**{key: known[key] for key in missing if key not in values}, **values}
    return ClusterReading(values=values, missing=missing, problem=problem, refused=refused)


def read_topic(data: bytes, known: Mapping[str, int] | None = None) -> TopicReading:
    """What a topic's node says of its own settings."""
    before = {} if known is None else known
    try:
        config = decode_config(data, example=EXAMPLE)
    except MalformedNodeError as error:
        return TopicReading(values=before, problem=str(error))
    values, problem = _read(config, TOPIC_KEYS, before)
    return TopicReading(values=values, problem=problem)


def _read(config: Mapping[str, str], keys: Collection[str], known: Mapping[str, int]) -> tuple[dict[str, int], str]:
    values: dict[str, int] = {}
    problems: list[str] = []
    for key in config.keys() & keys:
        try:
            values[key] = parse_value(key, config[key])
        except MalformedNodeError as error:
            problems.append(str(error))
            if key in known:
                values[key] = known[key]
    return values, "; ".join(sorted(problems))
