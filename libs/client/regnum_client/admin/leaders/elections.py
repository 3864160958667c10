"""Elections and partitions without a leader, as callers give and get them, and as the wire has them. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_service.errors import RegnumError


class ElectionType(Enum):
    """How a leader is elected.

    >>> results = admin.elect_leaders(ElectionType.PREFERRED, {"orders": [0]})
    """

    PREFERRED = "preferred"
    """The first of the assignment, if it is live and in sync. Nothing is lost."""
    UNCLEAN = "unclean"
    """Where no replica may lead without loss, the best of those that answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionResult:
    """What became of one partition.

    >>> results = admin.elect_leaders(ElectionType.PREFERRED, {"orders": [0]}, validate_only=True)
    >>> lines = [f"{one.topic}/{one.partition}: {one.failure or one.leader}" for one in results]
    """

    topic: str
    """Topic name."""
    partition: int
    """Partition number."""
    failure: RegnumError | None
    """Why there was, or would be, no election: ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ..."""
    leader: int | None
    """Broker that was, or would be, elected."""
    leader_epoch: int | None
    """Its leader epoch; None: it was not elected."""
    may_be_lost: str
    """What an unclean election may lose, in a sentence."""
    unknown: tuple[int, ...]
    """Brokers whose records, as they are recorded, nobody knows."""


class OfflineReason(Enum):
    """Why a partition has no leader.

    >>> [one for one in admin.list_offline_partitions().partitions if one.reason is OfflineReason.OTHER_LOG]
    []
    """

    NOT_CREATED = "not created"
    """It is being created, and none of its brokers is live."""
    MEMBERS_AWAY = "members away"
    """Replicas that could lead without loss are not live."""
    OTHER_LOG = "other log"
    """Every such replica is live, and none with the log that is recorded."""
    REPLICA_UNUSABLE = "replica unusable"
    """One is live with the recorded log, and its broker cannot use it."""
    STATE_UNUSABLE = "state unusable"
    """Its state is gone or cannot be read."""
    ELECTION_UNDER_WAY = "election under way"
    """One may lead, and the election is under way."""
    UNKNOWN = "unknown"
    """A newer controller says something that this client does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflinePartition:
    """A partition without a leader.

    >>> def line(one: OfflinePartition) -> str:
    ...     return f"{one.topic}/{one.partition}: {one.reason.value}, {one.message}"
    """

    topic: str
    """Topic name."""
    partition: int
    """Partition number."""
    reason: OfflineReason
    """Why it has none."""
    message: str
    """The same for people, with the brokers that matter and what helps."""
    replicas: tuple[int, ...]
    """Assigned replicas."""
    isr: tuple[int, ...]
    """In-sync replicas as recorded."""
    elr: tuple[int, ...]
    """Eligible replicas as recorded."""
    unclean_allowed: bool
    """Whether the controller elects another replica by itself (``unclean.leader.election.enable``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflinePartitions:
    """Partitions without a leader.

    >>> admin.list_offline_partitions().total
    0
    """

    partitions: tuple[OfflinePartition, ...]
    """By topic name and number, as many as one answer holds."""
    total: int
    """How many there are in all."""


_TYPES: Final = MappingProxyType(
    {
        ElectionType.PREFERRED: admin_pb2.ELECTION_TYPE_PREFERRED,
        ElectionType.UNCLEAN: admin_pb2.ELECTION_TYPE_UNCLEAN,
    }
)

_REASONS: Final = MappingProxyType(
    {
        admin_pb2.OFFLINE_REASON_NOT_CREATED: OfflineReason.NOT_CREATED,
        admin_pb2.OFFLINE_REASON_MEMBERS_AWAY: OfflineReason.MEMBERS_AWAY,
        admin_pb2.OFFLINE_REASON_OTHER_LOG: OfflineReason.OTHER_LOG,
        admin_pb2.OFFLINE_REASON_REPLICA_UNUSABLE: OfflineReason.REPLICA_UNUSABLE,
        admin_pb2.OFFLINE_REASON_STATE_UNUSABLE: OfflineReason.STATE_UNUSABLE,
        admin_pb2.OFFLINE_REASON_ELECTION_UNDER_WAY: OfflineReason.ELECTION_UNDER_WAY,
    }
)


def election_to_wire(
    type_: ElectionType, topics: Mapping[str, Sequence[int]], *, validate_only: bool
) -> admin_pb2.ElectLeadersRequest:
    """The message, without header and time-out."""
    return admin_pb2.ElectLeadersRequest(
        type=_TYPES[type_],
        topics=[admin_pb2.ElectionTopic(topic=topic, partitions=numbers) for topic, numbers in topics.items()],
        validate_only=validate_only,
    )


def election_from_wire(result: admin_pb2.ElectLeadersResult) -> ElectionResult:
    """What became of one partition."""
    failure = None
    if result.error_code != errors_pb2.ERROR_CODE_NONE:
        what = {"topic": result.topic, "partition": str(result.partition)}
        message = f"{result.topic}/{result.partition}: {result.error_message}"
        failure = RegnumError(result.error_code, message, metadata=what)
    return ElectionResult(
        topic=result.topic,
        partition=result.partition,
        failure=failure,
        leader=result.leader if result.leader >= 0 and failure is None else None,
        leader_epoch=result.leader_epoch if result.leader_epoch >= 0 and failure is None else None,
        may_be_lost=result.may_be_lost,
        unknown=tuple(result.unknown),
    )


def offline_from_wire(one: admin_pb2.OfflinePartition) -> OfflinePartition:
    """A partition without a leader."""
    return OfflinePartition(
        topic=one.topic,
        partition=one.partition,
        reason=_REASONS.get(one.reason, OfflineReason.UNKNOWN),
        message=one.message,
        replicas=tuple(one.replicas),
        isr=tuple(one.isr),
        elr=tuple(one.elr),
        unclean_allowed=one.unclean_allowed,
    )
