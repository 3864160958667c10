"""A broker that wants to stop: what it leads is handed over first, then it leaves what it follows.

One that can wait goes when no partition falls below min.insync.replicas by that. This is asked of all its partitions
before anything is taken from it, so that of two that stop at one moment the second serves on until the first is back;
and of each again when its state is written, because a leader may have made the in-sync set smaller meanwhile. When all
brokers stop at one moment, none of them waits.
"""

from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from regnum.types.v1 import events_pb2
from regnum_model.ids import BrokerId, PartitionKey
from regnum_service.slices import slices

from regnum_election.decisions.cluster import Cluster, Partition
from regnum_election.decisions.in_sync import holds_back
from regnum_election.decisions.leadership import Decision, Refusal, hand_over
from regnum_election.dispatch.outbox import Stop
from regnum_election.history.events import Reason
from regnum_election.state.context import ControllerContext
from regnum_election.state.partition_writes import change
from regnum_election.state.telling import tell
from regnum_election.topics.settling import PARTITIONS_PER_WRITE, is_known, leader_of
from regnum_election.traces.change_trace import ChangeTrace

PARTITIONS_PER_TURN: Final = 500
"""Partitions looked at between two turns of the event loop (safety rule S22)."""

HELD_NAMED: Final = 10
"""Partitions that an answer names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """What a broker that wants to stop is answered."""

    remaining: int
    """Partitions that it still leads, because nobody else may."""
    below: int = 0
    """Partitions that would fall below min.insync.replicas: it does not go yet."""
    held: tuple[tuple[str, int], ...] = ()
    """The first of these: topic and number."""


async def controlled_shutdown(
    context: ControllerContext,
    id: BrokerId,
    trace: ChangeTrace,
    *,
    can_wait: Callable[[], bool],
    check: Callable[[], None],
    done: Callable[[Departure], None],
) -> AsyncGenerator[None, None]:
    """Move leadership away from a live broker, in steps, so that a failure waits for one of them at most.

    Args:
        context: the reign.
        id: the broker.
        trace: of the change that it makes, if it makes one.
        can_wait: whether it stays where a partition would have too few in-sync replicas without it; asked once, after
            the first ``check``.
        check: raises when the broker is no longer the one that asked; called before each step.
        done: takes how it ended.
    """
    check()
    waits = can_wait()
    keys, held_back = await _look(context, id, waits=waits)
    if held_back:
        done(_departure(context, id, keys, held_back))
        return
    # No step of anybody else has come between: whoever asks next finds this broker leaving.
    reason = _begin(context, id)

    def decide(picture: Cluster, key: PartitionKey, partition: Partition) -> Decision:
        if partition.held is None:
            # One that conflicted is decided about again later: it may have been removed and added anew since.
            return Refusal.NOTHING_TO_CHANGE
        if waits and _is_held(context, id, key):
            held_back[key] = None
            return Refusal.BELOW_MIN_INSYNC
        return hand_over(
            partition.held.state,
            partition.replicas,
            context.surroundings_of(key),
            min_insync=picture.min_insync(key, partition),
        )

    try:
        moved = 0
        for led in (True, False):
            chosen = [key for key in keys if (leader_of(context, key) == id) is led]
            for start in range(0, len(chosen), PARTITIONS_PER_WRITE):
                check()
                some = [key for key in chosen[start : start + PARTITIONS_PER_WRITE] if is_known(context, key)]
                # That it leaves what it follows is no change of leadership.
                with context.traced(trace if led else None):
                    applied = await change(context, some, decide, reason)
                    await tell(context, applied)
                moved += len(applied.leader_changes)
                if not led:
                    context.dispatch.order_stops(id, _stops(context, id, some))
                yield
    finally:
        trace.seal()
    check()
    departure = _departure(context, id, keys, held_back)
    context.log.info(
        "controlled shutdown", broker=id, moved=moved, remaining=departure.remaining, below_min_isr=departure.below
    )
    done(departure)


async def _look(
    context: ControllerContext, id: BrokerId, *, waits: bool
) -> tuple[list[PartitionKey], dict[PartitionKey, None]]:
    """Partitions of the broker, and those of them that hold it back."""
    keys: list[PartitionKey] = []
    held_back: dict[PartitionKey, None] = {}
    async for part in slices(tuple(context.picture.of_broker(id)), PARTITIONS_PER_TURN):
        keys.extend(key for key in part if context.picture.partitions[key].held is not None)
        if waits:
            held_back.update(dict.fromkeys(key for key in part if _is_held(context, id, key)))
    return keys, held_back


def _begin(context: ControllerContext, id: BrokerId) -> Reason:
    """The broker is leaving from here on."""
    reason = Reason(events_pb2.EVENT_CAUSE_CONTROLLED_SHUTDOWN, f"broker {id} asked to stop")
    if id not in context.picture.leaving:
        context.picture = context.picture.with_leaving(id)
        epoch = context.picture.brokers[id].epoch
        context.events.broker(events_pb2.EVENT_KIND_BROKER_STOPPING, id, epoch, reason)
    return reason


def _is_held(context: ControllerContext, id: BrokerId, key: PartitionKey) -> bool:
    """Whether a partition, as far as it is known, has too few in-sync replicas without the broker."""
    partition = context.picture.partitions.get(key)
    if partition is None or partition.held is None or partition.trouble is not None:
        return False
    if key in context.unverified:
        # What is known is the predecessor's memory; the store will have been read in a moment.
        return True
    return holds_back(
        partition.held.state,
        partition.replicas,
        id,
        context.surroundings_of(key),
        min_insync=context.picture.min_insync(key, partition),
    )


def _departure(
    context: ControllerContext, id: BrokerId, keys: Iterable[PartitionKey], held_back: dict[PartitionKey, None]
) -> Departure:
    topics = context.picture.topics
    named = ((topics[key.topic_id].name, key.partition) for key in held_back if key.topic_id in topics)
    return Departure(
        remaining=sum(1 for key in keys if leader_of(context, key) == id),
        below=len(held_back),
        held=tuple(islice(named, HELD_NAMED)),
    )


def _stops(context: ControllerContext, id: BrokerId, keys: Iterable[PartitionKey]) -> list[Stop]:
    """Orders for a broker to stop following partitions whose ISR it has left."""
    return [
        Stop(
            topic_id=key.topic_id,
            partition=key.partition,
            topic=context.picture.topics[key.topic_id].name,
            leader_epoch=held.state.leader_epoch,
            delete=False,
        )
        for key in keys
        if (partition := context.picture.partitions.get(key)) is not None
        and (held := partition.held) is not None
        and id not in held.state.isr
    ]
