"""Consumer groups as a client sees them."""

import enum
from dataclasses import dataclass
from typing import NamedTuple

from regnum.broker.v1 import group_pb2


class GroupState(enum.Enum):
    """Where a group is, in Kafka's words.

    >>> [one.group_id for one in admin.list_groups() if one.state is GroupState.DEAD]
    []
    """

    EMPTY = "Empty"
    """No member; offsets may be there."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are asked to join again."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """A generation has begun and waits for its leader's assignment."""
    STABLE = "Stable"
    """Every member has its assignment."""
    DEAD = "Dead"
    """There is no such group."""
    UNKNOWN = "Unknown"
    """A state of a later release."""


STATES = {
    group_pb2.GROUP_STATE_EMPTY: GroupState.EMPTY,
    group_pb2.GROUP_STATE_PREPARING_REBALANCE: GroupState.PREPARING_REBALANCE,
    group_pb2.GROUP_STATE_COMPLETING_REBALANCE: GroupState.COMPLETING_REBALANCE,
    group_pb2.GROUP_STATE_STABLE: GroupState.STABLE,
    group_pb2.GROUP_STATE_DEAD: GroupState.DEAD,
}
"""States by their numbers on the wire."""


class GroupListing(NamedTuple):
    """A group in a list.

    >>> GroupListing("billing", "consumer", GroupState.STABLE, 1).state.value
    'Stable'
    """

    group_id: str
    """Its name."""
    protocol_type: str
    """Kind of its members; empty: it never had any."""
    state: GroupState
    """Where it is."""
    coordinator: int
    """Broker that coordinates it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a group.

    >>> def hosts(group: GroupDescription) -> set[str]:
    ...     return {member.client_host for member in group.members}
    """

    member_id: str
    """Given by the coordinator."""
    instance_id: str
    """Name of a static member; empty: a dynamic one."""
    client_id: str
    """What its client calls itself."""
    client_host: str
    """Where it called from."""
    subscription: bytes
    """What it told its assignor."""
    assignment: bytes
    """What it was assigned; the assignor knows how to read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group.

    >>> def is_idle(group: GroupDescription) -> bool:
    ...     return group.state is GroupState.EMPTY
    """

    group_id: str
    """Its name."""
    state: GroupState
    """Where it is."""
    protocol_type: str
    """Kind of its members; empty: it never had any."""
    protocol: str
    """Assignor of the present generation; empty: there is none."""
    generation: int
    """The present one; 0: there was none."""
    leader: str
    """Member that assigns; empty: there is none."""
    members: tuple[GroupMember, ...]
    """By member id."""
    coordinator: int
    """Broker that coordinates it."""


class CommittedOffset(NamedTuple):
    """The committed offset of a group in one partition.

    >>> admin.list_group_offsets("a group that has committed nothing")
    {}
    """

    offset: int
    """The next record to be processed."""
    leader_epoch: int | None
    """Leader epoch of the last record processed; None: not known."""
    metadata: str
    """The note that was committed with it."""
    committed_ms: int
    """When, milliseconds since 1970."""
