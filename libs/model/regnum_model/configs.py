"""Settings as the store holds them, under Kafka's names, and what each of them is. Pure.

    /config/cluster          of the whole cluster; the limits of its quota stand in the same node
    /config/topics/<topic>   of one topic, exactly as long as the topic
    /config/brokers/<id>     of one broker

All are ``{"version":1,"config":{"min.insync.replicas":"2"}}``. Keys that are not known here are kept as they are.

A topic's or a broker's own value goes before the cluster's, and the cluster's before the default. ``DEFINITIONS``
(those of brokers: ``broker_configs``) is the one place where a setting has its range, its default and its meaning.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from regnum_model.broker_configs import BROKER_DEFINITIONS
from regnum_model.config_definition import (
    CLEANUP_COMPACT,
    CLEANUP_DELETE,
    CREATE_TIME,
    LOG_APPEND_TIME,
    NO_LIMIT,
    THOUSANDTHS,
    ConfigDefinition,
    ConfigType,
)
from regnum_model.nodes import MalformedNodeError
from regnum_model.nodes.reading import dumped, loaded, versioned

CLUSTER: Final = "/config/cluster"
TOPICS: Final = "/config/topics"
BROKERS: Final = "/config/brokers"

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
DEFAULT_REPLICATION_FACTOR: Final = "default.replication.factor"
UNCLEAN_LEADER_ELECTION_ENABLE: Final = "unclean.leader.election.enable"
MAX_MESSAGE_BYTES: Final = "max.message.bytes"
MAX_MESSAGE_UNPACKED_BYTES: Final = "max.message.unpacked.bytes"
SEGMENT_BYTES: Final = "segment.bytes"
SEGMENT_MS: Final = "segment.ms"
RETENTION_BYTES: Final = "retention.bytes"
RETENTION_MS: Final = "retention.ms"
INDEX_INTERVAL_BYTES: Final = "index.interval.bytes"
CLEANUP_POLICY: Final = "cleanup.policy"
MESSAGE_TIMESTAMP_TYPE: Final = "message.timestamp.type"
MIN_CLEANABLE_DIRTY_RATIO: Final = "min.cleanable.dirty.ratio"
DELETE_RETENTION_MS: Final = "delete.retention.ms"
MIN_COMPACTION_LAG_MS: Final = "min.compaction.lag.ms"
MAX_COMPACTION_LAG_MS: Final = "max.compaction.lag.ms"
FLUSH_MESSAGES: Final = "flush.messages"
FLUSH_MS: Final = "flush.ms"
AUTO_LEADER_REBALANCE_ENABLE: Final = "auto.leader.rebalance.enable"
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS: Final = "leader.imbalance.check.interval.seconds"
LEADER_IMBALANCE_PER_BROKER_PERCENTAGE: Final = "leader.imbalance.per.broker.percentage"
QUOTA_WINDOW_NUM: Final = "controller.quota.window.num"
QUOTA_WINDOW_SIZE_SECONDS: Final = "controller.quota.window.size.seconds"
INTER_BROKER_PROTOCOL: Final = "inter.broker.protocol.version"

PER_BROKER_EPOCHS: Final = 1
"""Value of ``inter.broker.protocol.version`` with which each broker is told its own broker epoch."""

MAX_BROKER_EPOCH: Final = 2
"""The one with which all are told the highest, so that one payload serves all (seed 003)."""

VALUE_MAX: Final = 2**15 - 1
"""Largest number of replicas; Kafka counts them with 16 bits."""

SEGMENT_MS_MAX: Final = 2**53
"""Largest time in milliseconds: what every reader of JSON takes exactly; 285,000 years."""

BATCH_BYTES_MAX: Final = 32 * 1024 * 1024
"""Largest record batch that any setting may allow: it has to fit into a message of 64 MiB with room to spare."""

UNPACKED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Largest size of decompressed records that any setting may allow: what readers decompress, unless told otherwise."""

RETENTION_BYTES_MAX: Final = 2**53
"""Largest limit of a log, in bytes: what every reader of JSON takes exactly."""

MUTATIONS_KEY: Final = "mutations"
"""Key of the mutations that a node knows; see ``regnum_model.mutations``, which stands above this module."""

