"""Whether requested topics can be created, and where their replicas go. Pure."""

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum.types.v1.errors_pb2 import ErrorCode
from regnum_coordination.requests import NODE_BYTES_MAX
from regnum_model.config_changes import own_settings
from regnum_model.ids import BrokerId, TopicId
from regnum_model.topics import INTERNAL_TOPICS, InvalidTopicNameError, check_topic_name

from regnum_election.decisions.cluster import Cluster
from regnum_election.decisions.placement import Assignment, PlacementError, place, refused_by_name
from regnum_election.decisions.rejection import Rejection, node_damaged

PARTITIONS_MAX: Final = 10_000
"""Partitions of one topic at most."""

CLUSTER_DEFAULT: Final = -1
"""Replication factor as old clients write the default, and Kafka does."""

MUTATION_ID_LENGTH_MAX: Final = 64
"""Characters of a mutation id."""

_ESCAPED_BYTES: Final = 12
"""Bytes of a character in a node at most."""

_TOPIC_BYTES: Final = 200
"""Bytes of a topic node besides its partitions and its mutation id, or fewer."""

_PARTITION_BYTES: Final = 7
"""Bytes of a partition in a topic node besides its number, which stands there twice, and its replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRequest:
    """A topic that a client wants."""

    name: str
    """Name as given."""
    partitions: int
    """Number of partitions; 0 with an assignment."""
    replication_factor: int | None
    """Replicas of each; None or CLUSTER_DEFAULT means the cluster's default."""
    assignment: Sequence[tuple[int, Sequence[BrokerId]]]
    """Manual assignment as given; empty means the controller places."""
    mutation: str | None
    """Mutation id (safety rule S20)."""
    configs: Sequence[tuple[str, str]] = ()
    """Settings of its own, as given."""
    internal: bool = False
    """Whether a broker asks, for a topic of its own; a client may not have one of those names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The topic can be created."""

    name: str
    """Its name."""
    assignment: Assignment
    """Its replicas."""
    mutation: str | None
    """Mutation id."""
    configs: Mapping[str, int] = field(default_factory=dict)
    """Settings of its own, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """The same mutation has made the topic already."""

    topic_id: TopicId


def repeated_names(names: Sequence[str]) -> frozenset[str]:
    """Names that a request gives more than once."""
    return frozenset(name for name, count in Counter(names).items() if count > 1)


def plan_topic(
    request: TopicRequest,
    picture: Cluster,
    *,
    repeated: frozenset[str],
    clearing: Mapping[str, TopicId],
    refused: Collection[str] = (),
    chance: random.Random,
) -> Plan | Repeated | Rejection:
    """Check a requested topic and place it.

    Args:
        request: the topic.
        picture: the cluster.
        repeated: names given more than once in the same call.
        clearing: names of topics whose nodes are being deleted.
        refused: names of topics whose nodes are left alone.
        chance: chooses where placement starts.
    """
    settled = _settled_by_name(request, picture, repeated=repeated, clearing=clearing, refused=refused)
    if settled is not None:
        return settled
    if request.assignment:
        return _plan_manual(request, picture)
    room = _room(request, picture)
    if isinstance(room, Rejection):
        return room
    brokers = len(room.usable)
    return _placed(request, room, request.partitions, start=chance.randrange(brokers), shift=chance.randrange(brokers))


def weigh_topic(
    request: TopicRequest,
    picture: Cluster,
    *,
    repeated: frozenset[str],
    clearing: Mapping[str, TopicId],
) -> int | Repeated | Rejection:
    """How many partitions a topic would get. Refuses what ``plan_topic`` refuses, and places nothing."""
    settled = _settled_by_name(request, picture, repeated=repeated, clearing=clearing)
    if settled is not None:
        return settled
    if request.assignment:
        planned = _plan_manual(request, picture)
        return planned if isinstance(planned, Rejection) else len(planned.assignment)
    room = _room(request, picture)
    if isinstance(room, Rejection):
        return room
    # If one partition can be placed, all can.
    first = _placed(request, room, 1, start=0, shift=0)
    return first if isinstance(first, Rejection) else request.partitions


def _settled_by_name(  # noqa: PLR0911 - each refusal has its own line
    request: TopicRequest,
    picture: Cluster,
    *,
    repeated: frozenset[str],
    clearing: Mapping[str, TopicId],
    refused: Collection[str] = (),
) -> Repeated | Rejection | None:
    try:
        check_topic_name(request.name)
    except InvalidTopicNameError as error:
        return _reject(errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION, f"{error}; choose another name")
    if request.name in INTERNAL_TOPICS and not request.internal:
        return _reject(
            errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION,
            f"{request.name} is an internal topic: brokers create it when it is needed; choose another name",
        )
    if request.name in repeated:
        return _reject(
            errors_pb2.ERROR_CODE_INVALID_REQUEST, f"topic {request.name} stands twice in the request; give it once"
        )
    if _is_too_long(request.mutation):
        return _long_mutation()
    existing = picture.topic_named(request.name)
    if existing is not None:
        if request.mutation is not None and existing.mutation == request.mutation:
            return Repeated(topic_id=existing.id)
        return _reject(
            errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS,
            f"topic {request.name} exists with {len(existing.partitions)} partitions; choose another name",
        )
    if request.name in clearing:
        return _reject(
            errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS,
            f"topic {request.name} is being deleted; try again when that has finished",
        )
    if request.name in refused:
        return node_damaged(request.name)
    own = own_settings(request.configs, in_force=picture.settings.cluster)
    return own if isinstance(own, Rejection) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    usable: Mapping[BrokerId, str | None]
    factor: int


def _room(request: TopicRequest, picture: Cluster) -> _Room | Rejection:
    """Where the replicas of a topic may go."""
    if not 1 <= request.partitions <= PARTITIONS_MAX:
        return _reject(
            errors_pb2.ERROR_CODE_INVALID_PARTITIONS,
            f"a topic has 1 to {PARTITIONS_MAX} partitions; {request.partitions} were asked for; choose another number",
        )
    usable, hint = picture.usable, picture.draining_hint
    if not usable:
        return _reject(
            errors_pb2.ERROR_CODE_INVALID_REPLICATION_FACTOR,
            f"no broker is live that could keep a replica; start one, or try again when one is back{hint}",
        )
    factor = request.replication_factor
    if factor is None or factor == CLUSTER_DEFAULT:
        factor = picture.settings.default_replication_factor
        if factor > len(usable):
            return _reject(
                errors_pb2.ERROR_CODE_INVALID_REPLICATION_FACTOR,
                f"the cluster's default replication factor {factor} does not fit {len(usable)} live brokers; start "
                f"more brokers, or choose a factor from 1 to {len(usable)} for this topic{hint}",
            )
    if not 1 <= factor <= len(usable):
        return _reject(
            errors_pb2.ERROR_CODE_INVALID_REPLICATION_FACTOR,
            f"replication factor {factor} does not fit {len(usable)} live brokers; choose 1 to "
            f"{len(usable)}, or start more brokers{hint}",
        )
    widest = max(len(str(id)) for id in usable)
    ids_bytes = request.partitions * factor * (widest + 1)
    refused = too_large(request.partitions, ids_bytes=ids_bytes, mutation_length=len(request.mutation or ""))
    return refused or _Room(usable=usable, factor=factor)


def _placed(request: TopicRequest, room: _Room, partitions: int, *, start: int, shift: int) -> Plan | Rejection:
    try:
        assignment = place(room.usable, partitions=partitions, replication_factor=room.factor, start=start, shift=shift)
    except PlacementError as error:
        return _reject(errors_pb2.ERROR_CODE_INVALID_REPLICATION_FACTOR, str(error))
    return _plan(request, assignment)


def _plan(request: TopicRequest, assignment: Assignment) -> Plan | Rejection:
    own = own_settings(request.configs)
    if isinstance(own, Rejection):
        return own
    return Plan(name=request.name, assignment=assignment, mutation=request.mutation, configs=own)


def _plan_manual(  # noqa: PLR0911 - each refusal has its own line
    request: TopicRequest, picture: Cluster
) -> Plan | Rejection:
    if request.partitions not in {0, -1} or request.replication_factor not in {None, CLUSTER_DEFAULT}:
        return _reject(
            errors_pb2.ERROR_CODE_INVALID_REQUEST,
            "an assignment says how many partitions and replicas there are; leave both numbers out",
        )
    assignment = {number: tuple(replicas) for number, replicas in request.assignment}
    if len(assignment) != len(request.assignment) or set(assignment) != set(range(len(assignment))):
        return _bad_assignment(f"give each of the partitions 0 to {len(request.assignment) - 1} once")
    if len(assignment) > PARTITIONS_MAX:
        return _reject(
            errors_pb2.ERROR_CODE_INVALID_PARTITIONS, f"a topic has at most {PARTITIONS_MAX} partitions; give fewer"
        )
    factors = {len(replicas) for replicas in assignment.values()}
    if 0 in factors:
        return _bad_assignment("every partition needs a replica; give broker ids for each")
    if len(factors) > 1:
        return _bad_assignment("all partitions need the same number of replicas; give as many broker ids for each")
    for number, replicas in assignment.items():
        reason = refused_by_name(replicas, picture.brokers.keys(), draining=picture.draining)
        if reason is not None:
            return _bad_assignment(f"partition {number}: {reason}")
    ids_bytes = sum(len(str(id)) + 1 for replicas in assignment.values() for id in replicas)
    refused = too_large(len(assignment), ids_bytes=ids_bytes, mutation_length=len(request.mutation or ""))
    return refused or _plan(request, assignment)


def too_large(partitions: int, *, ids_bytes: int, mutation_length: int) -> Rejection | None:
    """Refuses what one node of the store cannot hold.

    Args:
        partitions: how many.
        ids_bytes: bytes of all broker ids with what stands between them, or more.
        mutation_length: characters of all mutation ids that stand in the node.
    """
    numbers = 2 * len(str(partitions)) + _PARTITION_BYTES
    size = _TOPIC_BYTES + _ESCAPED_BYTES * mutation_length + partitions * numbers + ids_bytes
    if size <= NODE_BYTES_MAX:
        return None
    return _reject(
        errors_pb2.ERROR_CODE_INVALID_PARTITIONS,
        f"{partitions} partitions with these replicas take up to {size} bytes in the store, which takes "
        f"{NODE_BYTES_MAX} for a topic; choose fewer partitions or fewer replicas",
    )


def _is_too_long(mutation: str | None) -> bool:
    return mutation is not None and len(mutation) > MUTATION_ID_LENGTH_MAX


def _long_mutation() -> Rejection:
    return _reject(
        errors_pb2.ERROR_CODE_INVALID_REQUEST,
        f"a mutation id has at most {MUTATION_ID_LENGTH_MAX} characters; choose a shorter one, such as a UUID",
    )


def _bad_assignment(message: str) -> Rejection:
    return _reject(errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT, message)


def _reject(code: ErrorCode.ValueType, message: str) -> Rejection:
    return Rejection(code=code, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionRequest:
    """A topic that a client wants to be gone. Name, id, or both."""

    name: str
    """Name; empty when only the id is given."""
    topic_id: str
    """Id; empty when only the name is given."""
    mutation: str | None
    """Mutation id (safety rule S20)."""


def find_topic(request: DeletionRequest, picture: Cluster, *, refused: Collection[str] = ()) -> TopicId | Rejection:
    """Which topic a deletion means; an internal one is not deleted, whether it is named or given by its id.

    ``refused``: names of topics whose nodes are left alone.
    """
    found = _find_topic(request, picture, refused)
    topic = None if isinstance(found, Rejection) else picture.topics.get(found)
    if topic is not None and topic.name in INTERNAL_TOPICS:
        return _reject(
            errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION,
            f"{topic.name} is an internal topic, which keeps what consumer groups have committed: it stays; to "
            "forget a group, delete the group",
        )
    return found


def _find_topic(  # noqa: PLR0911 - each refusal has its own line
    request: DeletionRequest, picture: Cluster, refused: Collection[str]
) -> TopicId | Rejection:
    if _is_too_long(request.mutation):
        return _long_mutation()
    if not request.name and not request.topic_id:
        return _reject(errors_pb2.ERROR_CODE_INVALID_REQUEST, "give the topic's name, its id, or both")
    named = picture.names.get(request.name) if request.name else None
    if named is None and request.name in refused:
        return node_damaged(request.name)
    if not request.topic_id:
        if named is None:
            return _reject(
                errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no topic {request.name}; list the topics to see the names",
            )
        return named
    id = TopicId(request.topic_id)
    if request.name and named is not None and named != id:
        return _reject(
            errors_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID,
            f"topic {request.name} has id {named} now: it was deleted and created again; give the new id if that "
            "one is meant",
        )
    topic = picture.topics.get(id)
    if topic is None:
        return _reject(
            errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID,
            f"no topic has id {request.topic_id}; list the topics to see the ids",
        )
    if request.name and topic.name != request.name:
        return _reject(
            errors_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID,
            f"id {request.topic_id} belongs to topic {topic.name}; give the two that belong together, or one of them",
        )
    return id
