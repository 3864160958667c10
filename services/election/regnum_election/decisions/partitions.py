"""States of a partition as the controller sees them, which may follow which, and why one is Offline.

The table is Kafka's (``PartitionStateMachine``). A move that is not in it means that the picture and the store tell
different stories; it is reported and left out, and the valid rest goes on.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from regnum_model.ids import NO_LEADER, BrokerId
from regnum_model.nodes import LeaderAndIsr

from regnum_election.decisions.cluster import Partition
from regnum_election.decisions.leadership import Surroundings


class PartitionState(enum.Enum):
    """Where a partition stands."""

    NON_EXISTENT = "non-existent"
    """Not known, or deleted."""
    NEW = "new"
    """Assigned, and still to get its first leader."""
    ONLINE = "online"
    """Has a leader."""
    OFFLINE = "offline"
    """Has no leader, or its state cannot be read."""


PREVIOUS: Final[Mapping[PartitionState, frozenset[PartitionState]]] = MappingProxyType(
    {
        PartitionState.NEW: frozenset({PartitionState.NON_EXISTENT}),
        PartitionState.ONLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
        PartitionState.OFFLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
        PartitionState.NON_EXISTENT: frozenset({PartitionState.OFFLINE}),
    }
)
"""States from which each state may be entered."""


def state_of(partition: Partition | None) -> PartitionState:
    """The state that the picture of a partition means."""
    if partition is None:
        return PartitionState.NON_EXISTENT
    if partition.trouble is not None:
        return PartitionState.OFFLINE
    if partition.held is None:
        return PartitionState.NEW if partition.creating else PartitionState.OFFLINE
    return PartitionState.OFFLINE if partition.held.state.leader == NO_LEADER else PartitionState.ONLINE


def may_enter(target: PartitionState, source: PartitionState) -> bool:
    """Whether a partition may go from ``source`` to ``target``."""
    return source in PREVIOUS[target]


class OfflineReason(enum.Enum):
    """Why a partition has no leader; of several the one whose end would bring it back first."""

    NOT_CREATED = "not created"
    """It is being created, and none of its brokers is live."""
    MEMBERS_AWAY = "members away"
    """Members that could lead without loss are not live."""
    OTHER_LOG = "other log"
    """Every member is live, and none with the log that is recorded (safety rule S10)."""
    REPLICA_UNUSABLE = "replica unusable"
    """A member is live with the recorded log, and its broker cannot use the replica."""
    STATE_UNUSABLE = "state unusable"
    """Its state is gone or cannot be read (safety rule S14)."""
    ELECTION_UNDER_WAY = "election under way"
    """A member may lead, and the election is under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offline:
    """Why one partition has no leader."""

    reason: OfflineReason
    """The kind."""
    message: str
    """The same for people, with the brokers that matter and what helps."""


def why_offline(partition: Partition, surroundings: Surroundings) -> Offline:
    """Why a partition has no leader that has none.

    Args:
        partition: as the picture has it.
        surroundings: live brokers; of them, who cannot use its replica.
    """
    if partition.trouble is not None:
        return Offline(reason=OfflineReason.STATE_UNUSABLE, message=partition.trouble)
    if partition.held is None:
        return _not_created(partition, surroundings)
    state = partition.held.state
    members = (*state.isr, *state.elr)
    away = [id for id in members if id not in surroundings.brokers]
    other = [id for id in members if id not in away and not _has_recorded_log(id, state, surroundings)]
    unusable = [id for id in members if id not in away and id not in other and id in surroundings.offline]
    if len(away) + len(other) + len(unusable) < len(members):
        return Offline(reason=OfflineReason.ELECTION_UNDER_WAY, message="a member may lead; its election is under way")
    found = "; ".join(
        f"{what}: {', '.join(map(str, sorted(ids)))}"
        for what, ids in (
            ("no live broker", away),
            ("log id differs from the recorded one", other),
            ("live, and cannot use the replica", unusable),
        )
        if ids
    )
    reason, advice = _nearest(away, unusable)
    return Offline(
        reason=reason, message=f"no member of ISR {_ids(state.isr)}{_elr(state)} may lead ({found}); {advice}"
    )


def _nearest(away: Sequence[BrokerId], unusable: Sequence[BrokerId]) -> tuple[OfflineReason, str]:
    if unusable:
        return OfflineReason.REPLICA_UNUSABLE, "mend files or disk there, and start these brokers again"
    if away:
        return OfflineReason.MEMBERS_AWAY, "start the brokers that are away"
    return OfflineReason.OTHER_LOG, "what was recorded is gone; see regnum partitions recover"


def _not_created(partition: Partition, surroundings: Surroundings) -> Offline:
    if any(id in surroundings.brokers for id in partition.replicas):
        return Offline(reason=OfflineReason.ELECTION_UNDER_WAY, message="its first leader is being elected")
    return Offline(
        reason=OfflineReason.NOT_CREATED,
        message=f"it is being created, and none of its brokers {_ids(partition.replicas)} is live; start one",
    )


def _has_recorded_log(id: BrokerId, state: LeaderAndIsr, surroundings: Surroundings) -> bool:
    return state.members[id].log_id in surroundings.brokers[id].log_ids


def _elr(state: LeaderAndIsr) -> str:
    return f" or ELR {_ids(state.elr)}" if state.elr else ""


def _ids(ids: Sequence[BrokerId]) -> str:
    return f"[{', '.join(map(str, ids))}]"
