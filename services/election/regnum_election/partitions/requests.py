"""Whether partitions can be added or removed, and where the replicas of new ones go. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum.types.v1.errors_pb2 import ErrorCode
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_model.topics import INTERNAL_TOPICS

from regnum_election.decisions.cluster import Cluster, Topic
from regnum_election.decisions.placement import Assignment, PlacementError, place_more, refused_by_name
from regnum_election.decisions.rejection import Rejection, node_damaged
from regnum_election.topics.requests import MUTATION_ID_LENGTH_MAX, PARTITIONS_MAX, too_large

ENOUGH_NAMED: Final = 5
"""Partition numbers that a message names."""

MUTATIONS_KEPT: Final = 8
"""Ids of mutations that a topic node keeps, so that a repeat of one of these is answered and not carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionRequest:
    """Partitions that a client wants to add to a topic."""

    name: str
    """Name of the topic."""
    total: int
    """Partitions that it is to have; 0: as the assignment says."""
    assignment: Sequence[tuple[int, Sequence[BrokerId]]]
    """Replicas of each new partition as given; empty means the controller places."""
    mutation: str | None
    """Mutation id (safety rule S20)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalRequest:
    """Partitions that a client wants to remove from a topic."""

    name: str
    """Name of the topic."""
    topic_id: str
    """Its id; empty: whatever topic has the name."""
    partitions: Sequence[int]
    """Their numbers: the highest ones of the topic."""
    mutation: str | None
    """Mutation id (safety rule S20)."""
    accept_damage: bool = False
    """Whether partitions go whose state cannot be read: a person has given them up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """The partitions can be added."""

    topic: Topic
    """Their topic, as it is before."""
    assignment: Assignment
    """Replicas of each new partition."""
    mutation: str | None
    """Mutation id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalPlan:
    """The partitions can be removed."""

    topic: Topic
    """Their topic, as it is before."""
    brokers: Mapping[int, tuple[BrokerId, ...]]
    """Partitions, with the brokers that may have files of them."""
    mutation: str | None
    """Mutation id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The same mutation has been carried out already."""

    topic: Topic
    """The topic as it is."""


def plan_addition(  # noqa: PLR0911 - each refusal has its own line
    request: AdditionRequest,
    picture: Cluster,
    *,
    repeated: Collection[str],
    clearing: Mapping[str, TopicId],
    refused: Collection[str] = (),
) -> Addition | Done | Rejection:
    """Check what is to be added, and place it.

    Args:
        request: what is wanted.
        picture: the cluster.
        repeated: names given more than once in the same call.
        clearing: names of topics that are being deleted.
        refused: names of topics whose nodes are left alone.
    """
    topic = _topic_of(request.name, request.mutation, picture, repeated=repeated, clearing=clearing, refused=refused)
    if not isinstance(topic, Topic):
        return topic
    count = len(topic.partitions)
    if topic.misses_numbers:
        return _reject(
            errors_pb2.ERROR_CODE_INVALID_REQUEST,
            f"the partitions of topic {topic.name} are not 0 to {count - 1}: numbers are missing in its node, and "
            "only a person can say why; put them back first",
        )
    total = request.total or count + len(request.assignment)
    if total <= count:
        return _reject(
            errors_pb2.ERROR_CODE_INVALID_PARTITIONS,
            f"topic {topic.name} has {count} partitions already; give the number that it is to have, above {count}",
        )
    if total > PARTITIONS_MAX:
        return _reject(
            errors_pb2.ERROR_CODE_INVALID_PARTITIONS,
            f"a topic has at most {PARTITIONS_MAX} partitions; {total} were asked for; choose fewer",
        )
    factor = len(picture.partitions[PartitionKey(topic.id, 0)].wanted_replicas)
    if not request.assignment:
        return _placed(request, topic, picture, total - count, factor=factor)
    # The length first: whatever a caller sends, no more than the largest topic is looked at (safety rule S22).
    if len(request.assignment) != total - count or {n for n, _ in request.assignment} != set(range(count, total)):
        return _bad_assignment(f"give each of the new partitions {count} to {total - 1} once, and no other")
    assignment = {number: tuple(replicas) for number, replicas in request.assignment}
    return _bad_replicas(assignment, picture, factor=factor) or _fitting(
        Addition(topic=topic, assignment=assignment, mutation=request.mutation), picture
    )


def _placed(
    request: AdditionRequest, topic: Topic, picture: Cluster, count: int, *, factor: int
) -> Addition | Rejection:
    first = picture.partitions[PartitionKey(topic.id, 0)].wanted_replicas
    try:
        assignment = place_more(picture.usable, first, existing=len(topic.partitions), partitions=count)
    except PlacementError as error:
        return _reject(
            errors_pb2.ERROR_CODE_INVALID_REPLICATION_FACTOR,
            f"topic {topic.name} has {factor} replicas of each partition: {error}{picture.draining_hint}",
        )
    return _fitting(Addition(topic=topic, assignment=assignment, mutation=request.mutation), picture)


def _fitting(addition: Addition, picture: Cluster) -> Addition | Rejection:
    """Refuses what one node of the store cannot hold."""
    topic = addition.topic
    old = (picture.partitions[PartitionKey(topic.id, number)].replicas for number in topic.partitions)
    ids_bytes = sum(len(str(id)) + 1 for replicas in (*old, *addition.assignment.values()) for id in replicas)
    total = len(topic.partitions) + len(addition.assignment)
    # Besides that of its creation the node keeps the ids of the last changes.
    mutation_length = MUTATION_ID_LENGTH_MAX * (1 + MUTATIONS_KEPT)
    return too_large(total, ids_bytes=ids_bytes, mutation_length=mutation_length) or addition


def _bad_replicas(assignment: Assignment, picture: Cluster, *, factor: int) -> Rejection | None:
    for number, replicas in assignment.items():
        if len(replicas) != factor:
            return _bad_assignment(
                f"partition {number} has {len(replicas)} replicas and the other partitions of the topic {factor}; "
                "give as many broker ids"
            )
        reason = refused_by_name(replicas, picture.brokers.keys(), draining=picture.draining)
        if reason is not None:
            return _bad_assignment(f"partition {number}: {reason}")
    return None


def plan_removal(  # noqa: PLR0911 - each refusal has its own line
    request: RemovalRequest,
    picture: Cluster,
    *,
    repeated: Collection[str],
    clearing: Mapping[str, TopicId],
    refused: Collection[str] = (),
) -> RemovalPlan | Done | Rejection:
    """Check what is to be removed. The arguments are those of ``plan_addition``."""
    topic = _topic_of(request.name, request.mutation, picture, repeated=repeated, clearing=clearing, refused=refused)
    if not isinstance(topic, Topic):
        return topic
    if request.topic_id and request.topic_id != topic.id:
        return _reject(
            errors_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID,
            f"topic {topic.name} has id {topic.id} now: it was deleted and created again; nothing was removed",
        )
    numbers = frozenset(request.partitions)
    if not numbers or len(numbers) != len(request.partitions):
        return _reject(errors_pb2.ERROR_CODE_INVALID_REQUEST, "name the partitions to remove, each once")
    if unknown := sorted(numbers.difference(topic.partitions)):
        return _reject(
            errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic.name} has no partitions {unknown[:ENOUGH_NAMED]}; its highest is {topic.partitions[-1]}",
        )
    if len(numbers) == len(topic.partitions):
        return _reject(
            errors_pb2.ERROR_CODE_INVALID_PARTITIONS,
            f"these are all partitions of topic {topic.name}; leave one, or delete the topic",
        )
    highest = topic.partitions[-len(numbers) :]
    if numbers != frozenset(highest):
        missing = sorted(set(highest) - numbers, reverse=True)
        return _reject(
            errors_pb2.ERROR_CODE_INVALID_PARTITIONS,
            f"only the highest partitions of a topic can be removed, or numbers would be missing between the others; "
            f"topic {topic.name} has partitions up to {topic.partitions[-1]}: remove {missing[:ENOUGH_NAMED]} as well, "
            "or first",
        )
    return _removable(topic, sorted(numbers), picture, request)


def _removable(
    topic: Topic, numbers: Sequence[int], picture: Cluster, request: RemovalRequest
) -> RemovalPlan | Rejection:
    brokers: dict[int, tuple[BrokerId, ...]] = {}
    for number in numbers:
        partition = picture.partitions[PartitionKey(topic.id, number)]
        if partition.trouble is not None and not request.accept_damage:
            # Without its state nobody knows the leader epoch that a partition of the same number has to go on from.
            return _reject(
                errors_pb2.ERROR_CODE_INVALID_REQUEST,
                f"partition {number} of topic {topic.name} is damaged ({partition.trouble}) and cannot be removed "
                "before that is mended; to give it up with all its records see `regnum partitions remove-damaged`",
            )
        members = () if partition.held is None else (*partition.held.state.isr, *partition.held.state.elr)
        brokers[number] = tuple(dict.fromkeys((*partition.replicas, *members)))
    return RemovalPlan(topic=topic, brokers=brokers, mutation=request.mutation)


def _topic_of(
    name: str,
    mutation: str | None,
    picture: Cluster,
    *,
    repeated: Collection[str],
    clearing: Mapping[str, TopicId],
    refused: Collection[str],
) -> Topic | Done | Rejection:
    if name in repeated:
        return _reject(errors_pb2.ERROR_CODE_INVALID_REQUEST, f"topic {name} stands twice in the request; give it once")
    if mutation is not None and len(mutation) > MUTATION_ID_LENGTH_MAX:
        return _reject(
            errors_pb2.ERROR_CODE_INVALID_REQUEST,
            f"a mutation id has at most {MUTATION_ID_LENGTH_MAX} characters; choose a shorter one, such as a UUID",
        )
    if name in INTERNAL_TOPICS:
        return _reject(
            errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION,
            f"{name} keeps its number of partitions: it says which broker coordinates which consumer group",
        )
    topic = picture.topic_named(name)
    if topic is None and name in refused:
        return node_damaged(name)
    if topic is None:
        reason = "is being deleted" if name in clearing else "does not exist; list the topics to see the names"
        return _reject(errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} {reason}")
    return Done(topic=topic) if mutation is not None and mutation in topic.partition_mutations else topic


def with_mutation(known: tuple[str, ...], mutation: str | None) -> tuple[str, ...]:
    """The ids that a topic node keeps after another change."""
    return known if mutation is None else (*known, mutation)[-MUTATIONS_KEPT:]


def in_words(numbers: Sequence[int]) -> str:
    """Consecutive partition numbers, ascending and at least one, for people."""
    return f"partition {numbers[0]}" if len(numbers) == 1 else f"partitions {numbers[0]} to {numbers[-1]}"


def _bad_assignment(message: str) -> Rejection:
    return _reject(errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT, message)


def _reject(code: ErrorCode.ValueType, message: str) -> Rejection:
    return Rejection(code=code, message=message)