DEFINITIONS: Final[Mapping[str, ConfigDefinition]] = MappingProxyType(
    {
        one.name: one
        for one in (
            ConfigDefinition(
                name=MIN_INSYNC_REPLICAS,
                low=1,
                high=VALUE_MAX,
                default=2,
                doc="So many replicas must be in sync for acks=all; at most the replication factor applies.",
            ),
            ConfigDefinition(
                name=DEFAULT_REPLICATION_FACTOR,
                low=1,
                high=VALUE_MAX,
                default=3,
                topic=False,
                doc="Replicas of a topic that does not say how many it wants.",
            ),
            ConfigDefinition(
                name=INTER_BROKER_PROTOCOL,
                low=PER_BROKER_EPOCHS,
                high=MAX_BROKER_EPOCH,
                default=MAX_BROKER_EPOCH,
                topic=False,
                doc="How processes of the cluster talk to one another. Below 2 metadata is sent with the epoch of each "
                "broker, from 2 on with the highest of all, the same bytes for all. Raise it when every process "
                "runs this release; it is never lowered.",
            ),
            ConfigDefinition(
                name=UNCLEAN_LEADER_ELECTION_ENABLE,
                type=ConfigType.BOOLEAN,
                default=0,
                doc="Whether a partition that no in-sync or eligible replica can lead gets the best other one as "
                "leader, by itself. Acknowledged records may be lost.",
            ),
            ConfigDefinition(
                name=MAX_MESSAGE_BYTES,
                low=1_024,
                high=BATCH_BYTES_MAX,
                default=1_048_588,
                doc="Largest record batch that the leader takes, in bytes; without a value, that of its broker's "
                "--message-bytes-max.",
            ),
            ConfigDefinition(
                name=MAX_MESSAGE_UNPACKED_BYTES,
                low=1_024,
                high=UNPACKED_BYTES_MAX,
                default=8 * 1024 * 1024,
                doc="Largest size of the records of a compressed batch once they are decompressed, in bytes: the "
                "leader decompresses no more, and takes no batch that has more. Kafka has no such limit.",
            ),
            ConfigDefinition(
                name=SEGMENT_BYTES,
                low=1024 * 1024,
                high=2**31 - 1,
                default=256 * 1024 * 1024,
                doc="Size at which a log segment is closed, in bytes; without a value, that of the broker's "
                "--segment-bytes.",
            ),
            ConfigDefinition(
                name=SEGMENT_MS,
                low=1_000,
                high=SEGMENT_MS_MAX,
                default=SEGMENT_MS_MAX,
                doc="Age at which a log segment is closed by the next append, in milliseconds. It counts from the "
                "first append that a run of the broker makes to the segment.",
            ),
            ConfigDefinition(
                name=RETENTION_BYTES,
                low=0,
                high=RETENTION_BYTES_MAX,
                unlimited=True,
                default=NO_LIMIT,
                doc="Bytes of a partition that are kept: the oldest segments beyond that are deleted once they are "
                "committed. A segment is then closed at a fortieth of it, if segment.bytes is larger.",
            ),
            ConfigDefinition(
                name=RETENTION_MS,
                low=0,
                high=SEGMENT_MS_MAX,
                unlimited=True,
                default=NO_LIMIT,
                doc="Age at which committed records are deleted, a whole segment at a time, in milliseconds: by the "
                "largest timestamp of its records, or when they were written, if that was earlier.",
            ),
            ConfigDefinition(
                name=INDEX_INTERVAL_BYTES,
                low=1_024,
                high=16 * 1024 * 1024,
                default=4_096,
                doc="Bytes of batches between two entries of a segment's index.",
            ),
            ConfigDefinition(
                name=MESSAGE_TIMESTAMP_TYPE,
                type=ConfigType.TIMESTAMPS,
                low=CREATE_TIME,
                high=LOG_APPEND_TIME,
                default=CREATE_TIME,
                doc="Which time records get: with CreateTime the one that their producer gives them, with "
                "LogAppendTime the one at which the leader appends them. Records that are there keep what they have.",
            ),
            ConfigDefinition(
                name=CLEANUP_POLICY,
                type=ConfigType.LIST,
                low=CLEANUP_DELETE,
                high=CLEANUP_COMPACT | CLEANUP_DELETE,
                default=CLEANUP_DELETE,
                doc="What becomes of old records: delete applies retention.ms and retention.bytes; compact keeps the "
                "newest record of each key, and refuses records without one; compact,delete does both.",
            ),
            ConfigDefinition(
                name=MIN_CLEANABLE_DIRTY_RATIO,
                type=ConfigType.RATIO,
                high=THOUSANDTHS,
                default=THOUSANDTHS // 2,
                doc="A log is compacted when the part that was not compacted yet is more than this of its closed "
                "segments, by bytes.",
            ),
            ConfigDefinition(
                name=DELETE_RETENTION_MS,
                high=SEGMENT_MS_MAX,
                default=86_400_000,
                doc="How long a record without a value, which says that its key is deleted, is kept after the log was "
                "compacted up to it, in milliseconds: a consumer from the log's start has so long to see it.",
            ),
            ConfigDefinition(
                name=MIN_COMPACTION_LAG_MS,
                high=SEGMENT_MS_MAX,
                default=0,
                doc="How long records are kept as they were written before compaction may take them out, in "
                "milliseconds.",
            ),
            ConfigDefinition(
                name=MAX_COMPACTION_LAG_MS,
                low=1,
                high=SEGMENT_MS_MAX,
                default=SEGMENT_MS_MAX,
                doc="A log is compacted when the oldest record that was not compacted yet is so old, in milliseconds, "
                "however little there is of such; its segments are closed at that age. min.compaction.lag.ms may "
                "not be set above it, and goes before it. Without a value, only min.cleanable.dirty.ratio decides.",
            ),
            ConfigDefinition(
                name=FLUSH_MESSAGES,
                low=1,
                high=SEGMENT_MS_MAX,
                default=SEGMENT_MS_MAX,
                doc="After so many records, a replica brings them to the disk before it counts as having the last of "
                "them; 1: before each append is acknowledged. Without a value, when the operating system does.",
            ),
            ConfigDefinition(
                name=FLUSH_MS,
                low=1,
                high=SEGMENT_MS_MAX,
                default=SEGMENT_MS_MAX,
                doc="Milliseconds after which an append is brought to the disk, whether it was acknowledged or not. "
                "Without a value, when the operating system does.",
            ),
            ConfigDefinition(
                name=AUTO_LEADER_REBALANCE_ENABLE,
                type=ConfigType.BOOLEAN,
                default=1,
                topic=False,
                doc="Whether leadership goes back to preferred replicas by itself.",
            ),
            ConfigDefinition(
                name=LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS,
                low=1,
                high=86_400,
                default=300,
                topic=False,
                doc="Seconds between two looks at the balance of leaders; without a value, that of the controller's "
                "--leader-balance-interval-s.",
            ),
            ConfigDefinition(
                name=LEADER_IMBALANCE_PER_BROKER_PERCENTAGE,
                low=0,
                high=100,
                default=10,
                topic=False,
                doc="Percentage of the partitions that prefer a broker which others may lead before it is balanced.",
            ),
            ConfigDefinition(
                name=QUOTA_WINDOW_NUM,
                low=1,
                high=1_000,
                default=11,
                topic=False,
                doc="Windows over which created and deleted partitions are measured. A quota without a burst of its "
                "own has its rate times this times controller.quota.window.size.seconds as burst.",
            ),
            ConfigDefinition(
                name=QUOTA_WINDOW_SIZE_SECONDS,
                low=1,
                high=3_600,
                default=1,
                topic=False,
                doc="Length of each window over which created and deleted partitions are measured, in seconds.",
            ),
            *BROKER_DEFINITIONS,
        )
    }
)
"""Every setting, by name."""

