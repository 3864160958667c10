"""States of a replica while its topic is being deleted, and which may follow which.

The part of Kafka's ``ReplicaStateMachine`` that deletion needs. A broker that is away does not hold a deletion up: it
is left in the deletion record and learns of it when it returns (safety rule S13).
"""

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final


class ReplicaState(enum.Enum):
    """Where the replicas of a deleted topic on one broker stand."""

    OFFLINE = "offline"
    """The broker is away."""
    DELETION_STARTED = "deletion started"
    """The broker has been told to delete."""
    DELETION_SUCCESSFUL = "deletion successful"
    """The broker confirmed."""
    DELETION_INELIGIBLE = "deletion ineligible"
    """The broker could not delete; it is told again."""
    NON_EXISTENT = "non-existent"
    """Taken out of the deletion record."""


PREVIOUS: Final[Mapping[ReplicaState, frozenset[ReplicaState]]] = MappingProxyType(
    {
        ReplicaState.OFFLINE: frozenset(
            {ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED, ReplicaState.DELETION_INELIGIBLE}
        ),
        ReplicaState.DELETION_STARTED: frozenset(
            {ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED, ReplicaState.DELETION_INELIGIBLE}
        ),
        ReplicaState.DELETION_SUCCESSFUL: frozenset({ReplicaState.DELETION_STARTED}),
        ReplicaState.DELETION_INELIGIBLE: frozenset({ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED}),
        ReplicaState.NON_EXISTENT: frozenset({ReplicaState.DELETION_SUCCESSFUL}),
    }
)
"""States from which each state may be entered."""


def may_enter(target: ReplicaState, source: ReplicaState) -> bool:
    """Whether a replica may go from ``source`` to ``target``."""
    return source in PREVIOUS[target]
