"""Offsets that nobody needs any more: of groups that nobody joins, for too long, and of topics that are gone."""

from collections.abc import Iterable
from typing import Final

from regnum_service.slices import Turns

from regnum_broker.groups.decisions.offsets import expired, may_expire
from regnum_broker.groups.decisions.state import GroupState
from regnum_broker.groups.offset_book import Life
from regnum_broker.groups.shard import Shard

SLICE: Final = 20
"""Groups looked at between two turns of the event loop (safety rule S22); one may have thousands of offsets."""

TOPICS_SLICE: Final = 5_000
"""Topics put together between two turns."""


async def expire_offsets(shard: Shard, *, now_ms: int, retention_ms: int) -> None:
    """Forget offsets that are over, and groups of which nothing is left."""
    turns = Turns(SLICE)
    for group_id in tuple(shard.groups):
        await turns.took(1 + len(shard.offsets.of(group_id)))
        group = shard.groups.get(group_id)
        if group is None or group.pending or shard.is_committing(group_id) or shard.log.is_full:
            continue
        present = shard.offsets.of(group_id)
        # (One without offsets is over as soon as it is empty, as in Kafka: its next member begins generation 1 anew.)
        if group.state is not GroupState.EMPTY or (
            present and not may_expire(group, now_ms=now_ms, retention_ms=retention_ms)
        ):
            continue
        places = expired(group, present.items(), now_ms=now_ms, retention_ms=retention_ms)
        if len(places) == len(present):
            # Nobody waits for the answer; the deletion is as good as any.
            shard.delete(group_id)
        elif places:
            shard.forget_offsets(group_id, places)


async def lives_in(shards: Iterable[Shard]) -> list[tuple[Life, int]]:
    """Topics that there are offsets of, each with the newest version of metadata that is known to have it."""
    found: list[tuple[Life, int]] = []
    turns = Turns(TOPICS_SLICE)
    for shard in shards:
        uses = shard.offsets.uses
        for life in tuple(uses):
            if life in uses:
                found.append((life, uses[life].version))
            await turns.took()
    return found


async def forget_topic(shard: Shard, life: Life) -> None:
    """Forget all offsets of a topic that is gone; what is being committed meanwhile is left for the next time."""
    turns = Turns(SLICE * 100)
    use = shard.offsets.uses.get(life)
    for group_id in () if use is None else tuple(use.groups):
        present = shard.offsets.of(group_id)
        await turns.took(1 + len(present))
        places = [
            place
            for place, offset in present.items()
            if Life(place.topic, offset.topic_id) == life and not shard.offsets.is_written(group_id, place)
        ]
        if not shard.log.is_full:
            shard.forget_offsets(group_id, places)