DEFAULTS: Final[Mapping[str, int]] = MappingProxyType(
    {key: DEFINITIONS[key].default for key in (MIN_INSYNC_REPLICAS, DEFAULT_REPLICATION_FACTOR)}
)
"""Settings that the node of the cluster always names, so that none of them depends on who reigns next, and their
defaults."""

QUOTA_KEYS: Final = frozenset({QUOTA_WINDOW_NUM, QUOTA_WINDOW_SIZE_SECONDS})
"""Settings that quotas follow from: a change of one is announced as a change of quotas."""

BROKER_KEYS: Final = frozenset(name for name, one in DEFINITIONS.items() if one.broker)
"""Settings that a broker may have of its own."""

TOPIC_KEYS: Final = frozenset(name for name, one in DEFINITIONS.items() if one.topic)
"""Settings that a topic may have of its own."""


COUPLED: Final = frozenset({MIN_COMPACTION_LAG_MS, MAX_COMPACTION_LAG_MS})
"""Settings that have to fit one another; see ``contradiction``."""


def contradiction(values: Mapping[str, int]) -> str | None:
    """Why settings cannot be in force together, with what helps; None: they can. What is not named has its default."""
    least, most = (values.get(key, DEFINITIONS[key].default) for key in (MIN_COMPACTION_LAG_MS, MAX_COMPACTION_LAG_MS))
    if least <= most:
        return None
    return (
        f"{MIN_COMPACTION_LAG_MS} would be {least} and {MAX_COMPACTION_LAG_MS} {most}: records that may not be "
        f"compacted yet would have to be; set {MIN_COMPACTION_LAG_MS} to at most {most}, or both in one call"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """What brokers are told for a topic's replicas. None: nobody set it; the broker's own flag or default counts."""

    segment_bytes: int | None = None
    """Size at which a segment is closed."""
    segment_ms: int | None = None
    """Age at which it is closed, in milliseconds."""
    index_interval_bytes: int | None = None
    """Bytes of batches between two entries of its index."""
    max_message_bytes: int | None = None
    """Largest record batch that a leader takes, in bytes."""
    max_message_unpacked_bytes: int | None = None
    """Largest size of the records of a compressed batch once they are decompressed, in bytes."""
    retention_bytes: int | None = None
    """Bytes that are kept; -1: any number."""
    retention_ms: int | None = None
    """Age at which records are deleted, in milliseconds; -1: at none."""
    cleanup_policy: int | None = None
    """What becomes of old records; see ``CLEANUP_POLICIES``."""
    message_timestamp_type: int | None = None
    """Which time records have; see ``TIMESTAMP_TYPES``."""
    min_cleanable_dirty_ratio: int | None = None
    """Part of a log that is not compacted yet when it is compacted, in thousandths."""
    delete_retention_ms: int | None = None
    """How long a deletion is kept after compaction has come to it, in milliseconds."""
    min_compaction_lag_ms: int | None = None
    """How long records are kept as they are before compaction, in milliseconds."""
    max_compaction_lag_ms: int | None = None
    """Age of the oldest record that is not compacted yet at which a log is, in milliseconds."""
    flush_messages: int | None = None
    """Records after which a replica brings what it has to the disk before it goes on."""
    flush_ms: int | None = None
    """Milliseconds after which an append is brought to the disk."""


NO_SETTINGS: Final = ReplicaSettings()
"""Nothing is set."""


def topic_config(name: str) -> str:
    """Node of a topic's own settings."""
    return f"{TOPICS}/{name}"


def broker_config(id: int) -> str:
    """Node of a broker's own settings."""
    return f"{BROKERS}/{id}"


def parse_value(key: str, text: str) -> int:
    """The value of a known setting; raises MalformedNodeError."""
    return DEFINITIONS[key].parse(text)


def format_value(key: str, value: int) -> str:
    """The text of a known setting's value."""
    return DEFINITIONS[key].format(value)


def encode_config(config: Mapping[str, str], *, over: bytes | None = None) -> bytes:
    """JSON; what the node besides says that it replaces (``over``) stays: a later release may have written it."""
    kept: dict[str, Any] = loaded(over) if over else {}
    return dumped({**kept, "version": 1, "config": dict(sorted(config.items()))})


def says_more(data: bytes | None) -> bool:
    """Whether a node that ``decode_config`` has read says something besides settings and mutations."""
    return bool(data) and bool(loaded(data or b"").keys() - {"version", "config", MUTATIONS_KEY})


def _default_config(content: Mapping[str, Any]) -> dict[str, str] | None:
    """What a node says that names no settings: nothing, where it stands for its mutations only."""
    return {} if MUTATIONS_KEY in content else None


def decode_config(data: bytes, *, example: str) -> dict[str, str]:
    """Values by key, as text; an empty node says nothing. Raises MalformedNodeError, which shows the ``example``."""
    if not data:
        return {}
    try:
        content: Any = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        # ValueError: no UTF-8, no JSON, or a number with more digits than Python reads.
        raise MalformedNodeError(f"not JSON: {error}") from None
    if isinstance(content, dict):
        versioned(content, "a node of settings")
    config = content.get("config", _default_config(content)) if isinstance(content, dict) else None
    if not isinstance(config, dict) or not all(isinstance(value, str) for value in config.values()):
        raise MalformedNodeError(f"{example} is expected")
    return config
