"""Topics as callers create and delete them, and as the wire has them. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_service.errors import RegnumError


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create.

    >>> topic = NewTopic(name="audit", partitions=2, configs={"max.message.bytes": "65536"})
    >>> admin.create_topics([topic], validate_only=True)["audit"].partitions
    2
    """

    name: str
    """Name: 1 to 249 of [a-zA-Z0-9._-]."""
    partitions: int = 1
    """Number of partitions; 0 together with an assignment."""
    replication_factor: int | None = None
    """Replicas of each partition. None: the cluster's setting default.replication.factor."""
    assignment: Mapping[int, Sequence[int]] | None = None
    """Broker ids of each partition, the preferred leader first. None: the controller places the replicas."""
    configs: Mapping[str, str] = field(default_factory=dict)
    """Settings of its own, by name: ``min.insync.replicas``, ``max.message.bytes``, ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """A topic that was created (or would be, when validating only).

    >>> created = admin.create_topic("payments", partitions=2)
    >>> created.name, created.partitions
    ('payments', 2)
    """

    name: str
    topic_id: str
    """Topic id; empty when validating only."""
    partitions: int
    """Number of partitions."""
    replication_factor: int
    """Replicas of each partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedTopic:
    """A topic that was deleted.

    >>> _ = admin.create_topic("scratch")
    >>> admin.delete_topic("scratch").name
    'scratch'
    """

    name: str
    """Name, free again."""
    topic_id: str
    """Topic id that it had; empty when it was not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPartitions:
    """Partitions to add to a topic.

    >>> _ = admin.create_topic("growing")
    >>> admin.create_partitions_of_topics([NewPartitions(topic="growing", total=3)])["growing"].partitions
    3
    """

    topic: str
    """Name of the topic."""
    total: int = 0
    """Partitions that it is to have, above the present number; 0: as many more as the assignment has."""
    assignment: Mapping[int, Sequence[int]] | None = None
    """Broker ids of each new partition, the preferred leader first. None: the controller places the replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitions:
    """A topic to which partitions were added, or from which they were removed (or would be, when validating only).

    >>> _ = admin.create_topic("wider")
    >>> admin.create_partitions("wider", 2).partitions
    2
    """

    name: str
    """Name of the topic."""
    partitions: int
    """Number of its partitions now."""


def new_partitions_to_wire(new: NewPartitions, mutation_id: str) -> admin_pb2.NewPartitions:
    """The message."""
    return admin_pb2.NewPartitions(
        name=new.topic,
        count=new.total,
        assignment=[
            admin_pb2.ReplicaAssignment(partition=partition, replicas=replicas)
            for partition, replicas in sorted((new.assignment or {}).items())
        ],
        mutation_id=mutation_id,
    )


def partitions_from_wire(result: admin_pb2.PartitionsResult) -> TopicPartitions | RegnumError:
    """What became of a topic whose partitions were to be changed."""
    if result.error_code != errors_pb2.ERROR_CODE_NONE:
        return RegnumError(result.error_code, result.error_message, metadata={"topic": result.name})
    return TopicPartitions(name=result.name, partitions=result.partitions)


def new_topic_to_wire(topic: NewTopic, mutation_id: str) -> admin_pb2.NewTopic:
    """The message."""
    return admin_pb2.NewTopic(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignment=[
            admin_pb2.ReplicaAssignment(partition=partition, replicas=replicas)
            for partition, replicas in sorted((topic.assignment or {}).items())
        ],
        mutation_id=mutation_id,
        configs=[admin_pb2.NewTopicConfig(name=name, value=value) for name, value in sorted(topic.configs.items())],
    )


def created_from_wire(result: admin_pb2.CreateTopicResult) -> CreatedTopic | RegnumError:
    """What became of a topic that was to be created."""
    if result.error_code != errors_pb2.ERROR_CODE_NONE:
        return RegnumError(result.error_code, result.error_message, metadata={"topic": result.name})
    return CreatedTopic(
        name=result.name,
        topic_id=result.topic_id,
        partitions=result.partitions,
        replication_factor=result.replication_factor,
    )


def deleted_from_wire(result: admin_pb2.DeleteTopicResult, *, name: str, topic_id: str) -> DeletedTopic | RegnumError:
    """What became of a topic that was to be deleted by that name and, where it is known, that id."""
    if result.error_code != errors_pb2.ERROR_CODE_NONE:
        return RegnumError(result.error_code, result.error_message, metadata={"topic": name})
    return DeletedTopic(name=name, topic_id=result.topic_id or topic_id)
