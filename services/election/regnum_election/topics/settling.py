"""Fitting partitions to the live brokers, in rounds: decide, write, tell.

Goals: what needs a leader comes first, and the first of it is served before the last of it is found.
"""

from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from contextlib import aclosing
from typing import Final

from regnum_model.ids import NO_LEADER, BrokerId, PartitionKey
from regnum_service.slices import slices

from regnum_election.history.events import SETTLING, Reason
from regnum_election.state.context import ControllerContext
from regnum_election.state.partition_writes import change
from regnum_election.state.telling import tell
from regnum_election.topics.creation import finish_creation

PARTITIONS_PER_WRITE: Final = 500
"""Partitions that are written and told together after a failure."""

FIRST_PARTITIONS_PER_WRITE: Final = 100
"""The same for the first of them; each further part is twice as large, up to PARTITIONS_PER_WRITE. Few partitions are
written, told and taken up sooner than many, and the brokers have something to do while the next are written.
"""

PARTITIONS_PER_STEP: Final = 1_000
"""Partitions of one step of work that is not urgent."""

PARTITIONS_PER_TURN: Final = 2_000
"""Partitions looked at between two turns of the event loop (safety rule S22)."""


async def settle(
    context: ControllerContext,
    keys: Iterable[PartitionKey],
    changed: Collection[BrokerId],
    reason: Reason = SETTLING,
) -> None:
    """Fit partitions to the live brokers: those that need a leader first."""
    urgent, rest = await by_urgency(context, keys, changed)
    await settle_some(context, urgent, reason)
    await settle_some(context, rest, reason)


async def by_urgency(
    context: ControllerContext, keys: Iterable[PartitionKey], changed: Collection[BrokerId]
) -> tuple[list[PartitionKey], list[PartitionKey]]:
    """Partitions that may need a leader or acknowledge nothing until they are settled, and the others.

    Args:
        context: the reign.
        keys: partitions to divide.
        changed: brokers that came, went or bounced.
    """
    urgent: list[PartitionKey] = []
    rest: list[PartitionKey] = []
    async with aclosing(urgent_parts(context, keys, changed, rest)) as parts:
        async for part in parts:
            urgent.extend(part)
    return urgent, rest


async def urgent_parts(
    context: ControllerContext, keys: Iterable[PartitionKey], changed: Collection[BrokerId], rest: list[PartitionKey]
) -> AsyncGenerator[list[PartitionKey], None]:
    """As ``by_urgency``, as soon as enough for a write are found; ``rest`` takes the others and is whole at the end."""
    urgent: list[PartitionKey] = []
    size = FIRST_PARTITIONS_PER_WRITE
    async for some in slices(keys, PARTITIONS_PER_TURN):
        for key in some:
            (urgent if _is_urgent(context, key, changed) else rest).append(key)
        while len(urgent) >= size:
            part, urgent = urgent[:size], urgent[size:]
            size = min(2 * size, PARTITIONS_PER_WRITE)
            yield part
    if urgent:
        yield urgent


def _is_urgent(context: ControllerContext, key: PartitionKey, changed: Collection[BrokerId]) -> bool:
    partition = context.picture.partitions[key]
    if partition.held is None:
        return True
    state = partition.held.state
    return (
        state.leader == NO_LEADER or state.leader in changed or (bool(state.elr) and context.is_held_up(key, partition))
    )


async def settle_in_steps(
    context: ControllerContext, keys: Sequence[PartitionKey], reason: Reason = SETTLING
) -> AsyncGenerator[None, None]:
    """Partitions whose leader stands: in steps, so that the next failure waits for one of them at most."""
    for start in range(0, len(keys), PARTITIONS_PER_STEP):
        some = [key for key in keys[start : start + PARTITIONS_PER_STEP] if is_known(context, key)]
        await settle_some(context, some, reason)
        yield


def is_known(context: ControllerContext, key: PartitionKey) -> bool:
    """Whether a partition is in the picture: it may go between two steps."""
    return key in context.picture.partitions


async def settle_some(context: ControllerContext, keys: Sequence[PartitionKey], reason: Reason = SETTLING) -> None:
    """One round: decide, write, tell, and finish creations that get their first states. ``reason``: see ``change``."""
    if not keys:
        return
    creating = {key.topic_id for key in keys if context.picture.partitions[key].creating}
    applied = await change(context, keys, context.settle, reason)
    await tell(context, applied)
    if creating:
        await finish_creation(context, creating)
    context.log.info(
        "partitions settled",
        partitions=len(keys),
        new_state=len(applied.leader_changes),
        new_isr=len(applied.isr_changes),
        unfinished=len(applied.unfinished),
    )


def leader_of(context: ControllerContext, key: PartitionKey) -> BrokerId:
    """Who leads a partition; NO_LEADER when nobody does, or it is gone."""
    partition = context.picture.partitions.get(key)
    return NO_LEADER if partition is None or partition.held is None else partition.held.state.leader
