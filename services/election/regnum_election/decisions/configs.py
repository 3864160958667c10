"""Settings of the cluster and of topics: what their nodes mean. Pure.

Whoever reads a setting gets a value: what a node does not say, or says in a way that nobody can read, is what it was
before, and the caller is told of the problem (safety rule S14).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self

from immutables import Map
from regnum_model.configs import (
    DEFAULT_REPLICATION_FACTOR,
    DEFAULTS,
    FOLLOWER_THROTTLE_RATE,
    LEADER_THROTTLE_RATE,
    MIN_INSYNC_REPLICAS,
    RATES,
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
    """Every setting of the cluster."""
    rates: Mapping[str, int] = field(default_factory=dict)
    """Rates that the cluster has."""
    topics: Map[str, int] = field(default_factory=Map)
    """min.insync.replicas of topics that have one of their own, by name."""

    @property
    def default_replication_factor(self) -> int:
        """Replicas of each partition of a topic that does not say how many it wants."""
        return self.cluster[DEFAULT_REPLICATION_FACTOR]

    @property
    def throttle_rates(self) -> tuple[int, int]:
        """Bytes in a second that a broker sends, and takes, for new replicas of partitions that move; 0: any number."""
        return self.rates.get(LEADER_THROTTLE_RATE, 0), self.rates.get(FOLLOWER_THROTTLE_RATE, 0)

    def min_insync(self, topic: str) -> int:
        """min.insync.replicas of a topic, as it is set."""
        return self.topics.get(topic, self.cluster[MIN_INSYNC_REPLICAS])

    def of_topics(self, read: Mapping[str, int | None]) -> Self:
        """With what was read of topics; None: nothing of its own."""
        topics = self.topics.mutate()
        for name, value in read.items():
            if value is not None:
                topics[name] = value
            else:
                topics.pop(name, None)
        return replace(self, topics=topics.finish())

    def changes(self, after: "Settings", topics: Collection[str]) -> list[str]:
        """Which of some topics have another min.insync.replicas then."""
        return [name for name in topics if self.min_insync(name) != after.min_insync(name)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReading:
    """What ``/config/cluster`` says."""

    values: Mapping[str, int]
    """Every setting, what cannot be read as it was before."""
    rates: Mapping[str, int] = field(default_factory=dict)
    """Rates that the cluster has."""
    missing: tuple[str, ...] = ()
    """Settings that are not named and have to be written."""
    problem: str = ""
    """What a person has to correct; empty: nothing."""


def read_cluster(data: bytes | None, known: Mapping[str, int]) -> ClusterReading:
    """What the node of the cluster says; None: there is none."""
    try:
        config = decode_config(data or b"", example=EXAMPLE)
    except MalformedNodeError as error:
        return ClusterReading(values=known, problem=str(error))
    values = dict(known)
    problems: list[str] = []
    rates: dict[str, int] = {}
    for key in (*DEFAULTS, *sorted(RATES)):
        if key in config:
            try:
                (rates if key in RATES else values)[key] = parse_value(key, config[key])
            except MalformedNodeError as error:
                problems.append(str(error))
    missing = tuple(key for key in DEFAULTS if key not in config)
    return ClusterReading(values=values, rates=rates, missing=missing, problem="; ".join(problems))


def read_topic(data: bytes) -> int | None:
    """min.insync.replicas of a topic's own; None: it has none. Raises MalformedNodeError."""
    text = decode_config(data, example=EXAMPLE).get(MIN_INSYNC_REPLICAS)
    return None if text is None else parse_value(MIN_INSYNC_REPLICAS, text)
