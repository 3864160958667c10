"""Partitions that were still in conflict when a change had gone round often enough.

Goals: nobody waits for the next failure, or the next reign, to get a leader that was due; a partition that somebody
else writes without end takes no time from the others.

Algorithm: what is left of a change is kept with its decision, which looks at the picture as it will be then. Every
UNFINISHED_INTERVAL_S, if anything is kept and nothing of the kind waits already, it goes into the queue as one piece
of work in steps, that other cluster events may come between. What conflicts again is kept again.
"""

from collections.abc import AsyncGenerator, Callable
from typing import Final

from regnum_model.ids import PartitionKey

from regnum_election.history.events import Reason
from regnum_election.state.context import ControllerContext, Decide
from regnum_election.state.partition_writes import change
from regnum_election.state.telling import tell
from regnum_election.topics.creation import finish_creation

UNFINISHED_INTERVAL_S: Final = 0.2
"""Pause between two attempts at what is left."""

PARTITIONS_PER_STEP: Final = 500
"""Partitions of one step."""


async def finish_partitions(context: ControllerContext, done: Callable[[], None]) -> AsyncGenerator[None, None]:
    """Steps that decide again about all that was left; ``done`` is called at the end of them."""
    by_decision: dict[tuple[Decide, Reason], list[PartitionKey]] = {}
    for key, kept in context.unfinished.items():
        by_decision.setdefault(kept, []).append(key)
    context.unfinished.clear()
    try:
        for (decide, reason), keys in by_decision.items():
            for start in range(0, len(keys), PARTITIONS_PER_STEP):
                known = [key for key in keys[start : start + PARTITIONS_PER_STEP] if key in context.picture.partitions]
                creating = {key.topic_id for key in known if context.picture.partitions[key].creating}
                applied = await change(context, known, decide, reason)
                await tell(context, applied)
                if creating:
                    await finish_creation(context, creating)
                context.log.info("unfinished partitions", partitions=len(known), left=len(applied.unfinished))
                yield
    finally:
        done()
