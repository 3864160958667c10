"""Topics that the cluster makes for itself when somebody first needs them, and their settings."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from regnum_model.access import ResourceType
from regnum_model.configs import CLEANUP_POLICY, DEFINITIONS, DELETE_RETENTION_MS, MAX_MESSAGE_BYTES, SEGMENT_BYTES
from regnum_model.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

Settings = tuple[tuple[str, str], ...]


def _settings(wanted: Iterable[tuple[str, str]]) -> Settings:
    # A release that deletes no records has no such settings.
    return tuple((name, value) for name, value in wanted if name in DEFINITIONS)


OFFSETS_CONFIGS: Final = _settings(
    (
        # A group of a thousand members is one record.
        (MAX_MESSAGE_BYTES, str(16 * 1024 * 1024)),
        # Whatever the cluster says of other topics: a committed offset that is old is no less committed.
        ("retention.ms", "-1"),
        ("retention.bytes", "-1"),
        # What counts of a group, and of an offset, is its newest record: who takes over reads little more than these.
        (CLEANUP_POLICY, "compact"),
        # A replica that was away for so long may bring back what was forgotten meanwhile.
        (DELETE_RETENTION_MS, str(7 * 86_400_000)),
        # Only closed segments are compacted, so that the one that is written to is read with all that is in it.
        (SEGMENT_BYTES, str(32 * 1024 * 1024)),
        # An offset that goes back is records read twice, by everybody who reads in groups.
        ("unclean.leader.election.enable", "false"),
    )
)
"""Settings of the internal topic of consumer groups."""

TRANSACTIONS_CONFIGS: Final = _settings(
    (
        ("retention.ms", "-1"),
        ("retention.bytes", "-1"),
        (CLEANUP_POLICY, "compact"),
        # Kafka's, for the same reasons as above.
        (SEGMENT_BYTES, str(100 * 1024 * 1024)),
        ("unclean.leader.election.enable", "false"),
    )
)
"""Settings of the internal topic of transactions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """A topic that the cluster makes for itself."""

    name: str
    """Its name."""
    of: ResourceType
    """What its partitions coordinate: who may describe one of these may have it made."""
    configs: Settings
    """Its own settings."""


_TOPICS: Final = {
    OFFSETS_TOPIC: InternalTopic(name=OFFSETS_TOPIC, of=ResourceType.GROUP, configs=OFFSETS_CONFIGS),
    TRANSACTIONS_TOPIC: InternalTopic(
        name=TRANSACTIONS_TOPIC, of=ResourceType.TRANSACTIONAL_ID, configs=TRANSACTIONS_CONFIGS
    ),
}


def internal_topic(name: str) -> InternalTopic | None:
    """The topic of that name; empty means that of consumer groups, None that there is no such one."""
    return _TOPICS.get(name or OFFSETS_TOPIC)
