"""States of a partition as the controller sees them, and which may follow which.

The table is Kafka's (``PartitionStateMachine``). A move that is not in it means that the picture and the store tell
different stories; it is reported and left out, and the valid rest goes on.
"""

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from regnum_model.ids import NO_LEADER

from regnum_election.decisions.cluster import Partition


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
