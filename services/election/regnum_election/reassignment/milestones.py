"""What a change of an assignment is in the story of a reassignment, for the event log. Pure.

It follows from what the topic node said of the partition before and says afterwards, so it is the same whoever wrote
it: a caller, a person by hand, or the agent of any reign.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from regnum.types.v1 import events_pb2 as words
from regnum_model.ids import BrokerId, PartitionKey
from regnum_model.reassignment import Reassignment

from regnum_election.decisions.cluster import Partition
from regnum_election.history.events import AssignmentRow, Kind
from regnum_election.reassignment.decisions import Assigned


class Milestone(NamedTuple):
    """A step that people know a reassignment by."""

    kind: Kind
    before: tuple[BrokerId, ...]
    """Replicas that the partition goes away from, the preferred leader first."""
    after: tuple[BrokerId, ...]
    """Replicas that it goes to."""


def milestone(before: Partition, after: Assigned) -> Milestone | None:
    """What a change is; None: nothing that anybody asks for.

    Args:
        before: the partition as it was.
        after: what the topic node says of it now.
    """
    old, new = before.reassignment, after.reassignment
    if new is None:
        return None if old is None else _ended(before, old, after.replicas)
    if old is None or new.target != old.target:
        if old is not None and new.cancelling:
            return Milestone(words.EVENT_KIND_REASSIGNMENT_CANCELLED, old.target, new.target)
        return Milestone(words.EVENT_KIND_REASSIGNMENT_STARTED, new.origin, new.target)
    if after.replicas != before.replicas:
        return Milestone(words.EVENT_KIND_REASSIGNMENT_MOVING, before.replicas, after.replicas)
    return None


def _ended(before: Partition, old: Reassignment, replicas: tuple[BrokerId, ...]) -> Milestone:
    if old.cancelling:
        return Milestone(words.EVENT_KIND_REASSIGNMENT_UNDONE, before.replicas, replicas)
    if replicas == old.target:
        return Milestone(words.EVENT_KIND_REASSIGNMENT_COMPLETED, old.origin, old.target)
    # It had not begun: called back, and over at once.
    return Milestone(words.EVENT_KIND_REASSIGNMENT_CANCELLED, old.target, old.origin)


def by_kind(
    changes: Iterable[tuple[PartitionKey, Partition, Assigned]],
) -> Mapping[Kind, list[AssignmentRow]]:
    """The milestones of changes that were written together, as rows of the event log."""
    rows: dict[Kind, list[AssignmentRow]] = {}
    for key, before, after in changes:
        passed = milestone(before, after)
        if passed is not None:
            rows.setdefault(passed.kind, []).append(AssignmentRow(key, passed.before, passed.after))
    return rows
