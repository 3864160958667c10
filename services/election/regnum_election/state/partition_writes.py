"""How decisions about partitions become states: decide, write, apply, and go round again where somebody else wrote.

Decisions come from pure functions over the picture, are written as one batch of small groups, and only what was written
is applied. Groups that were refused are read again together and decided again together (safety rule S4).
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from regnum.types.v1 import events_pb2
from regnum_coordination.errors import NodeExists
from regnum_coordination.port import Check, Create, Group, Refused, Set, Written
from regnum_model import paths
from regnum_model.ids import NO_LEADER, ControllerEpoch, PartitionKey
from regnum_telemetry import conventions, tracing

from regnum_election.decisions import partitions
from regnum_election.decisions.cluster import HeldState, Partition
from regnum_election.decisions.leadership import Change, ChangeKind, Refusal
from regnum_election.decisions.topic_nodes import FoundNode, judge_state
from regnum_election.history.events import SETTLING, PartitionRow, Reason
from regnum_election.reign.writing import NodeClosed, NotTaken
from regnum_election.state.context import ControllerContext, Decide

DECISIONS_PER_SLICE: Final = 100
"""Decisions between two turns of the event loop (safety rule S22)."""

PARTITIONS_PER_WRITE: Final = 500
"""Partitions that are decided about, written and applied together."""

ROUNDS_MAX: Final = 20
"""Rounds of re-reading after conflicts; what still conflicts then makes way for others first."""

FOUND: Final = Reason(events_pb2.EVENT_CAUSE_LEADER_ISR, "found in the store")
"""Why a state changed that somebody else wrote: leaders write in-sync replicas, and nobody else writes states."""

MADE_ANEW: Final = "leaderAndISR was deleted and made anew by hand; it is taken up in a new leader epoch"
"""A state whose version went back: brokers know later epochs, so it is for ``TopicAdopter.look_again``."""


@dataclass(slots=True)
class Applied:
    """What became of the partitions of one change."""

    leader_changes: set[PartitionKey] = field(default_factory=set)
    """Every live replica is to be told."""
    isr_changes: set[PartitionKey] = field(default_factory=set)
    """The leader alone is to be told: only the ISR changed."""
    settings: set[PartitionKey] = field(default_factory=set)
    """Every live replica is to be told, and nobody else: the state is the same, settings are not."""
    unfinished: set[PartitionKey] = field(default_factory=set)
    """Still in conflict after all rounds."""
    refusals: dict[PartitionKey, Refusal] = field(default_factory=dict)
    """Partitions that keep their state, with the reason."""


async def change(
    context: ControllerContext, keys: Iterable[PartitionKey], decide: Decide, reason: Reason = SETTLING
) -> Applied:
    """Decide about partitions, write, apply to the picture; conflicts go round again together.

    What still conflicts after all rounds is kept, and decided about again soon.

    Args:
        context: the reign.
        keys: partitions.
        decide: the decision about each.
        reason: why they are decided about, for the event log.
    """
    applied = Applied()
    all_keys = list(keys)
    for start in range(0, len(all_keys), PARTITIONS_PER_WRITE):
        if start:
            # What the last write changed has taken its time of this turn.
            await asyncio.sleep(0)
        await _change(context, all_keys[start : start + PARTITIONS_PER_WRITE], decide, reason, applied)
    context.unfinished.update(dict.fromkeys(applied.unfinished, (decide, reason)))
    return applied


async def _change(
    context: ControllerContext, keys: Sequence[PartitionKey], decide: Decide, reason: Reason, applied: Applied
) -> None:
    open_keys = list(keys)
    for _ in range(ROUNDS_MAX):
        began_unix_nano = tracing.now_unix_nano()
        decided, groups = await _decide(context, open_keys, decide, applied)
        if not decided:
            return
        _tell_decided(context, decided, began_unix_nano, partitions=len(open_keys))
        conflicts: list[PartitionKey] = []
        written: dict[PartitionKey, HeldState] = {}
        rows: list[PartitionRow] = []
        known = context.picture.partitions
        for (key, change), outcome in zip(decided, await context.store.write_batch(groups), strict=True):
            match outcome:
                case Written(results=results):
                    stat = results[-1].stat
                    if stat is None:
                        raise AssertionError("a create and a set leave a stat")
                    written[key] = HeldState(state=change.state.kept(), version=stat.version)
                    before = known[key].held
                    rows.append(PartitionRow(key, None if before is None else before.state, change.state, stat.version))
                    _note(context, key, change, applied)
                case Refused(error=NodeClosed()):
                    # What is led goes on; it is decided about again until a person has opened the node.
                    applied.unfinished.add(key)
                case Refused(error=error):
                    if _worth_repeating(context, key, error):
                        conflicts.append(key)
        context.events.partitions(rows, context.picture.topics, reason)
        context.unverified.prove(written)
        context.picture = context.picture.with_states(written)
        context.reached(conventions.WRITTEN_UNIX_NANO, again=True)
        if not conflicts:
            return
        context.log.info("conflicts, deciding again", partitions=len(conflicts))
        open_keys = await reread(context, conflicts, applied)
    applied.unfinished.update(open_keys)


def _tell_decided(
    context: ControllerContext, decided: Sequence[tuple[PartitionKey, Change]], began_unix_nano: int, *, partitions: int
) -> None:
    """For traces; a planned change is one only now, if it begins leader epochs."""
    if context.change is not None:
        led = [key for key, change in decided if change.kind is not ChangeKind.ISR_ONLY]
        held = (context.picture.partitions[key].held for key in led)
        former = (one.state.leader for one in held if one is not None and one.state.leader != NO_LEADER)
        context.decided(former, leaders=bool(led))
    if place := tracing.current():
        attributes = {conventions.PARTITIONS: partitions}
        now_unix_nano = tracing.now_unix_nano()
        tracing.between(conventions.DECISION, began_unix_nano, now_unix_nano, parent=place, attributes=attributes)


async def _decide(
    context: ControllerContext, keys: Sequence[PartitionKey], decide: Decide, applied: Applied
) -> tuple[list[tuple[PartitionKey, Change]], list[Group]]:
    decided: list[tuple[PartitionKey, Change]] = []
    groups: list[Group] = []
    if context.reign.before_deciding is not None:
        await context.reign.before_deciding()
    for start in range(0, len(keys), DECISIONS_PER_SLICE):
        for key in keys[start : start + DECISIONS_PER_SLICE]:
            partition = context.picture.partitions.get(key)
            if partition is None or partition.trouble is not None:
                continue
            if partition.held is None and not partition.creating:
                continue
            decision = decide(context.picture, key, partition)
            if isinstance(decision, Refusal):
                applied.refusals[key] = decision
            elif _is_valid(context, key, partition, decision):
                decided.append((key, decision))
                groups.append(_group(context, key, partition, decision))
        await asyncio.sleep(0)
    return decided, groups


def _is_valid(context: ControllerContext, key: PartitionKey, partition: Partition, change: Change) -> bool:
    source = partitions.state_of(partition)
    target = (
        partitions.PartitionState.OFFLINE if change.kind is ChangeKind.OFFLINE else partitions.PartitionState.ONLINE
    )
    if partitions.may_enter(target, source):
        return True
    context.log.error("transition not allowed, left out", key=key, source=source.value, target=target.value)
    return False


def _group(context: ControllerContext, key: PartitionKey, partition: Partition, change: Change) -> Group:
    name = context.picture.topics[key.topic_id].name
    path = paths.leader_and_isr(name, key.partition)
    # Ties the write to this life of the topic: versions start again when a name is used again (safety rule S2).
    guard = Check(paths.topic_id(key.topic_id))
    data = change.state.encode()
    if partition.held is None and partition.tombstone is not None:
        return (guard, Set(path, data, partition.tombstone.version))
    if partition.held is not None:
        lets_go = partition.held.state.elr and not change.state.elr
        return (guard, *(_registrations(context, change) if lets_go else ()), Set(path, data, partition.held.version))
    if key in context.folders:
        return (guard, Create(path, data))
    return (guard, Create(paths.partition(name, key.partition), b""), Create(path, data))


def _registrations(context: ControllerContext, change: Change) -> Iterator[Check]:
    """That every member of the ISR is as the decision saw it: its records are what remains (trace T7)."""
    for id in change.state.isr:
        yield Check(paths.broker_epoch(id), context.picture.brokers[id].registration)
        yield Check(paths.broker_id(id))


def _note(context: ControllerContext, key: PartitionKey, change: Change, applied: Applied) -> None:
    context.folders.discard(key)
    if change.kind is ChangeKind.ISR_ONLY:
        applied.isr_changes.add(key)
        return
    applied.leader_changes.add(key)
    known = context.picture.partitions.get(key)
    before = known.held.state if known is not None and known.held is not None else None
    context.tally.led(before, change.state)
    if known is not None:
        context.dispatch.written(
            key, before, change.state, began=known.began, surroundings=context.surroundings_of(key)
        )


def _worth_repeating(context: ControllerContext, key: PartitionKey, error: Exception) -> bool:
    path = getattr(error, "path", None)
    if isinstance(error, NotTaken):
        context.trouble({key: f"the store does not take its state: {error}"})
        return False
    topic = context.picture.topics[key.topic_id]
    if isinstance(path, str) and path.startswith((f"{paths.BROKER_IDS}/", f"{paths.BROKER_EPOCHS}/")):
        # A member has gone or come anew: that is an event of its own, and settles what it is in.
        return False
    if path == paths.topic_id(key.topic_id):
        context.trouble({key: f"guard {path} is missing; the topic was removed by hand, or the guard was"})
        return False
    if isinstance(error, NodeExists) and path == paths.partition(topic.name, key.partition):
        context.folders.add(key)
    return True


async def reread(context: ControllerContext, keys: Sequence[PartitionKey], applied: Applied) -> list[PartitionKey]:
    """Read states again and apply them; returns the partitions that a decision may still be about."""
    wanted = {
        paths.leader_and_isr(context.picture.topics[key.topic_id].name, key.partition): key
        for key in keys
        if key.topic_id in context.picture.topics
    }
    found = await context.store.read_many(tuple(wanted))
    states: dict[PartitionKey, HeldState] = {}
    tombstones: dict[PartitionKey, HeldState] = {}
    troubles: dict[PartitionKey, str] = {}
    usable: list[PartitionKey] = []
    rows: list[PartitionRow] = []
    for count, (path, key) in enumerate(wanted.items(), 1):
        if count % DECISIONS_PER_SLICE == 0:
            await asyncio.sleep(0)
        node, known = found.get(path), context.picture.partitions[key]
        seen = None if node is None else FoundNode(data=node.data, version=node.stat.version)
        match judge_state(key.topic_id, seen, creating=known.creating, reign=context.reign.epoch, began=known.began):
            case HeldState() as held if held.state.removed:
                usable.append(key)
                tombstones[key] = held
            case HeldState() as held if known.held is not None and held.version < known.held.version:
                troubles[key] = MADE_ANEW
                applied.leader_changes.add(key)
            case HeldState() as held:
                context.unverified.prove((key,))
                usable.append(key)
                if known.held is None or held.version != known.held.version or held.state != known.held.state:
                    states[key] = held
                    rows.append(found_row(key, known.held, held))
                    applied.leader_changes.add(key)
            case str(reason):
                troubles[key] = reason
                applied.leader_changes.add(key)
            case None:
                usable.append(key)
    context.give_way(max((held.state.controller_epoch for held in states.values()), default=ControllerEpoch(0)))
    context.events.partitions(rows, context.picture.topics, FOUND)
    context.picture = context.picture.with_states(states).with_tombstones(tombstones)
    if troubles:
        context.trouble(troubles)
    return usable


def found_row(key: PartitionKey, before: HeldState | None, after: HeldState) -> PartitionRow:
    """A state that somebody else wrote, for the event log."""
    return PartitionRow(key, None if before is None else before.state, after.state, after.version)
