"""The shape of a measurement: how large the cluster is, what is in it, how often it is done. Pure."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final, Self

STORES: Final = ("etcd", "zookeeper")
"""Stores that a benchmark can start."""


class ShapeError(ValueError):
    """A shape that cannot be measured, or a template that names what no shape has. The message says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is measured. Every benchmark reads the fields that it is about; all of them are in its result."""

    coordination: str = "etcd"
    """The store: one of STORES, started for the run."""
    brokers: int = 3
    """Brokers; for ``propagate`` the receivers that are played."""
    elections: int = 3
    """Election processes."""
    metadata: int = 2
    """Metadata processes."""
    topics: int = 100
    """Topics that are created."""
    partitions: int = 10
    """Partitions of each topic."""
    replication_factor: int = 3
    """Replicas of each partition."""
    affected: int = 0
    """``failover``: partitions that the victim leads, placed by hand. 0: the controller places, the victim leads its
    share."""
    with_controller: int = 0
    """``failover``: 1 kills the controller at the same moment."""
    batch: int = 50
    """Topics in one call; admissions in one call of ``admit``."""
    rate: float = 0.0
    """Calls offered in a second. 0: the next one when the last is answered. ``reassignment``: records in a second."""
    quota: float = 0.0
    """``storm``: partitions a second that its callers may create together; they ignore throttle times. 0: no quota."""
    kill: int = 0
    """``storm`` with a quota: 1 kills a broker in the middle, and on a quiet cluster beside that."""
    kills: int = 5
    """``outage``: kills of a leader under load, in each pass."""
    loaded: int = 12
    """``outage``: partitions of one more topic, each with a writer of its own."""
    told: int = 1
    """``outage``: 0: the producer asks for new leaders, and no broker tells it of them."""
    shared: int = 1
    """``propagate``: 0: the process makes a payload for each broker, as it was before seed 003."""
    silent: int = 0
    """``propagate``: receivers that take the connection and never read."""
    interval_ms: float = 20.0
    """``outage``: between two records of one partition, in milliseconds."""
    in_flight: int = 8
    """``produce``, ``consume``, ``admit``: calls under way at once."""
    changes: int = 100
    """``propagate``: changes of one partition."""
    applying: int = 10
    """``propagate``: receivers that read every byte and keep what it says; the others look at heads only."""
    records: int = 20_000
    """``produce``, ``consume``: records of a repetition. ``admit``: admissions. ``write_batch``: conditional writes."""
    size: int = 1_000
    """Bytes of a record's value."""
    tls: int = 0
    """``produce``: 1: each repetition is measured on a second cluster over TLS too, and the hop over TLS."""
    batch_bytes: int = 512 * 1024
    """``produce``, ``traffic``, ``start``: bytes of a batch."""
    batch_grows_to: int = 0
    """``traffic``, ``singles``: bytes to which a batch grows that has to wait, as the SDK's do (1000000). 0: none
    does."""
    tasks: int = 50
    """``singles``: tasks that wait for each of their records."""
    size_mb: float = 50.0
    """``reassignment``, ``start``: what is in all partitions together at first, in megabytes (10**6 bytes).
    ``retention``: limit of each partition."""
    seconds: float = 300.0
    """``retention``: so long it is written."""
    throttle_mb_s: float = 3.3
    """``reassignment``: throttle of the moves, for leaders and followers alike, in megabytes a second. 0: none."""
    repetitions: int = 3
    """Repetitions that count, in each pass."""
    warm_up: int = 1
    """Repetitions before them that do not."""
    passes: int = 1
    """Times that everything is started anew; a peer takes its turn after each."""
    settle_s: float = 2.0
    """Quiet time before each repetition, in seconds."""
    deadline_s: float = 300.0
    """Longest time that anything is waited for, in seconds."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "coordination":
                if value not in STORES:
                    raise ShapeError(f"no store {value!r}; use one of {', '.join(STORES)}")
            elif value < (0 if field.name in _MAY_BE_NONE else 1):
                raise ShapeError(f"{field.name} {value} is too small")
        if self.replication_factor > self.brokers:
            raise ShapeError(f"{self.replication_factor} replicas do not fit {self.brokers} brokers")
        if self.affected > self.partitions_total:
            raise ShapeError(f"{self.affected} affected partitions do not fit {self.partitions_total}")

    @property
    def partitions_total(self) -> int:
        """Partitions of all topics."""
        return self.topics * self.partitions

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the topics."""
        return tuple(f"bench-{number:05d}" for number in range(self.topics))

    def with_total(self, partitions_total: int) -> Self:
        """The shape with so many partitions, in as many topics as that takes."""
        if partitions_total % self.partitions:
            raise ShapeError(f"{partitions_total} partitions are no whole number of topics of {self.partitions}")
        return replace(self, topics=partitions_total // self.partitions)

    def changed(self, values: Mapping[str, Any]) -> Self:
        """The shape with these fields instead; None leaves a field as it is."""
        return replace(self, **{name: value for name, value in values.items() if value is not None})

    def to_json(self) -> dict[str, Any]:
        """For the result."""
        return {**asdict(self), "partitions_total": self.partitions_total}


_MAY_BE_NONE: Final = frozenset(
    {
        "tls",
        "told",
        "shared",
        "silent",
        "affected",
        "batch_grows_to",
        "with_controller",
        "rate",
        "quota",
        "kill",
        "warm_up",
        "settle_s",
        "metadata",
        "throttle_mb_s",
    }
)


def fill(template: str, shape: Shape) -> tuple[str, ...]:
    """The words of a command whose ``{field}`` are replaced by what the shape has; ``{{`` is a brace.

    Example: ``peer storm --topics {topics} --rf {replication_factor}``. Raises ShapeError.
    """
    values = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in shape.to_json().items()}
    try:
        words = tuple(word.format_map(values) for word in shlex.split(template))
    except KeyError as unknown:
        raise ShapeError(f"no field {unknown} in a shape; there are: {', '.join(sorted(values))}") from None
    except (ValueError, IndexError) as error:
        raise ShapeError(f"{template!r} is no command template: {error}") from None
    if not words:
        raise ShapeError("the command beside ours is empty")
    return words


def placed(shape: Shape, brokers: Sequence[int], victim: int) -> dict[str, dict[int, tuple[int, ...]]]:
    """Replicas by hand: topic -> partition -> brokers, the leader first.

    The first ``affected`` partitions are led by the victim, the others by the others in turn. Where there are more
    brokers than replicas the victim has no replica of those, so that its death is about the affected ones only.

    Example: brokers 1 to 4, victim 1, 2 replicas: affected partition 0 gets (1, 2), the first other one (2, 3).
    """
    others = [broker for broker in sorted(brokers) if broker != victim]
    factor = shape.replication_factor
    assignment: dict[str, dict[int, tuple[int, ...]]] = {}
    for number in range(shape.partitions_total):
        turned = [others[(number + step) % len(others)] for step in range(len(others))]
        replicas = (victim, *turned)[:factor] if number < shape.affected else (*turned, victim)[:factor]
        topic = shape.names[number // shape.partitions]
        assignment.setdefault(topic, {})[number % shape.partitions] = replicas
    return assignment
