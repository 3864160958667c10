"""A broker refuses to lead in a leader epoch that its log knows already: evidence that the store went back (trace T9).

No broker refuses a leadership so that the controller has just given it: the epoch would be above all that were. What
the picture and the store agree on, and the log of an assigned replica contradicts, is a state from before. To raise the
epoch further would let the log of then lead over what was acknowledged since, so the partition is Offline until a
person looks at it, and the order is not repeated.

Constraint: the refusal may be about an order that is over. So states are read again, and only what has not changed
counts.
"""

from typing import Final

from regnum_model.ids import PartitionKey

from regnum_election.decisions.cluster import HeldState
from regnum_election.decisions.topic_nodes import CONTRADICTED
from regnum_election.reign.events import LeadershipsFenced
from regnum_election.state.context import ControllerContext
from regnum_election.state.partition_writes import Applied, reread
from regnum_election.state.telling import tell

REASON: Final = (
    f"{CONTRADICTED}: broker {{broker}} refuses to lead in {{epoch}}. The store may have been put back to an earlier"
    " state; see `regnum partitions recover`, or `regnum restore --in-place` for the whole store"
)


async def take_fenced(context: ControllerContext, event: LeadershipsFenced) -> None:
    """Judge refusals: what the store still says is in trouble; what it says anew is told."""
    refused: dict[PartitionKey, HeldState] = {}
    for key in sorted(event.keys):
        partition = context.picture.partitions.get(key)
        if partition is None or partition.held is None or partition.trouble is not None:
            continue
        state = partition.held.state
        life = state.members.get(event.broker)
        if state.leader == event.broker and life is not None and life.broker_epoch == event.epoch:
            refused[key] = partition.held
    if not refused:
        return
    applied = Applied()
    usable = await reread(context, list(refused), applied)
    unchanged = {key for key in usable if context.picture.partitions[key].held == refused[key]}
    if unchanged:
        reasons = {
            key: REASON.format(broker=event.broker, epoch=refused[key].state.leader_epoch) for key in sorted(unchanged)
        }
        context.contradicted.update({key: (refused[key].version, reason) for key, reason in reasons.items()})
        context.trouble(reasons)
        applied.leader_changes.update(unchanged)
    await tell(context, applied)
