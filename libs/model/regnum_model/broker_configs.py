"""Settings of brokers that are changed while they run, and the words that those have which are not. Pure.

What a broker was started with (its flags) counts where neither it nor the cluster has a value. The others of its flags
can only be read: where one decides how files are laid out, how much memory is set aside, or who the broker is, a change
under way would do harm or nothing.
"""

from typing import Final

from regnum_model.config_definition import ConfigDefinition

LEADER_THROTTLE_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_THROTTLE_RATE: Final = "follower.replication.throttled.rate"
QUEUED_MAX_REQUEST_BYTES: Final = "queued.max.request.bytes"
CONNECTION_QUEUED_MAX_BYTES: Final = "connection.queued.max.bytes"
CLEANER_PROCESSOR_PERCENTAGE: Final = "log.cleaner.processor.percentage"
PRODUCER_ID_EXPIRATION_MS: Final = "producer.id.expiration.ms"
OFFSETS_RETENTION_MINUTES: Final = "offsets.retention.minutes"
GROUP_INITIAL_REBALANCE_DELAY_MS: Final = "group.initial.rebalance.delay.ms"
GROUP_MAX_SIZE: Final = "group.max.size"

RATE_MAX: Final = 10**12
"""Largest rate, bytes in a second."""

THROTTLE_RATE_MIN: Final = 1_000
"""Smallest rate of a replication throttle: below, a single batch would be paid for over hours."""

BYTES_MAX: Final = 2**40
"""Largest bound on memory."""

TIME_MAX: Final = 2**53
"""Largest time in milliseconds or minutes: what every reader of JSON takes exactly."""

_MIB: Final = 1024 * 1024

BROKER_DEFINITIONS: Final = (
    ConfigDefinition(
        name=LEADER_THROTTLE_RATE,
        least=THROTTLE_RATE_MIN,
        high=RATE_MAX,
        default=0,
        topic=False,
        broker=True,
        doc="Bytes in a second that a broker sends at most to new replicas of partitions that are being "
        "reassigned; 0: any number.",
    ),
    ConfigDefinition(
        name=FOLLOWER_THROTTLE_RATE,
        least=THROTTLE_RATE_MIN,
        high=RATE_MAX,
        default=0,
        topic=False,
        broker=True,
        doc="Bytes in a second that a broker takes at most for new replicas of its own of partitions that are "
        "being reassigned; 0: any number.",
    ),
    ConfigDefinition(
        name=QUEUED_MAX_REQUEST_BYTES,
        low=64 * _MIB,
        high=BYTES_MAX,
        default=256 * _MIB,
        topic=False,
        broker=True,
        flag="queued-max-request-bytes",
        doc="Bytes of requests that wait for their answers, and of answers that wait to be sent, of all clients of a "
        "broker together. What comes beyond is refused, and kept nowhere; what is held when it is lowered stays.",
    ),
    ConfigDefinition(
        name=CONNECTION_QUEUED_MAX_BYTES,
        low=_MIB,
        high=BYTES_MAX,
        default=64 * _MIB,
        topic=False,
        broker=True,
        flag="connection-queued-max-bytes",
        doc="The same for one connection; it gets less when little is left for others.",
    ),
    ConfigDefinition(
        name=CLEANER_PROCESSOR_PERCENTAGE,
        low=1,
        high=100,
        default=25,
        topic=False,
        broker=True,
        doc="Percentage of one processor that compaction of logs takes at most; the log that is being compacted goes "
        "on at the new pace.",
    ),
    ConfigDefinition(
        name=PRODUCER_ID_EXPIRATION_MS,
        low=1,
        high=TIME_MAX,
        default=86_400_000,
        topic=False,
        broker=True,
        flag="producer-id-expiration-ms",
        doc="Milliseconds without an append after which an idempotent producer is forgotten in a partition; looked at "
        "every ten minutes. Of more than 20,000 producers in a partition the oldest are forgotten at once.",
    ),
    ConfigDefinition(
        name=OFFSETS_RETENTION_MINUTES,
        low=1,
        high=TIME_MAX // 60_000,
        default=10_080,
        topic=False,
        broker=True,
        flag="offsets-retention-minutes",
        doc="Minutes for which a broker keeps the offsets of a consumer group without members that it coordinates.",
    ),
    ConfigDefinition(
        name=GROUP_INITIAL_REBALANCE_DELAY_MS,
        low=0,
        high=300_000,
        default=3_000,
        topic=False,
        broker=True,
        flag="group-initial-rebalance-delay-ms",
        doc="Milliseconds for which the first rebalance of an empty consumer group waits for more members.",
    ),
    ConfigDefinition(
        name=GROUP_MAX_SIZE,
        low=1,
        high=1_000,
        default=1_000,
        topic=False,
        broker=True,
        flag="group-max-size",
        doc="Members that a consumer group may have; those that it has when it is lowered stay.",
    ),
)
"""Every setting of brokers that is changed while they run."""
